"""Each atomic check with a state that passes and one that fails; hostile and malformed states are 0, never a crash."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from devset.checks import CHECKS, evaluate
from devset.checks.home import MAX_BYTES, sha256
from devset.families.ooxml import docx, picture_of, pptx, xlsx
from tests.devset.trial import ROOT


def archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def database(value: int) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a)")
    connection.execute("insert into t values (?)", (value,))
    connection.commit()
    return connection.serialize()


SHEET = {"Plan": [["Item", "Count"], ["pens", 3]]}
CELLS = {"A1": "Item", "B1": "Count", "A2": "pens", "B2": 3}
EVENT = b"BEGIN:VEVENT\r\nDTSTART;TZID=UTC:20270304T\r\n 100000\r\nSUMMARY:a\\, b\r\nUID:1\r\nEND:VEVENT\r\n"
# name → (slots, bytes of `f` that pass, bytes of `f` that fail)
FIXTURES: dict[str, tuple[dict[str, object], bytes, bytes]] = {
    "file_is": ({"sha256_is": sha256(b"x")}, b"x", b"y"),
    "text_is": ({"expected": ["a", "b"]}, b"a\r\nb \n\n", b"b\na\n"),
    "line_count": ({"line": "a", "times": 2}, b"a\nb\na", b"a\nb\n"),
    "number_is": ({"expected": 1234.5}, b"1,234.50\n", b"1234.6"),
    "csv_is": ({"rows": [["a", "b"]]}, b'"a","b"\n', b"a;b\n"),
    "json_value": ({"keys": ["a", 0], "expected": True}, b'{"a": [true]}', b'{"a": [1]}'),
    "sqlite_value": ({"query": "select a from t", "expected": 7}, database(7), database(8)),
    "json_is": ({"expected": {"a": [1, True]}}, b'{"a":\n[1, true]}', b'{"a": [true, 1]}'),
    "components_are": (
        {"kind": "VEVENT", "fields": ["SUMMARY", "DTSTART"], "expected": [["a, b", "20270304T100000"]]},
        b"BEGIN:VCALENDAR\r\n" + EVENT + b"END:VCALENDAR\r\n",
        b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n" + EVENT,
    ),
    "shell_variable": ({"variable": "A", "expected": "b c"}, b"A=1; export A\nA='b c'", b"export A='b c'\nA=b A=d"),
    "archive_holds": (
        {"members": {"d/a": sha256(b"1")}},
        archive(**{"./d/a": b"1"}),
        archive(**{"d/a": b"1", "b": b""}),
    ),
    "sheet_is": ({"sheet": "Plan", "cells": CELLS}, xlsx(SHEET), xlsx({"Plan": [*SHEET["Plan"], ["x"]]})),
    "cells_are": ({"cells": {"B2": 3}}, xlsx(SHEET), xlsx({"Plan": [["Item", "Count"], ["pens", "3"]]})),
    "sheet_names": ({"expected": ["Plan"]}, xlsx(SHEET), xlsx({**SHEET, "More": []})),
    "paragraphs_are": ({"expected": ["a"]}, docx(["a", ""]), docx(["a", "b"])),
    "slide_titles": ({"expected": ["T"]}, pptx([("T", [])]), pptx([("T", []), ("U", [])])),
    "slide_body": ({"slide": 1, "expected": ["a", "b"]}, pptx([("T", ["a", "b"])]), pptx([("T", ["a"])])),
}
FOLDER_CHECKS = {"absent", "folder_exists", "folder_lists", "link_is", "permissions", "unchanged"}


def value(home: Path, name: str, **slots: object) -> float:
    return evaluate(home, [(name, slots)])[0]


def test_every_check_has_fixtures() -> None:
    assert set(FIXTURES) | FOLDER_CHECKS == set(CHECKS)


@pytest.mark.parametrize("name", FIXTURES)
def test_passes_and_fails(name: str, tmp_path: Path) -> None:
    slots, good, bad = FIXTURES[name]
    assert value(tmp_path, name, path="f", **slots) == 0.0, "a missing file is 0"
    (tmp_path / "f").write_bytes(good)
    assert evaluate(tmp_path, [(name, {"path": "f", **slots})])[0] == 1.0
    (tmp_path / "f").write_bytes(bad)
    assert value(tmp_path, name, path="f", **slots) == 0.0


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("rubbish", [b"", b"\xff\xfe\x00", b"PK\x03\x04 not a zip", b"[" * 100_000, b"\0" * 5000])
def test_malformed_documents_are_zero_with_a_reason(name: str, rubbish: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(rubbish)
    found, why = evaluate(tmp_path, [(name, {"path": "f", **FIXTURES[name][0]})])
    assert found == 0.0 and why


@pytest.mark.parametrize("name", ["sheet_is", "paragraphs_are", "slide_titles"])
def test_office_packages_with_missing_or_broken_parts_are_zero(name: str, tmp_path: Path) -> None:
    slots, good, _ = FIXTURES[name]
    with zipfile.ZipFile(io.BytesIO(good)) as package:
        parts = {n: package.read(n) for n in package.namelist()}
    for broken in parts:
        for replacement in (
            None,
            b"<a>",
            b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "/etc/passwd">]><a>&b;</a>',
        ):
            with zipfile.ZipFile(tmp_path / "f", "w") as package:
                for part, data in parts.items():
                    content = replacement if part == broken else data
                    if content is not None:
                        package.writestr(part, content)
            assert evaluate(tmp_path, [(name, {"path": "f", **slots})])[1], "an explanation, not a crash"


def test_folder_checks(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"1")
    (tmp_path / "d" / ".~lock.a.xlsx#").write_bytes(b"x")
    assert value(tmp_path, "folder_exists", path="d") == 1.0
    assert value(tmp_path, "folder_exists", path="d/a") == 0.0
    assert value(tmp_path, "folder_lists", path="d", expected=["a"]) == 1.0, "lock files never count"
    assert value(tmp_path, "folder_lists", path="d", expected=[]) == 0.0
    assert value(tmp_path, "absent", path="d/b") == 1.0
    assert value(tmp_path, "absent", path="d/a") == 0.0
    assert value(tmp_path, "unchanged", files={"d/a": sha256(b"1")}) == 1.0
    assert value(tmp_path, "unchanged", files={"d/a": sha256(b"2")}) == 0.0


def test_modes_and_links_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"1")
    (tmp_path / "d" / "a").chmod(0o740)
    assert value(tmp_path, "permissions", path="d/a", needed="100", forbidden="7") == 1.0
    assert value(tmp_path, "permissions", path="d/a", needed="110") == 0.0
    assert value(tmp_path, "permissions", path="d/a", needed="100", forbidden="40") == 0.0
    assert value(tmp_path, "permissions", path="d/b", needed="0") == 0.0
    for name, target in (("good", "./a/"), ("bad", "b"), ("out", "/etc/passwd"), ("folder", "d")):
        (tmp_path / name if name == "folder" else tmp_path / "d" / name).symlink_to(target)
    assert value(tmp_path, "link_is", path="d/good", target="a") == 1.0
    for path in ("d/bad", "d/out", "d/a", "d/none", "folder/good"):
        assert value(tmp_path, "link_is", path=path, target="a") == 0.0


@pytest.mark.parametrize(
    ("profile", "passes"),
    [
        (b"export A=b\n", True),
        (b'export B=1 A="b"', True),
        (b"A=b\nexport A\n", True),
        (b"A=b && export A", True),
        (b"export A=b\nexport A=c\n", False),
        (b"A=b\n", False),
        (b"# export A=b\n", False),
        (b"echo export A=b\n", False),
        (b"export A='b\n", False),
        (b"A=b env\nexport B\n", False),
        (b"declare -x A=b\n", True),
        (b"declare A=b\n", False),
        (b"export A=b\nunset A\n", False),
        (b"if false; then\n  export A=b\nfi\n", False),
        (b"f() { export A=b; }\n", False),
        (b"f() {\n  export A=b\n}\n", False),
        (b'if [ -n "$B" ]; then\n  . ~/.bashrc\nfi\nexport A=b\n', True),
        (b"for B in 1 2; do echo $B; done; export A=b\n", True),
    ],
)
def test_a_profile_is_read_as_a_shell_would(profile: bytes, passes: bool, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(profile)
    assert value(tmp_path, "shell_variable", path="f", variable="A", expected="b") == float(passes)


def test_components_that_are_not_closed_or_not_where_they_belong_are_zero(tmp_path: Path) -> None:
    slots: dict[str, object] = {"path": "f", "kind": "VCARD", "fields": ["FN"], "expected": [["A"]]}
    card = b"BEGIN:VCARD\nFN:A\nEND:VCARD\n"
    for data, right in (
        (card, 1.0), (card * 2, 0.0), (card[:-10], 0.0), (b"END:VCARD\n" + card, 0.0),
        (b"BEGIN:X\n" + card + b"END:X\n", 0.0), (card.replace(b"FN", b"FN;X=1"), 1.0),
        (card.replace(b"FN:A", b"FN:A\nFN:B"), 0.0), (card.replace(b"END", b"RRULE:FREQ=DAILY\nEND"), 0.0),
        (card.replace(b"END", b"STATUS:CANCELLED\nEND"), 0.0), (card.replace(b"END", b"STATUS:CONFIRMED\nEND"), 1.0),
    ):  # fmt: skip
        (tmp_path / "f").write_bytes(data)
        assert value(tmp_path, "components_are", **slots) == right, data


def test_links_are_never_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "f").write_bytes(b"x")
    (home / "file").symlink_to(outside / "f")
    (home / "folder").symlink_to(outside)
    (home / "loop").symlink_to("loop")
    for path in ("file", "folder/f", "loop", "loop/f"):
        assert evaluate(home, [("file_is", {"path": path, "sha256_is": sha256(b"x")})]) == (0.0, f"{path} is missing")
    assert value(home, "folder_exists", path="folder") == 0.0
    assert value(home, "absent", path="file") == 0.0, "a link is something"
    with pytest.raises(ValueError, match="inside it"):
        evaluate(home, [("file_is", {"path": "../outside/f", "sha256_is": ""})])


def test_sizes_and_kinds_are_bounded(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert "more than" in evaluate(tmp_path, [("text_is", {"path": "big", "expected": []})])[1]
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in evaluate(tmp_path, [("text_is", {"path": "pipe", "expected": []})])[1]
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("xl/workbook.xml", b"0" * (70 * 2**20))
    assert "unpacks to more" in evaluate(tmp_path, [("sheet_names", {"path": "bomb", "expected": []})])[1]
    assert "too much" in evaluate(tmp_path, [("archive_holds", {"path": "bomb", "members": {}})])[1]


def test_a_workbook_of_nothing_but_cells_gets_its_zero_long_before_the_check_times_out(tmp_path: Path) -> None:
    slots, good, _ = FIXTURES["sheet_is"]
    with zipfile.ZipFile(io.BytesIO(good)) as given, zipfile.ZipFile(tmp_path / "f", "w", zipfile.ZIP_DEFLATED) as made:
        for part in given.namelist():
            cells = b"<row r='9'>" + b"<c r='A9'><v>1</v></c>" * 700_000 + b"</row></sheetData>"
            made.writestr(part, given.read(part).replace(b"</sheetData>", cells))
    found, why = evaluate(tmp_path, [("sheet_is", {"path": "f", **slots})])
    assert found == 0.0 and "unpacks to more" in why  # four times as much, read whole, took 89 s


def test_hostile_database_is_cut_off(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "f")
    endless = "with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) as a from r"
    connection.execute(f"create view t as {endless}")
    connection.commit()
    connection.close()
    assert value(tmp_path, "sqlite_value", path="f", query="select a from t", expected=7) == 0.0


def test_a_bug_of_the_checker_is_not_a_score(tmp_path: Path) -> None:
    """An unknown check or slot leaves with a traceback and a code other than 0: unscored."""
    for program in ("grade({'a': [('no_such_check', {})]})", "grade({'a': [('text_is', {'file': 'x'})]})"):
        code = f"from devset.checks import grade\n{program}"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode != 0 and not done.stdout


def test_checks_import_nothing_of_ours_but_themselves(tmp_path: Path) -> None:
    ours = "('devset', 'pydantic', 'evolver', 'harnesses')"
    code = f"import sys, devset.checks; print(sorted(m for m in sys.modules if m.split('.')[0] in {ours}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = [
        "devset",
        "devset.checks",
        *(f"devset.checks.{m}" for m in ("files", "home", "office", "records", "text")),
    ]
    assert done.stdout.strip() == str(modules)


def test_start_files_are_the_same_bytes_every_time() -> None:
    assert sha256(xlsx(SHEET)) == sha256(xlsx(SHEET))
    assert sha256(docx(["a"], picture_of("A2"))) == sha256(docx(["a"], picture_of("A2")))
    assert len(picture_of("A2")) < 70_000
