"""Two arms side by side, task by task: what is common to them, how far they differ, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from evolver.config import RaceConfig
from evolver.errors import UsageError
from evolver.intervals import (
    DIFFERENCE,
    SHARE,
    Tail,
    bound,
    mean_interval,
    nothing,
    pooled_p,
    ratio_interval,
    t_bound,
)
from evolver.population import by_task, final_cards, per_task, require_one_version, success_value, tally
from evolver.records import Interval, Scorecard

MIN_COVERAGE = 0.8  # share of the asked tasks, and of the attempts, that both arms must score to conclude anything
MIN_BOTH_SOLVE = 5  # tasks that both arms must solve before a saving of tokens is judged
SAVING_SHARE = 0.05  # of an error, for "cheaper": tokens vary little, so this costs it hardly any power


@dataclass(frozen=True)
class Arms:
    """The scorecards of both arms on one split. The candidate was asked for `attempts` a task of `n_tasks` tasks, on
    average where tasks have different numbers of them."""

    candidate: Sequence[Scorecard]
    incumbent: Sequence[Scorecard]
    n_tasks: int
    attempts: int


@dataclass(frozen=True)
class Comparison:
    """Candidate minus incumbent over the common tasks, each of which counts once however often it was played. `saving`
    is the share of tokens saved where both solve.

    `lower` is the one-sided bound of the effect at level 1 - alpha, `upper` the one at the futility level; likewise
    for the saving, whose `saving_lower` may miss with `SAVING_SHARE` of alpha. `attempts` counts the candidate's paired
    attempts, `n_attempts` those it was asked for.
    """

    effect: Interval
    rubric_lead: float | None
    p_better: float
    lower: float | None
    upper: float | None
    saving: Interval
    saving_lower: float | None
    saving_upper: float | None
    tasks: int
    attempts: int
    n_tasks: int
    n_attempts: int

    @property
    def covered(self) -> bool:
        """Whether enough is scored to conclude anything: what survives of a harness that often breaks is no sample."""
        tasks, attempts = MIN_COVERAGE * self.n_tasks, MIN_COVERAGE * self.n_attempts
        return self.tasks > 0 and self.tasks >= tasks and self.attempts >= attempts


def compare(arms: Arms, rules: RaceConfig, alpha: float, seed: int) -> Comparison:
    """The candidate's attempts, where the incumbent has the same (task, version, attempt, seed) scored, against all the
    incumbent's attempts on that task.

    Raises UsageError when the arms were scored on different versions of a task, or by different models.
    """
    candidate, incumbent = final_cards(arms.candidate), final_cards(arms.incumbent)
    _require_same_tasks(candidate, incumbent)
    known = {card.key.pair for card in incumbent if card.success is not None}
    paired = [card for card in candidate if card.success is not None and card.key.pair in known]
    a, b = by_task(paired), by_task([card for card in incumbent if card.success is not None])
    tasks = sorted(a)
    tallies = [(tally(a[task]), tally(b[task])) for task in tasks]
    lead = [ours[0] / ours[1] - theirs[0] / theirs[1] for ours, theirs in tallies]
    logs = [ratio for task in tasks if (ratio := _log_tokens(a[task], b[task])) is not None]
    enough = len(logs) >= MIN_BOTH_SOLVE
    return Comparison(
        effect=mean_interval(lead, seed, DIFFERENCE),
        rubric_lead=_rubric_lead(a, b),
        p_better=pooled_p(tallies),
        lower=_lower(lead, alpha, seed),
        upper=bound(lead, Tail("upper", 1 - rules.futility_level), seed, DIFFERENCE),
        saving=_saving(logs, seed),
        saving_lower=_share(t_bound(logs, Tail("upper", alpha * SAVING_SHARE))) if enough else None,
        saving_upper=_share(t_bound(logs, Tail("lower", 1 - rules.futility_level))) if enough else None,
        tasks=len(tasks),
        attempts=len(paired),
        n_tasks=arms.n_tasks,
        n_attempts=arms.n_tasks * arms.attempts,
    )


def covered(arms: Arms, rules: RaceConfig) -> bool:
    """Whether enough of the arms is scored to conclude anything."""
    return compare(arms, rules, rules.alpha, 0).covered


def flip_rates(arms: Arms, seed: int = 0) -> tuple[Interval, Interval]:
    """How often a task turns out differently, averaged over tasks: A against A (the incumbent's own repeats), and A
    against B (paired)."""
    incumbent = [card for card in final_cards(arms.incumbent) if card.success is not None]
    candidate = {card.key.pair: card.success for card in final_cards(arms.candidate) if card.success is not None}
    repeats, pairs = list[float](), list[float]()
    for _, cards in sorted(by_task(incumbent).items()):  # a bootstrap must not depend on who ended first
        again = [x.success != y.success for x, y in combinations(cards, 2)]
        other = [card.success != candidate[card.key.pair] for card in cards if card.key.pair in candidate]
        repeats += [sum(again) / len(again)] if again else []
        pairs += [sum(other) / len(other)] if other else []
    return mean_interval(repeats, seed, SHARE), mean_interval(pairs, seed, SHARE)


def tokens_per_solved(cards: Sequence[Scorecard], seed: int = 0) -> Interval:
    """Mean tokens of a scored attempt / success, both averaged over tasks, so that a task counts once however often it
    was played; unknown if a count is unknown or nothing was solved."""
    done = [card for card in final_cards(cards) if card.success is not None]
    if any(card.tokens is None for card in done):
        return nothing("a token count is unknown")
    tokens, solved = per_task(done, lambda card: card.tokens), per_task(done, success_value)
    if not any(solved.values()):
        return nothing("nothing was solved")
    tasks = sorted(solved)
    return ratio_interval([tokens[task] for task in tasks], [solved[task] for task in tasks], seed)


def detectable_effect(tasks: int, attempts: int, alpha: float, power: float = 0.8, success: float = 0.5) -> float:
    """The lead (0..1) that `tasks` x `attempts` in each of two independent arms detect (one-sided, normal)."""
    if tasks < 1 or attempts < 1:
        return 1.0
    from scipy.stats import norm

    error = math.sqrt(2 * success * (1 - success) / (tasks * attempts))
    return min(1.0, float(norm.isf(alpha) + norm.isf(1 - power)) * error)


def attempts_in_common(a: Sequence[Scorecard], b: Sequence[Scorecard]) -> int:
    """Attempts a task, on average and rounded down, that two harnesses have at the tasks that both were asked."""
    ours, theirs = by_task(final_cards(a)), by_task(final_cards(b))
    both = [min(len(ours[task]), len(theirs[task])) for task in ours.keys() & theirs.keys()]
    return sum(both) // len(both) if both else 0


def _require_same_tasks(candidate: Sequence[Scorecard], incumbent: Sequence[Scorecard]) -> None:
    if len({card.key.model_id for card in (*candidate, *incumbent)}) > 1:
        raise UsageError("the arms of a race were played by different models: compare harnesses under one model")
    require_one_version([*incumbent, *candidate])


def _rubric_lead(candidate: dict[str, list[Scorecard]], incumbent: dict[str, list[Scorecard]]) -> float | None:
    """Mean lead in the rubric score over the tasks of `candidate` whose rubric is known in both arms."""
    ours = {task: [c.rubric for c in candidate[task] if c.rubric is not None] for task in candidate}
    theirs = {task: [c.rubric for c in incumbent[task] if c.rubric is not None] for task in candidate}
    leads = [sum(ours[t]) / len(ours[t]) - sum(theirs[t]) / len(theirs[t]) for t in candidate if ours[t] and theirs[t]]
    return sum(leads) / len(leads) if leads else None


def _lower(lead: Sequence[float], alpha: float, seed: int) -> float | None:
    """The more careful of two bounds: a percentile of resampled means ends with the last of them, and few tasks that
    are all or nothing are not normal."""
    tail = Tail("lower", alpha)
    resampled = bound(lead, tail, seed, DIFFERENCE)
    return None if resampled is None else min(resampled, t_bound(lead, tail))


def _log_tokens(candidate: Sequence[Scorecard], incumbent: Sequence[Scorecard]) -> float | None:
    """log(candidate's tokens / incumbent's) over the attempts that solved a task; None unless both solved it."""
    means = []
    for cards in (candidate, incumbent):
        spent = [card.tokens for card in cards if card.success]
        known = [tokens for tokens in spent if tokens]
        if not known or len(known) != len(spent):
            return None
        means.append(sum(known) / len(known))
    return math.log(means[0] / means[1])


def _share(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else 1 - math.exp(log_ratio)


def _saving(logs: Sequence[float], seed: int) -> Interval:
    if len(logs) < MIN_BOTH_SOLVE:
        return nothing(f"fewer than {MIN_BOTH_SOLVE} tasks that both solve, with known tokens")
    found = mean_interval(logs, seed)
    return Interval(
        point=_share(found.point), low=_share(found.high), high=_share(found.low), n=found.n, method=found.method
    )
