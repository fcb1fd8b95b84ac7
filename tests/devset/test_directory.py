"""Task directories: the round trip keeps the hash, and a broken one says which file, field, value and expectation."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from devset.directory import TaskError, read_task_dir, write_task_dir
from devset.families import families
from devset.splits import TASKS, load_split
from devset.task import Task
from tests.devset.trial import make_home, run_check, run_script

HAND_WRITTEN = sorted(path for path in TASKS.iterdir() if path.is_dir())
by_task = pytest.mark.parametrize("path", HAND_WRITTEN, ids=lambda p: p.name)


@pytest.mark.parametrize("family", list(families().values()), ids=lambda f: f.name)
def test_round_trip_keeps_the_hash(tmp_path: Path, family: object) -> None:
    task: Task = family.instance(5)  # type: ignore[attr-defined]
    write_task_dir(task, tmp_path / task.id)
    assert read_task_dir(tmp_path / task.id) == task


@by_task
def test_hand_written_round_trip_and_split(path: Path, tmp_path: Path) -> None:
    task = read_task_dir(path)
    write_task_dir(task, tmp_path / task.id)
    assert read_task_dir(tmp_path / task.id) == task
    assert task.hash in {t.hash for t in load_split("train")}


@by_task
def test_hand_written_untouched_fails_and_oracle_passes(path: Path, tmp_path: Path) -> None:
    task = read_task_dir(path)
    home, hidden, gt = make_home(task, tmp_path / "home"), tmp_path / "hidden", tmp_path / "gt"
    for folder, files in ((hidden, task.hidden_files), (gt, task.gt_files)):
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
    assert run_script(home, f"HIDDEN={hidden}\n{task.setup}").returncode == 0
    assert not all(v["value"] == 1 for v in run_check(task, home, gt).values())
    for step in task.oracle.terminal or ():
        assert run_script(home, SQLITE + step.command).returncode == 0
    assert {v["value"] for v in run_check(task, home, gt).values()} == {1.0}


# The sqlite3 shell is in the sandbox, but not on every machine that runs the tests.
SQLITE = """sqlite3() { python3 -c '
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
print(c.execute(sys.argv[2]).fetchall())
c.commit()' "$@"; }
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    task = families()["text.append"].instance(0)
    write_task_dir(task, tmp_path / task.id)
    return tmp_path / task.id


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("task.toml", 'category = "daily"', 'category = "fun"', r"task\.toml: category: got 'fun'.*'os'"),
        (
            "task.toml",
            "weight = 1.0",
            "weight = 0.0",
            r"task\.toml: rubric\.criteria\.0\.weight: got 0\.0.*greater than 0",
        ),
        ("task.toml", "timeout_sec = 300.0", "timeout_sec = -1", r"task\.toml: limits\.agent_timeout_s: got -1"),
        ("task.toml", "feasible = true", "feasible = true\nfancy = 1", r"task\.toml: fancy: got 1.*not permitted"),
        ("task.toml", "[agent]", "[agents]", r"task\.toml: unknown section 'agents', expected agent, "),
        ("task.toml", "[task]", "task = 3\n[x]", r"task\.toml: "),
        ("task.toml", 'version = "1.0"', "version = ", r"task\.toml: expected TOML"),
        ("task.toml", 'id = "text.append-0000"', 'id = "other"', r"id: got 'other', expected the folder's name"),
        ("oracle/terminal.sh", "# step: ", "# ", r"terminal\.sh: expected every command to follow a line '# step: "),
        ("oracle/gui.toml", 'action = "key"', "action = 3", r"gui\.toml: action: got 3"),
    ],
)
def test_errors_name_file_field_value_and_expectation(broken: Path, file: str, old: str, new: str, says: str) -> None:
    text = (broken / file).read_text()
    assert old in text
    (broken / file).write_text(text.replace(old, new, 1))
    with pytest.raises(TaskError, match=says):
        read_task_dir(broken)


@pytest.mark.parametrize("folder", ["exec_files", "hidden_files", "witness_files", "gt_files"])
@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/x", "", ".", "a//b", "./a", "a/", "a\0b", "a" * 256, "a/b"]
)
def test_no_name_of_a_file_leads_out_of_its_folder(folder: str, name: str) -> None:
    """Such a name would be written where the program runs, outside of the task's directory."""
    fields = families()["text.append"].instance(0).model_dump()
    with pytest.raises(ValidationError, match=rf"{folder}\n.*(plain names|which is a file)"):
        Task.model_validate({**fields, folder: {"a": b"", name: b"evil"}})
    Task.model_validate({**fields, folder: {"a": b"", "b/c d": b"", "b/..c": b"", "é": b""}})


def test_missing_and_linked_files(broken: Path) -> None:
    (broken / "exec" / "link").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="link: expected a regular file"):
        read_task_dir(broken)
    (broken / "exec" / "link").unlink()
    (broken / "check.py").unlink()
    with pytest.raises(TaskError, match=r"check\.py: missing, expected a UTF-8 text file"):
        read_task_dir(broken)
