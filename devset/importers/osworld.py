"""Imports OSWorld task JSON (also DeskCraft's, with `upload_file`): set-up, getters and metrics of desktop-env 1.0.2.

What a task looks at has to be in the frozen home. Getters that ask a live machine (browser tabs, accessibility tree,
settings of another desktop) are refused; commands run on a copy of the home when the agent is dead. Metrics are taken
as published, with their source, into the task's ground truth.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from devset.checks.osworld import CONFIG, CRITERION
from devset.importers.commands import unfit
from devset.importers.metrics import PIP, Metrics
from devset.importers.offer import (
    HOME,
    ImportFailed,
    Loose,
    Offer,
    Provenance,
    Refusals,
    about,
    identifier,
    leads_out,
    licence_near,
    made,
    own,
    parsed,
)
from devset.importers.steps import Machine, Step, home_file, last_part, post_config, set_up
from devset.task import Category, Channel, Criterion, Rubric, Task, TaskLimits

SOURCE = "osworld"
CACHE = "/tmp/osworld"
CHECK = "from devset.checks.osworld import main\n\nmain()\n"
INFEASIBLE = "infeasible"
FLAGS = "check_os_"  # DeskCraft's metrics of printed flags, which desktop-env lacks
# What these read besides the flags that they always want.
UNREAD = {"check_os_php_line_count": {"expected_total"}, "check_os_terminal_size": {"rows", "cols"}}
FILES = ("vm_file", "list_directory")
COMMANDS = ("vm_command_line", "vm_command_error")
# Every getter that desktop-env 1.0.2 knows and that has no counterpart here, with the reason to give.
LIVE = {
    "rule_relativeTime": "depends on today's date and on where the machine is",
    "time_diff_range": "depends on today's date",
    "content_from_vm_file": "a getter we lack: content_from_vm_file",
    "background_image_in_slide": "a getter we lack: background_image_in_slide",
    "audio_in_slide": "a getter we lack: audio_in_slide",
    "vm_terminal_output": "needs a live machine: the terminal's window",
    "accessibility_tree": "needs a live machine: the accessibility tree",
    "vm_screen_size": "needs a live machine: the screen",
    "vm_window_size": "needs a live machine: the screen",
    "vm_wallpaper": "needs another desktop: the wallpaper",
    "gimp_config_file": "needs the app gimp",
    "vlc_config": "needs the app vlc",
    "vlc_playing_info": "needs the app vlc",
    "default_video_player": "needs the app vlc",
    "vscode_config": "needs the app code",
    "replay": "its evaluation drives the screen",
    "conference_city_in_order": "needs the network",
}
APPS = {
    "calc": "libreoffice_calc",
    "writer": "libreoffice_writer",
    "impress": "libreoffice_impress",
    "os": "terminal",
    "terminal": "terminal",
}
SAVE = "Save your work where you found it: only what is on disk when you end is graded."


class Evaluator(Loose):
    func: str | list[str]
    conj: str = "and"
    result: JsonValue = None
    expected: JsonValue = None
    options: JsonValue = None
    postconfig: tuple[Step, ...] = ()
    file: JsonValue = None


class Published(Loose):
    id: str = Field(min_length=1)
    instruction: str = ""
    interactive: bool = False
    phases: tuple[JsonValue, ...] = ()
    config: tuple[Step, ...] = ()
    related_apps: tuple[str, ...] = ()
    evaluator: Evaluator


@dataclass
class _Reading:
    path: Path
    root: Path
    published: Published
    metrics: Metrics
    refusals: Refusals = field(default_factory=Refusals)
    machine: Machine = field(default_factory=Machine)
    gt: dict[str, bytes] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    def find(self, name: str) -> Path | None:
        """The file that a task names by a path below one of its own parents, or just by its name below the root."""
        for parent in [p for p in self.path.parents if p.is_relative_to(self.root)]:
            if (parent / name).is_file() and not leads_out(parent / name, self.root):
                return parent / name
        named = self.root.rglob(escape(Path(name).name))
        found = sorted(p for p in named if p.is_file() and not leads_out(p, self.root))
        found = [p for p in found if self.published.id in p.parts] or found  # caches have a folder for each task
        return found[0] if len(found) == 1 else None


def offers(path: Path, metrics: Path) -> Iterator[Offer]:
    """One offer per task JSON below `path`; `metrics` holds desktop-env's metric modules (evaluators/metrics)."""
    root, published = path if path.is_dir() else path.parent, Metrics(metrics)
    found = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    tasks = [one for one in found if _is_task(one)]
    if not tasks:
        raise ImportFailed(f"{path}: no JSON file with an `evaluator` below it, expected OSWorld tasks")
    for one in tasks:
        name = one.relative_to(root).as_posix()
        try:
            with about(one):
                offer = _offer(_Reading(one, root, parsed(Published, own(one, root)), published), name)
        except ImportFailed as error:
            offer = Offer(identifier(SOURCE, *Path(name).with_suffix("").parts), name, reasons=(f"malformed: {error}",))
        yield offer


