"""The tasks that a run plays: those of its splits, and the imported ones that its config names for them.

An imported task plays only as it was admitted: its directory must hash to what the gate's verdict says, check program
included. Quarantined tasks of a directory are left out. The hash is in the key of every attempt, as for any task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from devset.directory import TaskError, read_task_dir
from devset.task import SPLITS, Split, Task
from evolver.admission import Admission, read_admissions
from evolver.config import DemonstratorSpec, RunConfig
from evolver.errors import NotReady, UsageError
from evolver.imports import VERDICTS, read_tasks
from evolver.opening import open_split
from evolver.store import Store

SHOWN = 3  # task ids in a message


def tasks_of(store: Store, split: Split, limit: int | None, why: str) -> list[Task]:
    """The split's first `limit` own tasks and all imported ones. Opening a sealed split is recorded, with `why`."""
    return with_imported(store, split, open_split(store, split, limit, why))


def with_imported(store: Store, split: Split, own: Sequence[Task]) -> list[Task]:
    """`own` and the imported tasks of this split. Raises UsageError for a task that is not admitted as it is now, that
    two splits share, or that the demonstrator has no solution for."""
    found = imported_tasks(store.config)
    _require_apart(found)
    if isinstance(store.config.teacher, DemonstratorSpec):
        _require_oracles(found)
    known = {task.id for task in own}
    if twice := [task.id for task in found[split] if task.id in known]:
        raise UsageError(f"tasks.imported.{split}: {_named(twice)} has the id of one of our own tasks")
    return [*own, *found[split]]


def imported_tasks(config: RunConfig) -> dict[Split, list[Task]]:
    """What the config imports per split, in the order of its directories."""
    folders: Mapping[Split, tuple[str, ...]] = {split: getattr(config.tasks.imported, split) for split in SPLITS}
    found = {split: [t for folder in folders[split] for t in _admitted(Path(folder))] for split in SPLITS}
    trained = {task.family for task in found["train"]}
    return {
        split: [task.model_copy(update={"split": split, "seen_in_training": task.family in trained}) for task in tasks]
        for split, tasks in found.items()
    }


def _admitted(folder: Path) -> list[Task]:
    """The admitted tasks of a directory. Raises UsageError when one of them has no verdict as it is now, or none is
    admitted; of a single task's directory also when that task is quarantined."""
    alone = (folder / "task.toml").is_file()
    place = folder.parent if alone else folder
    try:
        tasks = [read_task_dir(folder)] if alone else read_tasks(folder)
    except TaskError as error:
        raise UsageError(str(error)) from error
    verdicts = read_admissions(place / VERDICTS)
    if open_ := [f"{task.id} ({why})" for task in tasks if (why := _undecided(task, verdicts.get(task.id)))]:
        raise UsageError(
            f"{folder}: {len(open_)} of {len(tasks)} tasks are not admitted as they are now: {_named(open_)}; run "
            f"`evolver tasks admit {place}`"
        )
    admitted = [task for task in tasks if verdicts[task.id].admitted]
    if not admitted:
        raise UsageError(f"{folder}: the gate has quarantined all of it: {'; '.join(verdicts[tasks[0].id].reasons)}")
    return admitted


def _undecided(task: Task, verdict: Admission | None) -> str | None:
    """Why the gate's verdict does not stand for this task; None when it does."""
    if verdict is None:
        return "never tried"
    if verdict.task_hash != task.hash:
        return f"changed since: it hashes to {task.hash[:12]}, the verdict is on {verdict.task_hash[:12]}"
    return "its machine was lost" if verdict.lost else None


def _require_oracles(found: Mapping[Split, Sequence[Task]]) -> None:
    tasks = [task for tasks in found.values() for task in tasks]
    lacking = [task.id for task in tasks if task.feasible and not task.oracle.channels]
    if lacking:
        raise UsageError(
            f"the demonstrator replays known solutions, and {len(lacking)} of {len(tasks)} imported tasks have none "
            f'({_named(lacking)}): set teacher.kind = "openai" with a model that plays by itself, or leave these tasks '
            "out of tasks.imported"
        )


def _require_apart(found: Mapping[Split, Sequence[Task]]) -> None:
    """No imported task is in two splits, whole or nearly (devset.overlap)."""
    ids = [task.id for tasks in found.values() for task in tasks]
    if twice := sorted({one for one in ids if ids.count(one) > 1}):
        raise UsageError(f"tasks.imported: {_named(twice)} is named more than once; a task plays in one split only")
    for one, other in combinations([split for split, tasks in found.items() if tasks], 2):
        try:
            from devset.overlap import items_of, overlaps

            pairs = overlaps(items_of(found[one]), items_of(found[other]))
        except ImportError as error:
            raise NotReady(f"comparing tasks needs datasketch ({error}): pip install -e '.[devset]'") from None
        if pairs:
            shown = _named([f"{p.a} and {p.b} ({p.similarity:.2f})" for p in pairs])
            raise UsageError(f"tasks.imported: {one} and {other} share {len(pairs)} tasks: {shown}")


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")
