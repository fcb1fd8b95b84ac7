"""Opens the sealed split, and leaves a record of who did so, when, why and by which command.

Rollouts of test tasks are for the gap between two harnesses and for what a distillation came to; whoever wants to see
them one by one says so with `--open-test WHY`. What an author is told never comes from here.
"""

from __future__ import annotations

import getpass
import shlex
import sys
import time
import uuid
from fnmatch import fnmatchcase
from pathlib import Path

from devset.splits import SEALED, load_split
from devset.task import Split, Task
from evolver.audit import Opening
from evolver.config import RunConfig
from evolver.errors import UsageError
from evolver.records import Rollout
from evolver.store import Store

LOG = "openings.jsonl"  # beside whatever a command without a run writes; a run keeps them among its records


def open_split(store: Store, split: Split, limit: int | None, why: str) -> list[Task]:
    """The tasks of a split for a use that is meant (`why` names it); opening a sealed one is recorded in the run."""
    if split in SEALED:
        record_opening(store, split, why, flagged=False)
    return own_tasks(store.config, split, limit)


def own_tasks(config: RunConfig, split: Split, limit: int | None) -> list[Task]:
    """The first `limit` tasks of a split that are of the config's families. Raises UsageError when none is."""
    wanted = config.tasks.families
    tasks = load_split(split, unsealed=True)
    found = [task for task in tasks if not wanted or any(fnmatchcase(task.family, name) for name in wanted)]
    if not found:
        known = ", ".join(sorted({task.family for task in tasks}))
        raise UsageError(f"tasks.families: no task of {split} is of {', '.join(wanted)}; known: {known}")
    return found[:limit]


def record_opening(place: Store | Path, split: Split, why: str, *, flagged: bool) -> None:
    """Makes the record durable, in a run or in a folder. `flagged`: a person asked for it. Raises UsageError when no
    reason is given."""
    if not why.strip():
        raise UsageError(f"opening split {split!r} needs a reason: --open-test 'why it must be seen now'")
    opening = Opening(
        id=f"open-{uuid.uuid4().hex[:16]}",
        split=split,
        why=why.strip(),
        command=shlex.join(["evolver", *sys.argv[1:]]),
        flagged=flagged,
        who=_who(),
        at=time.time(),
    )
    if isinstance(place, Store):
        place.append(opening)
    else:
        place.mkdir(parents=True, exist_ok=True)
        with (place / LOG).open("a", encoding="utf-8") as lines:
            lines.write(opening.model_dump_json() + "\n")


def is_shown(store: Store, rollout: Rollout) -> bool:
    """Whether this attempt may be shown on its own: its split is not sealed, or a person has opened it in this run."""
    split = rollout.key.split
    return split not in SEALED or any(opening.flagged and opening.split == split for opening in store.all(Opening))


def unseal(store: Store) -> str:
    """How to open the sealed split of a run all the same."""
    return f"to see it all the same, say what for: evolver rollout list {store.path} --open-test WHY (it is recorded)"


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return "unknown"