def _is_task(path: Path) -> bool:
    """Lists of tasks and other data lie beside them; a file that is broken counts, so that it is told of."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, OSError):
        return True
    return isinstance(value, dict) and "evaluator" in value


def _offer(reading: _Reading, name: str) -> Offer:
    published, machine, refusals = reading.published, reading.machine, reading.refusals
    task_id = identifier(SOURCE, _label(name, published.id))
    if published.interactive or published.phases:
        return Offer(task_id, name, reasons=("needs a user who answers",))
    if not published.instruction.strip():
        raise ImportFailed(f"{reading.path}: instruction: got none, expected what the agent is asked")
    if published.evaluator.file:
        refusals.add(f"brings its own evaluator: {published.evaluator.file}")
    apps = _apps(reading)
    set_up(published.config, machine, refusals, reading.find)
    post_config(published.evaluator.postconfig, machine, refusals)
    feasible = published.evaluator.func != INFEASIBLE
    spec = _evaluation(reading) if feasible else _untouched(machine)
    if refusals.reasons:
        return Offer(task_id, name, reasons=tuple(refusals.reasons))
    changes = ["the screen is not clicked before the start, the evaluation runs on a copy of the home"]
    changes += ["the agent saves itself, and is told so"] if machine.saves else []
    source = Provenance(
        f"OSWorld task {name}",
        licence_near(reading.path),
        {"task.json": reading.path.read_bytes(), **machine.originals},
        tuple(changes),
    )
    channels: frozenset[Channel] = frozenset({"terminal"} if machine.terminal else {"gui", "terminal"})
    task = Task(
        id=task_id,
        hash="",
        family=SOURCE,
        instruction=published.instruction.strip() + (f"\n\n{SAVE}" if machine.saves else "") + "\n",
        category=_category(apps),
        apps=apps,
        channels=channels if feasible else frozenset(),
        feasible=feasible,
        rubric=Rubric(criteria=(Criterion(id=CRITERION, description=_words(published.evaluator)),)),
        limits=TaskLimits(agent_timeout_s=900.0, check_timeout_s=180.0, setup_timeout_s=120.0),
        open=tuple(machine.open),
        exec_files=machine.exec_files,
        hidden_files=machine.hidden_files,
        setup="set -e\n" + "\n".join(machine.commands) + "\n" if machine.commands else "",
        gt_files={CONFIG: json.dumps(spec, indent=1, ensure_ascii=False).encode(), **reading.gt},
        check=CHECK,
        check_pip=PIP if feasible else (),
        source=source.text(),
    )
    return Offer(task_id, name, made(task))


def _label(name: str, published: str) -> str:
    """What the collection calls a task: the part of its path that holds the id (`L1_os_ID` where DeskCraft has taken
    over the id of a task of OSWorld)."""
    parts = Path(name).with_suffix("").parts
    return next((part for part in reversed(parts) if published in part), published)


def _apps(reading: _Reading) -> tuple[str, ...]:
    """Our names of the task's apps; one that our machine lacks is refused."""
    found = []
    for app in reading.published.related_apps or ("os",):
        plain = app.lower().replace(" ", "_").removeprefix("libreoffice_")
        if plain not in APPS and plain != "libreoffice":
            reading.refusals.add(f"needs the app {app}")
        found.append(APPS.get(plain, plain))
    return tuple(dict.fromkeys(found))


