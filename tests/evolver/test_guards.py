"""Guards: each stops what it is for and nothing else, says why, and is never silently off."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from evolver.compare import Arms
from evolver.config import RaceConfig, parse_config
from evolver.decide import Case, confirm_steps, decide, race_look, steps
from evolver.errors import UsageError
from evolver.guards import LIMITS, Facts, guard
from evolver.records import Decision, GuardResult, Manifest, Scorecard
from evolver.safeguards import GuardsConfig
from tests.evolver.cards import a_candidate, a_card

TASKS, ATTEMPTS = 24, 4
APPS = {f"{split}-{task}": ("files",) if task < 12 else ("calc",) for split in ("dev", "select") for task in range(24)}
FACTS = Facts(apps=APPS, terminal_share={}, lost=((0, 96), (0, 96)))
Cards = Callable[[str, int, int], Scorecard]


def arms(ours: Cards, theirs: Cards) -> Arms:
    def side(name: str, make: Cards) -> list[Scorecard]:
        return [make(name, task, attempt) for task in range(TASKS) for attempt in range(ATTEMPTS)]

    return Arms(side("c", ours), side("i", theirs), TASKS, ATTEMPTS)


def solved(name: str, task: int, attempt: int) -> Scorecard:
    return a_card(name, task, True, attempt)


def even(name: str, task: int, attempt: int) -> Scorecard:
    return a_card(name, task, attempt % 2 == 0, attempt)


def of(results: tuple[GuardResult, ...], name: str, subject: str = "") -> GuardResult:
    [found] = [r for r in results if r.guard == name and r.subject == subject]
    return found


def seen(found: Arms, rules: RaceConfig | None = None, facts: Facts = FACTS) -> tuple[GuardResult, ...]:
    return guard([found], facts, {}, rules or RaceConfig(), 0)


def with_guard(**limits: float) -> RaceConfig:
    return RaceConfig(guards=GuardsConfig(**limits))


# --- each guard -----------------------------------------------------------------------------------------------------


def test_arms_that_are_alike_pass_every_guard() -> None:
    results = seen(arms(even, even))
    assert {r.outcome for r in results if r.guard not in ("channel", "dollars")} == {"held"}
    assert of(results, "dollars").reason == "nothing is billed in either arm"


def test_a_gain_elsewhere_does_not_make_up_for_an_app_that_falls() -> None:
    def files_for_calc(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, task < 12 or attempt == 0, attempt)

    def half(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, task >= 12 or attempt == 0, attempt)

    files, calc = (of(seen(arms(files_for_calc, half)), "app", app) for app in ("files", "calc"))
    assert files.outcome == "held" and files.interval.point is not None and files.interval.point < 0
    assert calc.outcome == "tripped" and calc.p_value is not None and calc.p_value < 0.001
    assert "success falls by 75.0 pp" in calc.reason and "level 0.025" in calc.reason


def test_a_fall_that_chance_explains_or_that_is_small_stops_nothing() -> None:
    def one_less(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, (task, attempt) not in ((12, 0), (13, 1), (14, 0)), attempt)

    assert of(seen(arms(one_less, solved)), "app", "calc").outcome == "held"


def test_an_app_with_few_attempts_is_not_judged() -> None:
    few = replace(FACTS, apps={"dev-0": ("files",), **{f"dev-{task}": ("calc",) for task in range(1, 24)}})

    def loses(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, task > 0, attempt)

    found = of(seen(arms(loses, solved), facts=few), "app", "files")
    assert found.outcome == "unmeasured" and found.reason == "4 attempts an arm, 8 are needed"


@pytest.mark.parametrize(("times", "outcome"), [(1.9, "held"), (2.3, "tripped")])
@pytest.mark.parametrize("what", ["tokens", "seconds"])
def test_growth_of_more_than_twice_is_stopped(what: str, times: float, outcome: str) -> None:
    noise = random.Random(1)

    def dearer(name: str, task: int, attempt: int) -> Scorecard:
        card = solved(name, task, attempt)
        grown = 1_000 * times * noise.uniform(0.95, 1.05)
        return card.model_copy(update={"tokens": int(grown)} if what == "tokens" else {"seconds": grown / 1_000})

    assert of(seen(arms(dearer, solved)), what).outcome == outcome


def test_cost_is_compared_only_on_tasks_that_both_solve() -> None:
    """A task that only the candidate solves may cost whatever it takes."""

    def hard_ones_too(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, True, attempt, tokens=1_000 if task < 12 else 90_000)

    def easy_ones(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, task < 12, attempt, tokens=1_000)

    found = of(seen(arms(hard_ones_too, easy_ones)), "tokens")
    assert found.outcome == "held" and found.interval.n == 12 and found.interval.point == 0


def test_a_harness_that_loses_its_machine_more_often_is_stopped() -> None:
    lost = replace(FACTS, lost=((14, 96), (1, 96)))
    found = of(seen(arms(even, even), facts=lost), "infra")
    assert found.outcome == "tripped" and "14 of 96 tries lost on our side against 1 of 96" in found.reason
    assert of(seen(arms(even, even), facts=replace(FACTS, lost=((3, 96), (1, 96)))), "infra").outcome == "held"


def test_channels_that_move_are_flagged_expected_ones_are_not_and_a_stated_limit_stops() -> None:
    found = arms(solved, solved)
    shares = {card.rollout_id: 0.9 for card in found.candidate} | {card.rollout_id: 0.1 for card in found.incumbent}
    facts = replace(FACTS, terminal_share=shares)
    moved = of(seen(found, facts=facts), "channel", "calc")
    assert moved.outcome == "flagged" and "shifts by +80 pp" in moved.reason and "none was expected" in moved.reason
    assert of(seen(found, with_guard(channel=0.3), facts), "channel", "calc").outcome == "tripped"
    results = guard([found], facts, {"calc": 0.75}, with_guard(channel=0.3), 0)
    assert of(results, "channel", "calc").outcome == "held" and of(results, "channel", "files").outcome == "tripped"


def test_e38_partial_credit_that_grows_without_success_is_flagged_and_stopped_on_request() -> None:
    def farms(name: str, task: int, attempt: int) -> Scorecard:
        return even(name, task, attempt).model_copy(update={"rubric": 1.0})

    def honest(name: str, task: int, attempt: int) -> Scorecard:
        return even(name, task, attempt).model_copy(update={"rubric": 0.6 if attempt % 2 == 0 else 0.4})

    found = of(seen(arms(farms, honest)), "rubric")
    assert found.outcome == "flagged" and "gains +50.0 pp" in found.reason
    assert of(seen(arms(farms, honest), with_guard(rubric=0.1)), "rubric").outcome == "tripped"


# --- off, asked for, not measurable ----------------------------------------------------------------------------------


def test_e27_a_guard_that_is_asked_for_and_can_not_be_measured_is_an_error() -> None:
    def uncounted(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, True, attempt, tokens=None).model_copy(update={"cost_usd": None})

    found = arms(uncounted, solved)
    for name in ("tokens", "dollars"):
        with pytest.raises(UsageError, match=rf"race.guards.{name} = 0.5 can't be held: it is unknown for a solved"):
            seen(found, with_guard(**{name: 0.5}))
    with pytest.raises(UsageError, match=r"race\.guards\.infra"):
        seen(found, with_guard(infra=0.1), replace(FACTS, lost=None))
    with pytest.raises(UsageError, match=r"race\.guards\.channel"):
        seen(found, with_guard(channel=0.1))


def test_e27_a_guard_on_dollars_is_refused_before_the_run_where_there_is_no_price() -> None:
    teacher = {"kind": "openai", "model": "gpt-x"}
    raw = {"teacher": teacher, "allow_unpriced": True, "race": {"guards": {"dollars": 0.5}}}
    with pytest.raises(UsageError, match=r"race.guards.dollars = 0.5 can't be held without a price for model 'gpt-x'"):
        parse_config(raw, "my.toml")
    assert parse_config({**raw, "prices": {"gpt-x": {"input": 1.0, "output": 2.0}}}, "my.toml").race.guards.dollars


def test_e27_a_default_guard_that_can_not_be_measured_says_so_and_one_that_is_off_too() -> None:
    def uncounted(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, True, attempt, tokens=None)

    results = seen(arms(uncounted, solved), with_guard(seconds=0))
    assert (
        of(results, "tokens").outcome == "unmeasured" and "unknown for a solved attempt" in of(results, "tokens").reason
    )
    assert of(results, "seconds").outcome == "off"
    assert {r.guard for r in results} == set(LIMITS)


# --- in the verdict --------------------------------------------------------------------------------------------------


def decided(ours: Cards, theirs: Cards, rules: RaceConfig) -> Decision:
    """One candidate through the last look of race and confirmation."""
    plan = steps(rules, rules.attempts[-1])
    dev = arms(ours, theirs)
    look, found = race_look(dev, plan, len(plan) - 1, rules, 0)

    def fresh(cards: list[Scorecard]) -> list[Scorecard]:
        keys = {
            c.rollout_id: {"purpose": "confirm", "split": "select", "task_id": f"select-{c.key.task_id[4:]}"}
            for c in cards
        }
        return [
            c.model_copy(
                update={"rollout_id": f"fresh-{c.rollout_id}", "key": c.key.model_copy(update=keys[c.rollout_id])}
            )
            for c in cards
        ]

    confirmation = Arms(fresh(list(dev.candidate)), fresh(list(dev.incumbent)), TASKS, ATTEMPTS)
    candidate = a_candidate().model_copy(update={"manifest": Manifest(why="because")})
    case = Case(
        candidate, "i", (look,), found, dev, confirmation, 0.0, confirm_look=len(confirm_steps(rules)) - 1, facts=FACTS
    )
    return decide(case, rules, 0, 0.0)


def test_a_better_harness_is_promoted_with_its_guards_on_record_and_rejected_when_one_trips() -> None:
    rules = RaceConfig(attempts=(4,), confirm_attempts=4)

    def better(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, True, attempt)

    promoted = decided(better, even, rules)
    assert promoted.verdict == "promote" and {r.guard for r in promoted.guards} == set(LIMITS)
    assert any(reason.startswith("guards held: app, tokens") for reason in promoted.reasons)
    assert promoted.teacher == "m"

    def thrice_as_dear(name: str, task: int, attempt: int) -> Scorecard:
        return a_card(name, task, True, attempt, tokens=3_000 + task)

    stopped = decided(thrice_as_dear, even, rules)
    assert stopped.verdict == "reject" and stopped.confirmation is not None
    assert any(r.guard == "tokens" and r.outcome == "tripped" for r in stopped.guards)
    assert any(reason.startswith("guard: tokens: +20") for reason in stopped.reasons)
    assert stopped.reasons[-1] == "rejected: no gain makes up for what a guard stops"


def test_a_candidate_that_would_not_be_promoted_costs_its_guards_nothing() -> None:
    assert decided(even, even, RaceConfig(attempts=(4,), confirm_attempts=4)).guards == ()
