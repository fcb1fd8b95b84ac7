"""The race: who may be compared, what a look shows, and how often whole races err."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from statistics import NormalDist, stdev

import pytest

from evolver.compare import Arms, compare, detectable_effect, flip_rates
from evolver.config import RaceConfig, RunConfig
from evolver.decide import (
    Case,
    against_root,
    cheaper_line,
    confirm_steps,
    decide,
    least_loss,
    race_look,
    rejected_early,
    shown_by,
    spending,
    steps,
    undecided,
    waits,
)
from evolver.errors import UsageError
from evolver.intervals import Tail, bound
from evolver.records import Decision, Purpose, Scorecard
from tests.evolver.cards import Edit, a_candidate, a_card, simulated_decision

RULES = RaceConfig(pool=16, min_effect=0.05)
ONE_LOOK = RaceConfig(attempts=(1,), confirm_attempts=1)


def arms(ours: str, theirs: str, attempt: int = 0, tokens: int = 1_000) -> Arms:
    """One character a task: 1 solved, 0 not, ? unscored. `tokens` are the candidate's."""
    outcome = {"1": True, "0": False, "?": None}
    return Arms(
        [a_card("c", t, outcome[o], attempt, tokens) for t, o in enumerate(ours)],
        [a_card("i", t, outcome[o], attempt) for t, o in enumerate(theirs)],
        max(len(ours), len(theirs)),
        1,
    )


def verdict(dev: Arms, confirmation: Arms | None = None, rules: RaceConfig = RULES, best: float = 0.0) -> Decision:
    look, found = race_look(dev, steps(rules, 1), 0, rules, 0)
    if look.verdict != "pass":
        confirmation = None
    return decide(Case(a_candidate(), "i", (look,), found, dev, confirmation, best), rules, 0, 0.0)


# --- what is compared -------------------------------------------------------------------------------------------------


def test_only_common_scored_attempts_count_and_coverage_is_shown() -> None:
    found = compare(arms("1111?", "0?11"), RULES, 0.05, 0)
    assert (found.tasks, found.n_tasks, found.attempts) == (3, 5, 3)
    assert found.effect.point == pytest.approx(1 / 3)
    assert not found.covered


def test_e21_a_lead_on_few_tasks_is_inconclusive_never_a_promotion() -> None:
    decided = verdict(arms("1" * 12 + "?" * 8, "0" * 20))
    assert decided.verdict == "inconclusive"
    assert "only 12 of 20 tasks" in decided.reasons[-1]


def survivors(attempts: int, scored: int, tasks: int = 20) -> Arms:
    """A candidate that solves all that it scores, the first `scored` attempts of each task; the incumbent is whole."""
    ours = [a_card("c", t, True if a < scored else None, a) for t in range(tasks) for a in range(attempts)]
    theirs = [a_card("i", t, False, a) for t in range(tasks) for a in range(attempts)]
    return Arms(ours, theirs, tasks, attempts)


def test_e21_a_lead_on_few_attempts_of_every_task_is_inconclusive_never_a_promotion() -> None:
    plan, sound = steps(RULES, 1), survivors(4, 4)
    for scored, dev, fresh in ((5, sound, survivors(8, 5)), (1, survivors(4, 1), None)):
        look, found = race_look(dev, plan, 2, RULES, 0)
        assert look.verdict == ("pass" if fresh else "continue")
        final = len(confirm_steps(RULES)) - 1
        told = decide(Case(a_candidate(), "i", (look,), found, dev, fresh, 0.0, confirm_look=final), RULES, 0, 0.0)
        asked = 160 if fresh else 80
        assert told.verdict == "inconclusive" and told.reasons[0].startswith("race on dev after 4 attempts a task: ")
        assert f"20 of 20 tasks and {20 * scored} of {asked} attempts are scored" in told.reasons[-1]
    assert compare(survivors(5, 4), RULES, 0.05, 0).covered and not compare(survivors(4, 3), RULES, 0.05, 0).covered


def test_e29_a_crash_can_not_raise_the_score() -> None:
    crashes_where_it_would_fail = arms("1" * 10 + "?" * 10, "1" * 10 + "0" * 10)
    assert compare(crashes_where_it_would_fail, RULES, 0.05, 0).effect.point == 0.0


def test_the_incumbent_is_pooled_over_all_its_attempts() -> None:
    theirs = [a_card("i", t, attempt != 2, attempt) for t in range(10) for attempt in range(4)]
    found = compare(Arms([a_card("c", t, True) for t in range(10)], theirs, 10, 1), RULES, 0.05, 0)
    assert found.effect.point == pytest.approx(0.25) and found.attempts == 10


