"""What of a round may teach: accepted rollouts of training tasks, and nothing that its run holds out of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from devset.splits import split_of
from devset.task import Split, Task, task_hash
from evolver.capsules.program import sha256
from evolver.commands.refine import _cards
from evolver.errors import UsageError
from evolver.rounds.plan import TaskRef
from evolver.rounds.play import RolloutWorker
from evolver.rounds.reader import scorecards, taught_in
from evolver.rounds.tasks import FolderTasks, source_of
from tests.evolver.round_capsule import write_made_capsule
from tests.evolver.test_ground import folder, imported, verdict
from tests.evolver.test_rounds_play import TASKS, Listed, played, worker

SPLITS: dict[str, Split | None] = {"t-0": "train", "t-1": "select", "t-2": None}


class Mixed(Listed):
    """The same tasks, of which one alone is for training."""

    def task(self, ref: TaskRef) -> Task:
        return super().task(ref).model_copy(update={"split": SPLITS[ref.id]})


def mixed(path: Path) -> Callable[[], RolloutWorker]:
    def make() -> RolloutWorker:
        one = worker(path)
        return RolloutWorker(one._spec, replace(one.bench, source=Mixed()), "w-0")

    return make


def test_g24_g25_a_round_teaches_by_its_training_tasks_alone(tmp_path: Path) -> None:
    make = mixed(tmp_path)
    harness_id = make().bench.harness.id
    played(tmp_path, make).close()
    instructions, found = taught_in(tmp_path / "round", harness_id)
    assert instructions == {"t-0": TASKS[0].instruction}
    assert [(rollout.key.task_id, card.success) for rollout, card in found] == [("t-0", True)]
    assert taught_in(tmp_path / "round", "another") == ({}, [])
    assert taught_in(tmp_path / "round", harness_id, 0) == ({}, [])


def test_g25_nothing_teaches_that_asks_for_what_the_run_holds_out(tmp_path: Path) -> None:
    held_out = {"0" * 64: sha256(TASKS[0].instruction.encode())}  # another task, the same words
    write_made_capsule(tmp_path / "capsule", "beta1", "local", held_out=held_out)
    make = lambda: worker(tmp_path)  # noqa: E731
    harness_id = make().bench.harness.id
    played(tmp_path, make).close()
    assert set(taught_in(tmp_path / "round", harness_id)[0]) == {"t-1", "t-2"}


def test_every_unit_that_was_played_tells_where_a_student_is_weak(tmp_path: Path) -> None:
    played(tmp_path, lambda: worker(tmp_path, values={"t-1": 0.0})).close()
    tells = [(card.key.task_id, card.success) for card in scorecards(tmp_path / "round")]
    assert sorted(tells) == [*[("t-0", True)] * 2, *[("t-1", False)] * 2, *[("t-2", True)] * 2]
    assert sorted((card.key.task_id, card.success) for card in _cards([tmp_path / "round"])) == sorted(tells)


def test_g24_a_task_that_training_never_sees_plays_without_a_split(tmp_path: Path) -> None:
    held = imported(1).model_copy(update={"seen_in_training": False})
    tasks = [imported(0), held.model_copy(update={"hash": task_hash(held)})]
    source = FolderTasks(Path(folder(tmp_path, tasks, [verdict(task) for task in tasks])))
    assert [source.task(ref).split for ref in source.refs()] == ["train", None]


def test_g25_a_directory_with_what_is_held_out_is_refused(tmp_path: Path) -> None:
    tasks = [imported(0), imported(1)]
    place = folder(tmp_path, tasks, [verdict(task) for task in tasks])
    assert len(source_of(place).refs()) == 2
    with pytest.raises(UsageError, match=r"1 of 2 tasks are held out of training .*\(theirs-1\)"):
        source_of(place, {tasks[1].hash: "0" * 64}).refs()
    ours = tasks[0].model_copy(update={"id": "files.rename-3000"})
    assert (split_of(ours.id), split_of("files.rename-0000"), split_of("theirs-0")) == ("test", "train", None)
    folder(tmp_path, [], [verdict(ours)])
    with pytest.raises(UsageError, match=r"by our splits \(files\.rename-3000\)"):
        source_of(place).refs()
