"""What runs beside the frozen state: unpacking a hostile home, and one check program with its verdict."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
import time
from pathlib import Path

import pytest

from evolver.controls import home_tar
from evolver.graders.inside import run, unpack

HELLO = 'import json\nprint(json.dumps({"done": {"value": 1, "explanation": "hello"}}))\n'


def archive(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = tmp_path / "home.tar"
    with tarfile.open(path, "w") as tar:
        for entry, data in members:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode, entry.mtime = kind, link, mode, 1_700_000_000
    return entry


def everything_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


def test_a_home_comes_out_as_it_was_frozen_with_modes_and_times(tmp_path: Path) -> None:
    packed = archive(
        tmp_path,
        (member("", tarfile.DIRTYPE, mode=0o755), b""),
        (member("docs", tarfile.DIRTYPE, mode=0o500), b""),
        (member("docs/run.sh", mode=0o777), b"#!"),
        (member("docs/locked.txt", mode=0o444), b"locked"),
        (member("same.sh", tarfile.LNKTYPE, "docs/run.sh", mode=0o777), b""),
        (member("latest", tarfile.SYMTYPE, "docs/run.sh"), b""),
    )
    home = tmp_path / "home"
    assert unpack(packed, home) == []
    assert everything_below(home) == {"docs", "docs/run.sh", "docs/locked.txt", "same.sh", "latest"}
    assert stat.S_IMODE((home / "docs/run.sh").stat().st_mode) == 0o777
    assert stat.S_IMODE((home / "docs/locked.txt").stat().st_mode) == 0o444
    assert (home / "docs/run.sh").stat().st_mtime == (home / "docs").stat().st_mtime == 1_700_000_000
    assert (home / "same.sh").read_bytes() == b"#!" and os.readlink(home / "latest") == "docs/run.sh"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("Desktop/current", "/home/user/Desktop/v2"),
        ("Desktop/home", ".."),
        ("node_modules/.bin/tool", "../tool/cli.js"),
        ("venv/bin/python3", "/usr/bin/python3"),
        ("dangling", "a/b/missing"),
    ],
)
def test_a_link_inside_the_home_keeps_its_text(tmp_path: Path, name: str, target: str) -> None:
    home = tmp_path / "home"
    assert unpack(archive(tmp_path, (member(name, tarfile.SYMTYPE, target), b"")), home) == []
    assert os.readlink(home / name) == target


def test_s43_links_do_not_lead_out_together(tmp_path: Path) -> None:
    home = tmp_path / "home"
    packed = archive(
        tmp_path,
        (member("a/b/top", tarfile.SYMTYPE, "../../c"), b""),
        (member("c", tarfile.DIRTYPE, mode=0o755), b""),
        (member("a/b/top/x", tarfile.SYMTYPE, "../../../check.py"), b""),  # would lie in c/
        (member("a/b/out", tarfile.SYMTYPE, "top/../../check.py"), b""),
    )
    assert unpack(packed, home) == ["a/b/top/x", "a/b/out"]
    assert everything_below(home) == {"a", "a/b", "a/b/top", "c"}


@pytest.mark.parametrize(
    "entry",
    [
        member("../outside.txt"),
        member("/tmp/absolute.txt"),
        member("a/../../outside.txt"),
        member("passwd", tarfile.SYMTYPE, "/etc/passwd"),
        member("up", tarfile.SYMTYPE, "../check.py"),
        member("deep/up", tarfile.SYMTYPE, "../../check.py"),
        member("gt", tarfile.SYMTYPE, "/tmp/harbor/tests"),
        member("gt", tarfile.SYMTYPE, "/home/user/../other"),
        member("deep/up", tarfile.SYMTYPE, "x/../../../check.py"),
        member("hard", tarfile.LNKTYPE, "../check.py"),
        member("hard", tarfile.LNKTYPE, "/etc/passwd"),
        member("hard", tarfile.LNKTYPE, "missing"),
        member("disk", tarfile.BLKTYPE),
        member("tty", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda entry: f"{entry.name} {entry.linkname}".replace("/", "|"),
)
def test_s43_a_hostile_entry_is_left_out_and_the_rest_stays(tmp_path: Path, entry: tarfile.TarInfo) -> None:
    (tmp_path / "check.py").write_text("untouched")
    home = tmp_path / "home"
    dropped = unpack(archive(tmp_path, (entry, b""), (member("kept.txt"), b"kept")), home)
    assert dropped == [entry.name]
    assert {p for p in everything_below(home) if not (home / p).is_dir()} == {"kept.txt"}
    assert {p.name for p in tmp_path.iterdir()} == {"check.py", "home", "home.tar"}
    assert (tmp_path / "check.py").read_text() == "untouched"


def test_s43_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    packed = archive(
        tmp_path,
        (member("door", tarfile.SYMTYPE, str(outside)), b""),
        (member("door/planted.txt"), b"planted"),
        (member("twice"), b"first"),
        (member("twice"), b"second"),
    )
    home = tmp_path / "home"
    dropped = unpack(packed, home)
    assert list(outside.iterdir()) == []
    assert dropped == ["twice", "door"]
    assert (home / "twice").read_bytes() == b"first" and not (home / "door").is_symlink()


def grading(tmp_path: Path, check: str, state: dict[str, bytes] | None = None) -> tuple[Path, str]:
    (tmp_path / "check.py").write_text(check)
    (tmp_path / "home.tar").write_bytes(home_tar(state or {"a.txt": b"a"}))
    (tmp_path / "gt").mkdir()
    (tmp_path / "gt/answer.txt").write_text("a")
    return tmp_path, hashlib.sha256(check.encode()).hexdigest()


def test_a_check_sees_the_home_and_the_ground_truth_and_nothing_of_us(tmp_path: Path) -> None:
    check = (
        "import json, os, sys\nfrom pathlib import Path\nhome, gt = map(Path, sys.argv[1:])\n"
        "same = (home / 'a.txt').read_text() == (gt / 'answer.txt').read_text()\n"
        "print(json.dumps({'done': {'value': float(same), 'explanation': os.environ.get('SECRET_KEY', 'none')}}))\n"
    )
    os.environ["SECRET_KEY"] = "sk-1"
    try:
        report = run(*grading(tmp_path, check), 20)
    finally:
        del os.environ["SECRET_KEY"]
    assert json.loads(str(report["printed"])) == {"done": {"value": 1.0, "explanation": "none"}}


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (HELLO + "raise SystemExit(1)\n", "exit code 1"),
        (HELLO + "raise ValueError('boom')\n", "boom"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("print('x' * 20_000)", "more than 12000"),
    ],
)
def test_g14_a_check_that_fails_has_no_verdict_even_when_it_printed_one(tmp_path: Path, check: str, why: str) -> None:
    report = run(*grading(tmp_path, check), 20)
    assert why in str(report["failed"]) and "printed" not in report


def test_g12_a_check_that_hangs_is_ended(tmp_path: Path) -> None:
    started = time.monotonic()
    report = run(*grading(tmp_path, "import time; time.sleep(60)"), 0.5)
    assert report == {"failed": "no verdict within 0.5 s"} and time.monotonic() - started < 10


def test_g11_other_bytes_than_the_tasks_check_are_not_run(tmp_path: Path) -> None:
    folder, sha = grading(tmp_path, HELLO)
    (folder / "check.py").write_text(HELLO + "open('ran', 'w')\n")
    assert run(folder, sha, 20) == {"failed": "check.py is not the program that the task names"}
    assert not list(folder.rglob("ran"))


@pytest.mark.parametrize(
    "deed",
    [
        "(home / 'a.txt').write_text('b')",
        "(home / 'new').touch()",
        "(home / 'a.txt').unlink()",
        "(home / 'a.txt').chmod(0o600)",
    ],
)
def test_g15_a_check_that_changes_what_it_grades_has_no_verdict(tmp_path: Path, deed: str) -> None:
    check = f"import sys\nfrom pathlib import Path\nhome = Path(sys.argv[1])\n{deed}\n{HELLO}"
    assert run(*grading(tmp_path, check), 20) == {"failed": "the check changed the state that it grades"}


def test_s43_modules_in_the_home_are_not_imported_by_the_check(tmp_path: Path) -> None:
    planted = dict.fromkeys(("json.py", "sitecustomize.py", "usercustomize.py", "devset.py"), b"raise SystemExit(3)")
    report = run(*grading(tmp_path, HELLO, planted), 20)
    assert "hello" in str(report["printed"])
