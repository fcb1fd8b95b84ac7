"""Small rounds of units that play nothing, in this process, for tests that look into them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from evolver.executors.local import LocalCrew
from evolver.protocols import Lease, Planned, Report
from evolver.rounds.attempts import Attempts
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.folder import Plan, Round
from evolver.rounds.manifest import Closed
from evolver.rounds.plan import TaskRef
from evolver.rounds.rows import ROW, Again
from evolver.rounds.settling import Came, settlement
from evolver.rounds.watch import Schedule, Watch
from evolver.testing.rounds import COST, NoopSpec, NoopWorker, noop_rows

CAPSULE = "c" * 64
TASKS = [TaskRef(f"task-{n}", f"{n:064d}") for n in range(7)]
Before = Callable[[Lease], None]


def a_plan(units: int = 40, shard_units: int = 10, **changes: object) -> Plan:
    made = {
        "capsule_id": CAPSULE, "capsule": "capsules/x", "harness_id": "h", "model_id": "noop", "task_set": "train",
        "tasks": TASKS, "units": units, "shard_units": shard_units,
    }  # fmt: skip
    return Plan(**{**made, **changes})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Spec:
    """`before` is called with each lease and may raise; `success` says how each unit ends, and `again` whether it is
    played again, and why."""

    round_dir: Path
    before: Before = lambda lease: None
    success: Callable[[Planned], bool | None] = lambda unit: True
    again: Callable[[Planned], Again] = lambda unit: ""
    worked: list[int] = field(default_factory=list)

    async def open(self, name: str) -> Player:
        return Player(self, name)


class Player(NoopWorker):
    def __init__(self, spec: Spec, name: str) -> None:
        super().__init__(NoopSpec(spec.round_dir, CAPSULE), name)
        self.spec = spec

    async def work(self, lease: Lease) -> Report:
        self.spec.before(lease)
        self.spec.worked.append(lease.id)
        if (self.spec.success, self.spec.again) == (Spec.success, Spec.again):
            return await super().work(lease)
        again = [self.spec.again(unit) for unit in lease.units]
        rows = noop_rows(lease, CAPSULE, self._name, self.spec.success)
        Attempts.of(self.spec.round_dir).write(lease.id, changed(rows, "again", again))
        return Report(lease.id, self._name)


def changed(rows: pa.Table, column: str, values: Sequence[object]) -> pa.Table:
    """Rows that say something else in one column."""
    field = ROW.field(column)
    return rows.set_column(rows.column_names.index(column), field, [pa.array(values, type=field.type)])


def opened(path: Path, plan: Plan | None = None) -> Round:
    return Round.open(path, plan or a_plan())


def claimed(round_: Round, most: int = 4) -> Lease:
    found = round_.book.claim(most, round_.manifest.opened.units, COST.nusd)
    assert found is not None
    return Lease(*found)


def settled(round_: Round, lease: Lease) -> int:
    """Settles a lease by its rows; how many units that completed."""
    came = Came.of(round_.attempts.summary(lease.id))
    return round_.book.settle(lease.id, settlement(came, round_.book.held(lease.id), 3))


def driven(
    path: Path,
    spec: Spec | None = None,
    rules: Rules = Rules(lease_units=4),
    plan: Plan | None = None,
    schedule: Schedule = Schedule(),
    clock: Callable[[], float] = time.monotonic,
) -> Closed:
    """Plays a round to its end, or goes on with it."""

    async def play() -> Closed:
        round_ = opened(path, plan)
        crew = LocalCrew(spec or Spec(path), rules.workers)
        try:
            units = round_.manifest.opened.units
            return await Driver(round_, crew, rules, Watch(round_.book, schedule, units), clock=clock).run()
        finally:
            await crew.aclose()
            round_.close()

    return asyncio.run(play())
