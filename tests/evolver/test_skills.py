"""Skills and difficulties: what made the outcomes is found again, and what is uncertain is drawn widely."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from scipy.special import expit

from evolver.skills import skills


def test_skills_are_found_again_although_the_harnesses_played_different_tasks() -> None:
    rng = np.random.default_rng(0)
    true, difficulty = np.array([0.0, 0.5, 1.0, -0.5]), rng.normal(0, 1.5, 80)
    tried = rng.integers(0, 9, (4, 80)) * (rng.random((4, 80)) < 0.7)
    tried[3, difficulty > 0] = (
        0  # it was asked the easy tasks alone, and solved more of them than the others did of all
    )
    solved = rng.binomial(tried, expit(true[:, None] - difficulty[None, :])).astype(float)
    found = skills(solved, tried.astype(float), [None, 0, 1, 0])
    spread = np.linalg.inv(found.precision)
    error = np.sqrt(np.diag(spread) + spread[0, 0] - 2 * spread[0])  # of how far each is from the first
    lead = found.mode - found.mode[0]
    assert (np.abs(lead - true)[1:] < 3 * error[1:]).all() and (error[1:] < 0.35).all()
    shares = solved.sum(axis=1) / tried.sum(axis=1)
    assert shares[3] > shares[0] and lead[3] < 0


def test_broken_harnesses_do_not_lift_a_middling_one_above_the_root() -> None:
    tried = np.full((5, 30), 8.0)
    solved = tried * np.array([[1.0], [0.0], [0.0], [0.0], [0.75]])
    assert skills(solved, tried, [None] * 5).mode.argmax() == 0
    assert skills(solved, tried, [None, 0, 0, 0, 0]).mode.argmax() == 0


def test_nothing_solved_and_everything_solved_are_far_and_finite() -> None:
    tried = np.full((3, 10), 4.0)
    solved = np.array([[2.0] * 10, [0.0] * 10, [4.0] * 10])
    found = skills(solved, tried, [None, 0, 0])
    assert np.isfinite(found.mode).all() and found.mode[1] < -1 < 1 < found.mode[2]


def test_draws_spread_with_the_temperature_and_more_where_less_is_known() -> None:
    tried = np.array([[8.0] * 20, [8.0] * 20, [0.0] * 20])
    found = skills(tried / 2, tried, [None, 0, 0])
    assert (found.drawn(Random(0), 0.0) == found.mode).all()
    draws = {t: np.array([found.drawn(Random(n), t) for n in range(200)]) for t in (0.25, 1.0)}
    leads = {t: np.std(drawn - drawn[:, :1], axis=0) for t, drawn in draws.items()}
    assert leads[1.0] == pytest.approx(4 * leads[0.25]) and leads[1.0][2] > leads[1.0][1]
    assert leads[1.0][2] == pytest.approx(0.4, rel=0.2)  # nothing seen: what an edit may do
