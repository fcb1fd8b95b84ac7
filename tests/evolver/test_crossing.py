"""Crossed play: what the data add, what the harness that plays adds, and what a student's own harness adds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evolver.crossing import crossing, effects
from evolver.population import final_cards
from evolver.records import Crossing, Scorecard
from evolver.store import Store
from tests.evolver.test_gap import a_run, played, student_of, with_seeds


def crossed_run(path: Path, under_b: str = "11100000", under_a: str = "11110000") -> Store:
    """Students of one seed: of a, who solve 00010000 there, and of b, who solve 111111?? there; each also crossed."""
    store = a_run(path)
    for card in [*played("b", "student-a-0", under_b), *played("a", "student-b-0", under_a)]:
        store.append(card)
    return store


def test_effects_are_what_can_be_counted_by_hand() -> None:
    def cell(*rows: list[float]) -> np.ndarray:
        return np.array(rows)

    cells = {
        ("a", "a"): cell([1, 0, 0, 0]), ("a", "b"): cell([1, 1, 0, 0]),
        ("b", "a"): cell([1, 0, 0, 0]), ("b", "b"): cell([1, 1, 1, 1]),
    }  # fmt: skip
    trained, under, home = effects(cells, "a", "b")
    assert trained.point == pytest.approx((0.25 + 1.0) / 2 - (0.25 + 0.5) / 2)
    assert under.point == pytest.approx(((0.5 - 0.25) + (1.0 - 0.25)) / 2)
    assert home.point == pytest.approx(((0.25 - 0.5) + (1.0 - 0.25)) / 2)


def test_a_harness_that_only_plays_better_is_not_taken_for_better_data() -> None:
    rng = np.random.default_rng(3)
    hard = rng.uniform(0.1, 0.5, 400)

    def cell(gain: float) -> np.ndarray:
        return (rng.random((3, 400)) < hard + gain).astype(float)

    cells = {("a", "a"): cell(0), ("a", "b"): cell(0.3), ("b", "a"): cell(0), ("b", "b"): cell(0.3)}
    trained, under, home = effects(cells, "a", "b")
    assert under.point == pytest.approx(0.3, abs=0.05) and under.p < 0.001
    assert trained.p > 0.05 and home.p > 0.05


def test_the_2_x_2_is_taken_from_the_records_on_tasks_that_every_cell_has(tmp_path: Path) -> None:
    store = crossed_run(tmp_path / "run")
    found = crossing(store, "a", "b")
    assert found is not None and found.n_tasks == 6 and found.student_seeds == (0,)
    assert [found.aa.point, found.ab.point, found.ba.point, found.bb.point] == pytest.approx([1 / 6, 3 / 6, 4 / 6, 1])
    assert found.control_a.point == 0.0 and found.trained.p is None  # one seed an arm tells nothing of training noise
    store.append(found)
    assert store.all(Crossing) == [found]


def test_a_cell_that_was_not_played_leaves_no_2_x_2(tmp_path: Path) -> None:
    assert crossing(a_run(tmp_path / "run"), "a", "b") is None


def test_only_seeds_that_played_everywhere_count(tmp_path: Path) -> None:
    store = with_seeds(crossed_run(tmp_path / "run"), 2)
    found = crossing(store, "a", "b")
    assert found is not None and found.student_seeds == (0,)
    for card in [*played("b", "student-a-1", "11000000"), *played("a", "student-b-1", "11000000")]:
        store.append(card)
    both = crossing(store, "a", "b")
    assert both is not None and both.student_seeds == (0, 1) and both.trained.p is not None and both.id != found.id


def test_crossed_play_does_not_enter_the_gap(tmp_path: Path) -> None:
    from evolver.gap import gap

    plain, crossed = gap(a_run(tmp_path / "plain"), "a", "b"), gap(crossed_run(tmp_path / "crossed"), "a", "b")
    assert plain.model_dump(exclude={"at"}) == crossed.model_dump(exclude={"at"})


def test_a_variant_is_measured_on_its_own_students(tmp_path: Path) -> None:
    from evolver.gap import gap

    store = a_run(tmp_path / "run")
    for harness in ("a", "b"):
        fixed = student_of(harness, 0).model_copy(
            update={"id": f"budget-{harness}", "student_model": f"budget-{harness}", "recipe": {"equal": "budget"}}
        )
        store.append(fixed)
        for card in played(harness, f"budget-{harness}", "11000000"):
            store.append(card)
    accepted, budget = gap(store, "a", "b", equal="accepted"), gap(store, "a", "b", equal="budget")
    assert (accepted.equal, budget.equal) == ("accepted", "budget") and accepted.id != budget.id
    assert budget.student_gap.point == 0.0 and (accepted.student_gap.point or 0) > 0.5
    assert len(final_cards(store.all(Scorecard))) == len(store.all(Scorecard))
