"""Gaps with tasks and seeds drawn at random: what can be counted by hand, and planning that keeps its word."""

from __future__ import annotations

import numpy as np
import pytest

from evolver.config import RunConfig, parse_config
from evolver.crossed import difference, holm, mean
from evolver.errors import UsageError
from evolver.looks import GapConfig, LookConfig
from evolver.power import Noise, Size, least_gap, levels, power, power_of_looks, spread_of, tasks_needed

TWO = (Size(3, 100), Size(5, 200))


def arm(rng: np.random.Generator, hard: np.ndarray, chance: float, noise: float, seeds: int) -> np.ndarray:
    return (rng.random((seeds, len(hard))) < np.clip(chance + hard + rng.normal(0, noise, (seeds, 1)), 0, 1)) * 1.0


def test_the_variance_is_what_the_mean_squares_add_up_to() -> None:
    a = np.array([[1.0, 0, 1, 0], [1, 1, 1, 1], [0, 0, 1, 0]])
    b = np.array([[1.0, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]])
    found = difference(b, a)
    tasks = (b.mean(0) - a.mean(0)).var(ddof=1) / 4
    seeds = (a.mean(1).var(ddof=1) + b.mean(1).var(ddof=1)) / 3
    rest = sum(((x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()) ** 2).sum() / (2 * 3) / 4 / 3 for x in (a, b))
    assert found.point == pytest.approx(b.mean() - a.mean())
    assert found.variance == pytest.approx(tasks + seeds - rest)
    assert 1 <= found.df <= 3 + 4


def test_a_negative_gap_is_reported_as_negative() -> None:
    rng = np.random.default_rng(3)
    hard = rng.uniform(-0.2, 0.2, 200)
    found = difference(arm(rng, hard, 0.3, 0.03, 5), arm(rng, hard, 0.6, 0.03, 5))
    interval = found.interval()
    assert interval.high is not None and interval.high < 0 and found.p < 0.01


def test_interval_and_p_value_say_the_same() -> None:
    rng = np.random.default_rng(4)
    hard = rng.uniform(-0.2, 0.2, 60)
    for chance in (0.4, 0.5, 0.55, 0.6, 0.7):
        found = difference(arm(rng, hard, chance, 0.03, 3), arm(rng, hard, 0.5, 0.03, 3))
        for level in (0.05, 0.01):
            interval = found.interval(1 - level)
            assert interval.low is not None and interval.high is not None
            assert (found.p <= level) == (interval.low > 0 or interval.high < 0)


def test_t26_e45_two_lucky_seeds_are_no_gap() -> None:
    """Seeds that differ by 20 points hide a gap of 10, however many tasks there are."""
    rng = np.random.default_rng(5)
    hard = np.zeros(2_000)
    a = np.vstack([arm(rng, hard, chance, 0.0, 1) for chance in (0.3, 0.5)])
    b = np.vstack([arm(rng, hard, chance, 0.0, 1) for chance in (0.4, 0.6)])
    blind = difference(b.mean(0, keepdims=True), a.mean(0, keepdims=True))
    assert blind.p < 1e-6 < 0.3 < difference(b, a).p


def test_students_that_all_agree_claim_no_certainty() -> None:
    none = mean(np.zeros((3, 20))).interval()
    assert none.low == 0.0 and none.high == pytest.approx(0.161, abs=0.001)


def test_holm_adjusts_from_the_smallest_up() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([]) == [] and holm([0.6, 0.7]) == [1.0, 1.0]


def test_power_grows_with_seeds_and_tasks_and_training_noise_limits_it() -> None:
    noise = Noise(seed=0.04)
    found = [power(0.125, noise, Size(k, n)) for k, n in ((2, 50), (3, 100), (5, 200), (8, 400))]
    assert found == sorted(found) and found[-1] > 0.95
    assert power(-0.125, noise, TWO[1]) == power(0.125, noise, TWO[1]) > 0.8
    loud = Noise(seed=0.1)
    assert tasks_needed(0.05, loud, 3) is None and least_gap(loud, Size(3, 5_000)) > 0.2


def test_what_is_needed_is_the_least_that_does() -> None:
    noise = Noise(seed=0.02)
    needed = tasks_needed(0.125, noise, 5)
    assert needed is not None
    assert power(0.125, noise, Size(5, needed)) >= 0.8 > power(0.125, noise, Size(5, needed - 1))
    size = Size(5, 200)
    assert power(least_gap(noise, size), noise, size) == pytest.approx(0.8, abs=0.001)


def test_the_planned_variance_is_the_one_that_is_found() -> None:
    noise, size = Noise(base=0.5, spread=0.2, task=0.0, seed=0.05), Size(5, 300)
    found = []
    for run in range(60):
        rng = np.random.default_rng(run)
        hard = rng.choice([-0.2, 0.2], size.tasks)
        found.append(difference(arm(rng, hard, 0.5, 0.05, 5), arm(rng, hard, 0.5, 0.05, 5)).variance)
    assert np.mean(found) == pytest.approx(spread_of(noise, size)[0], rel=0.2)


def test_levels_of_looks_are_fixed_by_the_plan_and_spend_the_error_once() -> None:
    first, last = levels(TWO, Noise())
    assert 0 < first < last <= 0.05 < first + last + 0.02
    one, both = power_of_looks(0.125, Noise(), TWO)
    assert one < both and both > 0.8
    assert 0.005 < power_of_looks(1e-9, Noise(), TWO)[-1] < 0.026  # of one sign


def test_a_rule_must_grow_and_have_its_students_and_tasks() -> None:
    looks = [{"seeds": 3, "tasks": 100}, {"seeds": 5, "tasks": 200}]
    good = parse_config({"gap": {"looks": looks}, "distil": {"seeds": [0, 1, 2, 3, 4]}}, "x")
    assert good.gap.sizes == TWO and good.gap.level(0) == levels(TWO, Noise())[0]
    few = {"test": 100, "imported": {"test": ["bench"]}}  # of our own; the imported ones are counted when they are read
    assert parse_config({"gap": {"looks": looks}, "distil": {"seeds": [0, 1, 2, 3, 4]}, "tasks": few}, "x") != good
    assert GapConfig().level(0) == 0.05 and RunConfig().gap.looks == ()
    for raw, fault in (
        ({"gap": {"looks": looks[::-1]}, "distil": {"seeds": [0, 1, 2, 3, 4]}}, "more seeds or tasks"),
        ({"gap": {"looks": looks}}, "distil.seeds has 1"),
        ({"gap": {"looks": looks}, "distil": {"seeds": [0, 1, 2, 3, 4]}, "tasks": {"test": 100}}, "tasks.test = 100"),
    ):
        with pytest.raises(UsageError, match=fault):
            parse_config(raw, "x")
    assert GapConfig(looks=(LookConfig(seeds=2, tasks=9),)).level(0) == pytest.approx(0.05, abs=1e-6)
