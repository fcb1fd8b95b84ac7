"""How good the checkers of the dev set are, measured in real sandboxes: what they let pass and what they turn away.

Every wrong solution of a task (the family's own mutants and those that fit every family) must score less than 1,
every equivalent solution 1, and the solver that has nothing but the instruction (evolver.blind) must not succeed. Each
try is a rollout of its own: the script is one call of the shell, then the agent says that it is done, or, on a task
that can't be done, gives up with the reason.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devset.families import binding_of, generic_mutants
from devset.task import Category, Oracle, Task, TerminalStep
from evolver.admission import TRIES, Bench, graded, rolled
from evolver.blind import hand_ins
from evolver.disk import append_line, records_in
from evolver.intervals import wilson
from evolver.models.demonstrator import Demonstrator
from evolver.records import Finite, Interval, Record
from evolver.score import scorecard
from harnesses.harness import Harness

Kind = Literal["mutant", "generic", "equivalent", "blind"]


@dataclass(frozen=True)
class Try:
    """A way to act on a task: a shell script, and what is known of it."""

    task: Task
    kind: Kind
    name: str
    script: str

    @property
    def script_sha256(self) -> str:
        return hashlib.sha256(self.script.encode()).hexdigest()

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.task.hash, self.kind, self.name, self.script_sha256


class Trial(Record):
    """What became of one try. `success` is None where our machine or the checker failed; it is tried again then."""

    task_id: str
    task_hash: str
    family: str
    category: Category
    kind: Kind
    name: str
    script_sha256: str
    success: bool | None
    why: str
    seconds: Finite

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.task_hash, self.kind, self.name, self.script_sha256

    @property
    def wrong(self) -> bool:
        """Whether the checker was wrong about it: only equivalents may succeed."""
        return self.success is not None and self.success != (self.kind == "equivalent")


class Quality(Record):
    """The figures of one category, or of all: shares with their Wilson intervals.

    `killed` counts wrong solutions that score less than 1 (`own` of the family, `generic` those that fit every family),
    `accepted` equivalent solutions that score 1, `blind` the tasks that any try of the instruction-only solver solved.
    `unscored` tries are in none of them. Tries of one family resemble each other, so the intervals are rather
    too narrow.
    """

    category: str
    tasks: int
    killed: Interval
    own: Interval
    generic: Interval
    accepted: Interval
    blind: Interval
    unscored: int


def tries_of(task: Task) -> list[Try]:
    """All tries of a task: a hand-written one has no mutants, only what its instruction gives away."""
    made = binding_of(task)
    blind = {hand_in.name: hand_in.script for hand_in in hand_ins(task.instruction)}
    kinds: list[tuple[Kind, dict[str, str]]] = [("blind", blind)]
    if made is not None:
        kinds = [
            ("mutant", dict(made.mutants)),
            ("generic", generic_mutants(made)),
            ("equivalent", dict(made.equivalents)),
            *kinds,
        ]
    return [Try(task, kind, name, script) for kind, scripts in kinds for name, script in scripts.items()]


async def measure(tasks: Sequence[Task], bench: Bench, path: Path | None = None) -> AsyncIterator[Trial]:
    """One trial per try, as they come; each is appended to `path` before it is yielded.

    Trials that `path` already has of the very same tries come first and are not made again.
    """
    known = {} if path is None else read_trials(path)
    wanted = [one for task in tasks for one in tries_of(task)]
    todo = [one for one in wanted if one.key not in known or known[one.key].success is None]
    for one in wanted:
        if one.key in known and known[one.key].success is not None:
            yield known[one.key]

    async def tried(one: Try) -> Trial:
        return await _tried(one, bench)

    async for trial in bench.executor.map(tried, todo):
        if path is not None:
            append_line(path, trial.model_dump_json())
        yield trial


def read_trials(path: Path) -> dict[tuple[str, str, str, str], Trial]:
    """The last trial of each try in `path`."""
    return {trial.key: trial for trial in records_in(path, Trial)}


async def _tried(one: Try, bench: Bench) -> Trial:
    started, success, why = time.monotonic(), None, ""
    task = one.task
    step = TerminalStep(summary="Do what was asked.", command=one.script)
    model = Demonstrator(oracle=Oracle(terminal=(step,), reason=task.oracle.reason))
    harness = bench.terminal if task.open else without_screen(bench.terminal)
    for number in range(TRIES):
        rollout, state = await rolled(task, bench, (harness, model, number))
        card = scorecard(rollout, task, [] if state is None else await graded(task, bench, rollout, state), None)
        success = card.success
        if success is not None:
            why = "; ".join(f"{s.criterion}: {s.explanation}" for s in card.scores if s.value != 1)
            break
        why = "; ".join(s.explanation for s in card.scores) if rollout.error is None else rollout.error.message
    return Trial(
        task_id=task.id,
        task_hash=task.hash,
        family=task.family,
        category=task.category,
        kind=one.kind,
        name=one.name,
        script_sha256=one.script_sha256,
        success=success,
        why=why,
        seconds=round(time.monotonic() - started, 3),
    )


def without_screen(harness: Harness) -> Harness:
    """The harness on a machine without a desktop, which starts sooner: a script on files needs none."""
    place = harness.environment.model_copy(update={"image": "terminal"})
    return harness.model_copy(update={"environment": place})


def quality_of(trials: Sequence[Trial]) -> list[Quality]:
    """The figures per category, and last of all of them together."""
    categories = sorted({trial.category for trial in trials})
    rows = [_figures(category, [t for t in trials if t.category == category]) for category in categories]
    return [*rows, _figures("all", trials)]


def _figures(category: str, trials: Sequence[Trial]) -> Quality:
    scored = [trial for trial in trials if trial.success is not None]

    def share(kinds: tuple[Kind, ...], hit: Callable[[Trial], bool], what: str) -> Interval:
        chosen = [trial for trial in scored if trial.kind in kinds]
        return wilson(sum(hit(trial) for trial in chosen), len(chosen), what)

    tasks = {trial.task_id for trial in scored}  # the blind solver has no try at all where nothing is named
    solved = {trial.task_id for trial in scored if trial.kind == "blind" and trial.success}
    return Quality(
        category=category,
        tasks=len(tasks),
        killed=share(("mutant", "generic"), lambda t: not t.success, "wrong solutions"),
        own=share(("mutant",), lambda t: not t.success, "mutants"),
        generic=share(("generic",), lambda t: not t.success, "generic mutants"),
        accepted=share(("equivalent",), lambda t: bool(t.success), "equivalent solutions"),
        blind=wilson(len(solved), len(tasks), "tasks"),
        unscored=len(trials) - len(scored),
    )
