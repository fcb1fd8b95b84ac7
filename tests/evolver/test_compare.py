"""Two arms side by side: every figure is a mean over tasks, whatever the number of attempts at each."""

from __future__ import annotations

import pytest

from evolver.compare import Arms, attempts_in_common, compare, flip_rates, tokens_per_solved
from evolver.config import RaceConfig
from tests.evolver.cards import a_card


def test_a_task_counts_once_however_often_a_race_asked_it() -> None:
    often = [a_card("i", 0, attempt % 2 == 0, attempt, tokens=3_000) for attempt in range(6)]
    once = [a_card("i", t, True, attempt) for t in (1, 2, 3) for attempt in (0, 1)]
    theirs = [*often, *once]
    assert tokens_per_solved(theirs) == pytest.approx((3_000 + 3 * 1_000) / (0.5 + 3))
    ours = [a_card("c", t, True) for t in range(4)] + [a_card("c", 0, False, attempt) for attempt in (1, 2, 3)]
    found = compare(Arms(ours, theirs, 4, 2), RaceConfig(), 0.05, 0)
    assert found.effect.point == pytest.approx((0.25 - 0.5) / 4) and found.rubric_lead == pytest.approx(-0.25 / 4)
    assert flip_rates(Arms(ours, theirs, 4, 2)) == (pytest.approx(9 / 15 / 4), pytest.approx(1 / 4 / 4))
    assert attempts_in_common(ours, theirs) == (4 + 3) // 4


def test_tokens_per_solved_is_unknown_rather_than_wrong() -> None:
    assert tokens_per_solved([a_card("c", 0, True), a_card("c", 1, False)]) == 2_000
    assert tokens_per_solved([a_card("c", 0, False)]) is None
    assert tokens_per_solved([a_card("c", 0, True, tokens=None)]) is None
