"""A round's folder: opened once under one plan, and opened again only for the same.

manifest.jsonl   what belongs to the round (evolver.rounds.manifest)
plan.parquet     every unit, in order
book.sqlite      leases, costs, looks of the instruments
attempts/        what workers left that is in no shard yet
ungraded/        what was played and waits to be graded
instruments/     what the first looks at endpoint and judge found
shards/          the rows that are kept
run.json, blobs/ screenshots and frozen homes, as in a run's folder
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolver.disk import make_folder
from evolver.errors import UsageError
from evolver.rounds import attempts as attempts_
from evolver.rounds import shards
from evolver.rounds.attempts import Attempts
from evolver.rounds.book import Book
from evolver.rounds.manifest import FIRST, Manifest, Opened
from evolver.rounds.plan import SCHEMA, TaskRef, planned, sha256_of, write_plan
from evolver.rounds.rows import Limits
from evolver.rounds.shards import Compactor

BOOK, PLAN = "book.sqlite", "plan.parquet"
LATER = ("prev", "at", "plan_sha256", "capsule", "one_off_usd")  # what may differ when a round is opened again


@dataclass(frozen=True)
class Plan:
    """What a round is to be. `tasks` are played in turn until there are `units`; a shard holds `shard_units`, and keeps
    what is within `limits`."""

    capsule_id: str
    capsule: str
    harness_id: str
    model_id: str
    task_set: str
    tasks: Sequence[TaskRef]
    units: int
    shard_units: int = 500
    limits: Limits = Limits()
    one_off_usd: float | None = None


class Round:
    """An open round, for the one process that drives it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = Manifest.of(path)
        self.attempts = Attempts.of(path)
        self.book = Book(path / BOOK)
        self.compactor = Compactor(path, self.book, self.manifest, self.attempts)

    @classmethod
    def open(cls, path: Path, plan: Plan) -> Round:
        """Starts the round that `plan` describes, or goes on with it. Raises UsageError naming every field in which the
        folder's round is another one."""
        for folder in (attempts_.FOLDER, shards.FOLDER):
            make_folder(path / folder)
        manifest = Manifest.of(path)
        if manifest.is_open:
            _require_same(path, manifest.opened, plan)
        else:
            _plan(path, plan, manifest)
        return cls(path)

    def close(self) -> None:
        self.book.close()


def _plan(path: Path, plan: Plan, manifest: Manifest) -> None:
    """The manifest's first line comes last: without it, none of this was there."""
    book = Book.create(path / BOOK)
    try:
        chunks = write_plan(path / PLAN, plan.tasks, planned(plan.capsule_id, plan.tasks, plan.units))
        book.fill(plan.tasks, chunks)
    finally:
        book.close()
    manifest.append(_opened(plan, sha256_of(path / PLAN)))


def _opened(plan: Plan, plan_sha256: str) -> Opened:
    return Opened(
        prev=FIRST,
        capsule_id=plan.capsule_id,
        capsule=plan.capsule,
        harness_id=plan.harness_id,
        model_id=plan.model_id,
        tasks=plan.task_set,
        n_tasks=len(plan.tasks),
        units=plan.units,
        unit_schema=SCHEMA,
        plan_sha256=plan_sha256,
        shard_units=plan.shard_units,
        max_turns=plan.limits.turns,
        max_tokens=plan.limits.tokens,
        one_off_usd=plan.one_off_usd,
        at=time.time(),
    )


def _require_same(path: Path, opened: Opened, plan: Plan) -> None:
    before, now = opened.model_dump(exclude=set(LATER)), _opened(plan, "").model_dump(exclude=set(LATER))
    changed = [f"{field}: {before[field]} → {now[field]}" for field in before if before[field] != now[field]]
    if not changed:
        book = Book.read(path / BOOK)
        known, given = {task.hash for task in book.tasks()}, {task.hash for task in plan.tasks}
        book.close()
        changed = [f"tasks: {len(known ^ given)} of them are other versions"] if known != given else []
    if changed:
        raise UsageError(
            f"{path} holds another round ({'; '.join(changed)}): give the same back, or choose another --out"
        )
