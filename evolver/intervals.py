"""Interval estimators and the paired test of every comparison (SciPy); a task is the unit that is resampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evolver.records import Interval

RESAMPLES = 2_000
FLIPS = 4_999
Span = tuple[float, float]  # the least and the greatest value that a task can have
SHARE: Span = (0.0, 1.0)
DIFFERENCE: Span = (-1.0, 1.0)  # of two shares


def nothing(method: str = "no data") -> Interval:
    return Interval(point=None, low=None, high=None, n=0, method=method)


def success_interval(per_task: Sequence[float], seed: int = 0) -> Interval:
    """95 % interval of a mean success; `per_task` holds one value in 0..1 a task (its attempts averaged).

    Wilson while every task is all or nothing (it stays inside 0..1 at 0 of n and n of n), else a bootstrap over tasks.
    """
    if not per_task:
        return nothing()
    if any(value not in (0.0, 1.0) for value in per_task):
        return mean_interval(per_task, seed, SHARE)
    return wilson(int(sum(per_task)), len(per_task), "tasks")


def wilson(hits: int, n: int, what: str) -> Interval:
    """95 % Wilson interval of `hits` of `n`, which `what` names; it stays inside 0..1 at 0 of n and n of n."""
    if n == 0:
        return nothing(f"no {what}")
    from scipy.stats import binomtest

    ci = binomtest(hits, n).proportion_ci(confidence_level=0.95, method="wilson")
    return Interval(point=hits / n, low=float(ci.low), high=float(ci.high), n=n, method=f"Wilson over {what}")


def mean_interval(values: Sequence[float], seed: int = 0, span: Span | None = None) -> Interval:
    """95 % bootstrap interval of the mean of `values` (one a task), by percentiles.

    Values that are all the same say nothing of how others would spread: with a `span` theirs is `alike_interval`,
    without one there is no interval.
    """
    if not values:
        return nothing()
    point, n = float(np.mean(values)), len(values)
    if n == 1:
        return Interval(point=point, low=None, high=None, n=1, method="one task: no interval")
    if np.ptp(values) == 0:
        if span is None:
            return Interval(point=point, low=None, high=None, n=n, method="all tasks alike: no interval")
        return alike_interval(point, n, span)
    low, high = _bootstrap(values, 0.95, "two-sided", seed)
    return Interval(point=point, low=low, high=high, n=n, method="percentile bootstrap over tasks")


def alike_interval(value: float, n: int, span: Span) -> Interval:
    """95 % interval of a mean of which `n` tasks all showed `value`.

    Wilson's bound for 0 of n says how large a share of tasks may be different; those may lie anywhere in `span`. For
    0 of n and n of n successes this is Wilson's interval itself.
    """
    low, high = _alike_bounds(value, n, 0.025, span)
    return Interval(point=value, low=low, high=high, n=n, method="Wilson, all tasks alike")


def _alike_bounds(value: float, n: int, tail: float, span: Span) -> tuple[float, float]:
    """The lower and the upper bound, each missed with probability `tail`."""
    from scipy.stats import norm

    z2 = float(norm.isf(tail)) ** 2
    unseen = z2 / (n + z2)
    return value - unseen * (value - span[0]), value + unseen * (span[1] - value)


@dataclass(frozen=True)
class Tail:
    """Which side is bounded, and the probability with which the bound may miss."""

    side: Literal["lower", "upper"]
    alpha: float


def bound(values: Sequence[float], tail: Tail, seed: int = 0, span: Span | None = None) -> float | None:
    """One-sided bootstrap bound of the mean; None with fewer than two values.

    Values that are all the same are bounded as in `alike_interval` where a `span` is given; without one they are
    taken at their word.
    """
    side, alpha = tail.side, tail.alpha
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        alike = float(values[0])
        low, high = (alike, alike) if span is None else _alike_bounds(alike, len(values), alpha, span)
        return low if side == "lower" else high
    low, high = _bootstrap(values, 1 - alpha, "greater" if side == "lower" else "less", seed)
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


def _bootstrap(values: Sequence[float], level: float, alternative: str, seed: int) -> tuple[float, float]:
    """Percentile bootstrap. Not BCa: where 3 of 24 tasks differ, all one way, BCa excludes 0 and the exact test does
    not (p = 0.125)."""
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values, dtype=float),), _mean, n_resamples=RESAMPLES, vectorized=True, method="percentile",
        confidence_level=level, alternative=alternative, rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)
