"""Is the candidate better than the incumbent? The race on `dev`, the confirmation on `select`, and the verdict.

Everything here is a pure function of scorecards, rules and a seed. The race only screens; what promotes is the test on
fresh attempts of both arms, on tasks that no author has seen. A neutral edit has to be lucky in both, independently, so
the chance of its promotion is the product of the two levels: that is what a decision charges to its lineage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from evolver.compare import SAVING_SHARE, Arms, Comparison, compare, detectable_effect, flip_rates, tokens_per_solved
from evolver.config import RaceConfig
from evolver.guards import Facts, guard, said
from evolver.intervals import DIFFERENCE, Tail, bound, look_levels
from evolver.phrasing import p_value
from evolver.population import mean_success
from evolver.records import Candidate, Decision, GuardResult, Interval, Look, Route

MOST_TASKS = 2_000  # that anyone would take to show that a candidate is not worse
SUSPICIOUS_RUBRIC_LEAD = 0.1  # partial credit that grows so much more than success is pointed out
ROUTES: dict[Route, str] = {"better": "solves more", "cheaper": "not worse and cheaper"}


def shown_by(found: Comparison, rules: RaceConfig, alpha: float) -> set[Route]:
    """The ways in which the comparison shows, at `alpha` for both together, that the candidate deserves to replace the
    incumbent."""
    routes: set[Route] = set()
    if not found.covered or found.effect.point is None:
        return routes
    if found.p_better <= alpha * (1 - SAVING_SHARE) and found.effect.point > 0:
        routes.add("better")
    saved = found.saving.point is not None and found.saving.point >= rules.min_saving
    if saved and (found.saving_lower or 0) > 0 and found.lower is not None and found.lower > -rules.margin:
        routes.add("cheaper")
    return routes


def futile(found: Comparison, rules: RaceConfig) -> bool:
    """Neither a lead of `min_effect` nor "not worse and cheaper" is still likely."""
    if found.upper is None or found.upper >= rules.min_effect:
        return False
    return found.upper < -rules.margin or found.saving_upper is None or found.saving_upper < rules.min_saving


@dataclass(frozen=True)
class Step:
    """One look of the race: attempts a task that the candidate, and the incumbent's pool, have by then."""

    attempts: int
    pool: int


def steps(rules: RaceConfig, settled: int) -> tuple[Step, ...]:
    """The looks of a race against an incumbent with `settled` attempts a task, who plays along until its pool is full.

    It makes two attempts for each of the candidate's, beside them, so that a drift shows in both arms: all its later
    challengers share them.
    """
    planned: list[Step] = []
    pool = settled
    for attempts in rules.attempts:
        fresh = attempts - (planned[-1].attempts if planned else 0)
        pool = max(attempts, min(pool + 2 * fresh, max(settled, rules.pool)))
        planned.append(Step(attempts, pool))
    return tuple(planned)


def confirm_steps(rules: RaceConfig) -> tuple[Step, ...]:
    """The looks of a confirmation: after a quarter, a half and all of its attempts, as many in both arms."""
    most = rules.confirm_attempts
    return tuple(Step(attempts, attempts) for attempts in sorted({math.ceil(most / 4), math.ceil(most / 2), most}))


def spending(plan: Sequence[Step], alpha: float) -> tuple[float, ...]:
    """The level of each look; together they err with `alpha`, however the looks are correlated."""
    return look_levels(tuple(1 / (1 / step.attempts + 1 / step.pool) for step in plan), alpha)


def least_loss(rules: RaceConfig, dev: int, select: int) -> float:
    """The loss of success (0..1) that all attempts at so many tasks can't rule out, even if no task turns out
    differently: where it is not below `margin`, no candidate is promoted for being cheaper. 1 without tasks."""
    race = spending(steps(rules, 1), rules.screen_alpha)[-1]
    fresh = spending(confirm_steps(rules), confirm_level(rules, 0.0))[-1]
    lowest = [bound([0.0] * n, Tail("lower", alpha), span=DIFFERENCE) for n, alpha in ((dev, race), (select, fresh))]
    return max(1.0 if low is None else -low for low in lowest)