def _category(apps: tuple[str, ...]) -> Category:
    if len(apps) > 1:
        return "multi_app"
    return "office" if apps and apps[0].startswith("libreoffice") else "os"


def _words(evaluator: Evaluator) -> str:
    names = evaluator.func if isinstance(evaluator.func, list) else [evaluator.func]
    return f" {evaluator.conj} ".join(names)


def _untouched(machine: Machine) -> dict[str, Any]:
    """What shows that an infeasible task was left alone: its files, and no other where nothing else was set up."""
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in machine.exec_files.items()}
    return {"untouched": digests, "closed": not machine.commands}


def _evaluation(reading: _Reading) -> dict[str, Any]:
    """The evaluator as the check reads it: lists of equal length, every metric with its module."""
    evaluator, at = reading.published.evaluator, f"{reading.path}: evaluator"
    several = isinstance(evaluator.func, list)
    names = evaluator.func if isinstance(evaluator.func, list) else [evaluator.func]
    if evaluator.conj not in ("and", "or"):
        raise ImportFailed(f"{at}.conj: got {evaluator.conj!r}, expected 'and' or 'or'")
    lists: dict[str, list[Any]] = {}
    for what in ("result", "expected", "options"):
        value = getattr(evaluator, what)
        shared = not (several and isinstance(value, list) and value)  # by all metrics
        lists[what] = [value or None] * len(names) if shared else [entry or None for entry in value]
        if len(lists[what]) != len(names):
            raise ImportFailed(f"{at}.{what}: got {len(lists[what])}, expected one for each of {len(names)} metrics")
        for entry in lists[what]:
            if entry is not None and not isinstance(entry, dict):
                raise ImportFailed(f"{at}.{what}: got {entry!r:.120}, expected an object")
    metrics = [_metric(name, reading) for name in names]
    for number, name in enumerate(names):
        if name.startswith(FLAGS):
            expected = lists["expected"][number] or {"type": "rule", "rules": {}}
            lists["expected"][number] = _flags(name, expected, lists["options"][number], reading)
    for what in ("result", "expected"):
        for number, getter in enumerate(lists[what]):
            if getter is None and what == "result":
                raise ImportFailed(f"{at}.result: got null for metric {names[number]}, expected a getter")
            if getter is not None:
                lists[what][number] = _getter(getter, f"{at}.{what}", reading)
    return {
        **lists,
        "func": metrics,
        "conj": evaluator.conj,
        "post": reading.machine.post,
        "absent": sorted(reading.absent),
        "home": HOME,
        "cache": CACHE,
    }


def _metric(name: str, reading: _Reading) -> dict[str, str]:
    if name.startswith(FLAGS):
        return {"name": name, "module": ""}
    if name not in reading.metrics.exported:
        reading.refusals.add(f"an evaluator we lack: {name}")
        return {"name": name, "module": ""}
    needs = reading.metrics.needs(name)
    if needs.lacking:
        reading.refusals.add(f"an evaluator we lack: {name} needs {', '.join(sorted(needs.lacking))}")
    reading.gt |= needs.files
    reading.absent |= needs.absent
    return {"name": name, "module": needs.module}


def _flags(name: str, expected: Mapping[str, Any], options: object, reading: _Reading) -> Mapping[str, Any]:
    """The rule as `devset.checks.osworld.flags` takes it, which knows `checks`, single flags, or `expected`. What it
    would not heed is refused."""
    rules = expected.get("rules")
    if expected.get("type") != "rule" or not isinstance(rules, dict) or options:
        reading.refusals.add(f"an evaluator we lack: {name} with more than a rule")
        return expected
    if rules.keys() == {"expected"} and isinstance(rules["expected"], str):
        return expected
    checks: dict[str, object] = {}
    for key, value in rules.items():
        asked = {} if key in UNREAD.get(name, ()) else _asked(key, value)
        checks |= {key: None} if asked is None else asked
    for key, value in checks.items():
        if not isinstance(value, str):
            reading.refusals.add(f"an evaluator we lack: {name} with the rule {key}")
    return {"type": "rule", "rules": {"checks": checks} if checks else {}}


