"""How large a gap an experiment of so many seeds and tasks can find, and how many of both a gap needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from evolver.intervals import look_levels

MOST_TASKS = 5_000
TARGET = 0.8


@dataclass(frozen=True)
class Noise:
    """What moves a student's success, all in success (0..1).

    `base`: mean success. `spread`: standard deviation, over tasks, of the chance to solve one. `task`: that of the
    difference that the harness makes, from task to task. `seed`: that of the mean over training seeds.
    """

    base: float = 0.35
    spread: float = 0.3
    task: float = 0.2
    seed: float = 0.04

    @property
    def toss(self) -> float:
        """Variance of one attempt whose task and student are given."""
        return max(0.0, self.base * (1 - self.base) - self.spread**2)


@dataclass(frozen=True)
class Size:
    """So many students an arm, each measured on so many tasks."""

    seeds: int
    tasks: int


def spread_of(noise: Noise, size: Size) -> tuple[float, float]:
    """(variance, degrees of freedom) that `evolver.crossed` expects of the gap of two such arms."""
    k, n = size.seeds, size.tasks
    tasks = (noise.task**2 + 2 * noise.toss / k) / n
    chance = 2 * noise.toss / (n * k)
    seeds = 2 * noise.seed**2 / k + chance
    variance = tasks + seeds - chance
    freedom = 2 * (k - 1)
    if freedom == 0:
        return tasks, max(1, n - 1)
    parts = tasks**2 / max(1, n - 1) + seeds**2 / freedom + chance**2 / (freedom * max(1, n - 1))
    return variance, max(1.0, variance**2 / parts) if parts else float(freedom)


def power(effect: float, noise: Noise, size: Size, alpha: float = 0.05) -> float:
    """Chance that the two-sided test finds a gap of `effect`, with its right sign (noncentral t).

    One seed an arm is taken at what a test could do that ignores training: its own errors are not in this figure.
    """
    from scipy.stats import nct, t

    variance, df = spread_of(noise, size)
    return float(nct.sf(t.isf(alpha / 2, df), df, abs(effect) / math.sqrt(variance)))


def least_gap(noise: Noise, size: Size) -> float:
    """The smallest gap that is found with probability `TARGET`; 1 when none is."""
    from scipy.optimize import brentq

    if power(1.0, noise, size) < TARGET:
        return 1.0
    return float(brentq(lambda effect: power(effect, noise, size) - TARGET, 1e-6, 1.0, xtol=1e-5))


def tasks_needed(effect: float, noise: Noise, seeds: int) -> int | None:
    """The fewest tasks with which `seeds` students an arm find `effect` with probability `TARGET`.

    None where no number of tasks up to 5,000 does: training noise alone hides the gap.
    """
    if power(effect, noise, Size(seeds, MOST_TASKS)) < TARGET:
        return None
    low, high = 2, MOST_TASKS
    while low < high:
        middle = (low + high) // 2
        if power(effect, noise, Size(seeds, middle)) < TARGET:
            low = middle + 1
        else:
            high = middle
    return low


@lru_cache(maxsize=64)
def levels(looks: tuple[Size, ...], noise: Noise, alpha: float = 0.05) -> tuple[float, ...]:
    """The two-sided level of each look, fixed before any data: together they err with `alpha`.

    What a look knows is taken from the planned noise, so that nothing seen can move a level.
    """
    information = tuple(1 / spread_of(noise, look)[0] for look in looks)
    return tuple(2 * level for level in look_levels(information, alpha / 2))


def power_of_looks(effect: float, noise: Noise, looks: Sequence[Size]) -> tuple[float, ...]:
    """Chance that the gap is found by each look at the latest.

    Students and tasks of a look are among those of the next, so two estimates correlate by the root of their
    variances' ratio.
    """
    import numpy as np
    from scipy.stats import multivariate_normal, norm

    variances = np.array([spread_of(noise, look)[0] for look in looks])
    allowed = levels(tuple(looks), noise)
    alone = [power(effect, noise, look, level) for look, level in zip(looks, allowed, strict=True)]
    leads = abs(effect) / np.sqrt(variances)
    bounds = leads + norm.isf(alone)  # normal bounds that each look alone passes as often as its t-test
    together = np.sqrt(np.minimum.outer(variances, variances) / np.maximum.outer(variances, variances))
    found = []
    for look in range(1, len(looks) + 1):
        law = multivariate_normal(mean=leads[:look], cov=together[:look, :look], allow_singular=True)
        found.append(1 - float(law.cdf(bounds[:look], rng=np.random.default_rng(0))))
    return tuple(found)