def cheaper_line(rules: RaceConfig, dev: int, select: int) -> str:
    """Whether "not worse and cheaper" can be shown on so many tasks, in words."""
    loss = least_loss(rules, dev, select)
    found = f"on {dev} dev and {select} select tasks that all turn out alike, a loss of {100 * loss:.1f} pp"
    if loss < rules.margin:
        return (
            f'"not worse and cheaper" can promote: {found} and more is ruled out, {100 * rules.margin:g} pp are allowed'
        )
    enough = next((n for n in range(2, MOST_TASKS) if least_loss(rules, n, n) < rules.margin), None)
    mend = f"{enough} of each are enough" if enough else "no number of tasks is enough"
    return (
        f'"not worse and cheaper" CAN\'T promote: {found} is not ruled out, {100 * rules.margin:g} pp are allowed '
        f"(race.margin); {mend}"
    )


def race_look(arms: Arms, plan: Sequence[Step], index: int, rules: RaceConfig, seed: int) -> tuple[Look, Comparison]:
    """The `index`-th look of the race. `arms` hold the attempts that `plan[index]` names, on average over tasks."""
    alpha = spending(plan, rules.screen_alpha)[index]
    found = compare(arms, rules, alpha, seed)
    verdict: Literal["continue", "pass", "futile"] = "continue"
    if shown_by(found, rules, alpha):
        verdict = "pass"
    elif found.covered and futile(found, rules):
        verdict = "futile"
    look = Look(
        attempts=plan[index].attempts,
        pool=plan[index].pool,
        effect=found.effect,
        p_value=found.p_better,
        alpha=alpha,
        verdict=verdict,
    )
    return look, found


def waits(found: Comparison, rules: RaceConfig, alpha: float) -> bool:
    """Whether a candidate that passed its race with this comparison is built upon first, and confirmed at the end at
    the earliest: it solves more, by less than `confirm_from`. What is cheaper has nothing to wait for."""
    lead = found.effect.point
    return shown_by(found, rules, alpha) == {"better"} and lead is not None and lead < rules.confirm_from


