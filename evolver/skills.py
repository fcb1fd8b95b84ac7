"""How much each harness of the archive can do: one skill a harness, one difficulty a task, from all attempts at once.

An edit moves its parent a little, so what is known of a parent says much of its children, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

STEP = 0.4  # logits; scale of what an edit does to its parent's skill, before anything is seen
TAIL = 3.0  # degrees of freedom of the same: most edits move it a little, some break everything
TASKS = 3.0  # likewise of how hard tasks are: says little
ROUNDS, FARTHEST, NEAR = 60, (1.0, 2.0), 1e-6  # of Newton's method; longest step of a skill and of a difficulty

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Skills:
    """The posterior of all skills (logits), as a normal law: its mode and its precision matrix."""

    mode: Array
    precision: Array

    def drawn(self, rng: Random, temperature: float) -> Array:
        """One draw of all of them together, its distance from the mode scaled by `temperature`."""
        noise = np.array([rng.gauss(0.0, 1.0) for _ in self.mode])
        strayed = np.linalg.solve(np.linalg.cholesky(self.precision).T, noise)
        return np.asarray(self.mode + temperature * strayed)


def skills(solved: Array, tried: Array, parents: Sequence[int | None]) -> Skills:
    """Skills from attempts solved and scored, each of shape (harnesses, tasks). What they say is how far harnesses are
    apart: where 0 lies is hardly known.

    The Rasch model (Rasch 1960): logit P(solved) = skill - difficulty. A skill is away from its parent's, or from 0 for
    a harness without one, by `STEP` times a Student t of `TAIL` degrees of freedom, taken as a normal law of the
    variance that the distance suggests (Lange et al. 1989, JASA 84). `parents` holds positions of earlier rows. The
    mode is found by Newton's method, and the precision is the curvature there with difficulties marginalised (Laplace).
    """
    difficulty = -logit((solved.sum(axis=0) + 0.5) / (tried.sum(axis=0) + 1.0))
    centre, skill = difficulty.mean(), np.zeros(len(solved))
    for _ in range(ROUNDS):
        prior = _prior(parents, skill)
        chance = expit(skill[:, None] - difficulty[None, :])
        weight, left = tried * chance * (1 - chance), solved - tried * chance
        held = weight.sum(axis=0) + TASKS**-2
        share = weight / held
        slope = left.sum(axis=1) - prior @ skill
        task_slope = -left.sum(axis=0) - TASKS**-2 * (difficulty - centre)
        curve = np.diag(weight.sum(axis=1)) + prior - share @ weight.T
        step = np.linalg.solve(curve, slope + share @ task_slope)
        task_step = (task_slope + weight.T @ step) / held
        skill = skill + np.clip(step, -FARTHEST[0], FARTHEST[0])
        difficulty = difficulty + np.clip(task_step, -FARTHEST[1], FARTHEST[1])
        if max(np.abs(step).max(), np.abs(task_step).max()) < NEAR:
            break
    return Skills(skill, curve)


def _prior(parents: Sequence[int | None], skill: Array) -> Array:
    """The precision of skills before anything is seen, where they lie: a random walk from parent to child."""
    found = np.zeros((len(parents), len(parents)))
    for child, parent in enumerate(parents):
        step = skill[child] - (0.0 if parent is None else skill[parent])
        precision = (TAIL + 1) / (TAIL * STEP**2 + step**2)
        found[child, child] += precision
        if parent is not None:
            found[parent, parent] += precision
            found[child, parent] -= precision
            found[parent, child] -= precision
    return found
