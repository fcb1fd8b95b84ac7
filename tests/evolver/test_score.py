"""Cards from graded criteria, evaluations from cards: unknown is never 0, other tasks are never compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from devset.task import Criterion, Rubric, Task
from evolver.errors import UsageError
from evolver.population import final_cards
from evolver.records import Evaluation, Failure, Rollout, Score, Scorecard, ToolCall, Turn
from evolver.score import (
    Scored,
    evaluation,
    evaluation_id,
    rubric_of,
    scorecard,
    success_of,
    tasks_hash,
    without_retries,
)
from harnesses.tree import read_tree, seed_path
from tests.evolver.cards import a_card, a_task
from tests.evolver.rollouts import a_rollout, a_turn

HARNESS = read_tree(seed_path("beta1"))


def score(name: str, value: float | None, required: bool = True, weight: float = 1.0) -> Score:
    return Score(criterion=name, weight=weight, required=required, value=value, explanation="", grader="program")


def two_criteria(feasible: bool = True) -> Task:
    criteria = (Criterion(id="a", description="a", weight=3), Criterion(id="b", description="b", required=False))
    return a_task(rubric=Rubric(criteria=criteria), feasible=feasible)


# --- success, rubric, card --------------------------------------------------------------------------------------


def test_success_needs_every_required_criterion_and_the_rubric_weighs_all() -> None:
    scores = [score("a", 1.0, weight=3), score("b", 0.5, required=False)]
    assert success_of(scores) is True
    assert rubric_of(scores) == pytest.approx(3.5 / 4)
    assert success_of([score("a", 0.99)]) is False


def test_s45_what_is_unscored_stays_none() -> None:
    assert success_of([score("a", None), score("b", 0.0)]) is None
    assert success_of([score("a", 1.0), score("b", None, required=False)]) is True
    assert rubric_of([score("a", 1.0), score("b", None, required=False)]) is None
    assert rubric_of([]) is None


@pytest.mark.parametrize(
    "value", [True, False, "1", "0.5", math.nan, math.inf, -math.inf, -0.1, 1.1, [1], {"value": 1}]
)
def test_e03_e08_only_numbers_from_0_to_1_are_scores(value: object) -> None:
    with pytest.raises(ValidationError):
        Score.model_validate(score("a", 1.0).model_dump() | {"value": value})


@pytest.mark.parametrize("field", ["rubric", "cost_usd", "seconds"])
@pytest.mark.parametrize("value", [math.nan, math.inf, True])
def test_e08_no_figure_of_a_card_can_be_non_finite(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        Scorecard.model_validate(a_card("b", 0, True).model_dump() | {field: value})


@pytest.mark.parametrize("value", [np.int64(1), np.float64(1), np.float32(1), 1, 1.0])
def test_e36_scalars_of_any_kind_survive_the_round_trip(value: object) -> None:
    made = Score.model_validate(score("a", 0.0).model_dump() | {"value": value})
    assert Score.model_validate_json(made.model_dump_json()) == score("a", 1.0)


@pytest.mark.parametrize("blame", ["task", "provider", "sandbox", "grader", "platform"])
def test_e29_our_failure_is_unscored_and_kept(blame: str) -> None:
    error = Failure.model_validate({"kind": "x", "blame": blame, "message": "m"})
    card = scorecard(a_rollout(stop_reason="error", error=error), two_criteria(), [score("a", 0.0)], 0.1)
    assert (card.success, card.rubric, card.error) == (None, None, error)


def test_e03_the_harness_s_own_timeout_is_scored_by_the_state_it_left() -> None:
    error = Failure(kind="timeout", blame="harness", message="300 s")
    for value, success in ((0.0, False), (1.0, True)):
        rollout = a_rollout(stop_reason="time_limit", error=error)
        card = scorecard(rollout, two_criteria(), [score("a", value), score("b", value, required=False)], None)
        assert (card.success, card.error) == (success, error)


def test_e03_a_state_that_the_agent_made_too_large_to_grade_scores_0() -> None:
    error = Failure(kind="state_too_large", blame="harness", message="more than 256 MiB")
    card = scorecard(a_rollout(stop_reason="error", error=error), two_criteria(), [], 0.1)
    assert (card.success, card.rubric, card.error) == (False, 0.0, error)


def test_what_no_grader_answered_is_unscored_and_foreign_or_double_scores_are_errors() -> None:
    card = scorecard(a_rollout(), two_criteria(), [score("a", 1.0)], 0.0)
    assert [(s.criterion, s.value) for s in card.scores] == [("a", 1.0), ("b", None)]
    assert (card.success, card.rubric) == (True, None)
    for wrong in ([score("zzz", 1.0)], [score("a", 1.0), score("a", 0.0)]):
        with pytest.raises(ValueError, match="one per criterion"):
            scorecard(a_rollout(), two_criteria(), wrong, 0.0)


def terminates(reason: str, text: str = "") -> Turn:
    call = ToolCall(
        id="1", name="computer_use", arguments={"action": "terminate", "status": "failure", "reason": reason}
    )
    return a_turn(calls=(call,), text=text)


FULL = [score("a", 1.0, weight=3), score("b", 1.0, required=False)]


@pytest.mark.parametrize(
    ("feasible", "stop", "reason", "state", "success"),
    [
        (True, "infeasible", "no such file", 1.0, False),
        (False, "infeasible", "no such file", 1.0, True),
        (False, "infeasible", "  ", 1.0, False),
        (False, "infeasible", "no such file", 0.0, False),
        (False, "finished", "done", 1.0, False),
        (False, "step_limit", "", 1.0, False),
        (True, "finished", "", 1.0, True),
    ],
)
def test_s46_giving_up_needs_a_reason_and_an_untouched_state(
    feasible: bool, stop: str, reason: str, state: float, success: bool
) -> None:
    rollout = a_rollout(stop_reason=stop, turns=(terminates(reason),))
    graded = [score("a", state, weight=3), score("b", state, required=False)]
    card = scorecard(rollout, two_criteria(feasible), graded, 0.0)
    assert card.success is success
    assert card.rubric == (1.0 if success else 0.0)


def test_s37_one_unknown_token_count_makes_the_total_unknown() -> None:
    known, unknown = a_turn(tokens=(90, 10)), a_turn(tokens=(None, 10))
    assert scorecard(a_rollout(turns=(known, known)), two_criteria(), FULL, 0.0).tokens == 200
    assert scorecard(a_rollout(turns=(known, unknown)), two_criteria(), FULL, 0.0).tokens is None
    assert scorecard(a_rollout(turns=()), two_criteria(), FULL, 0.0).tokens == 0


def test_the_card_names_the_checker_and_the_channel() -> None:
    rollout = a_rollout(turns=(a_turn(channel="gui"), a_turn(channel="none"), a_turn(channel="terminal")))
    card, other = (scorecard(rollout, a_task(check=c), [score("done", 1.0)], 0.0) for c in ("print(1)", "print(2)"))
    assert card.channel == "both" and card.seconds == 5.0
    assert card.checker_hash != other.checker_hash


# --- evaluation -----------------------------------------------------------------------------------------------------


def evaluate(cards: list[Scorecard], n_tasks: int, **task: object) -> Evaluation:
    tasks = [a_task(i, seen_in_training=i % 4 != 0, **task) for i in range(n_tasks)]
    return evaluation(Scored(cards, rollouts_of(cards), tasks, HARNESS, 0))


def rollouts_of(cards: list[Scorecard], retried: tuple[str, ...] = ()) -> dict[str, Rollout]:
    return {
        c.rollout_id: a_rollout(id=c.rollout_id, key=c.key, retry_of="earlier" if c.rollout_id in retried else None)
        for c in cards
    }


def test_attempts_are_averaged_per_task_first_and_unseen_families_shown_apart() -> None:
    cards = [a_card("b", t, t % 2 == 0 or attempt == 1, attempt) for t in range(8) for attempt in (0, 1)]
    found = evaluate(cards, 8)
    assert (found.n_tasks, found.attempts, found.n_unscored) == (8, 2, 0)
    assert found.success.point == pytest.approx(0.75) and found.success.n == 8
    assert found.success_seen is not None and found.success_unseen is not None
    assert (found.success_seen.n, found.success_unseen.n) == (6, 2)
    assert found.success_unseen.point == 1.0 and found.success_seen.point == pytest.approx(2 / 3)
    assert found.tokens_per_task.point == 1_000
    assert found.tokens_per_solved == pytest.approx(16_000 / 12)


def test_a_task_that_a_race_asked_more_often_counts_once() -> None:
    often = [a_card("b", 0, attempt == 0, attempt, tokens=5_000, cost_usd=0.5) for attempt in range(5)]
    found = evaluate([*often, *(a_card("b", t, True, cost_usd=0.1) for t in (1, 2)), a_card("b", 3, None)], 5)
    assert (found.n_tasks, found.attempts, found.n_unscored) == (5, 2, 2)  # one unscored, one task never attempted
    assert found.success.point == pytest.approx((0.2 + 2) / 3)
    assert found.tokens_per_solved == pytest.approx((5_000 + 2_000) / 2.2)
    assert found.cost_per_task == pytest.approx(0.7 / 3) and found.cost_usd == pytest.approx(2.7)


def test_e29_e21_s45_an_unscored_attempt_is_counted_and_in_no_mean() -> None:
    cards = [a_card("b", t, None if t < 3 else True) for t in range(6)]
    found = evaluate(cards, 8)
    assert (found.success.point, found.success.n, found.n_unscored) == (1.0, 3, 5)
    nothing = evaluate([a_card("b", t, None) for t in range(6)], 6)
    assert (nothing.success.point, nothing.rubric.point, nothing.tokens_per_solved) == (None, None, None)
    assert nothing.n_unscored == 6


def test_s37_tokens_per_solved_is_none_when_a_count_is_unknown_or_nothing_is_solved() -> None:
    assert evaluate([a_card("b", t, True, tokens=None if t == 1 else 5) for t in range(4)], 4).tokens_per_solved is None
    unsolved = evaluate([a_card("b", t, False) for t in range(4)], 4)
    assert (unsolved.tokens_per_solved, unsolved.tokens_per_task.point) == (None, 1_000)


def test_s52_a_retried_attempt_counts_once_and_can_be_left_out() -> None:
    lost = a_card("b", 0, None)
    again = lost.model_copy(update={"rollout_id": "again", "success": True, "rubric": 1.0})
    late = again.model_copy(update={"rollout_id": "late", "success": False})
    cards = [lost, again, late, a_card("b", 1, False)]
    assert [c.rollout_id for c in final_cards(cards)] == ["again", "b-race-1-0"]
    assert evaluate(cards, 2).success.point == 0.5
    rollouts = rollouts_of(cards, retried=("again", "late")).values()
    first_tries = without_retries(cards, list(rollouts))
    assert [c.success for c in first_tries] == [None, False]


def test_s47_other_versions_of_a_task_are_not_evaluated_together() -> None:
    assert tasks_hash([a_task(1)]) != tasks_hash([a_task(1, hash="changed")])
    with pytest.raises(UsageError, match="'dev-0': scored at version"):
        evaluate([a_card("a", 0, True)], 1, hash="changed")


def test_an_evaluation_is_of_one_arm_and_needs_cards() -> None:
    with pytest.raises(UsageError, match="nothing to evaluate"):
        evaluate([], 3)
    with pytest.raises(UsageError, match="one harness"):
        evaluate([a_card("a", 0, True), a_card("b", 1, True)], 2)


def test_e28_the_id_follows_from_the_attempts_alone() -> None:
    cards = [a_card("a", t, True) for t in range(3)]
    tasks = [a_task(t) for t in range(3)]
    assert evaluation_id(cards, tasks, 0) == evaluation_id(cards[::-1], tasks, 0) == evaluate(cards, 3).id
    assert evaluation_id([*cards, a_card("a", 0, True, 1)], tasks, 0) != evaluation_id(cards, tasks, 0)