def _asked(key: str, value: object) -> dict[str, object] | None:
    """Which value each flag must have for one entry of a rule; None for an entry that we do not know."""
    if key in ("checks", "extra_checks", "permissions"):
        start = "perm_" if key == "permissions" else ""
        return {f"{start}{flag}": wanted for flag, wanted in value.items()} if isinstance(value, dict) else None
    if key in ("present", "absent"):
        return {f"{key}_{file}": "true" for file in value} if isinstance(value, list) else None
    return {key: value} if value in ("true", "false") else None


def _getter(getter: Mapping[str, Any], at: str, reading: _Reading) -> Mapping[str, Any]:
    """Checks one getter, and brings the reference files that it names; what can't be read is refused. Returns the
    getter as the check takes it: a `cloud_file` is a reference file."""
    kind, refuse = getter.get("type"), reading.refusals.add
    if kind == "rule":
        if not isinstance(getter.get("rules"), dict):
            raise ImportFailed(f"{at}.rules: got {getter.get('rules')!r:.120}, expected an object")
    elif kind == "cache_file":
        paths = getter.get("path")
        for path in paths if isinstance(paths, list) else [paths]:
            _reference(path, at, reading)
    elif kind == "cloud_file":
        return _cloud_file(getter, at, reading)
    elif kind in FILES:
        paths = getter.get("path")
        for path in paths if isinstance(paths, list) else [paths]:
            if home_file(path) is None:
                refuse(f"its evaluation reads what is not frozen: {path}")
        if getter.get("time_suffix"):
            refuse("depends on today's date")
    elif kind in COMMANDS:
        command = getter.get("command")
        if not command or not isinstance(command, str | list):
            raise ImportFailed(f"{at}.command: got {command!r:.120}, expected a command")
        if reason := unfit(command, bool(getter.get("shell"))):
            refuse(f"its evaluation {reason}")
    elif isinstance(kind, str):
        refuse(LIVE.get(kind, f"needs a live machine: the getter {kind}"))
    else:
        raise ImportFailed(f"{at}.type: got {kind!r}, expected the name of a getter")
    return getter


def _cloud_file(getter: Mapping[str, Any], at: str, reading: _Reading) -> Mapping[str, Any]:
    """A downloaded reference file, served from the copy that OSWorld's cache has left, if any."""
    several = bool(getter.get("multi"))
    urls, names = ([getter.get(k)] if not several else getter.get(k) for k in ("path", "dest"))
    if not isinstance(urls, list) or not isinstance(names, list) or len(urls) != len(names):
        raise ImportFailed(f"{at}: got path {urls!r:.80} and dest {names!r:.80}, expected one name for each address")
    for url, name in zip(urls, names, strict=True):
        if not isinstance(url, str) or not isinstance(name, str) or not name or "/" in name:
            raise ImportFailed(f"{at}.dest: got {name!r}, expected a file name")
        found = reading.find(name) or reading.find(last_part(url))
        if found is None:
            reading.refusals.add(f"needs the network: it downloads {last_part(url)}")
        else:
            reading.machine.originals[url] = reading.gt[f"cache/{name}"] = found.read_bytes()
    given = [names[number] for number in sorted(set(getter.get("gives", [0]))) if number < len(names)]
    return {"type": "cache_file", "path": given[0] if len(given) == 1 else given}


def _reference(path: object, at: str, reading: _Reading) -> None:
    if not isinstance(path, str) or not path or path.startswith("/") or ".." in path:
        raise ImportFailed(f"{at}.path: got {path!r}, expected the name of a reference file")
    if any(step.get("stdout") == path for step in reading.machine.post):
        return
    found = reading.find(path)
    if found is None:
        reading.refusals.add(f"a reference file is missing: {path}")
        return
    reading.machine.originals[path] = reading.gt[f"cache/{path}"] = found.read_bytes()
