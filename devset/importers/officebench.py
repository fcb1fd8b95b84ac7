"""Imports OfficeBench (zlwang-cs/OfficeBench): `tasks/<id>/subtasks/<k>.json` beside `testbed/` and `reference/`.

The testbed becomes the agent's home (`/testbed/data` is `/home/user/data`), each item of `evaluation` a criterion
that `devset.checks.officebench` decides. The original's agent answers questions through its `finish_task` action,
which writes `data/answer.txt`; here the instruction asks for that file.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from devset.checks.officebench import ARGUMENTS, TEXT_TYPES, comparison
from devset.importers.offer import (
    HOME,
    ImportFailed,
    Loose,
    Offer,
    Provenance,
    Refusals,
    about,
    folder_of,
    identifier,
    licence_near,
    made,
    own,
    parsed,
)
from devset.task import Category, Criterion, Rubric, Task

SOURCE = "officebench"
PDF_READER = "pypdf==5.9.0"
CHECK = "from devset.checks.officebench import main\n\nmain()\n"
ANSWER = "data/answer.txt"
RUN = "outputs/k/run/testbed/"  # where the original grades, below the task's folder
SETUP = "mkdir -p data\n"
CALENDAR = re.compile(r"calendar/[^/]+\.ics")
DOC_TYPES = {
    "evaluate_contain": (*TEXT_TYPES, "email"),
    "evaluate_not_contain": (*TEXT_TYPES, "email"),
    "evaluate_diff_contain_text": TEXT_TYPES,
    "evaluate_exact_match": TEXT_TYPES,
}
APPS = {
    ".xlsx": "libreoffice_calc",
    ".xls": "libreoffice_calc",
    ".csv": "libreoffice_calc",
    ".docx": "libreoffice_writer",
    ".doc": "libreoffice_writer",
    ".pptx": "libreoffice_impress",
}
TEXT = """Today is {date} ({weekday}). The current time is {time}. You are an AI assistant for user {username}.
The files for your task are in {home}/data.{more}
If the task is a question, write your answer into {home}/{answer}.

