"""The last hearing: of the candidates whose small leads wait, the most promising one is confirmed, once.

A lead of a few points is seldom confirmed alone, and each try costs fresh attempts of both arms. So it waits while
authors build on it, and what stands highest when they are done is heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from evolver.archive import members_of, most_promising
from evolver.compare import Arms, compare
from evolver.decide import Case
from evolver.lab import Lab
from evolver.population import Population, held, population_of
from evolver.race import Grounds, best_success, confirm, dev_cards, settle
from evolver.records import Candidate, Decision


async def last_hearing(lab: Lab, grounds: Grounds) -> Decision | None:
    """Confirms the candidate whose turn it is, at the level that it was charged when it was raced. None when none waits
    that was raced by this teacher against the present incumbent, or when one was heard since the last race.

    Hidden edits that can't matter, and wait, are heard before it, so that false accepts are counted and not missed.
    """
    population = population_of(lab.store)
    if not hearing_due(population, lab.model.id):
        return None
    waiting = population.waiting(lab.model.id)
    chosen = waiting[0]
    if chosen.candidate_id not in population.hidden:
        best = most_promising(members_of(lab.store, lab.model.id), {d.candidate_harness for d in waiting})
        chosen = next(d for d in waiting if d.candidate_harness == best)
    name = chosen.candidate_harness[:12]
    lab.tell(f"last hearing: {name}, one of {len(waiting)} whose small lead waits", 1, 1, {})
    case = await confirm(lab, _as_raced(lab, population, chosen, grounds), grounds)
    decision = await settle(lab, case, grounds)
    return decision.model_copy(update={"id": f"{chosen.id}-heard", "heard": True})


def hearing_due(population: Population, teacher: str) -> bool:
    """Whether a candidate waits that a last hearing would take up."""
    return bool(population.waiting(teacher)) and not population.was_heard


def spent_before(candidates: Sequence[Candidate], made: Sequence[Decision], decision: Decision) -> float:
    """What the lineage had spent of its error when `decision` fell: what was heard since then still waited."""
    return Population(candidates, made[: made.index(decision)]).alpha_spent


def _as_raced(lab: Lab, population: Population, decision: Decision, grounds: Grounds) -> Case:
    """The case as it was when the race ended."""
    rules, look = lab.config.race, decision.looks[-1]
    ours, theirs = (dev_cards(lab, h) for h in (decision.candidate_harness, decision.incumbent_harness))
    ours, theirs = held(ours, look.attempts, look.spread), held(theirs, look.pool, look.pool_spread)
    arms = Arms(ours, theirs, len(grounds.dev), look.attempts)
    candidate = next(c for c in population.candidates if c.id == decision.candidate_id)
    found = compare(arms, rules, look.alpha, lab.config.seed)
    spent = spent_before(population.candidates, lab.store.all(Decision), decision)
    best = best_success(lab, population)
    return Case(candidate, decision.incumbent_harness, decision.looks, found, arms, None, best, spent)
