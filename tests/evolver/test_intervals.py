"""The estimators: inside their range, right in cases that can be counted by hand, the same for the same seed."""

from __future__ import annotations

import random
from itertools import product

import pytest

from evolver.intervals import (
    DIFFERENCE,
    SHARE,
    Tail,
    alike_interval,
    bound,
    mean_interval,
    sign_flip_p,
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


def test_the_sign_flip_test_is_exact_on_few_tasks() -> None:
    differences = [0.5, -0.25, 1.0, 0.75, 0.5]
    flips = [sum(sign * d for sign, d in zip(signs, differences, strict=True)) for signs in product((1, -1), repeat=5)]
    exact = sum(flip >= sum(differences) - 1e-12 for flip in flips) / len(flips)
    assert sign_flip_p([*differences, 0.0, 0.0]) == pytest.approx(exact)
    assert sign_flip_p([0.0] * 9) == 1.0 and sign_flip_p([1.0]) == 0.5 and sign_flip_p([-1.0]) == 1.0


def test_the_sign_flip_test_keeps_its_level() -> None:
    rng = random.Random(5)
    hits = sum(sign_flip_p([rng.choice((-1.0, 0.0, 0.0, 1.0)) for _ in range(24)], seed=i) <= 0.05 for i in range(300))
    assert hits / 300 <= 0.08


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