Task: {task}
"""
# What the apps of the original do when the agent asks them to.
SENDING = (
    " A mail is sent by writing it, with the headers From, To (<user>@example.com) and Subject, to "
    f"{HOME}/emails/<recipient>/<subject>.eml, and a copy to {HOME}/emails/<sender>/<subject>.eml."
)
PLANNING = (
    " An event is a VEVENT with SUMMARY, DTSTART and DTEND, in local time without a zone (20200501T093000); "
    "a calendar that is not there yet is made with it."
)


class Item(Loose):
    """One evaluation. Some published ones name their file beside `args` instead of in it."""

    function: str
    args: dict[str, JsonValue]
    file: str | None = None


class Subtask(Loose):
    username: str
    date: str
    weekday: str
    time: str
    task: str
    evaluation: tuple[Item, ...]


@dataclass
class _Reading:
    """One subtask while it is read: what the checks get, what was mended, and what speaks against it."""

    path: Path
    testbed: Mapping[str, bytes]
    references: Mapping[str, bytes]
    refusals: Refusals = field(default_factory=Refusals)
    gt: dict[str, bytes] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


def offers(path: Path) -> Iterator[Offer]:
    """One offer per subtask of every task below `path` (a checkout, its `tasks/`, or one task)."""
    found = sorted(path.rglob("subtasks/*.json"), key=lambda p: (_natural(p.parents[1].name), _natural(p.stem)))
    if not found:
        raise ImportFailed(f"{path}: no <task>/subtasks/<number>.json below it, expected a copy of OfficeBench's tasks")
    for one in found:
        folder = one.parents[1]
        name = f"{folder.name}/subtasks/{one.name}"
        try:
            with about(one):
                offer = _offer(one, folder, path, name)
        except ImportFailed as error:
            offer = Offer(identifier(SOURCE, folder.name, one.stem), name, reasons=(f"malformed: {error}",))
        yield offer


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in text.split("-"))


def _offer(path: Path, folder: Path, root: Path, origin: str) -> Offer:
    subtask = parsed(Subtask, own(path, root))
    if not subtask.evaluation:
        raise ImportFailed(f"{path}: evaluation: got [], expected at least one function")
    reading = _Reading(path, folder_of(folder / "testbed", root), folder_of(folder / "reference", root))
    evaluation = {f"check_{n}": _item(item, n, reading) for n, item in enumerate(subtask.evaluation, start=1)}
    _lint_names(subtask.task, evaluation, reading)
    task_id = identifier(SOURCE, folder.name, path.stem)
    if reading.refusals.reasons:
        return Offer(task_id, origin, reasons=tuple(reading.refusals.reasons))
    original = {"subtask.json": path.read_bytes(), **{f"testbed/{n}": d for n, d in reading.testbed.items()}}
    original |= {f"reference/{name}": data for name, data in reading.references.items()}
    source = Provenance(
        f"OfficeBench (github.com/zlwang-cs/OfficeBench), tasks/{origin}",
        licence_near(path),
        original,
        ("the testbed is the home", *reading.changes),
    )
    gt = {"evaluation.json": json.dumps(evaluation, indent=1, ensure_ascii=False).encode(), **reading.gt}
    task = Task(
        id=task_id,
        hash="",
        family=SOURCE,
        instruction=_instruction(subtask, reading, evaluation),
        category=_category(folder.name),
        apps=_apps(reading),
        channels=frozenset({"gui", "terminal"}),
        rubric=Rubric(criteria=tuple(Criterion(id=n, description=_words(*c)) for n, c in evaluation.items())),
        exec_files=dict(reading.testbed),
        setup=SETUP,
        gt_files=gt,
        check=CHECK,
        check_pip=(PDF_READER,) if any(args.get("doc_type") == "pdf" for _, args in evaluation.values()) else (),
        source=source.text(),
    )
    return Offer(task_id, origin, made(task))


def _item(item: Item, number: int, reading: _Reading) -> tuple[str, dict[str, Any]]:
    """(function, arguments) of one evaluation as the check takes them; what it lacks goes to the refusals."""
    at = f"{reading.path}: evaluation.{number - 1}"
    if item.function not in ARGUMENTS:
        reading.refusals.add(f"an evaluator we lack: {item.function}")
        return item.function, {}
    args: dict[str, Any] = dict(item.args)
    if "file" not in args and item.file is not None and item.function != "evaluate_diff_contain_text":
        args["file"] = item.file
        reading.changes.append(f"evaluation {number}: `file` was beside `args`, where the original never finds it")
    needed = [name for name in ARGUMENTS[item.function] if name not in args]
    if item.function in ("evaluate_contain", "evaluate_not_contain"):
        missing = "username" if args.get("doc_type") == "email" else "file"
        needed += [missing] if missing not in args else []
    if needed:
        raise ImportFailed(f"{at}.args: got {sorted(item.args)}, expected {needed[0]!r} for {item.function}")
    kinds = DOC_TYPES.get(item.function)
    if kinds and args["doc_type"] not in kinds:
        raise ImportFailed(f"{at}.args.doc_type: got {args['doc_type']!r}, expected one of {', '.join(kinds)}")
    for name in ("file", "output_file", "result_file"):
        if name in args:
            args[name] = _inside(args[name], f"{at}.args.{name}")
            reading.paths.append(args[name])
            _lint(args[name], args.get("doc_type"), item.function, reading)
    for name in ("input_file", "expected_file"):
        if name in args:
            args[name] = _reference(args[name], f"{at}.args.{name}", reading)
            if name == "expected_file" and not args[name].startswith("reference/"):
                reading.refusals.add(f"its answer lies where the agent sees it: {args[name].removeprefix(RUN)}")
    _keywords(args, at)
    _matches(args, item.function, at)
    return item.function, args


def _lint_names(task: str, evaluation: Mapping[str, tuple[str, Mapping[str, Any]]], reading: _Reading) -> None:
    """Nobody can know the name of a new file that the checker wants unless the task says it, however it is spelled."""
    told = re.sub(r"[\W_]+", "", task.lower())
    for function, args in evaluation.values():
        for path in (args[name] for name in ("file", "output_file", "result_file") if name in args):
            stem = re.sub(r"[\W_]+", "", posixpath.splitext(posixpath.basename(path))[0].lower())
            known = path in reading.testbed or path == ANSWER or CALENDAR.fullmatch(path)
            if not known and function != "evaluate_file_not_exist" and stem not in told:
                reading.refusals.add(f"its checker wants a file that the task does not name: {path}")


def _inside(path: object, at: str) -> str:
    normal = posixpath.normpath(path) if isinstance(path, str) else ""
    if not normal or normal.startswith(("/", "..")) or normal == ".":
        raise ImportFailed(f"{at}: got {path!r}, expected a path inside the testbed")
    return normal


def _lint(path: str, kind: object, function: str, reading: _Reading) -> None:
    """A checker that can't pass on any state is worth nothing: the original raises on such a file, and calls it 0."""
    suffix = posixpath.splitext(path)[1].lower()
    kinds = {".xlsx": ("xlsx",), ".docx": ("doc", "docx"), ".pdf": ("pdf",)}.get(suffix)
    kind = "xlsx" if function.startswith("evaluate_excel") else kind
    if kinds and isinstance(kind, str) and kind not in kinds:
        reading.refusals.add(f"its checker can't pass: it reads {path} as {kind}")