def test_u31_attempts_pair_by_number_and_seed() -> None:
    theirs = [a_card("i", t, False, 0) for t in range(10)]
    assert compare(Arms([a_card("c", t, True, 1) for t in range(10)], theirs, 10, 1), RULES, 0.05, 0).tasks == 0
    reseeded = [c.model_copy(update={"key": c.key.model_copy(update={"seed": 9})}) for c in theirs]
    assert compare(Arms([a_card("c", t, True, 0) for t in range(10)], reseeded, 10, 1), RULES, 0.05, 0).tasks == 0


@pytest.mark.parametrize("change", [{"key": {"task_hash": "changed"}}, {"checker_hash": "changed"}])
def test_s47_u31_other_task_or_checker_versions_refuse_to_be_compared(change: dict[str, object]) -> None:
    both = arms("111", "000")
    other = Scorecard.model_validate(
        both.candidate[0].model_dump()
        | {k: v for k, v in change.items() if k != "key"}
        | {"key": both.candidate[0].key.model_dump() | dict(change.get("key", {}))}  # type: ignore[call-overload]
    )
    with pytest.raises(UsageError, match="'dev-0' was scored in two versions"):
        compare(Arms([other, *both.candidate[1:]], both.incumbent, 3, 1), RULES, 0.05, 0)


def test_arms_of_different_models_refuse_to_be_compared() -> None:
    both = arms("111", "000")
    moved = [c.model_copy(update={"key": c.key.model_copy(update={"model_id": "other"})}) for c in both.candidate]
    with pytest.raises(UsageError, match="different models"):
        compare(Arms(moved, both.incumbent, 3, 1), RULES, 0.05, 0)


# --- looks and verdicts -----------------------------------------------------------------------------------------------


def test_the_incumbent_plays_along_until_its_pool_is_full_and_all_challengers_share_it() -> None:
    def plan(settled: int) -> list[tuple[int, int]]:
        return [(step.attempts, step.pool) for step in steps(RULES, settled)]

    assert plan(1) == [(1, 3), (2, 5), (4, 9)]
    assert plan(9) == [(1, 11), (2, 13), (4, 16)]
    assert plan(15) == [(1, 16), (2, 16), (4, 16)] and plan(20) == [(1, 20), (2, 20), (4, 20)]
    assert [(s.attempts, s.pool) for s in steps(RaceConfig(pool=1), 1)] == [(1, 1), (2, 2), (4, 4)]


def test_a_larger_pool_lets_later_looks_err_less_for_the_same_screening_error() -> None:
    first, *_ = spending(steps(RULES, 1), 0.05)
    assert 0 < first < 0.05
    assert spending(steps(RaceConfig(attempts=(3,)), 1), 0.05) == pytest.approx((0.05,))


def test_a_clear_gain_passes_at_once_and_needs_its_confirmation() -> None:
    dev = arms("1" * 20 + "0" * 4, "0" * 24)
    decided = verdict(dev, arms("1" * 12 + "0" * 4, "0" * 16))
    assert decided.verdict == "promote"
    assert decided.looks[0].verdict == "pass" and decided.confirmation is not None
    assert decided.confirmation_p is not None and decided.confirmation_p <= RULES.alpha
    assert decided.alpha_spent == pytest.approx(RULES.screen_alpha * RULES.alpha)
    assert any("solves more: confirmed" in reason for reason in decided.reasons)


def test_e22_a_lucky_race_without_confirmation_promotes_nothing() -> None:
    dev = arms("1" * 20 + "0" * 4, "0" * 24)
    assert verdict(dev, arms("01" * 8, "10" * 8)).verdict == "inconclusive"
    assert verdict(dev, arms("0" * 40, "0" * 40)).verdict == "keep"
    assert verdict(dev, arms("0" * 16, "1" * 16)).verdict == "reject"


def test_a_small_lead_waits_for_the_end_and_is_charged_what_its_confirmation_will_be() -> None:
    small = arms("1" * 14 + "0" * 66, "0" * 7 + "1" + "0" * 72)  # solves a sixth more than nothing
    rules = RaceConfig(attempts=(1,), confirm_from=0.2)
    look, found = race_look(small, steps(rules, 1), 0, rules, 0)
    assert look.verdict == "pass" and waits(found, rules, look.alpha)
    assert not waits(found, RaceConfig(attempts=(1,), confirm_from=0.1), look.alpha)
    told = verdict(small, rules=rules)
    assert (told.verdict, told.confirmation) == ("inconclusive", None) and told.waits
    assert told.reasons[-1].startswith("waits: a lead of +16.2 pp, below 20 pp, is built upon first")
    assert told.alpha_spent == pytest.approx(rules.screen_alpha * rules.alpha)


