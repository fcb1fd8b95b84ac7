"""Learnability: figures of a harness, and how well they rank its students."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.gap_tables import gap_tables, learnability_tables
from evolver.learnable import Learned, learned, predictions
from evolver.records import Learnability
from tests.evolver.test_gap import a_run, student_of


def arm(name: str, loss: float | None, success: float | None, tokens: float = 50.0) -> Learned:
    return Learned(name, 3, 40, 2.0, loss, tokens, 2.0, 0.0, success)


def test_a_figure_that_ranks_the_students_is_told_from_one_that_does_not() -> None:
    arms = [arm("a", 0.5, 0.1, 30), arm("b", 0.2, 0.4, 40), arm("c", 0.1, 0.6, 35), arm("d", 0.05, 0.7, 60)]
    told = {one.figure: one for one in predictions(arms)}
    assert told["loss_after"].rho == pytest.approx(1.0) and told["loss_after"].p == pytest.approx(2 / 24)
    assert (told["loss_after"].right, told["loss_after"].pairs) == (6, 6)
    assert told["tokens_per_turn"].rho == pytest.approx(-0.8) and told["tokens_per_turn"].right == 1
    assert told["loss_before"].rho is None and told["loss_before"].right == 0  # alike everywhere: it told nothing


def test_too_few_harnesses_or_unknown_figures_claim_nothing() -> None:
    two = {one.figure: one for one in predictions([arm("a", 0.5, 0.1), arm("b", 0.2, 0.4)])}
    assert two["loss_after"].rho is None and (two["loss_after"].right, two["loss_after"].pairs) == (1, 1)
    unknown = {one.figure: one for one in predictions([arm("a", None, 0.1), arm("b", 0.2, None), arm("c", 0.1, 0.5)])}
    assert unknown["loss_after"].n == 1 and unknown["loss_after"].rho is None
    assert unknown["task_loss"].n == 1


def figures(harness: str, seed: int, loss: float | None) -> Learnability:
    return Learnability(
        id=f"learn-{harness}-{seed}", harness_id=harness, teacher_model="teacher", base_model="base",
        student_model=f"student-{harness}-{seed}", seed=seed, rollouts=4, turns=8, tokens=400, switches=2,
        loss_before=2.5, loss_after=loss, rows_sha256="r", at=1.0,
    )  # fmt: skip


def test_figures_of_a_harness_are_means_over_its_students(tmp_path: Path) -> None:
    store = a_run(tmp_path / "run")
    store.append(student_of("a", 1))
    for seed, loss in ((0, 0.1), (1, 0.3)):
        store.append(figures("a", seed, loss))
    store.append(figures("b", 0, None))
    a, b = learned(store)
    assert (a.students, a.loss_after, a.success) == (2, pytest.approx(0.2), pytest.approx(1 / 8))
    assert (a.tokens_per_turn, a.turns_per_task, a.switches_per_task) == (50.0, 2.0, 0.5)
    assert a.task_loss == pytest.approx(0.2 * 50 * 2) and b.loss_after is None and b.task_loss is None
    table, told = learnability_tables([a, b], {"a": "alpha"})
    assert (
        table.rows[0][0] == "alpha" and "unknown" in table.rows[1] and told.rows[0][2].startswith("none: fewer than 3")
    )
    assert "Learnability" in [table.title for table in gap_tables(store, {})]
