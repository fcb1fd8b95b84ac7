"""Tries the judge on frozen states whose outcome the check programs know, before it may decide anything.

Known successes: oracles, and solved attempts of the run. Known failures: agents that do nothing and say they are done,
wrong solutions (mutants), and failed attempts of the run. Blank controls: an untouched state with a black screen, and
an empty home. The demonstrator plays what has to be played, through the harness's real tools, so a control has a
trajectory like any other attempt. Only train and dev tasks, and only such as check programs alone decide, are used.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from devset.families import binding_of
from devset.task import Choice, Criterion, Oracle, Task, TerminalStep
from evolver.audit import Calibration, Judgement, Kind
from evolver.channels import union
from evolver.controls import blank_png, home_tar
from evolver.errors import UsageError
from evolver.graders.judge import JudgeGrader, signature_of
from evolver.judging import calibration, decided_by_judge, final_judgements, judge_fault
from evolver.lab import TRIES, Lab
from evolver.models.demonstrator import Demonstrator
from evolver.records import Image, Observed, Rollout, RolloutKey, Scorecard
from evolver.rollout import Job
from evolver.score import success_of
from harnesses.harness import Harness
from harnesses.tree import read_tree, seed_path

MUTANTS = 2  # a task
EMPTY_HOME = home_tar({})
SCREEN = (1920, 1080)
NOT_MET_OR_MET = (
    Choice(label="not_met", description="it does not hold, or nothing shows that it does", value=0),
    Choice(label="met", description="it holds", value=1),
)


@dataclass(frozen=True)
class Case:
    """One frozen state with what the check program says of it."""

    kind: Kind
    task: Task
    rollout: Rollout
    state: bytes
    checked: bool

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.rollout.id}"


@dataclass(frozen=True)
class Control:
    """An attempt to be played: the task with the steps that the demonstrator shall take, under a harness."""

    kind: Kind
    task: Task
    oracle: Oracle
    harness: Harness
    number: int


async def calibrate(lab: Lab, judge: JudgeGrader, tasks: Sequence[Task], known: Sequence[Task]) -> Calibration:
    """Plays the controls of `tasks`, takes as many solved and failed attempts of the run on `known` tasks, has judged
    what was not judged yet, and records what the judge is worth on every case of the run so far: asking again can add
    cases, never choose among them. Raises UsageError when there is nothing to judge."""
    cases = [case for case in [*await _controls(lab, tasks), *_attempts(lab, known, len(tasks))] if _fits(case)]
    done = {j.case for j in final_judgements(lab.store.all(Judgement), judge.signature) if j.judged is not None}
    todo = [case for case in cases if case.id not in done]
    told = len(cases) - len(todo)

    async def one(case: Case) -> None:
        lab.record(await _judged(lab, judge, case))

    async for _ in lab.executor.map(one, todo):
        told += 1
        lab.tell("judge", told, len(cases), {})
    judged = final_judgements(lab.store.all(Judgement), judge.signature)
    if not judged or lab.config.judge is None:
        raise UsageError("nothing to calibrate on: no task of dev whose success check programs alone decide")
    found = calibration(judged, lab.config.judge, lab.config.seed, time.time())
    kept = lab.store.get(Calibration, found.id)
    if kept is None:
        lab.record(found)
    return kept or found


def require_fit_judge(lab: Lab, tasks: Sequence[Task]) -> None:
    """Raises UsageError when a judge decides the success of a task and has not shown that it may."""
    decided = decided_by_judge(tasks)
    if decided is not None:
        judge = lab.config.judge
        require_fit(lab, None if judge is None else signature_of(judge), f"{decided} is decided by a judge")


def require_fit(lab: Lab, judge: str | None, what: str) -> None:
    """Raises UsageError when this judge may decide no promotion; `what` says what rests on it."""
    fault = judge_fault(judge, lab.store.all(Calibration))
    if fault is not None:
        mend = "" if judge is None else f": run `evolver judge calibrate {lab.store.path}`, then run it again"
        raise UsageError(f"{what}, and {fault}{mend}")


def as_judged(task: Task) -> tuple[Criterion, ...]:
    """The criteria that a check program answers, as questions to a judge."""
    return tuple(c.model_copy(update={"grader": "judge", "choices": NOT_MET_OR_MET}) for c in task.rubric.criteria)


def by_programs(task: Task) -> bool:
    return task.feasible and all(c.grader == "program" for c in task.rubric.criteria)


def _fits(case: Case) -> bool:
    """A control that did not come out as its kind says (a slow machine, a mutant that is right) shows nothing."""
    return case.kind in ("solved", "failed") or case.checked is (case.kind == "oracle")


async def _judged(lab: Lab, judge: JudgeGrader, case: Case) -> Judgement:
    scores = await judge.grade(as_judged(case.task), case.task, case.rollout, case.state)
    before = sum((j.judge, j.case) == (judge.signature, case.id) for j in lab.store.all(Judgement))
    key = f"{judge.signature}|{case.id}|{before}"
    return Judgement(
        id=f"jud-{hashlib.sha256(key.encode()).hexdigest()[:16]}",
        judge=judge.signature,
        kind=case.kind,
        case=case.id,
        task_id=case.task.id,
        task_hash=case.task.hash,
        rollout_id=case.rollout.id,
        model_id=case.rollout.key.model_id,
        channel=union(turn.channel for turn in case.rollout.turns),
        turns=len(case.rollout.turns),
        checked=case.checked,
        judged=success_of(scores),
        why="; ".join(f"{s.criterion}: {s.explanation}" for s in scores),
        at=time.time(),
    )


# --- cases that are played -------------------------------------------------------------------------------------------


def controls(tasks: Sequence[Task], gui: Harness, terminal: Harness) -> list[Control]:
    """The oracle of each channel, the agent that does nothing, and up to `MUTANTS` wrong solutions, task by task."""
    found: list[Control] = []
    for task in tasks:
        steps = task.oracle.terminal
        said = steps[-1].summary if steps else "Do what was asked."
        idle = Control("noop", task, Oracle(terminal=()), terminal, 0)
        found.append(idle)
        if steps:
            found.append(replace(idle, kind="oracle", oracle=Oracle(terminal=steps), number=1))
        if task.oracle.gui:
            found.append(replace(idle, kind="oracle", oracle=Oracle(gui=task.oracle.gui), harness=gui, number=2))
        for number, script in enumerate(mutants_of(task)[:MUTANTS]):
            step = TerminalStep(summary=said, command=script)
            found.append(replace(idle, kind="mutant", oracle=Oracle(terminal=(step,)), number=3 + number))
    return found


def mutants_of(task: Task) -> list[str]:
    """Wrong solutions of a task that a family made, as shell scripts; none for another task."""
    made = binding_of(task)
    return [] if made is None else list(made.mutants.values())


async def _controls(lab: Lab, tasks: Sequence[Task]) -> list[Case]:
    gui, terminal = (read_tree(seed_path(name)) for name in ("alpha", "beta1"))
    wanted = controls([task for task in tasks if by_programs(task)], gui, terminal)
    cases: list[Case] = []
    done = 0
    async for made in lab.executor.map(partial(_played, lab), wanted):
        cases, done = [*cases, *made], done + 1
        lab.tell("controls", done, len(wanted), {})
    return sorted(cases, key=lambda case: case.id)


async def _played(lab: Lab, control: Control) -> list[Case]:
    """The control's case, and the blank ones of a task whose untouched state it left; none where it can't be run."""
    task = control.task
    rollout, card = await _attempted(lab, control)
    if rollout.state_sha256 is None or card.success is None:
        return []
    state = lab.store.blob(rollout.state_sha256)
    cases = [Case(control.kind, task, rollout, state, card.success)]
    if control.kind == "noop":
        black = Image(frame_id=lab.store.put_blob(blank_png(*SCREEN)), width=SCREEN[0], height=SCREEN[1])
        blind = rollout.model_copy(update={"turns": (), "first": Observed(image=black)})
        cases.append(Case("blank_screen", task, blind, state, card.success))
        program = next(grader for grader in lab.graders if grader.name == "program")
        nothing = blind.model_copy(update={"first": Observed()})
        empty = success_of(await program.grade(task.rubric.criteria, task, nothing, EMPTY_HOME))
        if empty is not None:
            cases.append(Case("empty_home", task, nothing, EMPTY_HOME, empty))
    return cases


async def _attempted(lab: Lab, control: Control) -> tuple[Rollout, Scorecard]:
    """The control's attempt as the run has it, else played now; one that failed on our side is played again."""
    demonstrator = Demonstrator(oracle=control.oracle)
    key = RolloutKey(
        purpose="calibrate",
        harness_id=control.harness.id,
        model_id=demonstrator.id,
        task_id=control.task.id,
        task_hash=control.task.hash,
        split=control.task.split,
        attempt=control.number,
        seed=lab.config.seed,
    )
    text = f"{key.model_dump_json()}|{control.oracle.model_dump_json()}"
    number = 0
    while True:
        rollout_id = f"r-{hashlib.sha256(f'{text}#{number}'.encode()).hexdigest()[:16]}"
        rollout, card = lab.store.get(Rollout, rollout_id), lab.store.get(Scorecard, rollout_id)
        if rollout is None:
            job = Job(key, rollout_id, control.harness, control.task, demonstrator, lab.store.run_id)
            rollout, card = await lab.play(job, "judge")
        number += 1
        if card is not None and (card.success is not None or number >= TRIES):
            return rollout, card


# --- cases that the run has ------------------------------------------------------------------------------------------


def _attempts(lab: Lab, tasks: Sequence[Task], most: int) -> list[Case]:
    """Up to `most` solved and as many failed attempts of the run, drawn by the hash of their ids, so by nothing that
    they show."""
    known = {(task.id, task.hash): task for task in tasks if by_programs(task)}
    cards = {card.rollout_id: card for card in lab.store.all(Scorecard)}
    cases: dict[bool, list[Case]] = {True: [], False: []}
    for rollout in sorted(lab.store.all(Rollout), key=lambda r: hashlib.sha256(r.id.encode()).digest()):
        task, card = known.get((rollout.key.task_id, rollout.key.task_hash)), cards.get(rollout.id)
        if rollout.key.purpose == "calibrate" or task is None or card is None or card.success is None:
            continue
        if rollout.state_sha256 is None or len(cases[card.success]) >= most:
            continue
        kind: Kind = "solved" if card.success else "failed"
        cases[card.success].append(Case(kind, task, rollout, lab.store.blob(rollout.state_sha256), card.success))
    return [*cases[True], *cases[False]]
