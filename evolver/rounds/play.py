"""The worker of a real round: it opens the capsule, refuses it when anything has drifted, and plays what it is handed.

One unit is one rollout under the capsule's harness and teacher, graded as everywhere else. Which worker plays it, and
for the how many-th time, changes neither its seed nor its id.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from devset.task import Task
from evolver.budget import Budget
from evolver.capsules import Drift, Drifted, open_capsule, verify_machine
from evolver.config import OpenAISpec
from evolver.context import request_for, request_sha256
from evolver.errors import JudgeSilent
from evolver.live import watched
from evolver.protocols import Finding, Grader, Held, Lease, Planned, Report
from evolver.records import Rollout, RolloutKey, Scorecard
from evolver.redact import keys_in, redacted
from evolver.rollout import Interrupted, Job, run_rollout
from evolver.rounds.attempts import Attempts, Journal
from evolver.rounds.bench import RUN, Bench
from evolver.rounds.meter import Meter
from evolver.rounds.plan import TaskRef
from evolver.rounds.probes import endpoint_answers, keep_case, probe
from evolver.rounds.rows import Again, Limits, Origin, infra_row, row_of, table_of
from evolver.rounds.tasks import source_of
from evolver.rounds.ungraded import Shelf, Ungraded
from evolver.score import grades, scorecard
from evolver.store import Store
from evolver.sums import total
from harnesses.harness import Harness


@dataclass(frozen=True)
class RolloutSpec:
    """What a worker needs to know: where the capsule and the round lie (on a disk that it sees too), which set the
    tasks are of, and every task that the plan names. `spares` machines are kept warm beside the one that is used."""

    capsule: Path
    capsule_id: str
    round_dir: Path
    task_set: str
    tasks: tuple[TaskRef, ...]
    limits: Limits = Limits()
    spares: int = 0

    async def open(self, name: str) -> RolloutWorker:
        from evolver.graders.judge import JudgeGrader
        from evolver.graders.program import ProgramGrader
        from evolver.models import make_model
        from evolver.models.openai import OpenAIModel
        from evolver.sandboxes import open_backend

        opened = open_capsule(self.capsule)
        _require(self.capsule, "id", self.capsule_id, opened.id)
        store, config = Store.open(self.round_dir), opened.config
        sandboxes = open_backend(config.sandbox.backend, spares=self.spares)
        try:
            drifts = await verify_machine(opened.capsule, opened.harness.environment, sandboxes)
            if drifts:
                raise Drifted(self.capsule, drifts)
            graders: list[Grader] = [ProgramGrader(sandboxes)]
            if config.judge is not None:
                graders.append(JudgeGrader(config.judge, OpenAIModel(config.judge.model), store))
            bench = Bench(
                opened, store, sandboxes, tuple(graders), make_model(config.teacher), source_of(self.task_set)
            )
            return RolloutWorker(self, bench, name)
        except BaseException:
            await sandboxes.aclose()
            raise


class RolloutWorker:
    def __init__(self, spec: RolloutSpec, bench: Bench, name: str) -> None:
        self._spec, self.bench, self._name = spec, bench, name
        self._attempts = Attempts.of(spec.round_dir)
        self._ungraded = Shelf.of(spec.round_dir)
        self._keys = keys_in(bench.opened.config.key_names)
        self._budget = Budget(bench.store, bench.opened.config.caps)

    async def work(self, lease: Lease) -> Report:
        throttled, _ = self._throttled()
        journal = self._attempts.journal(lease.id)
        try:
            if lease.probe is not None:
                found = await self._probe(lease, journal)
                return self._report(lease, throttled, found)
            rows = [await self._row(unit, lease, journal) for unit in lease.units]
            await asyncio.to_thread(self._attempts.write, lease.id, table_of(rows))
            for unit, row in zip(lease.units, rows, strict=True):
                if not row["again"]:
                    self._ungraded.drop(unit.id)
        finally:
            journal.close()
        return self._report(lease, throttled, ())

    async def aclose(self) -> None:
        if isinstance(self.bench.model, Held):
            self.bench.model.close()
        for grader in self.bench.graders:
            await grader.aclose()
        await self.bench.sandboxes.aclose()

    def _report(self, lease: Lease, before: int, findings: Sequence[Finding]) -> Report:
        throttled, asked_s = self._throttled()
        now = throttled - before
        return Report(lease.id, self._name, now, asked_s if now else 0.0, tuple(findings))

    def _throttled(self) -> tuple[int, float]:
        """How often the teacher's endpoint has turned calls of this process away, and for how long from now on it wants
        to be left alone."""
        from evolver.models.endpoint import limiter_for
        from evolver.models.openai import DEFAULT_URL

        spec = self.bench.opened.config.teacher
        if not isinstance(spec, OpenAISpec):
            return 0, 0.0
        limiter = limiter_for(spec.base_url or DEFAULT_URL, spec.concurrency)
        return limiter.throttled, limiter.held_s

    async def _row(self, unit: Planned, lease: Lease, journal: Journal) -> Mapping[str, object]:
        task = self.bench.source.task(self._spec.tasks[unit.task])
        meter = Meter(journal, self._budget.price)
        origin = Origin(self._spec.capsule_id, self._name, f"a-{secrets.token_hex(8)}", lease.id)
        about: dict[str, JsonValue] = {
            "task_id": task.id,
            "task_hash": task.hash,
            "skills": list(task.skill_ids),
            "instruction": task.instruction,
        }
        try:
            async with asyncio.timeout(lease.deadline_s) as scope:
                played = await self._played(unit, task, meter)
        except (TimeoutError, Interrupted):
            if not scope.expired():
                raise
            why, again = f"not done within {lease.deadline_s:g} s", "try"
        except JudgeSilent as error:
            why, again = f"not graded yet: {redacted(str(error), self._keys)}", "outage"
        else:
            why, again = _ours(played, self.bench.harness, task)
            if not why:
                return {**row_of(unit, origin, played, about, self._spec.limits), **_costs(meter)}
            self._ungraded.drop(unit.id)  # nothing can come of what was played
        return {**infra_row(unit, origin, about, why, again), **_costs(meter)}  # type: ignore[arg-type]

    async def _played(self, unit: Planned, task: Task, meter: Meter) -> tuple[Rollout, Scorecard]:
        bench = self.bench
        paid: float | None = 0.0
        if (kept := self._ungraded.get(unit.id)) is None:
            rollout, state = await self._rollout(unit, task, meter)
        else:
            rollout, paid = kept.rollout, kept.usd
            state = bench.store.blob(rollout.state_sha256 or "")
        if rollout.image_digest:  # "" where no machine was had
            pinned = bench.opened.capsule.machine.image.digest
            _require(self._spec.capsule, "machine.image.digest", pinned, rollout.image_digest)
        try:
            with meter.charged(bench.store, rollout.id):  # what the judge is paid is part of what the unit cost
                scores = [] if state is None else await grades(bench.graders, task, rollout, state, self._keys)
        except BaseException:  # also a stop: whatever kept it from being graded, nobody plays it again
            self._ungraded.put(unit.id, Ungraded(rollout=rollout, usd=total((paid, _usd(meter)))))
            raise
        keep_case(bench, unit.id, self._spec.tasks[unit.task], rollout, scores)
        return rollout, scorecard(rollout, task, scores, total((paid, _usd(meter))))

    async def _rollout(self, unit: Planned, task: Task, meter: Meter) -> tuple[Rollout, bytes | None]:
        bench, config = self.bench, self.bench.opened.config
        job = Job(
            key=RolloutKey(
                purpose="train",
                harness_id=bench.harness.id,
                model_id=bench.model.id,
                task_id=task.id,
                task_hash=task.hash,
                split=task.split,
                attempt=unit.replica,
                seed=config.seed,
            ),
            rollout_id=f"r-{unit.id[:16]}",
            harness=bench.harness,
            task=task,
            model=meter.around(bench.model),
            run_id=RUN,
            ttl_s=config.sandbox.ttl_s,
            keys=self._keys,
            answers=partial(endpoint_answers, bench.model, meter),
        )
        with watched(bench.store.path, job) as shown:
            return await run_rollout(shown, bench.sandboxes, bench.store.put_blob)

    async def _probe(self, lease: Lease, journal: Journal) -> Sequence[Finding]:
        if lease.probe is None:
            return ()
        async with asyncio.timeout(lease.deadline_s):
            return await probe(lease.probe, self.bench, self._spec.tasks, Meter(journal, self._budget.price))


def _ours(played: tuple[Rollout, Scorecard], harness: Harness, task: Task) -> tuple[str, Again]:
    """Why a played unit says nothing about the agent, and whether it is played again; ("", "") when it does."""
    rollout, card = played
    if not _as_sent(rollout, harness, task):
        return "a request was not what this harness sends: prompt or tools changed while it was played", "try"
    if card.success is not None:
        return "", ""
    error = rollout.error
    if error is None:
        return "; ".join(s.explanation for s in card.scores if s.value is None) or "unscored", "try"
    outage = error.blame == "provider" and error.kind != "refused"
    return f"{error.kind} ({error.blame}): {error.message}", "outage" if outage else "try"


def _as_sent(rollout: Rollout, harness: Harness, task: Task) -> bool:
    """Whether every request was the one that harness, task and the turns before it make."""
    turns = rollout.turns
    return rollout.loaded_harness_id == harness.id and all(
        request_sha256(*request_for(harness, task.instruction, rollout.first, turns[:i], rollout.image_rule))
        == turn.request_sha256
        for i, turn in enumerate(turns)
    )


def _costs(meter: Meter) -> dict[str, object]:
    total = meter.total
    known = total.unknown == 0
    return {"calls": total.calls, "tokens": total.tokens if known else None, "nusd": total.nusd if known else None}


def _usd(meter: Meter) -> float | None:
    return None if meter.total.unknown else meter.total.nusd / 1e9


def _require(capsule: Path, field: str, pinned: str, found: str) -> None:
    if pinned != found:
        raise Drifted(capsule, [Drift(field=field, pinned=pinned, found=found)])
