"""Interval estimators and the paired test of every comparison (SciPy); a task is the unit that is resampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evolver.records import Interval

RESAMPLES = 2_000
FLIPS = 4_999


def nothing(method: str = "no data") -> Interval:
    return Interval(point=None, low=None, high=None, n=0, method=method)


def success_interval(per_task: Sequence[float], seed: int = 0) -> Interval:
    """95 % interval of a mean success; `per_task` holds one value in 0..1 a task (its attempts averaged).

    Wilson while every task is all or nothing (it stays inside 0..1 at 0 of n and n of n), else a bootstrap over tasks.
    """
    if not per_task:
        return nothing()
    if any(value not in (0.0, 1.0) for value in per_task):
        return mean_interval(per_task, seed)
    from scipy.stats import binomtest

    n, solved = len(per_task), int(sum(per_task))
    ci = binomtest(solved, n).proportion_ci(confidence_level=0.95, method="wilson")
    return Interval(point=solved / n, low=float(ci.low), high=float(ci.high), n=n, method="Wilson over tasks")


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """95 % bootstrap interval of the mean of `values` (one a task): BCa, or percentile where BCa is undefined."""
    if not values:
        return nothing()
    point = float(np.mean(values))
    if len(values) == 1:
        return Interval(point=point, low=None, high=None, n=1, method="one task: no interval")
    low, high, method = _bootstrap(values, 0.95, "two-sided", seed)
    return Interval(point=point, low=low, high=high, n=len(values), method=f"{method} bootstrap over tasks")


def bound(values: Sequence[float], side: Literal["lower", "upper"], alpha: float, seed: int = 0) -> float | None:
    """One-sided bootstrap bound of the mean at level 1 - alpha; None with fewer than two values."""
    if len(values) < 2:
        return None
    low, high, _ = _bootstrap(values, 1 - alpha, "greater" if side == "lower" else "less", seed)
    return low if side == "lower" else high


def sign_flip_p(differences: Sequence[float], seed: int = 0) -> float:
    """One-sided p-value of "the mean difference is above 0": paired permutation (sign-flip) test over tasks.

    Tasks without a difference carry no information and are left out, so small cases are enumerated exactly.
    """
    moved = np.asarray([d for d in differences if d != 0.0])
    if moved.size == 0:
        return 1.0
    if moved.size == 1:
        return 0.5 if moved[0] > 0 else 1.0
    from scipy.stats import permutation_test

    result = permutation_test(
        (moved,), _mean, permutation_type="samples", vectorized=True, n_resamples=FLIPS,
        alternative="greater", rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(result.pvalue)


def _mean(sample: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    return np.asarray(np.mean(sample, axis=axis))


def _bootstrap(values: Sequence[float], level: float, alternative: str, seed: int) -> tuple[float, float, str]:
    data = np.asarray(values, dtype=float)
    if np.ptp(data) == 0:
        return float(data[0]), float(data[0]), "constant, degenerate"
    from scipy.stats import bootstrap

    for method in ("BCa", "percentile"):
        found = bootstrap(
            (data,), _mean, n_resamples=RESAMPLES, vectorized=True, method=method, confidence_level=level,
            alternative=alternative, rng=np.random.default_rng(seed),
        ).confidence_interval  # fmt: skip
        if not (np.isnan(found.low) or np.isnan(found.high)):
            break
    return float(found.low), float(found.high), method
