"""OfficeBench: its nine functions on worked examples, and tasks in its format, right and wrong ones."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from devset.checks.home import Wrong
from devset.checks.officebench import ARGUMENTS, FUNCTIONS, compared, comparison
from devset.families.ooxml import docx, xlsx
from devset.importers.offer import ImportFailed, Offer
from devset.importers.officebench import offers
from devset.task import Task
from tests.devset.trial import make_home, run_check

SCORES = xlsx({"Sheet": [["Name", "Score"], ["Ann", 98], ["Bob"]]})
MAIL = (
    b"From: a@x.org\r\nTo: bob@x.org\r\nSubject: Lunch\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nAt noon.\r\n"
)


def calendar(*spans: str) -> bytes:
    events = "".join(
        f"BEGIN:VEVENT\r\nSUMMARY:{i}\r\nDTSTART{start}\r\nDTEND{end}\r\nEND:VEVENT\r\n"
        for i, (start, end) in enumerate(span.split(" ") for span in spans)
    )
    return f"BEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nTZID:X\r\nEND:VTIMEZONE\r\n{events}END:VCALENDAR\r\n".encode()


def pdf() -> bytes:
    from pypdf import PdfWriter

    writer, out = PdfWriter(), io.BytesIO()
    writer.add_blank_page(100, 100)
    writer.write(out)
    return out.getvalue()


NINE, TEN, ELEVEN = (f":20200501T{hour:02d}0000" for hour in (9, 10, 11))
# function, arguments, content of `f` that passes, content that fails
EXAMPLES: tuple[tuple[str, dict[str, object], bytes, bytes | None], ...] = (
    ("contain", {"doc_type": "txt", "file": "f", "keywords": ["1300", "Ann"]}, b"ANN: 1,300", b"Ann: 130"),
    ("contain", {"doc_type": "xlsx", "file": "f", "keywords": ["ann", "[Empty Cell]"]}, SCORES, xlsx({"S": [["Ann"]]})),
    ("contain", {"doc_type": "docx", "file": "f", "keywords": ["b c"]}, docx(["a", "B c"]), docx(["b", "c"])),
    ("contain", {"doc_type": "txt", "file": "f", "keywords": ["x"]}, b"x", None),
    ("not_contain", {"doc_type": "txt", "file": "f", "keywords": ["x", "y"]}, b"x", b"x y"),
    ("file_exist", {"file": "f"}, b"", None),
    ("diff_contain_text", {"doc_type": "xlsx", "input_file": "before", "output_file": "f", "keywords": ["99"]},
     xlsx({"Sheet": [["Name", "Score"], ["Ann", 99]]}), SCORES),
    ("excel_cell_value", {"file": "f", "matches": [{"row": 2, "col": "2", "value": "98"}]},
     SCORES, xlsx({"Sheet": [["Name", "Score"], ["Ann", 97]]})),
    ("excel_cell_comparator", {"file": "f", "matches": [{"row": 2, "col": 2, "comparator": "lambda x: int(x) > 90"}]},
     SCORES, xlsx({"Sheet": [["Name", "Score"], ["Ann", "many"]]})),
    ("exact_match", {"doc_type": "xlsx", "result_file": "f", "expected_file": "before"},
     SCORES, xlsx({"Sheet": [["Name", "Score"], ["Ann", 98], ["Bob", 1]]})),
    ("exact_match", {"doc_type": "txt", "result_file": "f", "expected_file": "text"}, b"same\n", b"other\n"),
)  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    home, gt = tmp_path / "home", tmp_path / "gt"
    home.mkdir()
    gt.mkdir()
    (gt / "before").write_bytes(SCORES)
    (gt / "text").write_bytes(b"same\n")
    return home, gt


def holds(places: tuple[Path, Path], function: str, args: dict[str, object]) -> bool:
    try:
        return bool(FUNCTIONS[f"evaluate_{function}"](*places, args))
    except Wrong as wrong:
        assert str(wrong)
        return False


@pytest.mark.parametrize(("function", "args", "good", "bad"), EXAMPLES, ids=lambda v: v if isinstance(v, str) else "")
def test_worked_examples(
    places: tuple[Path, Path], function: str, args: dict[str, object], good: bytes, bad: bytes | None
) -> None:
    (places[0] / "f").write_bytes(good)
    assert holds(places, function, args)
    (places[0] / "f").unlink()
    if bad is not None:
        (places[0] / "f").write_bytes(bad)
    assert not holds(places, function, args)


def test_every_function_has_its_arguments_listed() -> None:
    assert set(FUNCTIONS) == set(ARGUMENTS)


def test_gone_files_and_links(places: tuple[Path, Path]) -> None:
    assert holds(places, "file_not_exist", {"file": "f"})
    (places[0] / "f").symlink_to("/etc/passwd")
    assert not holds(places, "file_not_exist", {"file": "f"})
    assert not holds(places, "contain", {"doc_type": "txt", "file": "f", "keywords": ["root"]})


@pytest.mark.parametrize("account", ["Bob", "bob", "bob.smith"])
def test_mails_of_an_account_however_it_is_spelled(places: tuple[Path, Path], account: str) -> None:
    folder = places[0] / "emails" / account
    folder.mkdir(parents=True)
    (folder / "1.eml").write_bytes(MAIL)
    args = {"doc_type": "email", "username": "Bob"}
    assert holds(places, "contain", {**args, "keywords": ["lunch", "noon"]})
    assert not holds(places, "contain", {**args, "keywords": ["dinner"]})
    assert not holds(places, "contain", {**args, "username": "Eve", "keywords": ["noon"]})


@pytest.mark.parametrize(
    ("spans", "free"),
    [
        ([f"{NINE} {TEN}", f"{TEN} {ELEVEN}"], True),
        ([f"{TEN} {ELEVEN}", f"{NINE}Z {TEN}Z"], True),
        ([f"{NINE} {ELEVEN}", f"{TEN} {ELEVEN}"], False),
        ([f";TZID=Europe/Berlin{TEN} ;TZID=Europe/Berlin{ELEVEN}", f"{NINE} {TEN}"], True),
        ([";VALUE=DATE:20200501 ;VALUE=DATE:20200502", f"{NINE} {TEN}"], False),
        ([f";TZID=Nowhere/Land{NINE} {TEN}"], False),
        ([":soon :later"], False),
    ],
)
def test_calendars(places: tuple[Path, Path], spans: list[str], free: bool) -> None:
    (places[0] / "calendar").mkdir()
    (places[0] / "calendar/Bob.ics").write_bytes(calendar(*spans))
    assert holds(places, "calendar_no_overlap", {"username": "Bob"}) is free


def test_pdf_files_are_compared_by_their_text(places: tuple[Path, Path]) -> None:
    for place in (places[0] / "f", places[1] / "f"):
        place.write_bytes(pdf())
    assert holds(places, "exact_match", {"doc_type": "pdf", "result_file": "f", "expected_file": "f"})
    (places[0] / "f").write_bytes(b"%PDF-1.4 cut off")
    assert not holds(places, "exact_match", {"doc_type": "pdf", "result_file": "f", "expected_file": "f"})


def test_s40_a_broken_reference_is_an_error_of_the_checker(places: tuple[Path, Path]) -> None:
    (places[0] / "f").write_bytes(SCORES)
    with pytest.raises(ValueError, match="reference file"):
        holds(places, "exact_match", {"doc_type": "xlsx", "result_file": "f", "expected_file": "text"})


@pytest.mark.parametrize(
    "source",
    [
        "1",
        "lambda x, y: x",
        "lambda x: __import__('os')",
        "lambda x: x.__class__",
        "lambda x: [y for y in x]",
        "lambda",
        "lambda x=1: x",
        "lambda x, /: x",
        "lambda x, *y: x",
        "lambda x, **y: x",
        "lambda x, *, y: x",
        "lambda x, *, y=1: x",
        "lambda x: (lambda y=1: y)()",
        "lambda x: eval(x)",
    ],
)
def test_a_comparator_is_a_plain_comparison(source: str) -> None:
    with pytest.raises(ValueError, match=r"lambda|expression|allowed|known"):
        comparison(source)


def test_a_comparator_is_not_run_before_the_check() -> None:
    assert comparison("lambda x: int('no number') < int(x)")
    assert not compared("lambda x: int('no number') < int(x)", "1")
    assert compared("lambda x: 1 < int(x) < max(3, len(x)) and x.strip()[0] in '2'", "2")


# --- importing -----------------------------------------------------------------------------------------------------


def published(root: Path, evaluation: object, files: dict[str, bytes] | None = None, **changes: object) -> Path:
    """A copy of OfficeBench with the one task 1-1/0; returns the folder that is imported."""
    subtask = {"username": "Bob", "date": "2020-05-01", "weekday": "Friday", "time": "10:00 AM",
               "task": "what is in /testbed/data?", "evaluation": evaluation, **changes}  # fmt: skip
    content = {"subtasks/0.json": json.dumps(subtask).encode(), "testbed/data/score.xlsx": SCORES, **(files or {})}
    for name, data in content.items():
        path = root / "tasks/1-1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (root / "LICENSE").write_text("Apache License\nVersion 2.0")
    return root


def only(root: Path) -> Offer:
    (offer,) = offers(root)
    return offer


def function(name: str, **args: object) -> dict[str, object]:
    return {"function": f"evaluate_{name}", "args": args}


def test_a_task_is_imported_and_graded(tmp_path: Path) -> None:
    evaluation = [
        function("contain", doc_type="txt", file="./data/answer.txt", keywords=[98]),
        function("exact_match", doc_type="xlsx", result_file="data/score.xlsx",
                 expected_file="../../../../reference/score.xlsx"),
        function("diff_contain_text", doc_type="xlsx", input_file="../../../../cache/0/testbed/data/score.xlsx",
                 output_file="data/score.xlsx", keywords=["99"]),
    ]  # fmt: skip
    changed = xlsx({"Sheet": [["Name", "Score"], ["Ann", 99], ["Bob"]]})
    offer = only(published(tmp_path / "ob", evaluation, {"reference/score.xlsx": changed}))
    task = offer.task
    assert isinstance(task, Task) and offer.reasons == ()
    assert (task.id, task.category, task.apps) == ("officebench-1-1-0", "office", ("libreoffice_calc",))
    assert task.exec_files == {"data/score.xlsx": SCORES} and "mkdir -p data" in task.setup
    assert "what is in /home/user/data?" in task.instruction and "2020-05-01 (Friday)" in task.instruction
    assert "answer.txt" in task.instruction and "licence: Apache-2.0" in task.source
    home, gt = make_home(task, tmp_path / "home"), tmp_path / "gt"
    for name, data in task.gt_files.items():
        (gt / name).parent.mkdir(parents=True, exist_ok=True)
        (gt / name).write_bytes(data)
    assert {v["value"] for v in run_check(task, home, gt).values()} == {0.0}
    (home / "data/answer.txt").write_text("it is 98")
    (home / "data/score.xlsx").write_bytes(changed)
    assert {v["value"] for v in run_check(task, home, gt).values()} == {1.0}


@pytest.mark.parametrize("name", ["data/my_notes.docx", "data/MyNotes.pdf", "data/answer.txt", "data/score.xlsx"])
def test_g06_a_file_that_is_named_in_any_spelling_or_was_there_is_fine(tmp_path: Path, name: str) -> None:
    task = only(published(tmp_path, [function("file_exist", file=name)], task="Write my notes.")).task
    assert task is not None


def test_the_file_beside_the_arguments_is_found_and_said_so(tmp_path: Path) -> None:
    item = {**function("excel_cell_value", matches=[{"row": 1, "col": 1, "value": "x"}]), "file": "data/score.xlsx"}
    task = only(published(tmp_path, [item])).task
    assert task is not None and "changed: evaluation 1: `file` was beside `args`" in task.source


def test_where_mails_and_events_go_is_told_as_soon_as_they_count(tmp_path: Path) -> None:
    evaluation = [
        function("contain", doc_type="email", username="Ann", keywords=["lunch"]),
        function("contain", doc_type="ics", file="calendar/Eve.ics", keywords=["lunch"]),
    ]
    task = only(published(tmp_path / "ob", evaluation, task="Invite everyone for lunch.")).task
    assert task is not None
    assert "/home/user/emails/<recipient>/<subject>.eml" in task.instruction
    assert "/home/user/calendar/<user>.ics. An event is a VEVENT" in task.instruction
    home, gt = make_home(task, tmp_path / "home"), tmp_path / "gt"
    gt.mkdir()
    (gt / "evaluation.json").write_bytes(task.gt_files["evaluation.json"])
    assert {v["value"] for v in run_check(task, home, gt).values()} == {0.0}
    (home / "emails/Ann").mkdir(parents=True)
    (home / "emails/Ann/Today.eml").write_text("From: Bob@example.com\nTo: Ann@example.com\nSubject: Today\n\nlunch?\n")
    (home / "calendar").mkdir()
    (home / "calendar/Eve.ics").write_text("BEGIN:VEVENT\nSUMMARY:lunch\nEND:VEVENT\n")
    assert {v["value"] for v in run_check(task, home, gt).values()} == {1.0}
    silent = only(published(tmp_path / "no", [function("file_exist", file="data/answer.txt")])).task
    assert silent is not None and "emails" not in silent.instruction and "calendar" not in silent.instruction.lower()


def test_pdf_needs_its_reader_and_mails_are_told_of(tmp_path: Path) -> None:
    evaluation = [function("contain", doc_type="pdf", file="data/what.pdf", keywords=["x"])]
    task = only(published(tmp_path, evaluation, {"testbed/emails/bob/1.eml": MAIL})).task
    assert task is not None and task.check_pip == ("pypdf==5.9.0",)
    assert "/home/user/emails/" in task.instruction and "emails/bob/1.eml" in task.exec_files


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (function("dance", file="a"), "an evaluator we lack: evaluate_dance"),
        (function("contain", doc_type="xlsx", file="data/a.docx", keywords=["x"]), "its checker can't pass"),
        (function("exact_match", doc_type="txt", result_file="a", expected_file="../../../../reference/no.txt"),
         "a reference file is missing: reference/no.txt"),
        (function("exact_match", doc_type="xlsx", result_file="data/score.xlsx", expected_file="data/score.xlsx"),
         "its answer lies where the agent sees it: data/score.xlsx"),
        (function("file_exist", file="data/revenuse.docx"), "a file that the task does not name: data/revenuse.docx"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_listed_with_its_reason(
    tmp_path: Path, item: dict[str, object], reason: str
) -> None:
    offer = only(published(tmp_path, [item]))
    assert offer.task is None and reason in offer.reasons[0]


@pytest.mark.parametrize(
    ("item", "field", "value"),
    [
        (function("contain", doc_type="odt", file="a", keywords=["x"]), "evaluation.0.args.doc_type", "'odt'"),
        (function("contain", doc_type="txt", keywords=["x"]), "evaluation.0.args", "expected 'file'"),
        (function("contain", doc_type="txt", file="a", keywords=[]), "evaluation.0.args.keywords", "[]"),
        (function("file_exist", file="../../x"), "evaluation.0.args.file", "'../../x'"),
        (function("file_exist", file=7), "evaluation.0.args.file", "7"),
        (function("excel_cell_value", file="a", matches=[{"row": "A", "col": 1, "value": 1}]),
         "evaluation.0.args.matches.0", "'A'"),
        (function("excel_cell_comparator", file="a", matches=[{"row": 1, "col": 1, "comparator": "print"}]),
         "matches.0.comparator", "'print'"),
        (function("exact_match", doc_type="txt", result_file="a", expected_file="/etc/passwd"),
         "evaluation.0.args.expected_file", "'/etc/passwd'"),
        ({"function": "evaluate_file_exist", "args": []}, "evaluation.0.args", "[]"),
        ({"args": {}}, "evaluation.0.function", "Field required"),
    ],
)  # fmt: skip
def test_a_malformed_task_names_file_field_and_value(tmp_path: Path, item: object, field: str, value: str) -> None:
    (reason,) = only(published(tmp_path, [item])).reasons
    assert reason.startswith("malformed: ") and "subtasks/0.json" in reason
    assert field in reason and value in reason and "\n" not in reason


def test_broken_json_and_no_evaluation_are_named(tmp_path: Path) -> None:
    root = published(tmp_path, [])
    assert "evaluation: got []" in only(root).reasons[0]
    (root / "tasks/1-1/subtasks/0.json").write_text("{")
    assert "expected JSON" in only(root).reasons[0]


def test_without_a_licence_file_none_is_stated(tmp_path: Path) -> None:
    root = published(tmp_path / "ob", [function("file_exist", file="data/answer.txt")])
    (root / "LICENSE").unlink()
    task = only(root).task
    assert task is not None and "licence: not stated\n" in task.source


@pytest.mark.parametrize("folder", ["testbed", "reference", "subtasks"])
def test_links_out_of_the_dataset_are_refused(tmp_path: Path, folder: str) -> None:
    root = published(tmp_path / "ob", [function("file_exist", file="data/answer.txt")])
    (root / "tasks/1-1" / folder).mkdir(exist_ok=True)
    assert only(root).task is not None
    (root / "tasks/1-1" / folder).rename(tmp_path / "away")
    (root / "tasks/1-1" / folder).symlink_to(tmp_path / "away")
    (reason,) = only(root).reasons
    assert reason.startswith("malformed: ") and f"/{folder}" in reason and "leads out of" in reason


def test_a_folder_of_something_else_is_refused_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="no <task>/subtasks"):
        list(offers(tmp_path))
