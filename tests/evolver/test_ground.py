"""Imported tasks in a run: admitted as they are now, in one split each, and playable by the teacher, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from devset.directory import write_task_dir
from devset.splits import load_split
from devset.task import SPLITS, Oracle, Task, task_hash
from evolver.admission import Admission
from evolver.config import DemonstratorSpec, OpenAISpec, RunConfig, load_config
from evolver.disk import append_line, records_in
from evolver.errors import UsageError
from evolver.ground import tasks_of
from evolver.imports import VERDICTS
from evolver.store import Store
from tests.evolver.graded_task import task

WORDS = ("apples in the basket", "trains of the north", "letters to a friend", "maps of an island", "clocks of a tower")


def imported(number: int, oracle: Oracle | None = None) -> Task:
    text = f"Write a story about the {WORDS[number]}, all of them, into a.txt and leave everything else as it is."
    return task(id=f"theirs-{number}", family="theirs", instruction=text, oracle=oracle or Oracle())


def verdict(of: Task, **changes: object) -> Admission:
    said = {
        "task_id": of.id, "task_hash": of.hash, "admitted": True, "proven": False, "crashed": False, "lost": False,
        "controls": None, "reasons": (), "seconds": 1.0,
    }  # fmt: skip
    return Admission.model_validate({**said, **changes})


def folder(path: Path, tasks: Sequence[Task], verdicts: Sequence[Admission]) -> str:
    for one in tasks:
        write_task_dir(one, path / one.id)
    for said in verdicts:
        append_line(path / VERDICTS, said.model_dump_json())
    return str(path)


def store(path: Path, imports: dict[str, tuple[str, ...]], **changes: object) -> Store:
    teacher = OpenAISpec(kind="openai", model="m")
    tasks = {split: 0 if split in imports else 1 for split in SPLITS} | {"imported": imports}
    settings = {"teacher": teacher, "allow_unpriced": True, "tasks": tasks, **changes}
    return Store.create(path / "run", RunConfig.model_validate(settings))


def test_admitted_tasks_join_their_split_with_their_own_hash(tmp_path: Path) -> None:
    ours, theirs = load_split("dev", 1), [imported(0), imported(1), imported(2)]
    held = verdict(theirs[2], admitted=False, reasons=("the untouched state succeeds",))
    place = folder(tmp_path / "a", theirs, [verdict(theirs[0]), verdict(theirs[1]), held])
    alone = imported(3)
    single = folder(tmp_path / "b", [alone], [verdict(alone)]) + f"/{alone.id}"
    run = store(tmp_path, {"dev": (place,), "test": (single,)})
    found = tasks_of(run, "dev", 1, "gap")
    assert [t.id for t in found] == [ours[0].id, "theirs-0", "theirs-1"], "what the gate holds back is left out"
    assert [t.hash for t in found[1:]] == [t.hash for t in theirs[:2]]
    assert {t.split for t in found} == {"dev"} and not any(t.seen_in_training for t in found[1:])
    assert [t.id for t in tasks_of(run, "test", 0, "gap")] == ["theirs-3"]
    assert len(tasks_of(run, "select", 1, "gap")) == 1


def test_s47_a_task_that_is_not_what_was_admitted_is_refused(tmp_path: Path) -> None:
    one, two = imported(0), imported(1)
    place = folder(tmp_path / "a", [one, two], [verdict(one)])
    with pytest.raises(
        UsageError, match=rf"1 of 2 tasks .*theirs-1 \(never tried\); run `evolver tasks admit {place}`"
    ):
        tasks_of(store(tmp_path / "1", {"dev": (place,)}), "dev", 1, "gap")
    folder(tmp_path / "a", [], [verdict(two)])
    assert len(tasks_of(store(tmp_path / "2", {"dev": (place,)}), "dev", 1, "gap")) == 3
    check = tmp_path / "a" / one.id / "check.py"
    check.write_text(check.read_text() + "# another checker\n")
    with pytest.raises(UsageError, match=rf"theirs-0 \(changed since: .* the verdict is on {one.hash[:12]}\)"):
        tasks_of(store(tmp_path / "3", {"dev": (place,)}), "dev", 1, "gap")
    folder(tmp_path / "a", [], [verdict(one, lost=True, admitted=False)])
    check.write_text(one.check)
    with pytest.raises(UsageError, match="its machine was lost"):
        tasks_of(store(tmp_path / "4", {"dev": (place,)}), "dev", 1, "gap")


def test_quarantined_tasks_alone_are_refused_with_the_reason(tmp_path: Path) -> None:
    one = imported(0)
    place = folder(tmp_path / "a", [one], [verdict(one, admitted=False, reasons=("giving up succeeds",))])
    for given in (place, f"{place}/{one.id}"):
        with pytest.raises(UsageError, match="quarantined all of it: giving up succeeds"):
            tasks_of(store(tmp_path / str(len(given)), {"dev": (given,)}), "dev", 1, "gap")


def test_the_demonstrator_refuses_what_it_has_no_solution_for(tmp_path: Path) -> None:
    one, two = imported(0), imported(1, task().oracle)
    place = folder(tmp_path / "a", [one, two], [verdict(one), verdict(two)])
    with pytest.raises(UsageError, match=r'1 of 2 imported tasks have none \(theirs-0\): set teacher.kind = "openai"'):
        tasks_of(store(tmp_path / "1", {"dev": (place,)}, teacher=DemonstratorSpec()), "dev", 1, "gap")
    alone = store(tmp_path / "2", {"dev": (f"{place}/{two.id}",)}, teacher=DemonstratorSpec())
    assert [t.id for t in tasks_of(alone, "dev", 0, "gap")] == ["theirs-1"]


def test_g25_a_task_is_in_one_split_only(tmp_path: Path) -> None:
    one, other = imported(0), imported(1)
    close = one.model_copy(update={"id": "theirs-9"})
    close = close.model_copy(update={"hash": task_hash(close)})
    places = [folder(tmp_path / n, [t], [verdict(t)]) for n, t in (("a", one), ("b", other), ("c", close))]
    apart = store(tmp_path / "1", {"dev": (places[0],), "test": (places[1],)})
    assert len(tasks_of(apart, "dev", 1, "gap")) == 2
    with pytest.raises(UsageError, match="theirs-0 is named more than once"):
        tasks_of(store(tmp_path / "2", {"dev": (places[0],), "test": (places[0],)}), "dev", 1, "gap")
    with pytest.raises(UsageError, match=r"dev and test share 1 tasks: theirs-0 and theirs-9"):
        tasks_of(store(tmp_path / "3", {"dev": (places[0],), "test": (places[2],)}), "dev", 1, "gap")


def test_directories_are_taken_from_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        '[tasks]\ndev = 0\n[tasks.imported]\ndev = ["bench"]\ntest = ["../other/bench"]\n'
    )
    given = load_config(tmp_path / "my.toml").tasks.imported
    assert given.dev == (str(tmp_path / "bench"),) and given.test == (str(tmp_path.parent / "other/bench"),)


def test_a_verdict_whose_reason_holds_any_character_is_read_again(tmp_path: Path) -> None:
    odd = verdict(imported(0), reasons=("a\u2028b\u2029c\x85d",))
    append_line(tmp_path / VERDICTS, odd.model_dump_json())
    append_line(tmp_path / VERDICTS, verdict(imported(1)).model_dump_json())
    assert list(records_in(tmp_path / VERDICTS, Admission)) == [odd, verdict(imported(1))]
