"""Students of two harnesses, each played under both: what the data add, what the harness that plays adds, and home."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from evolver.crossed import Array, Contrast, difference, mean
from evolver.gap import Means, cards_on_test, of_one_recipe
from evolver.intervals import nothing, success_interval
from evolver.population import cards_of, per_task, success_value
from evolver.records import Crossing, Distillation, Effect, Equal, Interval, Scorecard

if TYPE_CHECKING:
    from evolver.store import Store

Cell = tuple[str, str]  # (the harness that a student was taught under, the harness that it plays under)


def effects(cells: Mapping[Cell, Array], a: str, b: str) -> tuple[Contrast, Contrast, Contrast]:
    """(trained, played, home) of a 2 x 2, B minus A; each cell has shape (seeds, tasks), one order of tasks for all.

    A student has the same row in both cells of its arm, so what it does under both is summed up before arms are
    compared: seeds of one arm are drawn together.
    """
    mean_a, mean_b = ((cells[own, a] + cells[own, b]) / 2 for own in (a, b))
    change_a, change_b = ((cells[own, b] - cells[own, a]) / 2 for own in (a, b))
    return difference(mean_b, mean_a), difference(change_b, -change_a), difference(change_b, change_a)


def crossing(store: Store, a: str, b: str, equal: Equal | None = None) -> Crossing | None:
    """The 2 x 2 of two harness ids from what the run holds, on the tasks that every cell has scored.

    Takes the students that have played under both harnesses, a seed only where both arms have it. None while a cell is
    empty.
    """
    cards = cards_on_test(store)
    made = of_one_recipe(store, (a, b), equal)
    played = {
        (d.teacher_harness, under, d.seed): per_task(cards_of(cards, under, "test", d.student_model), success_value)
        for d, under in product(made, (a, b))
    }
    cells = list(product((a, b), (a, b)))
    seeds = sorted(s for s in {d.seed for d in made} if all(played.get((*cell, s)) for cell in cells))
    if not seeds:
        return None
    tasks = sorted(set.intersection(*(set(played[(*cell, seed)]) for cell in cells for seed in seeds)))
    if not tasks:
        return None
    arrays = {cell: np.array([_row(played[(*cell, seed)], tasks) for seed in seeds]) for cell in cells}
    trained, under, home = (_effect(contrast, len(seeds)) for contrast in effects(arrays, a, b))
    aa, ab, ba, bb = (_success(arrays[cell]) for cell in cells)
    name = f"{a}|{b}|{equal}|{seeds}|{tasks}|{[d.id for d in made]}"
    return Crossing(
        id=f"cross-{hashlib.sha256(name.encode()).hexdigest()[:16]}",
        harness_a=a,
        harness_b=b,
        equal=equal,
        aa=aa,
        ab=ab,
        ba=ba,
        bb=bb,
        control_a=_control(cards, a, made, tasks),
        control_b=_control(cards, b, made, tasks),
        trained=trained,
        played=under,
        home=home,
        n_tasks=len(tasks),
        student_seeds=tuple(seeds),
        at=time.time(),
    )


def _row(means: Means, tasks: Sequence[str]) -> list[float]:
    return [means[task] for task in tasks]


def _effect(contrast: Contrast, seeds: int) -> Effect:
    return Effect(size=contrast.interval(), p=contrast.p if seeds > 1 else None)


def _success(cell: Array) -> Interval:
    return success_interval([float(value) for value in cell[0]]) if len(cell) == 1 else mean(cell).interval()


def _control(cards: Sequence[Scorecard], harness: str, made: Sequence[Distillation], tasks: Sequence[str]) -> Interval:
    """The untrained base's success on the same tasks; empty while it has not played them all."""
    means = per_task(cards_of(cards, harness, "test", made[0].base_model), success_value)
    known = all(task in means for task in tasks)
    return success_interval(_row(means, tasks)) if known else nothing("not scored on all of these tasks")
