"""Which tasks the next attempts of a race go to: those whose outcome is open tell most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST = 3.0  # times the mean that one task gets at a look
LEAST_WEIGHT = 1e-3  # a task that is surely solved, or surely not, is not quite given up

Counts = Mapping[str, int]  # task id → attempts
Tallies = Mapping[str, tuple[int, int]]  # task id → (attempts solved, attempts scored)


@dataclass(frozen=True)
class Spread:
    """Attempts that the candidate, and the incumbent's pool, have at each task; both name the same tasks."""

    candidate: Counts
    pool: Counts


def spread(before: Spread, mean: tuple[int, int], known: Tallies, focus: float) -> Spread:
    """What both arms have by a look after which a task has `mean` = (candidate's, pool's) attempts on average.

    A candidate's first attempts go to every task alike. Later ones are spread as (p (1 - p))^`focus`, with p from all
    attempts at a task that are `known`, by whichever harness: that is the information of an attempt about a harness's
    skill (Lord 1980, Applications of Item Response Theory, chapter 5), and with it the variance of a difference of
    arms falls fastest (Neyman 1934, J. R. Stat. Soc. 97). 0 spreads evenly. The pool has at least as many attempts at
    each task as the candidate, so that there are pairs.
    """
    weights = {task: _weight(known.get(task, (0, 0)), focus) for task in before.candidate}
    first = not any(before.candidate.values())
    ours = _grown(before.candidate, mean[0], dict.fromkeys(weights, 1.0) if first else weights, {})
    return Spread(ours, _grown(before.pool, mean[1], weights, ours))


def uneven(counts: Counts) -> dict[str, int]:
    """The counts by task where they differ; empty when all tasks have as many."""
    return dict(counts) if len(set(counts.values())) > 1 else {}


def _weight(tally: tuple[int, int], focus: float) -> float:
    solved, scored = tally
    chance = (solved + 0.5) / (scored + 1.0)
    return float(max(chance * (1 - chance), LEAST_WEIGHT) ** focus)


def _grown(held: Counts, mean: int, weights: Mapping[str, float], least: Counts) -> dict[str, int]:
    """`held` with as many more as make `mean` a task on average, and no task below `least`."""
    raised = {task: max(count, least.get(task, 0)) for task, count in held.items()}
    left = mean * len(held) - sum(raised.values())
    if left <= 0:
        return raised
    more = shares(left, np.array([weights[task] for task in held]), max(1.0, MOST * left / len(held)))
    return {task: count + int(extra) for (task, count), extra in zip(raised.items(), more, strict=True)}


def shares(total: int, weights: NDArray[np.float64], most: float) -> NDArray[np.int64]:
    """Whole numbers that add up to `total`, in proportion to `weights` (all > 0), none above `most` rounded up.

    What is cut off a share above `most` goes to the others; the largest remainders are rounded up, the first of equals
    first. `most` times the number of weights must reach `total`.
    """
    found, open_, left = np.zeros(len(weights)), np.ones(len(weights), bool), float(total)
    while left > 1e-9 and open_.any():
        part = weights * open_
        found = np.minimum(found + left * part / part.sum(), most)
        open_ &= found < most
        left = total - found.sum()
    whole = np.floor(found + 1e-9).astype(np.int64)
    rest = total - int(whole.sum())
    whole[np.argsort(-(found - whole), kind="stable")[:rest]] += 1
    return whole