def test_what_is_cheaper_waits_for_nothing() -> None:
    cheap = arms("1" * 45 + "0" * 15, "1" * 45 + "0" * 15, tokens=600)
    look, found = race_look(cheap, steps(ONE_LOOK, 1), 0, ONE_LOOK, 0)
    assert look.verdict == "pass" and not waits(found, ONE_LOOK, look.alpha)


def case(dev: Arms, spent: float = 0.0) -> Case:
    look, found = race_look(dev, steps(RULES, 1), 0, RULES, 0)
    return Case(a_candidate(), "i", (look,), found, dev, None, 0.0, spent)


def test_a_confirmation_ends_as_soon_as_its_looks_decide() -> None:
    raced = case(arms("1" * 20 + "0" * 4, "0" * 24))
    assert [(s.attempts, s.pool) for s in confirm_steps(RULES)] == [(2, 2), (4, 4), (8, 8)]
    assert [s.attempts for s in confirm_steps(RaceConfig(confirm_attempts=2))] == [1, 2]
    clear, nothing = arms("1" * 40, "0" * 40), arms("0" * 40, "0" * 40)
    unclear = arms("0011" * 10, "0110" * 10)
    for fresh, more in ((clear, False), (nothing, False), (unclear, True)):
        assert undecided(replace(raced, confirmation=fresh, confirm_look=0), RULES, 0) is more
        assert not undecided(replace(raced, confirmation=fresh, confirm_look=2), RULES, 0)


def test_e22_the_ledger_of_a_lineage_never_spends_more_than_it_has() -> None:
    dev, spent, levels = arms("1" * 24, "0" * 24), 0.0, []
    for _ in range(60):
        charged = decide(case(dev, spent), RULES, 0, 0.0).alpha_spent
        levels.append(charged / RULES.screen_alpha)
        spent += charged
    assert levels[:18] == pytest.approx([RULES.alpha] * 18)
    assert 0 < levels[-1] < levels[25] < RULES.alpha and spent < RULES.lineage_alpha


def test_e37_the_newest_promotion_is_measured_against_the_root_and_withdrawn_if_it_is_worse() -> None:
    promoted = verdict(arms("1" * 20 + "0" * 4, "0" * 24), arms("1" * 12 + "0" * 4, "0" * 16))
    kept = against_root(promoted, arms("1" * 20 + "0" * 20, "0" * 40), RULES, 0)
    assert kept.verdict == "promote" and kept.cumulative is not None and kept.cumulative.point == 0.5
    fallen = against_root(promoted, arms("0" * 40, "1" * 20 + "0" * 20), RULES, 0)
    assert fallen.verdict == "reject" and "added up to a loss against the root" in fallen.reasons[-1]
    broken = against_root(promoted, survivors(8, 2), RULES, 0)
    assert broken.verdict == "inconclusive" and "40 of 160 attempts" in broken.reasons[-1]


def test_a_measurable_loss_is_rejected_with_the_figures() -> None:
    decided = verdict(arms("0" * 20 + "1" * 4, "1" * 24))
    assert decided.verdict == "reject" and decided.looks[0].verdict == "futile"
    assert decided.reasons[0].startswith("race on dev after 1 attempt a task: success -83.3 pp")
    assert "24 of 24 tasks" in decided.reasons[0]


def test_s53_the_same_harness_against_itself_makes_no_difference() -> None:
    decided = verdict(arms("110100110101" * 3, "110100110101" * 3))
    assert (decided.verdict, decided.looks[0].effect.point, decided.looks[0].p_value) == ("keep", 0.0, 1.0)


def test_not_worse_and_cheaper_is_promoted_in_the_same_race() -> None:
    cheap = arms("1" * 45 + "0" * 15, "1" * 45 + "0" * 15, tokens=600)
    decided = verdict(cheap, arms("1" * 30 + "0" * 10, "1" * 30 + "0" * 10, tokens=600), ONE_LOOK)
    assert decided.verdict == "promote"
    assert any("not worse and cheaper: confirmed" in reason for reason in decided.reasons)
    assert decided.routes == ("cheaper",)
    assert decided.tokens_per_solved is not None and decided.tokens_per_solved.point == pytest.approx(800)
    assert decided.incumbent_tokens_per_solved is not None
    assert decided.incumbent_tokens_per_solved.point == pytest.approx(4_000 / 3)


