"""Where the attempts of a race go: whole numbers that add up, more to open tasks, and pairs everywhere."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evolver.spread import Spread, shares, spread, uneven

TASKS = [f"dev-{n}" for n in range(12)]
NONE, ONE = dict.fromkeys(TASKS, 0), dict.fromkeys(TASKS, 1)
KNOWN = {task: (n % 3 * 10, 20) for n, task in enumerate(TASKS)}  # never solved, half of the time, always


@given(
    weights=st.lists(st.floats(1e-3, 0.25), min_size=1, max_size=40),
    mean=st.integers(0, 9),
    most=st.floats(1.0, 4.0),
)
def test_shares_are_whole_add_up_and_none_is_above_the_most(weights: list[float], mean: int, most: float) -> None:
    total = mean * len(weights)
    found = shares(total, np.array(weights), max(1.0, most * mean))
    assert found.sum() == total and found.min() >= 0 and found.max() <= np.ceil(max(1.0, most * mean))


def test_shares_follow_the_weights_and_what_one_can_not_take_goes_to_the_others() -> None:
    assert list(shares(8, np.array([1.0, 3.0]), 8)) == [2, 6]
    assert list(shares(12, np.array([1.0, 1.0, 100.0]), 6)) == [3, 3, 6]
    assert list(shares(2, np.ones(3), 1)) == [1, 1, 0]


def test_every_task_is_asked_once_and_then_those_whose_outcome_is_open() -> None:
    first = spread(Spread(NONE, ONE), (1, 3), KNOWN, 1.0)
    assert first.candidate == ONE and sum(first.pool.values()) == 36
    second = spread(first, (2, 5), KNOWN, 1.0)
    assert sum(second.candidate.values()) == 24 and sum(second.pool.values()) == 60
    asked = [[second.candidate[task] for task in TASKS[kind::3]] for kind in range(3)]
    assert set(asked[0]) == set(asked[2]) == {1} and set(asked[1]) == {4}


def test_without_focus_all_tasks_are_asked_alike() -> None:
    found = spread(spread(Spread(NONE, ONE), (1, 3), KNOWN, 0.0), (4, 6), KNOWN, 0.0)
    assert set(found.candidate.values()) == {4} and set(found.pool.values()) == {6}
    assert uneven(found.candidate) == {} and uneven({"x": 1, "y": 2}) == {"x": 1, "y": 2}


@given(
    held=st.lists(st.integers(1, 6), min_size=12, max_size=12),
    solved=st.lists(st.integers(0, 20), min_size=12, max_size=12),
    pool=st.integers(1, 8),
)
def test_the_pool_has_as_many_attempts_as_the_candidate_wherever_it_stood_before(
    held: list[int], solved: list[int], pool: int
) -> None:
    known = {task: (n, 20) for task, n in zip(TASKS, solved, strict=True)}
    arms = Spread(NONE, dict(zip(TASKS, held, strict=True)))
    for mean in (1, 2, 4):
        before, arms = arms, spread(arms, (mean, max(mean, pool)), known, 1.0)
        assert sum(arms.candidate.values()) == mean * len(TASKS)
        assert all(arms.pool[t] >= max(before.pool[t], arms.candidate[t] or 0) for t in TASKS)
        assert all(arms.candidate[t] >= before.candidate[t] for t in TASKS)
        assert sum(arms.pool.values()) >= max(mean, pool) * len(TASKS)
