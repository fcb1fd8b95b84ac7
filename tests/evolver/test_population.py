"""Lineage, pending and decided candidates: views over records, recomputed every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolver.errors import UsageError
from evolver.population import Population, cards_of, per_task, require_one_version, standing, success_value
from evolver.records import Decision, Score, Scorecard
from tests.evolver.cards import a_candidate, a_card, a_decision

ROOT = a_candidate("root", parents=())
A, B, C = a_candidate("a", ("root",)), a_candidate("b", ("a",)), a_candidate("c", ("a",))


def test_the_incumbent_is_the_newest_promotion_and_the_root_before_it() -> None:
    assert Population([], []).incumbent is None
    assert Population([ROOT], []).incumbent == "root"
    decisions = [a_decision("a", "root", "promote"), a_decision("b", "a", "keep")]
    found = Population([ROOT, A, B, C], decisions)
    assert (found.incumbent, found.lineage) == ("a", ["root", "a"])
    assert [c.name for c in found.pending] == ["c"]
    assert [c.name for c in found.children("a")] == ["b", "c"] and found.parents("a") == ("root",)


def test_e30_nothing_but_a_recorded_promotion_moves_the_lineage() -> None:
    for verdict in ("keep", "reject", "inconclusive"):
        assert Population([ROOT, A], [a_decision("a", "root", verdict)]).incumbent == "root"


def test_e02_every_candidate_is_pending_or_decided_and_rejected_ones_stay() -> None:
    found = Population([ROOT, A, B, C], [a_decision("a", "root", "reject")])
    assert len(found.candidates) == 1 + len(found.pending) + len(found.decision_of)
    assert found.candidate("a") == A and found.harness_ids == {"root", "a", "b", "c"}


def test_a_race_pools_the_attempts_of_finished_races_only() -> None:
    found = Population([ROOT, A], [a_decision("a", "root", "promote")])
    assert [found.settled_attempts(harness, "m") for harness in ("root", "a", "b")] == [2, 2, 1]


def test_where_tasks_have_different_numbers_of_attempts_each_is_settled_by_its_own() -> None:
    plain = a_decision("a", "root")
    looks = [look.model_copy(update={"pool": 5, "spread": {"x": 1, "y": 3}}) for look in plain.looks]
    looks[0] = looks[0].model_copy(update={"pool_spread": {"x": 2, "y": 8}})
    found = Population([ROOT, A], [plain.model_copy(update={"looks": tuple(looks)}), a_decision("b", "root")])
    assert found.settled_spread("a", "m", ["x", "y"]) == {"x": 1, "y": 3} and found.settled_attempts("a", "m") == 2
    assert found.settled_spread("root", "m", ["x", "y", "z"]) == {"x": 2, "y": 8, "z": 5}  # b's race was even: 2 each
    assert found.settled_spread("c", "m", ["x"]) == {"x": 1}


def test_of_a_candidate_that_waited_and_was_heard_the_last_decision_stands() -> None:
    first = a_decision("a", "root", "inconclusive").model_copy(update={"waits": True, "teacher": "m"})
    other, later = a_decision("b", "root"), a_decision("c", "root").model_copy(update={"id": "dec-c"})
    before = Population([ROOT, A, B], [first, other])
    assert before.waiting("m") == [first] and before.waiting("n") == [] and not before.was_heard
    assert before.since_promotion == 2 and before.alpha_spent == pytest.approx(0.2)
    fresh = {"waits": False, "heard": True, "confirmation": first.looks[-1].effect}
    heard = first.model_copy(update={"id": "dec-a-heard", **fresh})
    for verdict, since, spent in (("promote", 0, 0.1), ("keep", 2, 0.2)):
        told = heard.model_copy(update={"verdict": verdict})
        after = Population([ROOT, A, B], [first, other, told])
        assert after.decisions == [other, told] and after.decision_of["cand-a"] == told
        assert after.waiting("m") == [] and after.was_heard and after.confirmations() == 1
        assert (after.since_promotion, after.alpha_spent) == (since, pytest.approx(spent))
        assert not Population([ROOT, A, B, C], [first, other, told, later]).was_heard
    promoted = a_decision("b", "root", "promote")
    assert Population([ROOT, A, B], [first, promoted]).waiting("m") == []  # it was raced against another incumbent


def test_confirmations_take_fresh_attempt_numbers() -> None:
    plain = a_decision("a", "root")
    confirmed = Decision.model_validate(plain.model_dump() | {"confirmation": plain.looks[0].effect.model_dump()})
    assert (Population([], [plain]).confirmations(), Population([], [confirmed, plain]).confirmations()) == (0, 1)


def test_cards_are_told_apart_by_harness_purpose_and_model() -> None:
    cards = [a_card("a", 0, True), a_card("b", 0, True), a_card("a", 0, True, purpose="confirm")]
    assert cards_of(cards, "a", "race", "m") == cards[:1]
    assert cards_of(cards, "a", "race", "other") == []


def test_means_per_task_leave_out_what_is_unscored() -> None:
    cards = [a_card("a", 0, True), a_card("a", 0, None, 1), a_card("a", 1, True), a_card("a", 1, False, 1)]
    assert per_task(cards, success_value) == {"dev-0": 1.0, "dev-1": 0.5}


@given(st.lists(st.sampled_from(["promote", "keep", "reject", "inconclusive"]), max_size=12))
def test_e31_the_parent_of_the_next_candidate_is_the_newest_promotion_whatever_the_others_are(
    verdicts: list[str],
) -> None:
    decisions = [a_decision(f"h{n}", "root", verdict) for n, verdict in enumerate(verdicts)]
    promoted = [f"h{n}" for n, verdict in enumerate(verdicts) if verdict == "promote"]
    assert Population([ROOT], decisions).incumbent == ["root", *promoted][-1]


def test_s47_one_criterion_scored_by_two_judges_refuses_to_be_compared() -> None:
    def card(harness: str, grader: str, value: float | None = 1.0) -> Scorecard:
        score = Score(criterion="neat", weight=1, required=True, value=value, explanation="", grader=grader)
        return a_card(harness, 0, None if value is None else True, scores=(score,))

    old, new = "judge:m:v1-000000000000", "judge:m:v1-111111111111"
    require_one_version([card("a", old), card("b", old), card("b", new, None)])
    with pytest.raises(UsageError, match=f"'dev-0', criterion 'neat', was scored by two graders \\({old}, {new}\\)"):
        require_one_version([card("a", old), card("b", new)])


def test_a_hidden_neutral_edit_is_shown_under_a_word_of_its_own() -> None:
    real = a_candidate("real", parents=("root",))
    hidden = real.model_copy(update={"hidden_neutral": True})
    accepted = a_decision("real", "root", "promote")
    assert [standing(real, accepted), standing(hidden, accepted)] == ["promote", "neutral"]
    assert standing(hidden, None) == "undecided" and standing(a_candidate("root", parents=()), None) == "start"
