"""Is the candidate better than the incumbent? The race on `dev`, the confirmation on `select`, and the verdict.

Everything here is a pure function of scorecards, rules and a seed. Arms are compared task by task: the candidate's
attempts count where the incumbent has the same (task, task version, attempt, seed) scored, and are set against the
mean of all the incumbent's attempts on that task. The race only screens; what promotes is the test on fresh attempts
of both arms, on tasks that no author has seen. A neutral edit has to be lucky in both, independently, so the chance of
its promotion is the product of the two levels: that is what a decision charges to its lineage.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from evolver.config import RaceConfig
from evolver.errors import UsageError
from evolver.intervals import DIFFERENCE, Tail, bound, look_levels, mean_interval, nothing, pooled_p
from evolver.population import final_cards, mean_success, require_one_version
from evolver.records import Candidate, Decision, Interval, Look, Scorecard

MIN_COVERAGE = 0.8  # share of the asked tasks that must be scored in both arms before anything is concluded
SUSPICIOUS_RUBRIC_LEAD = 0.1  # partial credit that grows so much more than success is pointed out
MIN_BOTH_SOLVE = 5  # tasks that both arms must solve before a saving of tokens is judged
ROUTES = {"better": "solves more", "cheaper": "not worse and cheaper"}
Route = Literal["better", "cheaper"]


@dataclass(frozen=True)
class Arms:
    """The scorecards of both arms on one split; `n_tasks` says how many tasks were asked of each."""

    candidate: Sequence[Scorecard]
    incumbent: Sequence[Scorecard]
    n_tasks: int


@dataclass(frozen=True)
class Comparison:
    """Candidate minus incumbent over the common tasks. `saving` is the share of tokens saved where both solve.

    `lower` is the one-sided bound of the effect at level 1 - alpha, `upper` the one at the futility level; likewise
    for the saving. `attempts` counts the candidate's paired attempts.
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

    @property
    def covered(self) -> bool:
        return self.tasks > 0 and self.tasks >= MIN_COVERAGE * self.n_tasks


def compare(arms: Arms, rules: RaceConfig, alpha: float, seed: int) -> Comparison:
    """Raises UsageError when the arms were scored on different versions of a task, or by different models."""
    candidate, incumbent = final_cards(arms.candidate), final_cards(arms.incumbent)
    _require_same_tasks(candidate, incumbent)
    known = {card.key.pair for card in incumbent if card.success is not None}
    paired = [card for card in candidate if card.success is not None and card.key.pair in known]
    a, b = _by_task(paired), _by_task([card for card in incumbent if card.success is not None])
    tasks = sorted(a)
    tallies = [(_tally(a[task]), _tally(b[task])) for task in tasks]
    lead = [ours[0] / ours[1] - theirs[0] / theirs[1] for ours, theirs in tallies]
    logs = [ratio for task in tasks if (ratio := _log_tokens(a[task], b[task])) is not None]
    enough = len(logs) >= MIN_BOTH_SOLVE
    return Comparison(
        effect=mean_interval(lead, seed, DIFFERENCE),
        rubric_lead=_rubric_lead(a, b),
        p_better=pooled_p(tallies),
        lower=bound(lead, Tail("lower", alpha), seed, DIFFERENCE),
        upper=bound(lead, Tail("upper", 1 - rules.futility_level), seed, DIFFERENCE),
        saving=_saving(logs, seed),
        saving_lower=_share(bound(logs, Tail("upper", alpha), seed)) if enough else None,
        saving_upper=_share(bound(logs, Tail("lower", 1 - rules.futility_level), seed)) if enough else None,
        tasks=len(tasks),
        attempts=len(paired),
        n_tasks=arms.n_tasks,
    )