def _reference(path: object, at: str, reading: _Reading) -> str:
    """The name below gt/ of a file that the original finds from where it grades."""
    name = posixpath.normpath(posixpath.join(RUN, path)) if isinstance(path, str) else ""
    first, _, rest = name.partition("/")
    if first == "reference":
        content = reading.references.get(rest)
    elif first == "cache" and rest.partition("/")[2].startswith("testbed/"):  # the testbed as it was at the start
        content = reading.testbed.get(rest.partition("/")[2].removeprefix("testbed/"))
    elif name.startswith(RUN):  # in the testbed itself; what the task came with counts, not what the agent left there
        content = reading.testbed.get(name.removeprefix(RUN))
    else:
        raise ImportFailed(f"{at}: got {path!r}, expected a file in the task's reference/ or cache/<k>/testbed/")
    if content is None:
        reading.refusals.add(f"a reference file is missing: {name}")
        return name
    reading.gt[name] = content
    return name


def _keywords(args: dict[str, Any], at: str) -> None:
    if "keywords" in args:
        given = args["keywords"]
        if not isinstance(given, list) or not given or not all(isinstance(k, str | int | float) for k in given):
            raise ImportFailed(f"{at}.args.keywords: got {given!r:.120}, expected a list of words")
        args["keywords"] = [str(keyword) for keyword in given]


def _matches(args: dict[str, Any], function: str, at: str) -> None:
    """Cells by row and column, counted from 1, with what they must hold."""
    if "matches" not in args:
        return
    wanted = "comparator" if function.endswith("comparator") else "value"
    if not isinstance(args["matches"], list) or not args["matches"]:
        raise ImportFailed(f"{at}.args.matches: got {args['matches']!r:.120}, expected a list of cells")
    for number, match in enumerate(args["matches"]):
        here = f"{at}.args.matches.{number}"
        if not isinstance(match, dict) or not {"row", "col", wanted} <= set(match):
            raise ImportFailed(f"{here}: got {match!r:.120}, expected row, col and {wanted}")
        if not (str(match["row"]).isdigit() and str(match["col"]).isdigit()):
            raise ImportFailed(f"{here}: got row {match['row']!r}, col {match['col']!r}, expected whole numbers")
        if wanted == "comparator":
            try:
                comparison(str(match["comparator"]))
            except ValueError as error:
                raise ImportFailed(f"{here}.comparator: got {match['comparator']!r:.120}: {error}") from error


def _instruction(subtask: Subtask, reading: _Reading, evaluation: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    """The task with where things lie. Mails and calendars are told of where there are any, and how to make one where
    it counts: the original's agent has apps for that."""
    wanted = [*reading.paths]
    wanted += ["emails/" for _, args in evaluation.values() if args.get("doc_type") == "email"]
    wanted += ["calendar/" for function, _ in evaluation.values() if function == "evaluate_calendar_no_overlap"]
    more = ""
    for folder, where, how in (
        ("emails/", f" E-mails are {HOME}/emails/<user>/*.eml.", SENDING),
        ("calendar/", f" Calendars are {HOME}/calendar/<user>.ics.", PLANNING),
    ):
        counts = any(path.startswith(folder) for path in wanted)
        more += where if counts or any(name.startswith(folder) for name in reading.testbed) else ""
        more += how if counts else ""
    told = subtask.model_dump(exclude={"evaluation"})
    return TEXT.format(
        home=HOME, answer=ANSWER, more=more, **told | {"task": subtask.task.strip().replace("/testbed", HOME)}
    )


def _category(task_id: str) -> Category:
    """The first number of an id says how many apps a task takes."""
    return "office" if task_id.startswith("1-") else "multi_app"


def _apps(reading: _Reading) -> tuple[str, ...]:
    names = [*reading.testbed, *reading.paths]
    found = {APPS.get(posixpath.splitext(name)[1].lower()) for name in names}
    return tuple(sorted(app for app in found if app)) or ("terminal",)


def _words(function: str, args: Mapping[str, Any]) -> str:
    on = args.get("file") or args.get("output_file") or args.get("result_file") or args.get("username")
    return f"{function.removeprefix('evaluate_').replace('_', ' ')}: {on}"
