"""Made-up students of two harnesses, whose true gap is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from evolver.crossed import Array
from evolver.power import Noise, Size


@dataclass(frozen=True)
class Experiment:
    """Students under A and B, each of shape (seeds, tasks), 1.0 where a task was solved."""

    a: Array
    b: Array

    def part(self, size: Size) -> Experiment:
        return Experiment(self.a[: size.seeds, : size.tasks], self.b[: size.seeds, : size.tasks])


def experiment(rng: np.random.Generator, size: Size, gap: float, noise: Noise) -> Experiment:
    """Tasks of beta-distributed difficulty; the harness moves each, training moves each student."""
    chance, whim = _tasks(rng, size.tasks, noise)
    shift = _shift(gap, noise)

    def students(side: int) -> Array:
        luck = rng.normal(0, noise.seed, (size.seeds, 1))
        chances = np.clip(chance + side * (shift + whim) + luck, 0, 1)
        return (rng.random(chances.shape) < chances).astype(float)

    return Experiment(students(-1), students(1))


def _tasks(rng: np.random.Generator, count: int, noise: Noise) -> tuple[Array, Array]:
    """The chance to solve each task, and how far the harness moves it, each side by as much."""
    weight = noise.base * (1 - noise.base) / noise.spread**2 - 1
    chance = rng.beta(noise.base * weight, (1 - noise.base) * weight, count)
    return chance, rng.normal(0, noise.task / 2, count)


@lru_cache
def _shift(gap: float, noise: Noise) -> float:
    """What moves the mean of all tasks by `gap`: a chance that would leave 0..1 moves by less."""
    chance, whim = _tasks(np.random.default_rng(0), 100_000, noise)
    shift = gap / 2
    for _ in range(20):
        up, down = np.clip(chance + shift + whim, 0, 1), np.clip(chance - shift - whim, 0, 1)
        shift += (gap - float((up - down).mean())) / 2
    return shift


def bootstrap_finds(made: Experiment, rng: np.random.Generator, resamples: int = 500) -> bool:
    """What a plain two-way bootstrap says: tasks resampled together, seeds within an arm, 95 % by percentiles."""
    seeds, tasks = made.a.shape
    weights = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=resamples) / tasks
    means = []
    for arm in (made.a, made.b):
        drawn = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
        means.append(np.einsum("rs,st,rt->r", drawn, arm, weights))
    low, high = np.percentile(means[1] - means[0], [2.5, 97.5])
    return bool(low > 0 or high < 0)
