"""Small rounds of units that play nothing, in this process, for tests that look into them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from evolver.executors.local import LocalCrew
from evolver.protocols import Lease, Planned, Report
from evolver.rounds.attempts import Attempts
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.folder import Plan, Round
from evolver.rounds.manifest import Closed
from evolver.rounds.plan import TaskRef
from evolver.rounds.watch import Schedule, Watch
from evolver.testing.rounds import NoopSpec, NoopWorker, noop_rows

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
    """`before` is called with each lease and may raise; `success` says how each unit ends."""

    round_dir: Path
    before: Before = lambda lease: None
    success: Callable[[Planned], bool | None] = lambda unit: True
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
        if self.spec.success is Spec.success:
            return await super().work(lease)
        Attempts.of(self.spec.round_dir).write(lease.id, noop_rows(lease, CAPSULE, self._name, self.spec.success))
        return Report(lease.id, self._name)


def opened(path: Path, plan: Plan | None = None) -> Round:
    return Round.open(path, plan or a_plan())


def driven(
    path: Path,
    spec: Spec | None = None,
    rules: Rules = Rules(lease_units=4),
    plan: Plan | None = None,
    schedule: Schedule = Schedule(),
) -> Closed:
    """Plays a round to its end, or goes on with it."""

    async def play() -> Closed:
        round_ = opened(path, plan)
        crew = LocalCrew(spec or Spec(path), rules.workers)
        try:
            units = round_.manifest.opened.units
            return await Driver(round_, crew, rules, Watch(round_.book, schedule, units)).run()
        finally:
            await crew.aclose()
            round_.close()

    return asyncio.run(play())
