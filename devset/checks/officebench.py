"""OfficeBench's nine evaluation functions on a frozen home (after utils/evaluate.py of zlwang-cs/OfficeBench).

What passes and what fails is kept as published, loose as it is (a cell matches by its beginning, a keyword anywhere,
`not_contain` fails only when every keyword is found), so that scores compare. Three things differ: a document that
can't be read is the agent's fault (0) and whatever else goes wrong leaves the task unscored; `doc` and `pdf` files are
compared by their text, where the original compares objects that are never equal; and events are all that counts in a
calendar, where the original stops at a time zone.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from devset.checks.home import Wrong, locate, names, read_bytes, read_text
from devset.checks.office import MAX_ITEMS, package, reading

Read = TypeVar("Read")
Args = Mapping[str, Any]  # JSON values; what each function takes is listed in ARGUMENTS
# function → the arguments that it can't do without
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "evaluate_contain": ("doc_type", "keywords"),
    "evaluate_not_contain": ("doc_type", "keywords"),
    "evaluate_file_exist": ("file",),
    "evaluate_file_not_exist": ("file",),
    "evaluate_diff_contain_text": ("doc_type", "input_file", "output_file", "keywords"),
    "evaluate_excel_cell_value": ("file", "matches"),
    "evaluate_excel_cell_comparator": ("file", "matches"),
    "evaluate_calendar_no_overlap": ("username",),
    "evaluate_exact_match": ("doc_type", "result_file", "expected_file"),
}
TEXT_TYPES = ("txt", "ics", "xlsx", "doc", "docx", "pdf")


# --- documents as text ---------------------------------------------------------------------------------------------


def _cells(home: Path, path: str) -> dict[tuple[int, int], Any]:  # whatever openpyxl makes of a cell
    """(row, column) → value of the active sheet, row by row, empty cells included."""
    import openpyxl

    with reading(path):
        sheet = openpyxl.load_workbook(package(home, path)).active
        if sheet.max_row * sheet.max_column > MAX_ITEMS:
            raise Wrong(f"{path} has a sheet of {sheet.max_row} x {sheet.max_column} cells")
        return {(cell.row, cell.column): cell.value for row in sheet.iter_rows() for cell in row}


def _sheet_text(home: Path, path: str) -> str:
    """`(row, column): value` and a tab per cell, a line per row."""
    lines: dict[int, str] = {}
    for (row, column), value in _cells(home, path).items():
        shown = "[Empty Cell]" if value is None else value
        lines[row] = lines.get(row, "") + f"({row}, {column}): {shown}\t"
    return "".join(f"{line}\n" for line in lines.values())


def _word_text(home: Path, path: str) -> str:
    import docx

    with reading(path):
        return "\n".join(paragraph.text for paragraph in docx.Document(package(home, path)).paragraphs[:MAX_ITEMS])


def _pdf_text(home: Path, path: str) -> str:
    import io

    import pypdf

    with reading(path):
        return "".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(read_bytes(home, path))).pages)


def _text(home: Path, path: str, kind: str) -> str:
    if kind in ("txt", "ics"):
        return read_text(home, path)
    readers = {"xlsx": _sheet_text, "doc": _word_text, "docx": _word_text, "pdf": _pdf_text}
    return readers[kind](home, path)


def _mails(home: Path, username: str) -> str:
    """Every mail of the account as text: the folder of that name, of its lower case, or one that contains it."""
    accounts = names(home, "emails")
    fitting = [a for a in accounts if a == username] or [a for a in accounts if a == username.lower()]
    fitting = fitting or [a for a in accounts if username.lower() in a.lower()]
    said = []
    for name in names(home, f"emails/{fitting[0]}") if fitting else []:
        if name.endswith(".eml"):
            path = f"emails/{fitting[0]}/{name}"
            with reading(path):
                mail = BytesParser(policy=policy.default).parsebytes(read_bytes(home, path))
                said.append(f"{name}\n{mail['From']}\n{mail['To']}\n{mail['Subject']}\n{_body(mail)}\n")
    return "\n".join(said)


def _body(mail: EmailMessage) -> str:
    parts = [part for part in mail.walk() if part.get_content_type() in ("text/plain", "text/html")]
    return "\n".join(str(part.get_content()) for part in parts)


# --- the functions -------------------------------------------------------------------------------------------------


def contain(home: Path, gt: Path, args: Args) -> str:
    kind = str(args["doc_type"])
    content = _mails(home, args["username"]) if kind == "email" else _text(home, args["file"], kind)
    content = content.lower()
    for keyword in (str(keyword).lower() for keyword in args["keywords"]):
        if _is_number(keyword):
            content = content.replace(",", "")
        if keyword not in content:
            raise Wrong(f"{keyword!r} is not in {args.get('file', 'the mails')}")
    return f"all {len(args['keywords'])} keyword(s) found"


def not_contain(home: Path, gt: Path, args: Args) -> str:
    try:
        contain(home, gt, args)
    except Wrong as wrong:
        return str(wrong)
    raise Wrong(f"every keyword is in {args.get('file', 'the mails')}")


def file_exist(home: Path, gt: Path, args: Args) -> str:
    if locate(home, args["file"]) is None:
        raise Wrong(f"{args['file']} is missing")
    return f"{args['file']} exists"


def file_not_exist(home: Path, gt: Path, args: Args) -> str:
    if (home / args["file"]).is_symlink() or locate(home, args["file"]) is not None:
        raise Wrong(f"{args['file']} is still there")
    return f"{args['file']} is gone"


def diff_contain_text(home: Path, gt: Path, args: Args) -> str:
    kind = str(args["doc_type"])
    before = _reference(lambda: _text(gt, args["input_file"], kind))
    after = _text(home, args["output_file"], kind)
    if before == after:
        raise Wrong(f"{args['output_file']} is unchanged")
    diff = "\n".join(difflib.unified_diff(before.split("\n"), after.split("\n"), n=0))
    for keyword in map(str, args["keywords"]):
        if keyword not in diff:
            raise Wrong(f"{keyword!r} is not among the changes of {args['output_file']}")
    return f"all {len(args['keywords'])} keyword(s) are among the changes"


def excel_cell_value(home: Path, gt: Path, args: Args) -> str:
    content = _sheet_text(home, args["file"])
    for match in args["matches"]:
        if f"({match['row']}, {match['col']}): {match['value']}" not in content:
            raise Wrong(f"cell ({match['row']}, {match['col']}) of {args['file']} is not {match['value']!r}")
    return f"{len(args['matches'])} cell(s) of {args['file']} as expected"


def excel_cell_comparator(home: Path, gt: Path, args: Args) -> str:
    content = _sheet_text(home, args["file"])
    for match in args["matches"]:
        found = re.search(rf"\({match['row']}, {match['col']}\): (\w+)\t", content)
        if found is None or not compared(match["comparator"], found[1]):
            raise Wrong(f"cell ({match['row']}, {match['col']}) of {args['file']} does not satisfy its comparator")
    return f"{len(args['matches'])} cell(s) of {args['file']} satisfy their comparators"


def calendar_no_overlap(home: Path, gt: Path, args: Args) -> str:
    path = f"calendar/{args['username']}.ics"
    spans = sorted(_events(read_text(home, path), path))
    for (_, end, one), (start, _, other) in itertools.pairwise(spans):
        if end > start:
            raise Wrong(f"{path}: {one!r} and {other!r} overlap")
    return f"the {len(spans)} events of {path} do not overlap"


def exact_match(home: Path, gt: Path, args: Args) -> str:
    kind, result, expected = str(args["doc_type"]), args["result_file"], args["expected_file"]
    if kind != "xlsx":
        if _text(home, result, kind) != _reference(lambda: _text(gt, expected, kind)):
            raise Wrong(f"{result} differs from what was expected")
        return f"{result} is as expected"
    found, wanted = _cells(home, result), _reference(lambda: _cells(gt, expected))
    for at in sorted(found.keys() | wanted.keys()):
        if found.get(at) != wanted.get(at):
            raise Wrong(f"cell {at} of {result} is {str(found.get(at))[:60]!r}, expected {str(wanted.get(at))[:60]!r}")
    return f"all cells of {result} are as expected"


FUNCTIONS: dict[str, Callable[[Path, Path, Args], str]] = {
    f"evaluate_{function.__name__}": function
    for function in (contain, not_contain, file_exist, file_not_exist, diff_contain_text, excel_cell_value,
                     excel_cell_comparator, calendar_no_overlap, exact_match)
}  # fmt: skip


# --- small parts ---------------------------------------------------------------------------------------------------


def _reference(read: Callable[[], Read]) -> Read:
    """What is wrong with a reference file is the task's fault and leaves it unscored."""
    try:
        return read()
    except Wrong as wrong:
        raise ValueError(f"reference file: {wrong}") from wrong


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_ALLOWED = (
    ast.Name, ast.Load, ast.Constant, ast.Compare, ast.cmpop,
    ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator, ast.List, ast.Tuple, ast.Set, ast.Call,
    ast.Attribute, ast.Subscript, ast.Slice, ast.IfExp,
)  # fmt: skip
_BUILTINS = {f.__name__: f for f in (int, float, str, len, abs, round, min, max, sum, range, sorted, bool)}