# --- the verdict ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """All that a decision rests on: the looks made with the last one's comparison, and the confirmation's cards.

    `confirm_look` says at which look of the confirmation they are; `best_success` is the highest success on dev that
    this lineage ever had (0..1); `spent` is what its ledger of errors has been charged before; `facts` are for guards.
    """

    candidate: Candidate
    incumbent_harness: str
    looks: tuple[Look, ...]
    race: Comparison
    dev: Arms
    confirmation: Arms | None
    best_success: float
    spent: float = 0.0
    confirm_look: int = -1
    facts: Facts = field(default_factory=Facts)


def confirm_level(rules: RaceConfig, spent: float) -> float:
    """The one-sided error of the next confirmation: `alpha`, as long as the lineage's ledger can pay for it.

    A candidate is charged the chance that a neutral edit in its place is promoted, this level times `screen_alpha`, but
    never more than half of what is left; so a lineage of any length promotes one with at most `lineage_alpha`. The
    charge of a promoted candidate passes on to those after it (online fallback, Tian and Ramdas 2021, Stat. Methods
    Med. Res. 30).
    """
    return min(rules.alpha, max(0.0, rules.lineage_alpha - spent) / 2 / rules.screen_alpha)


def confirmed(case: Case, arms: Arms, rules: RaceConfig, seed: int) -> tuple[Comparison, float, list[Route]]:
    """A look at fresh attempts: the comparison, its level, and the ways of the race that it shows again."""
    raced = shown_by(case.race, rules, case.looks[-1].alpha)
    level = spending(confirm_steps(rules), confirm_level(rules, case.spent))[case.confirm_look]
    found = compare(arms, rules, level, seed)
    return found, level, sorted(raced & shown_by(found, rules, level))


def undecided(case: Case, rules: RaceConfig, seed: int) -> bool:
    """Whether the confirmation is worth further attempts."""
    if case.confirmation is None or case.confirm_look + 1 == len(confirm_steps(rules)):
        return False
    found, _, shown = confirmed(case, case.confirmation, rules, seed)
    return not shown and not (found.covered and futile(found, rules))


def decide(case: Case, rules: RaceConfig, seed: int, at: float) -> Decision:
    """The verdict with its reasons. promote: shown in the race, and the same way on fresh attempts, and no guard trips;
    reject: measurably worse, or dearer for no gain, or stopped by a guard; keep: a worthwhile lead is unlikely;
    inconclusive: the attempts did not suffice, or the race was passed and the confirmation waits.

    Raises UsageError for a guard that the config asks for and that can't be measured.
    """
    played = case.looks[-1].attempts
    reasons = [f"race on dev after {played} attempt{'s' * (played > 1)} a task: {_words(case.race)}"]
    found, guards, routes = None, tuple[GuardResult, ...](), list[Route]()
    waiting = case.confirmation is None and case.looks[-1].verdict == "pass"
    verdict: Literal["promote", "keep", "reject", "inconclusive"]
    if case.confirmation is not None:
        found, level, routes = confirmed(case, case.confirmation, rules, seed)
        reasons.append(f"fresh confirmation on select: {_words(found)}")
        if routes == ["cheaper"] and mean_success(case.dev.candidate) < case.best_success - rules.margin:
            routes = []
            reasons.append(f"small losses add up: the lineage once had {100 * case.best_success:.1f} % on dev")
        verdict = "promote" if routes else _without_promotion(found, rules)
        raced = shown_by(case.race, rules, case.looks[-1].alpha)
        held = " and ".join(ROUTES[route] for route in routes or sorted(raced))
        reasons.append(f"{held}: {'confirmed' if routes else 'not confirmed'} at alpha {level:.3g} (one-sided)")
    else:
        verdict = "inconclusive" if waiting else _without_promotion(case.race, rules)
    if verdict == "promote" and case.confirmation is not None:
        guards = guard(
            (case.dev, case.confirmation), case.facts, case.candidate.manifest.expected_channel_change, rules, seed
        )
        reasons += said(guards)
    if any(result.outcome == "tripped" for result in guards):
        verdict = "reject"
        reasons.append("rejected: no gain makes up for what a guard stops")
    else:
        reasons.append(_waiting(case.race, rules) if waiting else _why(verdict, found or case.race, rules))
    flips_aa, flips_ab = flip_rates(case.dev, seed)
    return Decision(
        id=f"dec-{case.candidate.id}",
        candidate_id=case.candidate.id,
        candidate_harness=case.candidate.harness_id,
        incumbent_harness=case.incumbent_harness,
        verdict=verdict,
        looks=case.looks,
        confirmation=found.effect if found else None,
        confirmation_p=found.p_better if found else None,
        alpha_spent=rules.screen_alpha * confirm_level(rules, case.spent),
        flip_rate_aa=flips_aa,
        flip_rate_ab=flips_ab,
        tokens_per_solved=tokens_per_solved(case.dev.candidate, seed),
        incumbent_tokens_per_solved=tokens_per_solved(case.dev.incumbent, seed),
        reasons=tuple(reasons),
        decided_at=at,
        guards=guards,
        teacher=next((card.key.model_id for card in case.dev.candidate), ""),
        waits=waiting,
        routes=tuple(routes) if verdict == "promote" else (),
    )


def against_root(decision: Decision, arms: Arms, rules: RaceConfig, seed: int) -> Decision:
    """A promotion after fresh attempts of the candidate and of the lineage's root: what all steps so far amount to.

    These attempts decided nothing before, so this effect is the lineage's claim. A candidate that is measurably worse
    than the root is rejected after all, however well it did against the incumbent; where too few attempts are scored to
    tell, it is not promoted.
    """
    found = compare(arms, rules, rules.alpha, seed)
    reasons = (*decision.reasons, f"all promotions so far, against the root: {_words(found)}")
    if not found.covered:
        reasons = (*reasons, _too_few(found))
        decision = decision.model_copy(update={"verdict": "inconclusive"})
    elif _below_0(found.effect):
        reasons = (*reasons, "rejected: small losses have added up to a loss against the root")
        decision = decision.model_copy(update={"verdict": "reject"})
    return decision.model_copy(update={"cumulative": found.effect, "reasons": reasons})


def rejected_early(candidate: Candidate, incumbent_harness: str, reason: str, at: float) -> Decision:
    """The decision on a candidate that showed in its first attempts that it does not run at all."""
    return Decision(
        id=f"dec-{candidate.id}",
        candidate_id=candidate.id,
        candidate_harness=candidate.harness_id,
        incumbent_harness=incumbent_harness,
        verdict="reject",
        looks=(),
        confirmation=None,
        confirmation_p=None,
        alpha_spent=0.0,
        flip_rate_aa=None,
        flip_rate_ab=None,
        tokens_per_solved=None,
        incumbent_tokens_per_solved=None,
        reasons=(reason,),
        decided_at=at,
    )


def _without_promotion(found: Comparison, rules: RaceConfig) -> Literal["keep", "reject", "inconclusive"]:
    if not found.covered or found.upper is None:
        return "inconclusive"
    no_gain = found.upper < rules.min_effect
    if _below_0(found.effect) or (no_gain and _below_0(found.saving)):
        return "reject"
    return "keep" if no_gain else "inconclusive"


def _below_0(interval: Interval) -> bool:
    return interval.high is not None and interval.high < 0


def _why(verdict: str, found: Comparison, rules: RaceConfig) -> str:
    if verdict == "promote":
        return "promoted: the claim rests on the fresh attempts alone"
    if not found.covered:
        return _too_few(found)
    if verdict == "reject":
        worse = "its success is" if _below_0(found.effect) else "it gains nothing, and the tokens it saves are"
        return f"rejected: {worse} below 0 with the whole 95 % interval"
    upper = f"upper {100 * rules.futility_level:g} % bound {100 * (found.upper or 0):+.1f} pp"
    if verdict == "keep":
        return f"incumbent kept: {upper} is below the smallest lead worth it ({100 * rules.min_effect:g} pp)"
    enough = detectable_effect(found.tasks, max(1, found.attempts // max(1, found.tasks)), rules.alpha)
    return f"inconclusive: {upper}; so many attempts detect a lead of about {100 * enough:.0f} pp (power 80 %)"


def _waiting(found: Comparison, rules: RaceConfig) -> str:
    return (
        f"waits: a lead of {100 * (found.effect.point or 0):+.1f} pp, below {100 * rules.confirm_from:g} pp, is built "
        "upon first; the most promising of those that wait is confirmed when the authors are done"
    )


def _too_few(found: Comparison) -> str:
    tasks, attempts = f"{found.tasks} of {found.n_tasks} tasks", f"{found.attempts} of {found.n_attempts} attempts"
    return f"inconclusive: only {tasks} and {attempts} are scored in both arms"


def _words(found: Comparison) -> str:
    effect = found.effect
    if effect.point is None:
        return f"no common scored attempt on {found.n_tasks} tasks"
    rubric = found.rubric_lead
    span = "" if effect.low is None else f" [{100 * effect.low:+.1f}, {100 * (effect.high or 0):+.1f}]"
    text = f"success {100 * effect.point:+.1f} pp{span}, {p_value(found.p_better)}"
    if rubric is not None and rubric - effect.point > SUSPICIOUS_RUBRIC_LEAD:
        text += f", but rubric {100 * rubric:+.1f} pp: partial credit without success, look at the checks"
    if found.saving.point is not None:
        text += f", tokens {-100 * found.saving.point:+.1f} % on {found.saving.n} tasks that both solve"
    else:
        text += f", tokens not compared ({found.saving.method})"
    return f"{text}; {found.tasks} of {found.n_tasks} tasks, {found.attempts} paired attempts"