def test_no_difference_on_few_tasks_does_not_show_that_nothing_is_lost() -> None:
    few = arms("1" * 12 + "0" * 4, "1" * 12 + "0" * 4, tokens=600)
    assert "cheaper" not in shown_by(compare(few, RULES, 0.05, 0), RULES, 0.05)


def test_cheaper_but_perhaps_worse_is_not_promoted() -> None:
    perhaps_worse = arms("1" * 16 + "0" * 8, "1" * 18 + "0" * 6, tokens=600)
    assert "cheaper" not in shown_by(compare(perhaps_worse, RULES, 0.05, 0), RULES, 0.05)


@pytest.mark.parametrize("alpha", [0.05, 0.01, 5e-4, 1e-6])
def test_e37_the_bound_of_a_loss_holds_at_any_level_that_a_ledger_asks_for(alpha: float) -> None:
    found = compare(arms("1" * 54 + "010101", "1" * 54 + "101010"), RULES, alpha, 0)
    leads = [0.0] * 54 + [-1.0, 1.0] * 3
    assert found.lower is not None
    assert found.lower <= -NormalDist().inv_cdf(1 - alpha) * stdev(leads) / math.sqrt(60)
    assert found.lower <= (bound(leads, Tail("lower", alpha), 0) or 0.0)


def test_a_saving_below_the_threshold_or_with_unknown_tokens_is_no_reason() -> None:
    for tokens in (950, None):
        both = arms("1" * 24, "1" * 24)
        ours = [c.model_copy(update={"tokens": tokens}) for c in both.candidate]
        assert shown_by(compare(Arms(ours, both.incumbent, 24, 1), RULES, 0.05, 0), RULES, 0.05) == set()


def test_no_gain_at_a_higher_price_is_rejected() -> None:
    both = arms("1" * 36, "1" * 36)
    dear = [card.model_copy(update={"tokens": 2_000 + t}) for t, card in enumerate(both.candidate)]
    decided = verdict(Arms(dear, both.incumbent, 36, 1))
    assert decided.verdict == "reject" and "gains nothing" in decided.reasons[-1]


def test_e37_small_losses_do_not_add_up() -> None:
    cheap, fresh = arms("1" * 45 + "0" * 15, "1" * 45 + "0" * 15, tokens=600), arms("1" * 40, "1" * 40, tokens=600)
    assert verdict(cheap, fresh, ONE_LOOK, best=0.76).verdict == "promote"
    drifted = verdict(cheap, fresh, ONE_LOOK, best=0.9)
    assert drifted.verdict != "promote"
    assert any("small losses add up" in reason for reason in drifted.reasons)


def test_e24_what_does_not_run_is_rejected_early_with_its_reason() -> None:
    decided = rejected_early(a_candidate(), "i", "smoke test: not one tool call", 1.0)
    assert (decided.verdict, decided.looks, decided.confirmation) == ("reject", (), None)


def test_t26_flip_rates_show_the_noise_of_a_against_a_beside_a_against_b() -> None:
    theirs = [a_card("i", t, attempt == 0 or t < 4, attempt) for t in range(8) for attempt in (0, 1)]
    ours = [a_card("c", t, t < 6, 0) for t in range(8)]
    assert [rate.point for rate in flip_rates(Arms(ours, theirs, 8, 1))] == [0.5, 0.25]
    assert [rate.point for rate in flip_rates(arms("11", "11"))] == [None, 0.0]


def test_e34_the_detectable_effect_shrinks_with_tasks_and_attempts() -> None:
    assert detectable_effect(60, 4, 0.05) == pytest.approx(0.113, abs=0.002)
    assert detectable_effect(24, 1, 0.05) > detectable_effect(24, 4, 0.05) > detectable_effect(60, 4, 0.05)


def test_e07_e28_a_decision_follows_from_records_and_seed_alone() -> None:
    rng = random.Random(1)
    dev = arms("".join(rng.choice("01") for _ in range(24)), "".join(rng.choice("01") for _ in range(24)))
    shuffled = Arms(list(dev.candidate)[::-1], list(dev.incumbent)[::-1], 24, 1)
    assert verdict(dev) == verdict(dev) == verdict(shuffled)


