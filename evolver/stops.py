"""When a run does not start (its caps buy too little), and why it ends."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum

from evolver.budget import Need
from evolver.compare import detectable_effect
from evolver.decide import cheaper_line, confirm_steps, steps
from evolver.errors import UsageError
from evolver.hearing import hearing_due
from evolver.lab import Lab
from evolver.population import population_of
from evolver.race import Grounds, dev_cards
from evolver.records import Rollout
from evolver.selfcheck import remaining


class Stop(StrEnum):
    BUDGET = "budget"
    AUTHORS_DONE = "authors_done"
    TARGET = "target"
    PLATEAU = "plateau"
    ERROR = "error"


@dataclass(frozen=True)
class End:
    """Why the run stopped, in a word and in a line."""

    reason: Stop
    detail: str


def preflight(lab: Lab, grounds: Grounds) -> None:
    """Tells the observers; called again once the root was played, it knows what a rollout takes.

    Raises UsageError when the root and `min_proposals` proposals, each raced to its last look, are more than the caps
    buy. A run that has decided something, or has played a candidate, goes on with whatever is left.
    """
    population = population_of(lab.store)
    played = {(r.key.harness_id, r.key.task_id) for r in lab.store.all(Rollout) if r.key.purpose == "race"}
    challengers = {candidate.harness_id for candidate in population.candidates if candidate.parents}
    if population.decisions or any(harness_id in challengers for harness_id, _ in played):
        return
    rules, tasks = lab.config.race, len(grounds.dev)
    last, most = steps(rules, 1)[-1], confirm_steps(rules)[-1]
    heard = 2 * len(grounds.select) * most.attempts
    need = _need(lab, tasks, max(0, tasks - len(played)) + remaining(lab, tasks) + (heard if rules.confirm_from else 0))
    seen = detectable_effect(tasks, last.attempts, rules.screen_alpha)
    bought = lab.budget.proposals(need)
    lab.tell(
        f"{tasks} dev tasks x {last.attempts} attempts detect a lead of about {100 * seen:.0f} pp (power 80 %); a "
        f"proposal raced to the last look takes {need.rollouts:,} rollouts, its confirmation at most "
        f"{heard:,} more{' (kept for the last one)' if rules.confirm_from else ''}; "
        + ("no cap says yet how many" if bought is None else f"the caps buy {bought[0]:,} races ({bought[1]})"),
        1, 1, {},
    )  # fmt: skip
    lab.tell(cheaper_line(rules, tasks, len(grounds.select)), 1, 1, {})
    if bought is not None and bought[0] < lab.config.min_proposals:
        raise UsageError(
            f"{bought[1]} buys {bought[0]} proposals of {need.rollouts:,} rollouts each, and fewer than "
            f"{lab.config.min_proposals} say nothing: raise it, take fewer tasks (tasks.dev) or attempts "
            "(race.attempts), or set min_proposals = 0 to start anyway"
        )


def _need(lab: Lab, tasks: int, before: int) -> Need:
    """What a proposal that is raced to the last look takes, after `before` other rollouts."""
    last = steps(lab.config.race, 1)[-1]
    return Need(
        tasks * (last.attempts + last.pool - 1),
        *_a_rollout(lab),
        *_a_judgement(lab),
        before=before,
        authored=int(any(str(author.kind) == "llm" for author in lab.config.authors)),
    )


def _a_rollout(lab: Lab) -> tuple[float | None, float | None]:
    """Mean tokens and dollars of the root's rollouts; None while one is unknown."""
    root = population_of(lab.store).root
    cards = dev_cards(lab, root.harness_id) if root else []
    tokens = [card.tokens for card in cards if card.tokens is not None]
    costs = [card.cost_usd for card in cards if card.cost_usd is not None]
    complete = bool(cards) and len(tokens) == len(costs) == len(cards)
    return (statistics.mean(tokens), statistics.mean(costs)) if complete else (None, None)


def _a_judgement(lab: Lab) -> tuple[float | None, float | None]:
    """Mean tokens and dollars of judging a rollout; None while nothing was judged, or what a reply took is unknown."""
    spent = lab.budget.spent("judge")
    if not spent.rollouts or any(spent.unknown_replies):
        return None, None
    return spent.tokens / spent.rollouts, spent.cost_usd / spent.rollouts


def reached(lab: Lab, success: float, grounds: Grounds) -> End | None:
    """What ends the search although an author might have another candidate."""
    rules, population = lab.config.race, population_of(lab.store)
    waited = population.since_promotion
    if rules.target is not None and success >= rules.target:
        return End(Stop.TARGET, f"the incumbent solves {100 * success:.1f} % of dev, the target is reached")
    if rules.patience is not None and waited >= rules.patience:
        return End(Stop.PLATEAU, f"{waited} candidates in a row brought no promotion")
    if hearing_due(population, lab.model.id) and not population.pending:
        heard = 2 * len(grounds.select) * rules.confirm_attempts
        bought = lab.budget.proposals(_need(lab, len(grounds.dev), heard))
        if bought is not None and bought[0] < 1:
            return End(Stop.BUDGET, f"what is left of {bought[1]} is kept for the last hearing")
    return None