def comparison(source: str) -> ast.Expression:
    """The one-argument lambda that `source` spells, read and not run; raises ValueError for anything but plain
    comparisons of that argument."""
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"not a Python expression: {error.msg}") from error
    known = tree.body.args.args if isinstance(tree.body, ast.Lambda) else []
    plain = ast.arguments(posonlyargs=[], args=known, kwonlyargs=[], kw_defaults=[], defaults=[])
    if not isinstance(tree.body, ast.Lambda) or len(known) != 1 or ast.dump(tree.body.args) != ast.dump(plain):
        raise ValueError("expected a lambda with one argument and no defaults")
    for node in ast.walk(tree.body.body):
        if not isinstance(node, _ALLOWED) or (isinstance(node, ast.Attribute) and node.attr.startswith("_")):
            raise ValueError(f"{type(node).__name__} is not allowed in a comparator")
        if isinstance(node, ast.Name) and node.id != known[0].arg and node.id not in _BUILTINS:
            raise ValueError(f"the name {node.id} is not known to a comparator")
    return tree


def compared(source: str, value: str) -> bool:
    """Whether the cell's text satisfies the comparator; text that it can't digest does not."""
    code = compile(comparison(source), "comparator", "eval")
    function: Callable[[str], object] = eval(code, {"__builtins__": {}, **_BUILTINS})
    try:
        return bool(function(value))
    except (ValueError, TypeError, IndexError, OverflowError):
        return False