def test_e38_partial_credit_that_grows_without_success_is_pointed_out() -> None:
    both = arms("1" * 12 + "0" * 12, "1" * 12 + "0" * 12)
    farmed = [c if c.success else c.model_copy(update={"rubric": 0.6}) for c in both.candidate]
    assert "but rubric +30.0 pp" in verdict(Arms(farmed, both.incumbent, 24, 1)).reasons[0]
    assert "rubric" not in verdict(both).reasons[0]


def test_e27_a_saving_that_can_not_be_judged_is_said_not_silently_left_out() -> None:
    both = arms("1" * 24, "1" * 24)
    unknown = [c.model_copy(update={"tokens": None}) for c in both.candidate]
    assert "tokens not compared" in verdict(Arms(unknown, both.incumbent, 24, 1)).reasons[0]


# --- how often whole races err ----------------------------------------------------------------------------------------


def verdicts(edit: Edit, runs: int, first_seed: int) -> Counter[str]:
    config = RunConfig()
    return Counter(simulated_decision(edit, config, first_seed + run).verdict for run in range(runs))


@pytest.mark.slow
def test_e22_a_neutral_edit_is_promoted_in_at_most_5_percent_of_races() -> None:
    found = verdicts(Edit(), runs=200, first_seed=0)
    assert found["promote"] <= 0.05 * 200, found
    assert found["reject"] <= 0.2 * 200, found


def test_e32_a_planted_flaw_and_a_no_op_come_out_differently() -> None:
    flawed, no_op = verdicts(Edit(lead=-0.4), 5, 0), verdicts(Edit(), 5, 0)
    assert flawed == {"reject": 5} and no_op["reject"] <= 1


@pytest.mark.slow
def test_e22_a_worse_but_cheaper_edit_is_promoted_in_at_most_5_percent_of_races() -> None:
    found = verdicts(Edit(lead=-0.1, tokens=0.7), runs=100, first_seed=1_000)
    assert found["promote"] <= 0.05 * 100, found


@pytest.mark.slow
def test_a_real_gain_of_15_points_is_promoted_in_most_races() -> None:
    found = verdicts(Edit(lead=0.15), runs=100, first_seed=2_000)
    assert found["promote"] >= 0.7 * 100, found
    assert found["reject"] <= 0.02 * 100, found


# --- whether there are tasks enough ----------------------------------------------------------------------------------


def test_the_tasks_that_not_worse_and_cheaper_takes_are_said_before_a_run() -> None:
    rules = RaceConfig()
    assert "CAN'T promote: on 24 dev and 16 select tasks" in cheaper_line(rules, 24, 16)
    enough = int(cheaper_line(rules, 16, 16).rpartition("; ")[2].split()[0])
    assert "CAN'T" in cheaper_line(rules, enough - 1, enough) and "can promote" in cheaper_line(rules, enough, enough)
    assert least_loss(rules, 40, 40) < rules.margin < least_loss(rules, 40, 16)
    assert "no number of tasks is enough" in cheaper_line(RaceConfig(margin=0.0), 40, 40)


@pytest.mark.parametrize(("tasks", "verdicts"), [(20, {"keep", "inconclusive"}), (40, {"promote"})])
def test_a_removal_that_changes_no_outcome_is_promoted_where_it_is_said_to_be_possible(
    tasks: int, verdicts: set[str]
) -> None:
    rules = RaceConfig(attempts=(4,), confirm_attempts=4)
    same, spent = "1" * (tasks // 2) + "0" * (tasks // 2), [int(1_000 * 1.01**n) for n in range(tasks)]

    def cards(harness: str, share: float, purpose: Purpose) -> list[Scorecard]:
        return [
            a_card(harness, n, solved == "1", attempt, int(share * spent[n]), purpose)
            for n, solved in enumerate(same)
            for attempt in range(4)
        ]

    dev, fresh = (Arms(cards("c", 0.6, p), cards("i", 1.0, p), tasks, 4) for p in ("race", "confirm"))
    look, found = race_look(dev, steps(rules, 4), 0, rules, 0)
    raced = Case(a_candidate(), "i", (look,), found, dev, None, 0.0)
    decided = decide(
        replace(raced, confirmation=fresh, confirm_look=2) if look.verdict == "pass" else raced, rules, 0, 0.0
    )
    assert decided.verdict in verdicts, decided.reasons
    assert ("can promote" in cheaper_line(rules, tasks, tasks)) == ("promote" in verdicts)
