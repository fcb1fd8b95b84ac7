"""Two arms side by side: every figure is a mean over tasks, whatever the number of attempts at each."""

from __future__ import annotations

import pytest

from evolver.compare import Arms, attempts_in_common, compare, flip_rates, tokens_per_solved
from evolver.config import RaceConfig
from evolver.intervals import nothing
from tests.evolver.cards import a_card


def test_a_task_counts_once_however_often_a_race_asked_it() -> None:
    often = [a_card("i", 0, attempt % 2 == 0, attempt, tokens=3_000) for attempt in range(6)]
    once = [a_card("i", t, True, attempt) for t in (1, 2, 3) for attempt in (0, 1)]
    theirs = [*often, *once]
    assert tokens_per_solved(theirs).point == pytest.approx((3_000 + 3 * 1_000) / (0.5 + 3))
    ours = [a_card("c", t, True) for t in range(4)] + [a_card("c", 0, False, attempt) for attempt in (1, 2, 3)]
    found = compare(Arms(ours, theirs, 4, 2), RaceConfig(), 0.05, 0)
    assert found.effect.point == pytest.approx((0.25 - 0.5) / 4) and found.rubric_lead == pytest.approx(-0.25 / 4)
    aa, ab = flip_rates(Arms(ours, theirs, 4, 2))
    assert (aa.point, ab.point) == (pytest.approx(9 / 15 / 4), pytest.approx(1 / 4 / 4)) and (aa.n, ab.n) == (4, 4)
    assert attempts_in_common(ours, theirs) == (4 + 3) // 4


def test_tokens_per_solved_is_unknown_rather_than_wrong() -> None:
    assert tokens_per_solved([a_card("c", 0, True), a_card("c", 1, False)]).point == 2_000
    assert tokens_per_solved([a_card("c", 0, False)]) == nothing("nothing was solved")
    assert tokens_per_solved([a_card("c", 0, True, tokens=None)]) == nothing("a token count is unknown")


def test_flip_rates_and_tokens_per_solved_say_how_sure_they_are() -> None:
    theirs = [a_card("i", t, attempt == 0 or t < 20, attempt, 1_000 + 10 * t) for t in range(30) for attempt in (0, 1)]
    ours = [a_card("c", t, t < 24) for t in range(30)]
    aa, ab = flip_rates(Arms(ours, theirs, 30, 1))
    spent = tokens_per_solved(theirs)
    for found in (aa, ab, spent):
        assert found.point and found.low and found.high and found.low < found.point < found.high and found.n == 30
    assert spent.point == pytest.approx(sum(1_000 + 10 * t for t in range(30)) / 25)
    assert flip_rates(Arms(ours[::-1], theirs[::-1], 30, 1)) == (aa, ab) and tokens_per_solved(theirs[::-1]) == spent
    few = tokens_per_solved([a_card("c", t, t == 0) for t in range(10)])
    assert few.point == 10_000 and few.high is None, "one solved task of ten bounds nothing from above"
