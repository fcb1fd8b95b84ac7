"""The estimators: inside their range, right in cases that can be counted by hand, the same for the same seed."""

from __future__ import annotations

import random
from itertools import combinations, product
from statistics import NormalDist

import numpy as np
import pytest

from evolver.intervals import (
    DIFFERENCE,
    SHARE,
    Tail,
    alike_interval,
    bound,
    look_levels,
    mean_interval,
    pooled_p,
    success_interval,
)


@pytest.mark.parametrize(("solved", "low", "high"), [(0, 0.0, 0.161), (20, 0.839, 1.0), (10, 0.299, 0.701)])
def test_u26_wilson_stays_inside_0_to_1(solved: int, low: float, high: float) -> None:
    found = success_interval([1.0] * solved + [0.0] * (20 - solved))
    assert (found.point, found.low, found.high) == pytest.approx((solved / 20, low, high), abs=1e-3)
    assert "Wilson" in found.method


def test_attempts_averaged_per_task_give_a_bootstrap_over_tasks() -> None:
    found = success_interval([0.5, 1.0, 0.0, 0.5] * 5)
    assert found.n == 20 and found.point == 0.5 and "bootstrap over tasks" in found.method
    assert 0.3 < (found.low or 0) < 0.5 < (found.high or 0) < 0.7
    assert found == success_interval([0.5, 1.0, 0.0, 0.5] * 5)


def test_nothing_is_none_and_never_0() -> None:
    assert (success_interval([]).point, mean_interval([]).low, mean_interval([]).n) == (None, None, 0)
    assert mean_interval([0.3]).point == 0.3 and mean_interval([0.3]).low is None
    assert bound([0.3], Tail("lower", 0.05)) is None


def test_the_pooled_test_counts_every_way_to_share_the_solved_attempts() -> None:
    """Three tasks, counted by hand: two attempts against three, every assignment of outcomes to arms equally likely."""
    outcomes = [(1, 1, 0, 0, 1), (1, 0, 0, 1, 0), (1, 1, 1, 1, 1)]  # the first two attempts are the first arm's
    arms = [((sum(task[:2]), 2), (sum(task[2:]), 3)) for task in outcomes]
    shares = [[sum(task[n] for n in pair) for pair in combinations(range(5), 2)] for task in outcomes]
    sums = [sum(chosen) for chosen in product(*shares)]
    seen = sum(sum(task[:2]) for task in outcomes)
    exact = sum((s > seen) + (s == seen) / 2 for s in sums) / len(sums)
    assert pooled_p(arms) == pytest.approx(exact)


def test_tasks_that_turn_out_alike_say_nothing() -> None:
    assert pooled_p([]) == pooled_p([((4, 4), (9, 9)), ((0, 4), (0, 9))]) == 1.0
    assert pooled_p([((4, 4), (9, 9)), ((1, 1), (0, 1))]) == pooled_p([((1, 1), (0, 1))]) == 0.25


@pytest.mark.parametrize(("ours", "pool"), [(1, 5), (4, 12), (4, 4)])
def test_e22_the_pooled_test_keeps_its_level_with_a_larger_pool_on_tasks_of_mixed_difficulty(
    ours: int, pool: int
) -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(600):
        chance = rng.beta(0.4, 0.33, 60)
        solved, others = rng.binomial(ours, chance), rng.binomial(pool, chance)
        hits += pooled_p([((int(a), ours), (int(b), pool)) for a, b in zip(solved, others, strict=True)]) <= 0.05
    assert 0.02 <= hits / 600 <= 0.075


def test_e22_all_looks_together_err_with_the_level_asked_for() -> None:
    attempts, pool = (1, 2, 4), 12
    levels = look_levels(tuple(1 / (1 / k + 1 / pool) for k in attempts), 0.05)
    assert sum(levels) > 0.05 > max(levels)  # no union bound: the looks are correlated
    rng = np.random.default_rng(6)
    steps = rng.normal(size=(200_000, 4)).cumsum(axis=1)
    mean = rng.normal(scale=pool**-0.5, size=200_000)
    crossed = np.zeros(200_000, dtype=bool)
    for k, level in zip(attempts, levels, strict=True):
        z = (steps[:, k - 1] / k - mean) / (1 / k + 1 / pool) ** 0.5
        crossed |= z >= NormalDist().inv_cdf(1 - level)
    assert crossed.mean() == pytest.approx(0.05, abs=0.002)
    assert look_levels((3.0,), 0.05) == pytest.approx((0.05,))


def test_a_one_sided_bound_misses_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(6)
    missed = sum((bound([rng.gauss(0, 1) for _ in range(40)], Tail("lower", 0.1), i) or 0) > 0 for i in range(300))
    assert 0.05 <= missed / 300 <= 0.16


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_tasks_that_are_all_alike_give_no_certainty(value: float) -> None:
    found = success_interval([value] * 20)
    assert found.low is not None and found.high is not None and found.high - found.low > 0.1
    assert 0 <= found.low <= value <= found.high <= 1


def test_what_is_alike_everywhere_is_bounded_as_wilson_bounds_0_of_n() -> None:
    wilson = success_interval([0.0] * 20)
    alike = alike_interval(0.0, 20, SHARE)
    assert (alike.low, alike.high) == pytest.approx((wilson.low, wilson.high))
    effect = mean_interval([0.0] * 20, span=DIFFERENCE)
    assert (effect.low, effect.high) == pytest.approx((-(wilson.high or 0), wilson.high))


def test_alike_numbers_without_bounds_have_no_interval() -> None:
    found = mean_interval([700.0] * 20)
    assert (found.point, found.low, found.high) == (700.0, None, None)
