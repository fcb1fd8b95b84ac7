"""Differences of arms whose tasks and training seeds are both drawn at random: variance, interval and p-value.

A seeds x tasks layout has three sources of chance: tasks (shared by all arms), training seeds (within an arm), and the
toss of each attempt. Their mean squares are set apart and added up for the difference of means; Satterthwaite (1946,
Biometrics Bulletin 2) gives the degrees of freedom. A plain two-way bootstrap, which counts tosses twice and few seeds
too little, errs between never and one time in six, as the noise has it (`make bench-gap`); and one formula serves
interval, test and planning alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evolver.intervals import DIFFERENCE, SHARE, Span, alike_interval
from evolver.records import Interval

Array = NDArray[np.float64]
METHOD = "crossed random effects of tasks and seeds"


@dataclass(frozen=True)
class Contrast:
    """A mean, or the difference of two, with its variance and degrees of freedom; `n` tasks within `span`."""

    point: float
    variance: float
    df: float
    n: int
    span: Span

    def interval(self, level: float = 0.95) -> Interval:
        """Without any spread (tasks alike, seeds agreed) it is what n tasks can't have shown that bounds it."""
        from scipy.stats import t

        if self.variance == 0:
            return alike_interval(self.point, self.n, self.span)
        width = float(t.isf((1 - level) / 2, self.df)) * math.sqrt(self.variance)
        low, high = np.clip((self.point - width, self.point + width), *self.span)
        return Interval(point=self.point, low=float(low), high=float(high), n=self.n, method=METHOD)

    @property
    def p(self) -> float:
        """Two-sided p-value of "the mean, or the difference, is 0"."""
        from scipy.stats import t

        if self.variance == 0:
            return 1.0 if self.point == 0 else 0.0
        return float(min(1.0, 2 * t.sf(abs(self.point) / math.sqrt(self.variance), self.df)))


def mean(arm: Array) -> Contrast:
    """The mean success of one arm, shape (seeds, tasks)."""
    return _contrast(arm.mean(axis=0), (arm,), SHARE)


def difference(arm: Array, base: Array) -> Contrast:
    """`arm` minus `base`, each of shape (seeds, tasks) over the same tasks; a control is one row.

    One row says nothing of training noise, which is then left out of that arm.
    """
    return _contrast(arm.mean(axis=0) - base.mean(axis=0), (arm, base), DIFFERENCE)


def _contrast(per_task: Array, arms: Sequence[Array], span: Span) -> Contrast:
    n = len(per_task)
    tasks = float(per_task.var(ddof=1)) / n if n > 1 else 0.0
    seeds = chance = 0.0
    freedom = 0
    for arm in arms:
        count = len(arm)
        if count > 1 and n > 1:
            effects = arm.mean(axis=1) - arm.mean()
            residuals = arm - arm.mean(axis=0) - effects[:, None]
            seeds += float(effects @ effects) / (count - 1) / count
            chance += float((residuals**2).sum()) / ((count - 1) * (n - 1)) / n / count
            freedom += count - 1
    # The spread of tasks holds the chance of attempts already, so that of the seeds' means is taken off once.
    variance = tasks + max(0.0, seeds - chance)
    if seeds <= chance or variance == 0:
        return Contrast(float(per_task.mean()), variance, max(1, n - 1), n, span)
    df = variance**2 / (tasks**2 / (n - 1) + seeds**2 / freedom + chance**2 / (freedom * (n - 1)))
    return Contrast(float(per_task.mean()), variance, df, n, span)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for as many comparisons (Holm 1979, Scand. J. Stat. 6), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, least = [0.0] * len(order), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted
