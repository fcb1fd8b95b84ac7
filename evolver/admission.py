"""The gate of the dev set: a task enters only when it is proven to be neither free nor impossible.

Proven means, by real rollouts in real sandboxes: set-up works, the untouched state does not succeed, the oracle of
every channel does, and the checker gives the same verdict twice on one frozen state.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from devset.task import Task
from evolver.protocols import Executor, Grader, Model, Privileged, Sandboxes
from evolver.records import Finite, Record, Rollout, RolloutKey, Score, Scorecard
from evolver.rollout import Job, run_rollout
from evolver.score import scorecard
from evolver.testing import NoopModel
from harnesses.harness import Harness

TRIES = 3  # an attempt that fails on our side says nothing about the task


class Admission(Record):
    """The gate's verdict on one task, with every reason against it."""

    task_id: str
    task_hash: str
    admitted: bool
    reasons: tuple[str, ...]
    seconds: Finite


@dataclass(frozen=True)
class Bench:
    """What the gate runs tasks with: `gui` and `terminal` are the harnesses under which an oracle of that channel is
    replayed, `demonstrator` replays it without slips, `oracle_runs` times on fresh machines."""

    sandboxes: Sandboxes
    graders: Sequence[Grader]
    executor: Executor
    demonstrator: Privileged
    gui: Harness
    terminal: Harness
    oracle_runs: int = 1
    run_id: str = "admit"


async def admit(tasks: Sequence[Task], bench: Bench, path: Path | None = None) -> AsyncIterator[Admission]:
    """One verdict per task, as they come; each is appended to `path` as a line of JSON before it is yielded."""

    async def one(task: Task) -> Admission:
        return await _admit_one(task, bench)

    async for admission in bench.executor.map(one, tasks):
        if path is not None:
            _append(path, admission)
        yield admission


def _append(path: Path, admission: Admission) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(admission.model_dump_json() + "\n")
        lines.flush()
        os.fsync(lines.fileno())


async def _admit_one(task: Task, bench: Bench) -> Admission:
    started = time.monotonic()
    reasons = _unproven(task)
    if not reasons:
        reasons = await _noop(task, bench)
    if not reasons:  # a broken set-up or a free task needs no oracle to be refused
        for harness, channel in _ways(task, bench):
            for number in range(bench.oracle_runs):
                reasons += await _oracle(task, bench, harness, f"oracle ({channel})", number)
    return Admission(
        task_id=task.id,
        task_hash=task.hash,
        admitted=not reasons,
        reasons=tuple(dict.fromkeys(reasons)),
        seconds=round(time.monotonic() - started, 3),
    )


def _unproven(task: Task) -> list[str]:
    """What can be said without running anything: a task without an oracle is not hard, it is unproven."""
    missing = sorted(task.channels - task.oracle.channels)
    if missing:
        return [f"unproven: no oracle for channel {', '.join(missing)}"]
    if task.feasible and not task.channels:
        return ["unproven: no channel and no oracle"]
    return []


def _ways(task: Task, bench: Bench) -> list[tuple[Harness, str]]:
    ways = [(bench.gui, "gui")] if "gui" in task.channels else []
    if "terminal" in task.channels or not ways:
        ways.append((bench.terminal, "terminal"))
    return ways


async def _noop(task: Task, bench: Bench) -> list[str]:
    card, doubts = await _attempt(task, bench, bench.terminal, NoopModel(), 0)
    if card.success:
        return [*doubts, "the untouched state succeeds"]
    return doubts


async def _oracle(task: Task, bench: Bench, harness: Harness, name: str, number: int) -> list[str]:
    card, doubts = await _attempt(task, bench, harness, bench.demonstrator, number)
    if card.success is False:
        doubts.append(f"{name} does not succeed: {_failed(card)}")
    return [doubt if doubt.startswith(name) else f"{name}: {doubt}" for doubt in doubts]


async def _attempt(
    task: Task, bench: Bench, harness: Harness, model: Model | Privileged, number: int
) -> tuple[Scorecard, list[str]]:
    """One rollout, graded twice, and what is wrong with it apart from its score. Our own failures are run again."""
    for tries in range(TRIES):
        rollout, state = await _rolled(task, bench, harness, model, number * TRIES + tries)
        if rollout.error is None or rollout.error.blame in ("task", "harness"):
            break
    if state is None:
        why = f"{rollout.error.kind}: {rollout.error.message}" if rollout.error else "no frozen state"
        return scorecard(rollout, task, [], None), [why]
    first, second = [await _graded(task, bench, rollout, state) for _ in range(2)]
    doubts = [f"criterion {s.criterion} is unscored: {s.explanation}" for s in first if s.value is None]
    if [s.value for s in first] != [s.value for s in second]:
        doubts.append(
            f"the checker disagrees with itself on one frozen state: {_values(first)}, then {_values(second)}"
        )
    return scorecard(rollout, task, first, None), doubts


async def _rolled(
    task: Task, bench: Bench, harness: Harness, model: Model | Privileged, number: int
) -> tuple[Rollout, bytes | None]:
    key = RolloutKey(
        purpose="admit",
        harness_id=harness.id,
        model_id=model.id,
        task_id=task.id,
        task_hash=task.hash,
        split=task.split,
        attempt=number,
        seed=0,
    )
    rollout_id = "r-" + hashlib.sha256(key.model_dump_json().encode()).hexdigest()[:16]
    job = Job(key=key, rollout_id=rollout_id, harness=harness, task=task, model=model, run_id=bench.run_id)
    return await run_rollout(job, bench.sandboxes, lambda data: hashlib.sha256(data).hexdigest())


async def _graded(task: Task, bench: Bench, rollout: Rollout, state: bytes) -> list[Score]:
    scores: list[Score] = []
    for grader in bench.graders:
        criteria = [c for c in task.rubric.criteria if c.grader == grader.name]
        if criteria:
            scores += await grader.grade(criteria, task, rollout, state)
    return scores


def _failed(card: Scorecard) -> str:
    """The required criteria that don't hold, or how the attempt ended when all of them do."""
    short = [
        f"{s.criterion} is {s.value:g} ({s.explanation})"
        for s in card.scores
        if s.required and s.value not in (1, None)
    ]
    return "; ".join(short) or "the attempt did not end as it should"


def _values(scores: Sequence[Score]) -> dict[str, float | None]:
    return {s.criterion: s.value for s in scores}