def _events(text: str, path: str) -> list[tuple[datetime, datetime, str]]:
    """(start, end, summary) of every VEVENT; times without a zone count as UTC."""
    found, event = [], dict[str, str]()
    for line in re.sub(r"\n[ \t]", "", text).split("\n"):
        key, _, value = line.partition(":")
        if line == "BEGIN:VEVENT":
            event = {}
        elif line == "END:VEVENT":
            if not {"DTSTART", "DTEND"} <= {k.partition(";")[0] for k in event}:
                raise Wrong(f"{path} has an event without a start or an end")
            found.append((_moment(event, "DTSTART", path), _moment(event, "DTEND", path), event.get("SUMMARY", "")))
        else:
            event[key] = value.strip()
    return found


def _moment(event: Mapping[str, str], name: str, path: str) -> datetime:
    key = next(key for key in event if key.partition(";")[0] == name)
    zone = re.search(r"TZID=\"?([^;:\"]+)", key)
    try:
        if re.fullmatch(r"\d{8}", event[key]):
            return datetime.combine(date.fromisoformat(event[key]), time(), UTC)
        at = datetime.strptime(event[key].removesuffix("Z"), "%Y%m%dT%H%M%S")
        return at.replace(tzinfo=ZoneInfo(zone[1]) if zone else UTC)
    except (ValueError, OSError, KeyError) as error:  # the zone is the agent's to name as well
        raise Wrong(f"{path} has an event at {event[key][:40]!r}: {str(error)[:80]}") from error


def main() -> None:
    """The body of a check program: `argv` = frozen home, folder with evaluation.json and the reference files."""
    home, gt = Path(sys.argv[1]), Path(sys.argv[2])
    verdicts: dict[str, dict[str, object]] = {}
    for criterion, (function, args) in json.loads((gt / "evaluation.json").read_text(encoding="utf-8")).items():
        try:
            verdicts[criterion] = {"value": 1.0, "explanation": FUNCTIONS[function](home, gt, args)}
        except Wrong as wrong:
            verdicts[criterion] = {"value": 0.0, "explanation": str(wrong)}
    json.dump(verdicts, sys.stdout)
