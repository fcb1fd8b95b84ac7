"""Interval estimators, the test of every comparison and the levels of its looks (SciPy).

A bootstrap resamples tasks; the test compares attempts within a task, so that only a task's own noise counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evolver.records import Interval

RESAMPLES = 2_000
Tally = tuple[int, int]  # attempts solved, attempts scored
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
    low, high = np.quantile(_resampled(tuple(values), seed), (0.025, 0.975))
    return Interval(point=point, low=float(low), high=float(high), n=n, method="percentile bootstrap over tasks")


def ratio_interval(parts: Sequence[float], wholes: Sequence[float], seed: int = 0) -> Interval:
    """95 % bootstrap interval of mean(parts) / mean(wholes), by percentiles over resampled tasks. Each task has a
    value >= 0 of both, and not all `wholes` are 0.

    There is none where tasks are all alike, or where so few have a whole that some resamples have none.
    """
    n = len(wholes)
    drawn = np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    above, below = (np.asarray(values, dtype=float)[drawn].sum(axis=1) for values in (parts, wholes))
    ratios = np.divide(above, below, out=np.full(RESAMPLES, np.inf), where=below > 0)
    low, high = np.quantile(ratios, (0.025, 0.975), method="nearest")
    point = sum(parts) / sum(wholes)
    if low == high or not math.isfinite(high):
        return Interval(point=point, low=None, high=None, n=n, method="too few tasks, or all alike: no interval")
    return Interval(point=point, low=float(low), high=float(high), n=n, method="percentile bootstrap over tasks")


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
    return float(np.quantile(_resampled(tuple(values), seed), alpha if side == "lower" else 1 - alpha))


def t_bound(values: Sequence[float], tail: Tail) -> float:
    """One-sided Student bound of the mean of two or more values that are nearly normal, such as log ratios of tokens.

    It holds far out in the tail, where a bootstrap of few tasks promises too much. Values that are all the same are
    taken at their word.
    """
    from scipy.stats import t

    width = float(t.isf(tail.alpha, len(values) - 1) * np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)) + (width if tail.side == "upper" else -width)


def mcnemar_p(won: int, lost: int) -> float:
    """Exact two-sided McNemar test of pairs that differ: `won` one way, `lost` the other."""
    from scipy.stats import binomtest

    return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0


def pooled_p(tasks: Sequence[tuple[Tally, Tally]]) -> float:
    """One-sided p-value of "the first arm solves more"; a task gives the tallies of both arms, of any size.

    The exact conditional test over strata (Birch 1964, J. R. Stat. Soc. B 26): if the arms are the same, the first
    one's share of the attempts that were solved on a task is hypergeometric, and the shares of tasks add up. It is the
    best unbiased test of a common odds ratio, and a task that both arms always solve, or never, says nothing. Mid-p:
    the observed sum counts half (Lancaster 1961, JASA 56), since a sum of few attempts moves in large steps.
    """
    law, seen = np.ones(1), 0
    for (solved, scored), (others, pool) in tasks:
        if 0 < solved + others < scored + pool:
            least, share = _share_law(scored, pool, solved + others)
            law, seen = np.convolve(law, share), seen + solved - least
    return float(min(1.0, law[seen + 1 :].sum() + law[seen] / 2)) if law.size > 1 else 1.0


@lru_cache(maxsize=4_096)
def _share_law(scored: int, pool: int, solved: int) -> tuple[int, NDArray[np.float64]]:
    """The least number of `solved` attempts that the first arm can have, and the probabilities from there on."""
    from scipy.stats import hypergeom

    least, most = max(0, solved - pool), min(scored, solved)
    return least, np.asarray(hypergeom.pmf(np.arange(least, most + 1), scored + pool, solved, scored))


@lru_cache(maxsize=256)
def look_levels(information: tuple[float, ...], alpha: float) -> tuple[float, ...]:
    """The one-sided level of each look at growing data, so that all looks together err with `alpha`.

    `information` is the inverse variance of the estimate at each look, in any unit. At a share t of the last
    one, alpha t^2 is spent, between O'Brien and Fleming's thrift and Pocock's haste (Kim and DeMets 1987, Biometrika
    74). The looks are jointly normal, two of them correlated by the root of their information's ratio (Jennison and
    Turnbull 1999, chapter 3).
    """
    from scipy.optimize import brentq
    from scipy.stats import multivariate_normal, norm

    shares = np.asarray(information) / information[-1]
    spent = alpha * shares**2
    together = np.sqrt(np.minimum.outer(shares, shares) / np.maximum.outer(shares, shares))
    bounds = [float(norm.isf(spent[0]))]
    for look in range(1, len(shares)):
        law = multivariate_normal(cov=together[: look + 1, : look + 1], allow_singular=True)

        def overspent(bound: float, law: multivariate_normal = law, allowed: float = float(spent[look])) -> float:
            return 1 - float(law.cdf([*bounds, bound], rng=np.random.default_rng(0))) - allowed

        bounds.append(float(brentq(overspent, 0.0, 9.0, xtol=1e-4)))
    return tuple(float(norm.sf(bound)) for bound in bounds)


@lru_cache(maxsize=64)
def _resampled(values: tuple[float, ...], seed: int) -> NDArray[np.float64]:
    """Means of resampled tasks, for percentiles of them. Not BCa: where 3 of 24 tasks differ, all one way, BCa excludes
    0 and the exact test does not (p = 0.125)."""
    from scipy.stats import bootstrap

    return np.asarray(
        bootstrap(
            (np.asarray(values, dtype=float),), _mean, n_resamples=RESAMPLES, vectorized=True, method="percentile",
            rng=np.random.default_rng(seed),
        ).bootstrap_distribution
    )  # fmt: skip


def _mean(sample: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    return np.asarray(np.mean(sample, axis=axis))
