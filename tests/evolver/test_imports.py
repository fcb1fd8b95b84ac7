"""Importing, admitting and reporting as commands: nothing is dropped silently, nothing lands in the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devset.directory import read_task_dir
from devset.importers.offer import ImportFailed, Offer, write_offers
from devset.task import Task
from evolver.admission import Admission, Controls
from evolver.errors import UsageError
from evolver.imports import REPOSITORY, outside, read_tasks, source_report
from tests.evolver.graded_task import task
from tests.evolver.test_cli import called

FILES = {
    "1-1/subtasks/0.json": {"function": "evaluate_file_exist", "args": {"file": "data/a.txt"}},
    "1-1/subtasks/1.json": {"function": "evaluate_dance", "args": {}},
    "1-1/subtasks/2.json": {"function": "evaluate_file_exist", "args": {"file": "/etc/passwd"}},
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    for name, item in FILES.items():
        path = tmp_path / "ob/tasks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        said = {"username": "Bob", "date": "2020-05-01", "weekday": "Friday", "time": "noon", "task": "Make a.txt."}
        path.write_text(json.dumps({**said, "evaluation": [item]}))
    return tmp_path / "ob"


def test_import_writes_task_directories_and_lists_the_rest(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for _ in range(2):  # again = the same
        code, said, err = called(capsys, "tasks", "import", "officebench", str(published), "--out", str(out))
        assert code == 0 and "1 of 3 tasks imported" in err
        assert "officebench-1-1-1  NOT IMPORTED: an evaluator we lack: evaluate_dance" in said
        assert "evaluation.0.args.file: got '/etc/passwd'" in said
    assert sorted(p.name for p in out.iterdir()) == ["import.json", "officebench-1-1-0"]
    found = read_task_dir(out / "officebench-1-1-0")
    assert [t.id for t in read_tasks(out)] == [found.id]
    manifest = json.loads((out / "import.json").read_text())
    assert [one["hash"] for one in manifest["offered"]] == [found.hash, None, None]


def test_an_imported_task_is_shown_by_its_directory(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    called(capsys, "tasks", "import", "officebench", str(published), "--out", str(out))
    code, said, _ = called(capsys, "tasks", "show", str(out / "officebench-1-1-0"))
    assert code == 0 and "Task: Make a.txt." in said and "in no split" in said
    (out / "officebench-1-1-0/check.py").unlink()
    code, _, err = called(capsys, "tasks", "show", str(out / "officebench-1-1-0"))
    assert code == 2 and "check.py: missing" in err


def test_what_is_no_longer_imported_is_removed(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, source = tmp_path / "out", published / "tasks/1-1/subtasks"
    words = ("tasks", "import", "officebench", str(published), "--out", str(out))
    called(capsys, *words)
    (source / "1.json").write_text((source / "0.json").read_text())
    (source / "0.json").write_text((source / "2.json").read_text())
    (out / "notes.txt").write_text("mine")
    assert called(capsys, *words)[0] == 0
    assert sorted(p.name for p in out.iterdir()) == ["import.json", "notes.txt", "officebench-1-1-1"]


def test_import_as_json_and_with_nothing_to_take(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("tasks", "import", "officebench", str(published), "--out", str(tmp_path / "out"), "--json")
    code, said, _ = called(capsys, *words)
    shown = json.loads(said)
    assert (
        code == 0 and [one["id"] for one in shown["imported"]] == ["officebench-1-1-0"] and len(shown["refused"]) == 2
    )
    (published / "tasks/1-1/subtasks/0.json").unlink()
    assert called(capsys, *words)[0] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("officebench", "nowhere", "--out", "/tmp/x"), "PATH nowhere: does not exist"),
        (("officebench", "{empty}", "--out", "/tmp/x"), "no <task>/subtasks/<number>.json below it"),
        (("harbor", "{empty}", "--out", "/tmp/x"), "no task.toml below it"),
        (("officebench", "{empty}", "--out", f"{REPOSITORY}/devset/tasks"), "lies inside the repository"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = called(capsys, "tasks", "import", *(w.replace("{empty}", str(tmp_path / "empty")) for w in words))
    assert code == 2 and said in err and len(err.strip().splitlines()) == 1


def test_admit_and_report_name_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "tasks", "admit", str(tmp_path))
    assert code == 2 and "no task directories in it" in err
    code, _, err = called(capsys, "tasks", "report", str(tmp_path))
    assert code == 2 and "import.json: missing" in err
    (tmp_path / "import.json").write_text('{"source": "x"}')
    code, _, err = called(capsys, "tasks", "report", str(tmp_path))
    assert code == 2 and "is no manifest" in err


def test_no_copied_task_enters_the_repository(tmp_path: Path) -> None:
    assert outside(tmp_path) == tmp_path
    (tmp_path / "link").symlink_to(REPOSITORY)
    for inside in (REPOSITORY, REPOSITORY / "runs/x", tmp_path / "link/y"):
        with pytest.raises(UsageError, match="inside the repository"):
            outside(inside)


def test_g27_the_second_task_of_an_id_is_refused_and_the_import_goes_on(tmp_path: Path) -> None:
    odd = Offer("right-1", "z", reasons=("needs the app gimp",))
    offered = [
        odd,
        Offer("right-1", "a", task()),
        Offer("right-1", "b", task()),
        odd,
        Offer("right-2", "c", task(id="right-2")),
    ]
    listed = [(one.id, one.task is not None, one.reasons) for one in write_offers(offered, "x", tmp_path)]
    assert listed == [
        ("right-1", False, ("needs the app gimp",)),
        ("right-1", True, ()),
        ("right-1~2", False, ("its id is taken: by a",)),
        ("right-1~3", False, ("needs the app gimp",)),
        ("right-2", True, ()),
    ]
    assert [t.id for t in read_tasks(tmp_path)] == ["right-1", "right-2"]
    assert source_report(tmp_path).imported == 2


def test_a_file_where_the_folder_is_to_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    for place in (tmp_path / "out", tmp_path / "out/below"):
        with pytest.raises(ImportFailed, match="below a file, expected a folder"):
            list(write_offers([], "x", place))


@pytest.mark.parametrize("name", ["", ".", "../mine", "{out}/mine", "mine", "link"])
def test_an_earlier_manifest_names_nothing_but_imported_tasks(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    for folder in (tmp_path / "mine", out / "mine"):
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
    (tmp_path / "mine/task.toml").write_text("")
    (out / "link").symlink_to(tmp_path / "mine")
    listed = [{"id": name.replace("{out}", str(tmp_path)), "hash": "0"}]
    (out / "import.json").write_text(json.dumps({"source": "x", "offered": listed}))
    list(write_offers([], "x", out))
    assert (tmp_path / "mine/notes.txt").exists() and (out / "mine/notes.txt").exists() and (out / "link").exists()


# --- the report --------------------------------------------------------------------------------------------------


def verdict(of: Task, *reasons: str, **changes: object) -> str:
    controls = Controls(noop=False, done=False, fail=False)
    whole = {"task_id": of.id, "task_hash": of.hash, "admitted": not reasons, "proven": False, "crashed": False,
             "lost": False, "controls": controls, "reasons": reasons, "seconds": 2.0, **changes}  # fmt: skip
    return Admission.model_validate(whole).model_dump_json() + "\n"


def test_s41_the_report_counts_what_became_of_every_offer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [task(id=f"t-{n}") for n in range(6)]
    offered = [Offer(t.id, t.id, t) for t in tasks]
    offered += [Offer("no-1", "a", reasons=("needs the app gimp", "needs the network: x.org"))]
    offered += [Offer("no-2", "b", reasons=("needs the network: y.org",))]
    list(write_offers(offered, "mine", tmp_path))
    free = Controls(noop=True, done=True, fail=False)
    (tmp_path / "admissions.jsonl").write_text(
        verdict(tasks[0], proven=True)
        + verdict(tasks[1])
        + verdict(tasks[2], "the untouched state succeeds", controls=free)
        + verdict(tasks[3], "criterion done is unscored: exit code 1: x", crashed=True, controls=None)
        + verdict(tasks[4], "sandbox_lost: gone", lost=True, controls=None)
        + verdict(tasks[5].model_copy(update={"hash": "0" * 64}))  # of an older version
    )
    report = source_report(tmp_path)
    counts = (report.offered, report.imported, report.admitted, report.proven, report.quarantined, report.not_run)
    assert counts == (8, 6, 2, 1, 2, 2)
    assert report.noop_passes == pytest.approx(1 / 3) and report.checker_crashes == 0.25 and report.fail_passes == 0.0
    assert report.refused_reasons == {"needs the network": 2, "needs the app gimp": 1}
    assert report.quarantine_reasons == {"the untouched state succeeds": 1, "criterion done is unscored": 1}
    code, said, _ = called(capsys, "tasks", "report", str(tmp_path), "--json")
    assert code == 0 and json.loads(said)["sources"][0]["quarantine"]["t-2"] == ["the untouched state succeeds"]
    code, said, _ = called(capsys, "tasks", "report", str(tmp_path))
    assert code == 0 and "33.3%" in said and "needs the network" in said


def test_nothing_was_run_yet(tmp_path: Path) -> None:
    list(write_offers([Offer("right-1", "a", task())], "mine", tmp_path))
    report = source_report(tmp_path)
    assert (report.not_run, report.noop_passes, report.checker_crashes) == (1, None, None)


def test_only_a_source_that_can_be_downloaded_goes_without_a_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = called(capsys, "tasks", "import", "officebench", "--out", str(tmp_path / "out"))
    assert code == 2 and "PATH is missing: where the published tasks of officebench lie" in err
