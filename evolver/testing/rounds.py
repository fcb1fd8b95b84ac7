"""A worker of generation rounds that plays nothing: its rows are a pure function of the unit, and each bills one call.

What the provider would have counted is kept apart from the round's own books, in one file a worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from evolver.protocols import Lease, Planned, Report
from evolver.rounds.attempts import Attempts
from evolver.rounds.book import Cost
from evolver.rounds.rows import ROW

COST = Cost(calls=1, tokens=10, nusd=1_000)


@dataclass(frozen=True)
class NoopSpec:
    """`pause_s` a lease makes it last; `bills` is the folder of what the provider counts (None: it does not)."""

    round_dir: Path
    capsule_id: str
    pause_s: float = 0.0
    bills: Path | None = None

    async def open(self, name: str) -> NoopWorker:
        return NoopWorker(self, name)


class NoopWorker:
    def __init__(self, spec: NoopSpec, name: str) -> None:
        self._spec, self._name = spec, name
        self._attempts = Attempts.of(spec.round_dir)

    async def work(self, lease: Lease) -> Report:
        journal = self._attempts.journal(lease.id)
        try:
            n = len(lease.units)
            journal.asked(n)
            self._bill(lease)
            journal.answered(Cost(*(field * n for field in (1, COST.tokens, COST.nusd, 0))), of=n)
            if self._spec.pause_s:
                await asyncio.sleep(self._spec.pause_s)
            self._attempts.write(lease.id, noop_rows(lease, self._spec.capsule_id, self._name))
        finally:
            journal.close()
        return Report(lease.id, self._name)

    async def aclose(self) -> None:
        return None

    def _bill(self, lease: Lease) -> None:
        if self._spec.bills is not None:
            fd = os.open(self._spec.bills / f"{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(fd, f"{len(lease.units)}\n".encode())
            os.close(fd)


def noop_rows(
    lease: Lease, capsule_id: str, worker: str, success: Callable[[Planned], bool | None] = lambda unit: True
) -> pa.Table:
    """One row a unit of the lease; a success of None is a failure on our side."""
    n, units = len(lease.units), [unit.id for unit in lease.units]
    solved = [success(unit) for unit in lease.units]
    reasons = ["" if one else "infra" if one is None else "state" for one in solved]
    same: dict[str, object] = {
        "capsule_id": capsule_id, "skills": [], "instruction": "", "worker": worker, "attempt": f"a-{lease.id}",
        "fence": lease.id, "again": "", "why": "", "rubric": None, "channel": "terminal", "turns_gui": 0,
        "turns_terminal": 1, "calls": COST.calls, "tokens": COST.tokens, "nusd": COST.nusd, "seconds": 0.0,
        "rollout": "", "scorecard": "",
    }  # fmt: skip
    content = [hashlib.sha256(unit.encode()).hexdigest() for unit in units]
    columns: dict[str, object] = {
        "unit": units,
        "task_id": [f"task-{unit.task}" for unit in lease.units],
        "task_hash": [f"{unit.task:064d}" for unit in lease.units],
        "replica": [unit.replica for unit in lease.units],
        "verdict": ["rejected" if reason else "accepted" for reason in reasons],
        "reason": reasons,
        "success": solved,
        "content_sha256": content,
        "sameness": content,
    }
    made = []
    for field in ROW:
        values = columns[field.name] if field.name in columns else [same[field.name]] * n
        made.append(pa.array(values, type=field.type))
    return pa.table(made, schema=ROW)
