"""What a winner is measured beside: the original once more, the original with as many tokens, and random search.

A baseline that was not played is named as such; what was measured on attempts that decided something says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evolver.intervals import DIFFERENCE, mean_interval, success_interval
from evolver.phrasing import UNKNOWN, count, percent, pp
from evolver.population import Population, by_task, cards_of, final_cards, per_task, population_of, success_value
from evolver.records import Arm, Decision, Final, Interval, Purpose, Scorecard
from evolver.store import Store
from evolver.tables import Table

WINNER, ORIGINAL, RANDOM = "winner", "original", "random search"
RANDOM_AUTHOR = "random"


def best_of(cards: Sequence[Scorecard], k: int) -> dict[str, float]:
    """Task id → chance that one of `k` attempts drawn from those made solves it (Chen et al. 2021, arXiv 2107.03374);
    tasks with fewer scored attempts are left out."""
    found = {}
    for task, made in sorted(by_task([card for card in cards if card.success is not None]).items()):
        n, solved = len(made), sum(card.success is True for card in made)
        if n >= k:
            found[task] = 1 - math.comb(n - solved, k) / math.comb(n, k)
    return found


def matched(winner: Sequence[Scorecard], original: Sequence[Scorecard]) -> int:
    """How many attempts of the original cost as many tokens as one of the winner, on the tasks that both played; 1
    where a count is unknown."""
    spent = [per_task(arm, lambda card: card.tokens) for arm in (winner, original)]
    common = spent[0].keys() & spent[1].keys()
    ours, theirs = (sum(arm[task] for task in common) for arm in spent)
    return max(1, math.floor(ours / theirs + 0.5)) if theirs else 1


def teacher_of(store: Store) -> str:
    """The id of the model that played the newest decision, or the first attempts on dev where none fell yet."""
    decided = [decision.teacher for decision in store.all(Decision) if decision.teacher]
    raced = [card.key.model_id for card in store.all(Scorecard) if card.key.purpose == "race"]
    return decided[-1] if decided else raced[0] if raced else store.config.teacher_id


@dataclass(frozen=True)
class _Row:
    """One line of the table: what it is, its success, the winner's lead over it, where that was measured."""

    name: str
    success: str
    lead: str
    where: str
    note: str = ""


def baselines_table(store: Store) -> Table:
    """The winner's baselines, on `test` once the run is finalized, before that on what there is."""
    finals = store.all(Final)
    rows = _of_final(finals[-1]) if finals else _of_run(store)
    return Table(
        "Baselines",
        ("baseline", "success [95 %]", "winner's lead", "measured on", "note"),
        tuple((row.name, row.success, row.lead, row.where, row.note) for row in rows),
        "Best of k lets an oracle pick the right attempt, so it is an upper bound of what the original can do with as "
        "many tokens as the winner takes. Leads are paired by task.",
    )


def _of_final(final: Final) -> list[_Row]:
    arms = {arm.name: arm for arm in final.arms}
    original = arms[ORIGINAL]
    where = f"test x{original.attempts}, n = {final.n_tasks}"
    rows = [_Row("original re-run", percent(original.success), pp(final.effect), where, "fresh attempts")]
    enough = "the winner takes no more tokens" if final.k == 1 else "upper bound (oracle picks)"
    rows.append(_Row(f"original best of {final.k}", percent(final.best_of), pp(final.against_best_of), where, enough))
    found = arms.get(RANDOM)
    if found is None:
        return [*rows, _Row(RANDOM, *_not_played("no candidate of a random author was raced"))]
    note = f"its candidate that solved most of dev; {found.attempts} attempts a task"
    return [*rows, _Row(RANDOM, percent(found.success), UNKNOWN, f"test, n = {found.success.n}", note)]


def _not_played(why: str) -> tuple[str, str, str, str]:
    return "not played", "", "", why


def _of_run(store: Store) -> list[_Row]:
    population = population_of(store)
    if population.incumbent is None:
        return []
    winner, original = population.lineage[-1], population.lineage[0]
    again = _cards(store, original, "confirm")
    rerun = _Row("original re-run", *_not_played("`evolver finalize` plays it on test"))
    if again:
        rerun = _Row(
            "original re-run", percent(_success(again)),
            _lead(_cards(store, winner, "confirm"), again, winner, original),
            f"select, n = {len(by_task(again))}", "fresh attempts of its confirmations",
        )  # fmt: skip
    return [rerun, _best_of_row(store, winner, original), _random_row(store, population)]


