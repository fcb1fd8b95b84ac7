"""The directory format of a task: field names follow Harbor's task.toml, files lie where the agent may see them or not.

    task.toml  instruction.md  setup.sh  exec/  hidden/  witness/  gt/  check.py  oracle/terminal.sh  oracle/gui.toml
    oracle/reason.md  SOURCE

In `oracle/terminal.sh` each command follows a line `# step: <summary>`; `oracle/reason.md` says why an infeasible task
can't be done. Reading what was written gives the same hash.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import ValidationError

from devset.task import GuiStep, Task, TerminalStep, task_hash

_STEP = "# step: "
_FOLDERS = ("exec", "hidden", "witness", "gt")
_SECTIONS = {"version", "task", "agent", "verifier", "environment", "rubric"}
_TASK_FIELDS = ("family", "seen_in_training", "category", "apps", "channels", "feasible", "requires_pip")


class TaskError(ValueError):
    """A task directory that can't be read; the message names file, field, value and what was expected."""


def write_task_dir(task: Task, path: Path) -> None:
    """Writes the task into `path`, which must not exist yet."""
    path.mkdir(parents=True)
    whole = task.model_dump(mode="json", exclude_none=True, include={"rubric", "open", *_TASK_FIELDS})
    toml: dict[str, Any] = {
        "version": "1.0",
        "task": {"id": task.id} | {name: whole[name] for name in _TASK_FIELDS} | {"channels": sorted(task.channels)},
        "agent": {"timeout_sec": task.limits.agent_timeout_s},
        "verifier": {"timeout_sec": task.limits.check_timeout_s, "pip": list(task.check_pip)},
        "environment": {"build_timeout_sec": task.limits.setup_timeout_s, "open": whole["open"]},
        "rubric": whole["rubric"]["criteria"],
    }
    if task.skills:
        toml["task"]["skills"] = list(task.skills)
    if task.witness is not None:
        toml["environment"]["witness"] = task.witness.model_dump()
    texts = {"task.toml": tomlkit.dumps(toml), "instruction.md": task.instruction, "check.py": task.check}
    texts |= {"setup.sh": task.setup, "SOURCE": task.source}
    texts["oracle/reason.md"] = task.oracle.reason
    if task.oracle.terminal is not None:
        texts["oracle/terminal.sh"] = "".join(f"{_STEP}{s.summary}\n{s.command}\n\n" for s in task.oracle.terminal)
    if task.oracle.gui is not None:
        steps = [step.model_dump(mode="json", exclude_defaults=True) for step in task.oracle.gui]
        texts["oracle/gui.toml"] = tomlkit.dumps({"step": steps})
    files = {name: text.encode() for name, text in texts.items() if text}
    for folder in _FOLDERS:
        contents: dict[str, bytes] = getattr(task, f"{folder}_files")
        files |= {f"{folder}/{name}": data for name, data in contents.items()}
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


def read_task_dir(path: Path) -> Task:
    """Reads a task directory; raises `TaskError` for anything missing, unknown or out of range."""
    toml = _toml(path / "task.toml")
    if unknown := sorted(set(toml) - _SECTIONS):
        raise TaskError(
            f"{path / 'task.toml'}: unknown section {unknown[0]!r}, expected {', '.join(sorted(_SECTIONS))}"
        )
    fields = {
        **_section(path, toml, "task"),
        "hash": "",
        "instruction": _text(path / "instruction.md"),
        "rubric": {"criteria": toml.get("rubric", [])},
        "limits": {
            "agent_timeout_s": _section(path, toml, "agent").get("timeout_sec", 300.0),
            "check_timeout_s": _section(path, toml, "verifier").get("timeout_sec", 60.0),
            "setup_timeout_s": _section(path, toml, "environment").get("build_timeout_sec", 60.0),
        },
        "open": _section(path, toml, "environment").get("open", []),
        "witness": _section(path, toml, "environment").get("witness"),
        **{f"{folder}_files": _folder(path / folder) for folder in _FOLDERS},
        "setup": _text(path / "setup.sh", optional=True),
        "check": _text(path / "check.py"),
        "check_pip": _section(path, toml, "verifier").get("pip", []),
        "source": _text(path / "SOURCE", optional=True),
        "oracle": {
            "terminal": _terminal(path / "oracle/terminal.sh"),
            "gui": _gui(path / "oracle/gui.toml"),
            "reason": _text(path / "oracle/reason.md", optional=True),
        },
    }
    try:
        task = Task.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise TaskError(f"{path / 'task.toml'}: {field}: got {first['input']!r:.80}: {first['msg']}") from error
    if task.id != path.name:
        raise TaskError(f"{path / 'task.toml'}: id: got {task.id!r}, expected the folder's name {path.name!r}")
    return task.model_copy(update={"hash": task_hash(task)})


def _toml(path: Path) -> dict[str, Any]:  # parsed TOML: checked field by field by the models
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{path}: expected TOML: {error}") from error


def _section(path: Path, toml: dict[str, Any], name: str) -> dict[str, Any]:
    section = toml.get(name, {})
    if not isinstance(section, dict):
        raise TaskError(f"{path / 'task.toml'}: {name}: got {section!r:.80}, expected a table [{name}]")
    return section


def _text(path: Path, *, optional: bool = False) -> str:
    if not path.is_file():
        if optional:
            return ""
        raise TaskError(f"{path}: missing, expected a UTF-8 text file")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: expected UTF-8 text: {error.reason} at byte {error.start}") from error


def _folder(path: Path) -> dict[str, bytes]:
    found = sorted(p for p in path.rglob("*") if not p.is_dir()) if path.is_dir() else []
    if links := [p for p in found if p.is_symlink() or not p.is_file()]:
        raise TaskError(f"{links[0]}: expected a regular file")
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in found}


def _terminal(path: Path) -> tuple[TerminalStep, ...] | None:
    if not path.exists():
        return None
    head, *blocks = ("\n" + _text(path)).split("\n" + _STEP)
    if head.strip() or not blocks:
        raise TaskError(f"{path}: expected every command to follow a line '{_STEP}<summary>'")
    pairs = [block.partition("\n") for block in blocks]
    return tuple(TerminalStep(summary=summary, command=command.strip("\n")) for summary, _, command in pairs)


def _gui(path: Path) -> tuple[GuiStep, ...] | None:
    if not path.exists():
        return None
    try:
        return tuple(GuiStep.model_validate(step) for step in _toml(path).get("step", []))
    except ValidationError as error:
        first = error.errors()[0]
        raise TaskError(
            f"{path}: {'.'.join(map(str, first['loc']))}: got {first['input']!r:.80}: {first['msg']}"
        ) from error
