"""The tasks of a round, by name: a split, or a directory of admitted tasks (imported or forged)."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Protocol

from devset.directory import TaskError, read_task_dir
from devset.splits import SEALED, UnknownTask, find_task, load_split, split_of
from devset.task import SPLITS, Task, task_hash
from evolver.admission import read_admissions
from evolver.errors import UsageError
from evolver.imports import VERDICTS
from evolver.rounds.plan import TaskRef


class TaskSource(Protocol):
    """Where a round's tasks come from. `task` reads one again, and refuses it when it is not what the plan says."""

    name: str

    def refs(self) -> list[TaskRef]: ...
    def task(self, ref: TaskRef) -> Task: ...


class SplitTasks:
    """The tasks of a split; the sealed one is for comparisons and is never generated from."""

    def __init__(self, name: str) -> None:
        split = next((one for one in SPLITS if one == name), None)
        if split is None or split in SEALED:
            raise UsageError(f"--tasks {name}: a round plays {', '.join(s for s in SPLITS if s not in SEALED)}")
        self.name: str = split
        self._split = split

    def refs(self) -> list[TaskRef]:
        return [TaskRef(task.id, task.hash) for task in load_split(self._split)]

    def task(self, ref: TaskRef) -> Task:
        """Makes this task alone: a worker has no need of the others."""
        try:
            task = find_task(ref.id)
        except UnknownTask:
            return _same(None, ref, self.name)
        return _same(task if task.split == self._split else None, ref, self.name)


class FolderTasks:
    """The admitted tasks of a directory, read one by one as they are played: for training, but those that say that
    training never sees them, which have no split. `held_out` (hashes), and ids of our own tasks of other splits, are
    refused."""

    def __init__(self, folder: Path, held_out: Container[str] = ()) -> None:
        self.name = str(folder)
        self._folder, self._held_out = folder, held_out

    def refs(self) -> list[TaskRef]:
        found = read_admissions(self._folder / VERDICTS)
        refs = [TaskRef(one.task_id, one.task_hash) for one in found.values() if one.admitted and not one.lost]
        if not refs:
            raise UsageError(f"{self._folder}: no admitted task; `evolver tasks admit {self._folder}` tries them")
        if held := [r.id for r in refs if r.hash in self._held_out or split_of(r.id) not in (None, "train")]:
            raise UsageError(
                f"{self._folder}: {len(held)} of {len(refs)} tasks are held out of training by the capsule's run or "
                f"by our splits ({', '.join(held[:3])}): give a directory without them"
            )
        return sorted(refs)

    def task(self, ref: TaskRef) -> Task:
        try:
            task = read_task_dir(self._folder / ref.id)
        except TaskError as error:
            raise UsageError(str(error)) from error
        split = "train" if task.seen_in_training else None
        return _same(task, ref, self.name).model_copy(update={"split": split})


def source_of(name: str, held_out: Container[str] = ()) -> TaskSource:
    """A split's name, or a directory's path. Raises UsageError for anything else. `held_out` as in `FolderTasks`."""
    if name in SPLITS:
        return SplitTasks(name)
    if Path(name).is_dir():
        return FolderTasks(Path(name).resolve(), held_out)
    known = ", ".join(split for split in SPLITS if split not in SEALED)
    raise UsageError(f"--tasks {name}: neither a split ({known}) nor a directory of tasks")


def _same(task: Task | None, ref: TaskRef, place: str) -> Task:
    """The very task that the plan names, down to its bytes."""
    if task is None or task.hash != ref.hash or task_hash(task) != ref.hash:
        found = "is gone" if task is None else f"hashes to {task.hash[:12]}, the plan has {ref.hash[:12]}"
        raise UsageError(f"{place}: task {ref.id!r} {found}; give its bytes back, or start another round")
    return task