def _best_of_row(store: Store, winner: str, original: str) -> _Row:
    ours, theirs = _cards(store, winner, "race"), _cards(store, original, "race")
    k = matched(ours, theirs)
    best = best_of(theirs, k)
    if winner == original or len(best) < len(by_task(theirs)) or not best:  # a race asks open tasks more often
        few = f"{len(best)} of {len(by_task(theirs))} tasks of dev have {k} attempts of it"
        why = "no candidate was promoted" if winner == original else few
        return _Row(f"original best of {k}", *_not_played(f"{why}; `evolver finalize` plays it on test"))
    means = per_task(ours, success_value)
    leads = [means[task] - best[task] for task in sorted(means.keys() & best.keys())]
    note = "the winner takes no more tokens" if k == 1 else "upper bound (oracle picks)"
    return _Row(
        f"original best of {k}", percent(success_interval(list(best.values()))),
        pp(mean_interval(leads, 0, DIFFERENCE)), f"dev, n = {len(best)}",
        f"{note}; on attempts that decided the race, which flatter the winner",
    )  # fmt: skip


def _random_row(store: Store, population: Population) -> _Row:
    made = {c.id for c in population.candidates if c.author == RANDOM_AUTHOR}
    decided = [d for d in population.decisions if d.candidate_id in made]
    if not decided:
        return _Row(RANDOM, *_not_played("no candidate of a random author was decided; add one to [[authors]]"))
    won = sum(decision.verdict == "promote" for decision in decided)
    raced = [cards for d in decided if (cards := _cards(store, d.candidate_harness, "race"))]
    best = max((_success(cards) for cards in raced), key=lambda found: found.point or 0.0, default=None)
    note = f"{len(decided)} candidates decided, {won} promoted; shown is the best of them, on attempts that chose it"
    return _Row(RANDOM, percent(best) if best else UNKNOWN, "", f"dev, n = {best.n if best else 0}", note)


def _cards(store: Store, harness_id: str, purpose: Purpose) -> list[Scorecard]:
    cards = final_cards(cards_of(store.all(Scorecard), harness_id, purpose, teacher_of(store)))
    return [card for card in cards if card.success is not None]


def _success(cards: Sequence[Scorecard]) -> Interval:
    return success_interval(list(per_task(cards, success_value).values()))


def _lead(ours: Sequence[Scorecard], theirs: Sequence[Scorecard], winner: str, original: str) -> str:
    a, b = per_task(ours, success_value), per_task(theirs, success_value)
    common = sorted(a.keys() & b.keys())
    if winner == original or not common:
        return ""
    return pp(mean_interval([a[task] - b[task] for task in common], 0, DIFFERENCE))


# --- the final comparison --------------------------------------------------------------------------------------------


def final_table(store: Store, names: dict[str, str]) -> Table:
    """The arms of the final comparison, or how to have one."""
    finals = store.all(Final)
    if not finals:
        return Table("Final comparison", ("arm",), (), f"Not played: `evolver finalize {store.path}` opens test once.")
    final = finals[-1]

    def row(arm: Arm) -> tuple[str, ...]:
        name = names.get(arm.harness_id, arm.harness_id[:8])
        return (arm.name, name, str(arm.attempts), percent(arm.success), count(arm.tokens_per_attempt))

    repeats = "" if final.flip_rate is None else f" A task flips in {100 * final.flip_rate:.0f} % of the repeats."
    tested = (
        f"Winner minus original: {pp(final.effect)}, one-sided p = {final.p_better:.4f}; McNemar's exact test of first "
        f"attempts, a diagnostic: p = {final.mcnemar_p:.4f}. "
        if final.p_better is not None and final.mcnemar_p is not None
        else f"Winner minus original: {final.effect.method}. "
    )
    return Table(
        "Final comparison",
        ("arm", "harness", "attempts a task", "success [95 %]", "tokens/attempt"),
        tuple(row(arm) for arm in final.arms),
        f"{tested}{final.n_tasks} test tasks, seed {final.seed}; unscored: "
        f"{sum(arm.n_unscored for arm in final.arms)} attempts.{repeats}",
        frozenset({"attempts a task", "tokens/attempt"}),
        final.notes,
    )
