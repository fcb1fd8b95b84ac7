"""What a harness was promoted for, from the records of its run, and what as many fresh attempts should come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from devset.task import Task, checker_hash
from evolver.capsules.folder import is_own
from evolver.compare import MIN_COVERAGE
from evolver.errors import UsageError
from evolver.intervals import success_interval
from evolver.phrasing import share
from evolver.population import (
    Population,
    by_task,
    final_cards,
    per_task,
    point_of,
    population_of,
    success_value,
    tally,
)
from evolver.records import Candidate, Decision, Interval, Scorecard
from evolver.store import Store
from harnesses.capsule import EvidencePin, StatedInterval, TaskList, TaskPin


@dataclass(frozen=True)
class Promotion:
    """A promotion with the fresh attempts of the promoted harness that confirmed it."""

    decision: Decision
    cards: Sequence[Scorecard]

    @property
    def attempts(self) -> int:
        """Attempts of each task, at most."""
        return len({card.key.attempt for card in self.cards})


def promotion_of(store: Store, harness_id: str, named: str) -> Promotion:
    """The promotion of a harness under the run's teacher. Raises UsageError for one that has none."""
    candidates, decisions = store.all(Candidate), store.all(Decision)
    promotions = population_of(store).promotions
    found = next((d for d in reversed(promotions) if d.candidate_harness == harness_id), None)
    if found is None:
        known = ", ".join(_names(candidates, promotions)) or "none yet"
        raise UsageError(
            f"harness {named!r} ({harness_id[:12]}) was never promoted, and a capsule states what its harness was "
            f"promoted for; promoted in {store.path}: {known}"
        )
    if found.teacher not in ("", store.config.teacher_id):
        raise UsageError(
            f"harness {named!r} was promoted under teacher {found.teacher!r}, the config has "
            f"{store.config.teacher_id!r}: freeze one that was promoted under the teacher that will play"
        )
    rules = store.config.race
    first = Population(candidates, decisions[: decisions.index(found)]).confirmations() * rules.confirm_attempts
    numbers = range(first, first + rules.confirm_attempts)
    cards = [c for c in final_cards(store.all(Scorecard)) if _confirms(c, found, store.config.teacher_id, numbers)]
    if not cards:
        raise UsageError(f"{store.path} has no attempts of the confirmation that promoted {named!r}")
    return Promotion(found, cards)


def _confirms(card: Scorecard, decision: Decision, teacher: str, numbers: range) -> bool:
    key = card.key
    arm = (key.purpose, key.harness_id, key.model_id)
    return arm == ("confirm", decision.candidate_harness, teacher) and key.attempt in numbers


def _names(candidates: Sequence[Candidate], promotions: Sequence[Decision]) -> list[str]:
    names = {candidate.id: candidate.name for candidate in candidates}
    return [names.get(decision.candidate_id, decision.candidate_harness[:12]) for decision in promotions]


def confirmed_tasks(promotion: Promotion, tasks: Sequence[Task], name: str) -> tuple[TaskList, list[Task]]:
    """The tasks of the confirmation, in the order of `tasks`, with how they went. Raises UsageError when one is no
    longer what it was then."""
    cards = by_task(promotion.cards)
    now = {task.id: task.hash for task in tasks}
    changed = [task_id for task_id, found in cards.items() if now.get(task_id) != found[0].key.task_hash]
    if changed:
        raise UsageError(
            f"{len(changed)} of {len(cards)} tasks of the confirmation are no longer what they were "
            f"({', '.join(changed[:3])}): this program or the run's tasks changed, so nothing can be re-evaluated"
        )
    chosen = [task for task in tasks if tally(_scored(cards.get(task.id, [])))[1]]
    return TaskList(name=name, tasks=tuple(_pin(task, cards[task.id]) for task in chosen)), chosen


def _pin(task: Task, cards: Sequence[Scorecard]) -> TaskPin:
    solved, scored = tally(_scored(cards))
    return TaskPin(
        id=task.id,
        hash=task.hash,
        checker=checker_hash(task.check),
        split=task.split,
        seen_in_training=task.seen_in_training,
        carried=not is_own(task),
        solved=solved,
        scored=scored,
    )


def _scored(cards: Sequence[Scorecard]) -> list[Scorecard]:
    return [card for card in cards if card.success is not None]


def evidence_pin(store: Store, promotion: Promotion, task_list: TaskList) -> EvidencePin:
    decision = promotion.decision
    if decision.confirmation is None:
        raise UsageError(f"decision {decision.id} promoted without a confirmation: nothing states what to expect")
    return EvidencePin(
        run_id=store.run_id,
        decision_id=decision.id,
        candidate_id=decision.candidate_id,
        incumbent=decision.incumbent_harness,
        effect=_stated(decision.confirmation),
        p_value=decision.confirmation_p,
        success=_stated(stated_success(task_list.tasks, store.config.seed)),
        attempts=promotion.attempts,
        tokens_per_solved=point_of(decision.tokens_per_solved),
        incumbent_tokens_per_solved=point_of(decision.incumbent_tokens_per_solved),
    )


def _stated(interval: Interval) -> StatedInterval:
    return StatedInterval.model_validate(interval.model_dump())


def stated_success(tasks: Sequence[TaskPin], seed: int) -> Interval:
    """Success (0..1) of the confirmation on these of its tasks, with its 95 % interval over tasks."""
    return success_interval([pin.solved / pin.scored for pin in tasks if pin.scored], seed)


def expected_success(stated: Interval, attempts: int, fresh: int) -> Interval:
    """Where `fresh` attempts a task should come out with 95 %, on the tasks where `attempts` gave `stated`.

    A replication varies as well as what it replicates: each side of the interval grows by the root of the summed
    variances (Spence and Stanley 2016, PLoS ONE 11(9): e0162874), where fewer attempts vary more.
    """
    if stated.point is None or stated.low is None or stated.high is None:
        return stated
    wider = math.sqrt(1 + attempts / fresh)
    low, high = (stated.point + wider * (end - stated.point) for end in (stated.low, stated.high))
    method = f"95 % prediction from {stated.method}"
    return Interval(point=stated.point, low=max(0.0, low), high=min(1.0, high), n=stated.n, method=method)


@dataclass(frozen=True)
class Outcome:
    """What fresh attempts came to. `covered`: enough of them is scored to say anything. `faults` says why they don't
    bear the capsule out; empty: they do."""

    success: Interval
    n_unscored: int
    covered: bool
    faults: tuple[str, ...]


def outcome(cards: Sequence[Scorecard], n_tasks: int, expected: Interval, seed: int) -> Outcome:
    """Fresh attempts against what was expected of them. To do better is no fault: the confirmation was unlucky then."""
    done = _scored(cards)
    means = per_task(done, success_value)
    success = success_interval(list(means.values()), seed)
    covered = min(len(done) / len(cards), len(means) / n_tasks) >= MIN_COVERAGE
    faults = []
    if not covered:
        faults.append(f"only {len(done)} of {len(cards)} attempts, on {len(means)} of {n_tasks} tasks, were scored")
    if expected.low is None or expected.point is None:
        faults.append(f"nothing states what to expect ({expected.method})")
    elif success.point is not None and success.point < expected.low:
        faults.append(
            f"success {share(success.point)}, where {share(expected.point)} in the confirmation lets "
            f"{share(expected.low)} at least be expected"
        )
    return Outcome(success, len(cards) - len(done), covered, tuple(faults))