def shown_by(found: Comparison, rules: RaceConfig, alpha: float) -> set[Route]:
    """The ways in which the comparison shows, at `alpha`, that the candidate deserves to replace the incumbent."""
    routes: set[Route] = set()
    if not found.covered or found.effect.point is None:
        return routes
    if found.p_better <= alpha and found.effect.point > 0:
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

    Its attempts are shared by all its challengers, and made beside theirs, so that a drift shows in both arms.
    """
    planned: list[Step] = []
    pool = settled
    for attempts in rules.attempts:
        fresh = attempts - (planned[-1].attempts if planned else 0)
        pool = max(attempts, min(pool + fresh, max(settled, rules.pool)))
        planned.append(Step(attempts, pool))
    return tuple(planned)


def spending(rules: RaceConfig, plan: Sequence[Step]) -> tuple[float, ...]:
    """The level of each look; together they err with `screen_alpha`, however the looks are correlated."""
    return look_levels(tuple(1 / (1 / step.attempts + 1 / step.pool) for step in plan), rules.screen_alpha)


def race_look(arms: Arms, plan: Sequence[Step], index: int, rules: RaceConfig, seed: int) -> tuple[Look, Comparison]:
    """The `index`-th look of the race. `arms` hold the attempts that `plan[index]` names."""
    alpha = spending(rules, plan)[index]
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


# --- the verdict ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """All that a decision rests on: the looks made with the last one's comparison, and the confirmation's cards.

    `best_success` is the highest success on dev that this lineage ever had (0..1); `spent` is what its ledger of errors
    has been charged before.
    """

    candidate: Candidate
    incumbent_harness: str
    looks: tuple[Look, ...]
    race: Comparison
    dev: Arms
    confirmation: Arms | None
    best_success: float
    spent: float = 0.0


def confirm_level(rules: RaceConfig, spent: float) -> float:
    """The one-sided error of the next confirmation: `alpha`, as long as the lineage's ledger can pay for it.

    A candidate is charged the chance that a neutral edit in its place is promoted, this level times `screen_alpha`, but
    never more than half of what is left; so a lineage of any length promotes one with at most `lineage_alpha`. The
    charge of a promoted candidate passes on to those after it (online fallback, Tian and Ramdas 2021, Stat. Methods
    Med. Res. 30).
    """
    return min(rules.alpha, max(0.0, rules.lineage_alpha - spent) / 2 / rules.screen_alpha)


def decide(case: Case, rules: RaceConfig, seed: int, at: float) -> Decision:
    """The verdict with its reasons. promote: shown in the race, and the same way on fresh attempts; reject: measurably
    worse, or dearer for no gain; keep: a worthwhile lead is unlikely; inconclusive: the attempts did not suffice."""
    alpha = case.looks[-1].alpha
    routes = shown_by(case.race, rules, alpha)
    reasons = [f"race on dev after {case.looks[-1].attempts} attempts: {_words(case.race)}"]
    found = None
    level = confirm_level(rules, case.spent)
    verdict: Literal["promote", "keep", "reject", "inconclusive"]
    if case.confirmation is not None:
        share = level / max(1, len(routes))  # two ways to be confirmed share the error
        found = compare(case.confirmation, rules, share, seed)
        reasons.append(f"fresh confirmation on select: {_words(found)}")
        confirmed = sorted(routes & shown_by(found, rules, share))
        if confirmed == ["cheaper"] and mean_success(case.dev.candidate) < case.best_success - rules.margin:
            confirmed = []
            reasons.append(f"small losses add up: the lineage once had {100 * case.best_success:.1f} % on dev")
        verdict = "promote" if confirmed else _without_promotion(found, rules)
        held = " and ".join(ROUTES[route] for route in confirmed or sorted(routes))
        reasons.append(f"{held}: {'confirmed' if confirmed else 'not confirmed'} at alpha {share:g} (one-sided)")
    else:
        verdict = _without_promotion(case.race, rules)
    reasons.append(_why(verdict, found or case.race, rules))
    flips_aa, flips_ab = flip_rates(case.dev)
    return Decision(
        id=f"dec-{case.candidate.id}",
        candidate_id=case.candidate.id,
        candidate_harness=case.candidate.harness_id,
        incumbent_harness=case.incumbent_harness,
        verdict=verdict,
        looks=case.looks,
        confirmation=found.effect if found else None,
        confirmation_p=found.p_better if found else None,
        alpha_spent=rules.screen_alpha * level,
        flip_rate_aa=flips_aa,
        flip_rate_ab=flips_ab,
        tokens_per_solved=tokens_per_solved(case.dev.candidate),
        incumbent_tokens_per_solved=tokens_per_solved(case.dev.incumbent),
        reasons=tuple(reasons),
        decided_at=at,
    )


def against_root(decision: Decision, arms: Arms, rules: RaceConfig, seed: int) -> Decision:
    """A promotion after fresh attempts of the candidate and of the lineage's root: what all steps so far amount to.

    These attempts decided nothing before, so this effect is the lineage's claim. A candidate that is measurably worse
    than the root is rejected after all, however well it did against the incumbent.
    """
    found = compare(arms, rules, rules.alpha, seed)
    reasons = (*decision.reasons, f"all promotions so far, against the root: {_words(found)}")
    if _below_0(found.effect):
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
        return f"inconclusive: only {found.tasks} of {found.n_tasks} tasks are scored in both arms"
    if verdict == "reject":
        worse = "its success is" if _below_0(found.effect) else "it gains nothing, and the tokens it saves are"
        return f"rejected: {worse} below 0 with the whole 95 % interval"
    upper = f"upper {100 * rules.futility_level:g} % bound {100 * (found.upper or 0):+.1f} pp"
    if verdict == "keep":
        return f"incumbent kept: {upper} is below the smallest lead worth it ({100 * rules.min_effect:g} pp)"
    enough = detectable_effect(found.tasks, max(1, found.attempts // max(1, found.tasks)), rules.alpha)
    return f"inconclusive: {upper}; so many attempts detect a lead of about {100 * enough:.0f} pp (power 80 %)"


def _words(found: Comparison) -> str:
    effect = found.effect
    if effect.point is None:
        return f"no common scored attempt on {found.n_tasks} tasks"
    rubric = found.rubric_lead
    span = "" if effect.low is None else f" [{100 * effect.low:+.1f}, {100 * (effect.high or 0):+.1f}]"
    text = f"success {100 * effect.point:+.1f} pp{span}, p = {found.p_better:.4f}"
    if rubric is not None and rubric - effect.point > SUSPICIOUS_RUBRIC_LEAD:
        text += f", but rubric {100 * rubric:+.1f} pp: partial credit without success, look at the checks"
    if found.saving.point is not None:
        text += f", tokens {-100 * found.saving.point:+.1f} % on {found.saving.n} tasks that both solve"
    else:
        text += f", tokens not compared ({found.saving.method})"
    return f"{text}; {found.tasks} of {found.n_tasks} tasks, {found.attempts} paired attempts"


# --- parts -----------------------------------------------------------------------------------------------------------


def flip_rates(arms: Arms) -> tuple[float | None, float | None]:
    """How often one task turns out differently: A against A (the incumbent's own repeats), and A against B (paired)."""
    incumbent = [card for card in final_cards(arms.incumbent) if card.success is not None]
    candidate = {card.key.pair: card.success for card in final_cards(arms.candidate) if card.success is not None}
    repeats = [x.success != y.success for cards in _by_task(incumbent).values() for x, y in combinations(cards, 2)]
    pairs = [card.success != candidate[card.key.pair] for card in incumbent if card.key.pair in candidate]
    return (
        sum(repeats) / len(repeats) if repeats else None,
        sum(pairs) / len(pairs) if pairs else None,
    )


def tokens_per_solved(cards: Sequence[Scorecard]) -> float | None:
    """All tokens of the scored attempts / attempts solved; None if a count is unknown or nothing was solved."""
    done = [card for card in final_cards(cards) if card.success is not None]
    spent = [card.tokens for card in done if card.tokens is not None]
    solved = sum(card.success is True for card in done)
    return sum(spent) / solved if solved and len(spent) == len(done) else None


def detectable_effect(tasks: int, attempts: int, alpha: float, power: float = 0.8, success: float = 0.5) -> float:
    """The lead (0..1) that `tasks` x `attempts` in each of two independent arms detect (one-sided, normal)."""
    if tasks < 1 or attempts < 1:
        return 1.0
    from scipy.stats import norm

    error = math.sqrt(2 * success * (1 - success) / (tasks * attempts))
    return min(1.0, float(norm.isf(alpha) + norm.isf(1 - power)) * error)


def _require_same_tasks(candidate: Sequence[Scorecard], incumbent: Sequence[Scorecard]) -> None:
    if len({card.key.model_id for card in (*candidate, *incumbent)}) > 1:
        raise UsageError("the arms of a race were played by different models: compare harnesses under one model")
    require_one_version([*incumbent, *candidate])


def _by_task(cards: Sequence[Scorecard]) -> dict[str, list[Scorecard]]:
    found: dict[str, list[Scorecard]] = defaultdict(list)
    for card in cards:
        found[card.key.task_id].append(card)
    return found


def _rubric_lead(candidate: dict[str, list[Scorecard]], incumbent: dict[str, list[Scorecard]]) -> float | None:
    """Mean lead in the rubric score over the tasks of `candidate` whose rubric is known in both arms."""
    ours = {task: [c.rubric for c in candidate[task] if c.rubric is not None] for task in candidate}
    theirs = {task: [c.rubric for c in incumbent[task] if c.rubric is not None] for task in candidate}
    leads = [sum(ours[t]) / len(ours[t]) - sum(theirs[t]) / len(theirs[t]) for t in candidate if ours[t] and theirs[t]]
    return sum(leads) / len(leads) if leads else None


def _tally(cards: Sequence[Scorecard]) -> tuple[int, int]:
    return sum(card.success is True for card in cards), len(cards)


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
