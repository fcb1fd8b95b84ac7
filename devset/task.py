"""One shared task: what the agent is asked, how the machine is set up, how the result is graded."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

Category = Literal["os", "office", "daily", "professional", "multi_app"]
Channel = Literal["gui", "terminal"]
Split = Literal["train", "dev", "select", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "select", "test")


def _below(files: dict[str, bytes]) -> dict[str, bytes]:
    """`files`, whose names must lead to files below whatever folder they are put into. Raises ValueError."""
    for name in files:
        path = PurePosixPath(name)
        plain = str(path) == name and path.parts and not path.is_absolute() and "\0" not in name
        if not plain or ".." in path.parts or any(len(os.fsencode(part)) > NAME_BYTES for part in path.parts):
            raise ValueError(f"{name!r:.80}: expected a relative path of plain names")
        if over := next((str(above) for above in path.parents if str(above) in files), None):
            raise ValueError(f"{name!r:.80}: expected a folder above it, got {over!r:.80}, which is a file")
    return files


NAME_BYTES = 255  # of one name, which is what file systems take
Files = Annotated[dict[str, bytes], AfterValidator(_below)]  # path → content


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Choice(Strict):
    """One answer of a judge: the word it writes, when that word fits, and what it is worth (0..1)."""

    label: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    description: str
    value: Annotated[float, Field(ge=0, le=1)]


class Criterion(Strict):
    """One line of the rubric. `check.py` answers a `program` criterion with a value in 0..1; of a `judge` criterion's
    `choices`, worst (0) to best (1), a model picks one."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    description: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    required: bool = True
    grader: Literal["program", "judge"] = "program"
    choices: tuple[Choice, ...] = ()

    @model_validator(mode="after")
    def _choices_fit_the_grader(self) -> Criterion:
        values, labels = [c.value for c in self.choices], {c.label for c in self.choices}
        if self.grader == "program" and self.choices:
            raise ValueError(f"criterion {self.id!r}: a program chooses nothing; only grader 'judge' has choices")
        ordered = values == sorted(set(values)) and len(labels) == len(values)
        if self.grader == "judge" and not (ordered and len(values) > 1 and (values[0], values[-1]) == (0, 1)):
            raise ValueError(f"criterion {self.id!r}: a judge needs choices of different labels from 0 up to 1")
        return self

    @model_serializer(mode="wrap")
    def _without_empty_choices(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = serialize(self)
        if not self.choices:  # a criterion without keeps the bytes, and so its task the hash, of before there were any
            del fields["choices"]
        return fields


class Rubric(Strict):
    """Success = every required criterion has value 1; the rubric score is the weighted mean of all of them."""

    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _ids_differ(self) -> Rubric:
        ids = [c.id for c in self.criteria]
        if len(set(ids)) != len(ids):
            raise ValueError(f"criterion ids must differ, got {ids}")
        return self


class TaskLimits(Strict):
    agent_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    setup_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    check_timeout_s: Annotated[float, Field(gt=0)] = 60.0


class OpenApp(Strict):
    """An application that is open when the agent starts; ready when a window whose title contains `window` is drawn."""

    command: str
    window: str


class GuiTarget(Strict):
    """An element of the live screen, found by accessible name (and role), `index`-th of the matches.

    `dx`, `dy` shift the click from its centre, in pixels.
    """

    name: str
    role: str | None = None
    index: int = 0
    dx: int = 0
    dy: int = 0


class GuiStep(Strict):
    """One action of a GUI oracle. `summary` starts a new turn; steps without one join the turn before.

    `wait_window` waits until a window title contains the text, before the action.
    """

    action: str
    summary: str | None = None
    target: GuiTarget | None = None
    to: GuiTarget | None = None
    text: str | None = None
    keys: str | None = None
    clicks: int | None = None
    seconds: float | None = None
    wait_window: str | None = None


class TerminalStep(Strict):
    """One command of a terminal oracle and its one-line summary (`# step: ...` in oracle/terminal.sh)."""

    summary: str
    command: str


class Oracle(Strict):
    """Known ways to do a task. Of one that is not feasible: how to find that out, and the `reason` to give up with."""

    terminal: tuple[TerminalStep, ...] | None = None
    gui: tuple[GuiStep, ...] | None = None
    reason: str = ""

    @property
    def channels(self) -> frozenset[Channel]:
        found: set[Channel] = set()
        if self.terminal is not None:
            found.add("terminal")
        if self.gui is not None:
            found.add("gui")
        return frozenset(found)


class Task(Strict):
    """A task with all its bytes. `exec_files` are put into the agent's home before it starts; `setup` is a shell
    script run as the agent's user before that (and leaves no trace of itself); `hidden_files` exist only while it
    runs, in `$HIDDEN`; `gt_files` and `check` reach the grader only after the agent is dead. `witness` is
    an application that the agent may use, not touch: it runs as another user in a folder of its own with
    `witness_files`, and what it prints is `.witness` in the frozen home.

    `check` is a Python program. It is run with the frozen home as `argv[1]` and the ground truth folder as
    `argv[2]`, may import `devset.checks`, and prints one JSON object: criterion id → {"value": 0..1,
    "explanation": str}. Any other exit is a checker error, never a score. `check_pip` names the packages
    that it needs beside the office libraries; such a check may run what the agent wrote, so its machine is used once.

    `skills` names the families that a composed task is made of; of any other task it is empty, see `skill_ids`.

    `hash` is the sha256 over everything here but `hash` itself and what a split says of the task (`split`,
    `seen_in_training`); see `task_hash`.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    hash: str
    family: str
    split: Split | None = None
    seen_in_training: bool = True
    instruction: Annotated[str, Field(min_length=1)]
    category: Category
    apps: tuple[str, ...]
    channels: frozenset[Channel]
    feasible: bool = True
    rubric: Rubric
    limits: TaskLimits = TaskLimits()
    open: tuple[OpenApp, ...] = ()
    exec_files: Files = {}
    hidden_files: Files = {}
    witness: OpenApp | None = None
    witness_files: Files = {}
    setup: str = ""
    gt_files: Files = {}
    check: str
    check_pip: tuple[str, ...] = ()
    oracle: Oracle = Oracle()
    requires_pip: tuple[str, ...] = ()
    source: str = ""
    skills: tuple[str, ...] = ()

    @property
    def skill_ids(self) -> tuple[str, ...]:
        """The skills that it takes: those that it is composed of, else its family."""
        return self.skills or (self.family,)


def task_hash(task: Task) -> str:
    """The sha256 of a task's content: canonical JSON of every field, file contents by their own sha256, and the checker
    with the modules of `devset.checks` that it runs."""
    fields = task.model_dump(exclude={"hash", "split", "seen_in_training", "channels", *_FILES})
    fields["channels"] = sorted(task.channels)
    fields["checker"] = checker_hash(task.check)
    for name in ("check_pip", "skills", "witness"):  # a task without keeps the hash of before there were such fields
        if not fields[name]:
            del fields[name]
    if not task.oracle.reason:  # likewise
        del fields["oracle"]["reason"]
    for name in _FILES:
        files: dict[str, bytes] = getattr(task, name)
        if files or name != "witness_files":  # likewise
            fields[name] = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def checker_hash(check: str, module: Callable[[str], str] | None = None) -> str:
    """The sha256 of a check program and of the modules of `devset.checks` that it imports, themselves or by way of
    another: a changed library is a changed checker. `module` gives the source of one by its name."""
    source = module or _module
    found, waiting = {"": check}, set(_modules(check))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = source(name)
            waiting |= _modules(found[name])
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


@functools.cache
def _modules(source: str) -> frozenset[str]:
    """The modules of `devset.checks` that a program imports, by file name; importing one runs the package's own."""
    try:
        imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    except SyntaxError:  # it fails as a check, and says so there
        return frozenset()
    named = [f"{node.module}." if isinstance(node, ast.ImportFrom) else "" for node in imports]
    paths = {prefix + alias.name for prefix, node in zip(named, imports, strict=True) for alias in node.names}
    parts = [path.split(".") for path in paths if path.startswith("devset.checks")]
    names = {name for part in parts for name in ("__init__", *part[2:3])}
    return frozenset(name for name in names if (_CHECKS / f"{name}.py").is_file())


@functools.cache
def _module(name: str) -> str:
    return (_CHECKS / f"{name}.py").read_text(encoding="utf-8")


_CHECKS = Path(__file__).parent / "checks"
_FILES = ("exec_files", "hidden_files", "witness_files", "gt_files")
