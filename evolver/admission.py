"""The gate of the dev set: a task enters only when it is proven to be neither free nor impossible.

Proven means, by real rollouts in real sandboxes: set-up works, the untouched state does not succeed however the agent
ends, the oracle of every channel does, and the checker gives the same verdict twice on one frozen state and one at all
on an empty home. A task that nobody wrote an oracle for may enter as well, and is called unproven.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devset.task import Task
from evolver.controls import AlwaysFailModel, NoopModel, home_tar
from evolver.disk import append_line, records_in
from evolver.errors import SandboxLost
from evolver.protocols import Executor, Grader, Model, Privileged, Sandboxes
from evolver.records import Finite, Record, Rollout, RolloutKey, Score, Scorecard, StopReason
from evolver.rollout import Job, run_rollout
from evolver.score import grades, scorecard
from harnesses.harness import Harness

EMPTY_HOME = home_tar({})
Way = tuple[Harness, Model | Privileged, int]
TRIES = 3  # an attempt that fails on our side says nothing about the task


class Controls(Record):
    """Whether agents that change nothing succeed: `noop` never ends, `done` claims success, `fail` gives up with a
    reason. None where that could not be scored."""

    noop: bool | None
    done: bool | None
    fail: bool | None


class Admission(Record):
    """The gate's verdict on one task, with every reason against it.

    `proven` says that an oracle succeeded, `crashed` that the checker failed on some state. `lost` is a failure of our
    own machines: it says nothing about the task, which is run again at the next start.
    """

    task_id: str
    task_hash: str
    admitted: bool
    proven: bool
    crashed: bool
    lost: bool
    controls: Controls | None
    reasons: tuple[str, ...]
    seconds: Finite


@dataclass(frozen=True)
class Bench:
    """What the gate runs tasks with: `gui` and `terminal` are the harnesses under which an oracle of that channel is
    replayed, `demonstrator` replays it without slips, `oracle_runs` times on fresh machines. A
    task without an oracle for each of its channels is refused unseen, unless it is one of `imported` (ids)."""

    sandboxes: Sandboxes
    graders: Sequence[Grader]
    executor: Executor
    demonstrator: Privileged
    gui: Harness
    terminal: Harness
    oracle_runs: int = 1
    imported: frozenset[str] = frozenset()
    run_id: str = "admit"


async def admit(tasks: Sequence[Task], bench: Bench, path: Path | None = None) -> AsyncIterator[Admission]:
    """One verdict per task, as they come; each is appended to `path` as a line of JSON before it is yielded.

    Verdicts that `path` already has on the very same tasks come first and are not made again.
    """
    known = {} if path is None else read_admissions(path)
    done = [known[task.id] for task in tasks if task.id in known and _stands(known[task.id], task)]
    for admission in done:
        yield admission
    seen = {admission.task_id for admission in done}

    async def one(task: Task) -> Admission:
        return await _admit_one(task, bench)

    async for admission in bench.executor.map(one, [task for task in tasks if task.id not in seen]):
        if path is not None:
            append_line(path, admission.model_dump_json())
        yield admission


def _stands(admission: Admission, task: Task) -> bool:
    return admission.task_hash == task.hash and not admission.lost


def read_admissions(path: Path) -> dict[str, Admission]:
    """Task id → its last verdict in `path`."""
    return {admission.task_id: admission for admission in records_in(path, Admission)}


@dataclass
class _Case:
    """What is found out about one task."""

    reasons: list[str] = field(default_factory=list)
    controls: Controls | None = None
    oracles: int = 0
    crashed: bool = False
    lost: bool = False


async def _admit_one(task: Task, bench: Bench) -> Admission:
    started = time.monotonic()
    case = _Case(reasons=_ungraded(task, bench) + ([] if task.id in bench.imported else _unproven(task)))
    if not case.reasons:
        await _controls(task, bench, case)
    if not case.reasons:  # a broken set-up or a free task needs no oracle to be refused
        for harness, channel in _ways(task, bench):
            for number in range(bench.oracle_runs):
                await _oracle(task, bench, case, (harness, f"oracle ({channel})", number))
    return Admission(
        task_id=task.id,
        task_hash=task.hash,
        admitted=not case.reasons,
        proven=not case.reasons and (case.oracles > 0 or not task.feasible),
        crashed=case.crashed,
        lost=case.lost,
        controls=case.controls,
        reasons=tuple(dict.fromkeys(case.reasons)),
        seconds=round(time.monotonic() - started, 3),
    )


def _ungraded(task: Task, bench: Bench) -> list[str]:
    """A task whose criteria nobody here grades passes every control by never being scored."""
    known = {grader.name for grader in bench.graders}
    lacking = sorted({c.grader for c in task.rubric.criteria} - known)
    return [f"no control can fail: its criteria of {', '.join(lacking)} are not graded here"] if lacking else []


def _unproven(task: Task) -> list[str]:
    """What can be said without running anything: a task without an oracle is not hard, it is unproven."""
    missing = sorted(task.channels - task.oracle.channels)
    if missing and task.feasible:
        return [f"unproven: no oracle for channel {', '.join(missing)}"]
    if task.feasible and not task.channels:
        return ["unproven: no channel and no oracle"]
    return []


def _ways(task: Task, bench: Bench) -> list[tuple[Harness, str]]:
    known = task.oracle.channels
    ways = [(bench.gui, "gui")] if "gui" in known else []
    return [*ways, (bench.terminal, "terminal")] if "terminal" in known else ways


async def _controls(task: Task, bench: Bench, case: _Case) -> None:
    """The agents that change nothing. They leave one and the same state, so it is made once and judged under each way
    to end; only on an infeasible task, where giving up is what succeeds, the agent that does is really run."""
    rollout, scores = await _attempt(task, bench, case, (bench.terminal, NoopModel(), 0))
    if not scores:
        return
    ends: Mapping[str, StopReason] = {"noop": "step_limit", "done": "finished", "fail": "infeasible"}
    ended = {n: scorecard(rollout.model_copy(update={"stop_reason": e}), task, scores, None) for n, e in ends.items()}
    if not task.feasible:
        gave_up, given = await _attempt(task, bench, case, (bench.terminal, AlwaysFailModel(), 0))
        ended["fail"] = scorecard(gave_up, task, given, None)
    case.controls = Controls.model_validate({name: card.success for name, card in ended.items()})
    if ended["noop"].success or ended["done"].success:
        case.reasons.append("the untouched state succeeds")
    if task.feasible and ended["fail"].success:
        case.reasons.append("giving up succeeds")
    if not task.feasible and ended["fail"].success is False:
        case.reasons.append(f"giving up with a reason does not succeed: {_failed(ended['fail'])}")
    await _empty_home(task, bench, case, rollout)


async def _empty_home(task: Task, bench: Bench, case: _Case, rollout: Rollout) -> None:
    """The agent may have removed everything: that is a state like any other, and no success."""
    scores = await graded(task, bench, rollout, EMPTY_HOME)
    if unscored := _unscored(scores, case):
        case.reasons.append(f"on an empty home, {unscored[0]}")
    elif task.feasible and not case.reasons and scorecard(rollout, task, scores, None).success:
        case.reasons.append("an empty home succeeds")


async def _oracle(task: Task, bench: Bench, case: _Case, way: tuple[Harness, str, int]) -> None:
    """`way` is (harness, what the oracle is called, how many times it was run before)."""
    harness, name, number = way
    before = len(case.reasons)
    rollout, scores = await _attempt(task, bench, case, (harness, bench.demonstrator, number))
    card = scorecard(rollout, task, scores, None)
    if card.success is False:
        case.reasons.append(f"{name} does not succeed: {_failed(card)}")
    case.oracles += card.success is True
    case.reasons[before:] = [r if r.startswith(name) else f"{name}: {r}" for r in case.reasons[before:]]


async def _attempt(task: Task, bench: Bench, case: _Case, how: Way) -> tuple[Rollout, list[Score]]:
    """One rollout, graded twice, and its scores (none where there is no state); what is wrong with it apart from its
    score goes to the case. `how` is (harness, model, number). Our own failures are run again."""
    harness, model, number = how
    for tries in range(TRIES):
        rollout, state = await rolled(task, bench, (harness, model, number * TRIES + tries))
        if rollout.error is None or rollout.error.blame in ("task", "harness"):
            break
    if state is None:
        why = f"{rollout.error.kind}: {rollout.error.message}" if rollout.error else "no frozen state"
        case.reasons.append(why)
        case.lost |= rollout.error is not None and rollout.error.blame not in ("task", "harness")
        return rollout, []
    first, second = [await graded(task, bench, rollout, state) for _ in range(2)]
    case.reasons += _unscored(first, case)
    if [s.value for s in first] != [s.value for s in second]:
        case.reasons.append(
            f"the checker disagrees with itself on one frozen state: {_values(first)}, then {_values(second)}"
        )
    return rollout, first


def _unscored(scores: Sequence[Score], case: _Case) -> list[str]:
    """What the checker gave no value for, and whether it or the machine that it ran on is to blame."""
    missing = [score for score in scores if score.value is None]
    machine = [score for score in missing if SandboxLost.kind in score.explanation]
    case.lost |= bool(machine)
    case.crashed |= len(missing) > len(machine)
    return [f"criterion {score.criterion} is unscored: {score.explanation}" for score in missing]


async def rolled(task: Task, bench: Bench, how: Way) -> tuple[Rollout, bytes | None]:
    """One attempt, which no run keeps, and the state that it left. `how` is (harness, model, number)."""
    harness, model, number = how
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


async def graded(task: Task, bench: Bench, rollout: Rollout, state: bytes) -> list[Score]:
    """What every grader of the bench says of a state."""
    return await grades(bench.graders, task, rollout, state)


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
