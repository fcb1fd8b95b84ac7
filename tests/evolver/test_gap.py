"""Teacher and student gaps: known answers, honest coverage, and what one seed can't say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evolver.config import RunConfig
from evolver.errors import UsageError
from evolver.gap import Array, Estimates, Part, estimate, gap
from evolver.records import Distillation, RolloutKey, Scorecard
from evolver.store import Store
from tests.evolver.cards import a_card

NONE: Array = np.zeros(0)
NO_STUDENTS: Array = np.zeros((0, 0))


def toss(rng: np.random.Generator, chances: Array) -> Array:
    return (rng.random(chances.shape) < chances).astype(float)


def world(seed: int, seeds: int, teacher: float, student: float, seed_noise: float = 0.0, n: int = 100) -> Estimates:
    """Two harnesses whose teachers differ by `teacher` and whose students differ by `student` in expected success."""
    rng = np.random.default_rng(seed)
    hard = rng.uniform(-0.2, 0.2, n)

    def students(mean: float) -> Array:
        return np.array([toss(rng, mean + hard + rng.normal(0, seed_noise)) for _ in range(seeds)])

    return estimate(
        (toss(rng, 0.6 + hard), toss(rng, 0.6 + teacher + hard)),
        (students(0.5), students(0.5 + student)),
        (toss(rng, np.full(n, 0.05)), toss(rng, np.full(n, 0.05))),
        seed,
    )


def test_gaps_are_b_minus_a_and_negative_ones_are_plain_results() -> None:
    found = world(1, 3, teacher=0.2, student=-0.25, n=400)
    assert found.teacher_gap.point == pytest.approx(0.2, abs=0.08)
    assert found.student_gap.point == pytest.approx(-0.25, abs=0.08)
    assert found.student_gap.high is not None and found.student_gap.high < 0
    assert found.amplification.point is not None and found.amplification.point < 0
    assert found.lift_a.low is not None and found.lift_a.low > 0.3


def test_the_estimates_are_what_can_be_counted_by_hand() -> None:
    a, b = np.array([1.0, 0, 0, 0, 1, 1]), np.array([1.0, 1, 1, 1, 1, 1])
    students_a, students_b = np.array([[0.0, 0, 0, 0, 0, 1]]), np.array([[1.0, 0, 0, 0, 0, 1]])
    found = estimate((a, b), (students_a, students_b), (np.zeros(6), np.zeros(6)), 0)
    assert found.teacher_gap.point == pytest.approx(0.5) and found.student_gap.point == pytest.approx(1 / 6)
    assert found.lift_a.point == pytest.approx(1 / 6) and found.lift_b.point == pytest.approx(2 / 6)
    assert found.amplification.point == pytest.approx((1 / 6) / 0.5)


def test_one_seed_per_arm_says_what_it_leaves_out_and_is_narrower() -> None:
    one, five = world(2, 1, 0.0, 0.1, 0.05), world(2, 5, 0.0, 0.1, 0.05)
    assert "1 seed per arm: the interval leaves out training noise" in one.notes
    assert not any("training noise" in note for note in five.notes)
    assert "seeds" in five.student_gap.method and "seeds" not in one.student_gap.method


def test_amplification_is_none_with_a_note_when_the_teacher_gap_touches_0() -> None:
    found = world(3, 2, teacher=0.0, student=0.2)
    assert found.amplification.point is None and any("touches 0" in note for note in found.notes)
    clear = world(3, 2, teacher=0.3, student=0.15)
    assert clear.amplification.point is not None and clear.amplification.low is not None
    assert clear.amplification.low < clear.amplification.point < (clear.amplification.high or 0)


def test_what_is_missing_comes_out_empty() -> None:
    teachers_only = estimate((np.ones(9), np.zeros(9)), (NO_STUDENTS, NO_STUDENTS), (NONE, NONE), 0)
    assert teachers_only.teacher_gap.point == -1.0
    assert (teachers_only.student_gap.point, teachers_only.lift_a.point, teachers_only.amplification.point) == (
        None,
    ) * 3
    assert any("no student gap yet" in note for note in teachers_only.notes)
    assert estimate((NONE, NONE), (NO_STUDENTS, NO_STUDENTS), (NONE, NONE), 0).teacher_gap.point is None


def test_s53_a_pair_of_equal_harnesses_shows_no_gap_and_claims_no_certainty() -> None:
    same = np.array([1.0, 0.0] * 20)
    found = estimate((same, same), (np.array([same]), np.array([same])), (same, same), 0)
    for gap_found in (found.teacher_gap, found.student_gap, found.lift_a):
        assert gap_found.point == 0.0 and gap_found.low is not None and gap_found.high is not None
        assert gap_found.low == pytest.approx(-gap_found.high) and 0.05 < gap_found.high < 0.12


@pytest.mark.parametrize("seeds", [1, 3])
def test_students_that_solve_nothing_may_still_solve_something_elsewhere(seeds: int) -> None:
    teachers = np.array([1.0, 0.0] * 10), np.array([1.0, 1.0] * 10)
    nothing_solved = np.zeros((seeds, 20))
    found = estimate(teachers, (nothing_solved, nothing_solved), (np.zeros(20), np.zeros(20)), 0)
    assert found.student_a.point == 0.0 and found.student_a.low == 0.0
    assert found.student_a.high == pytest.approx(0.161, abs=0.001)  # Wilson, 0 of 20
    assert found.student_gap.high is not None and found.student_gap.high > 0.1
    assert found.lift_a.low is not None and found.lift_a.low < 0 < (found.lift_a.high or 0)
    assert found.amplification.point == 0.0 and found.amplification.low is None


def test_no_interval_of_a_success_leaves_0_to_1() -> None:
    found = world(5, 2, 0.2, 0.45, seed_noise=0.2, n=20)
    for arm in (found.student_a, found.student_b):
        assert arm.low is not None and arm.high is not None and 0 <= arm.low <= arm.high <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "noise"), [(1, 0.0), (3, 0.04), (5, 0.04)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(seeds: int, noise: float) -> None:
    student, teacher, runs = 0, 0, 200
    for run in range(runs):
        found = world(run, seeds, 0.1, 0.12, noise)
        teacher += (found.teacher_gap.low or 0) <= 0.1 <= (found.teacher_gap.high or 0)
        student += (found.student_gap.low or 0) <= 0.12 <= (found.student_gap.high or 0)
    assert teacher / runs >= 0.89, teacher / runs
    assert student / runs >= 0.9, student / runs


@pytest.mark.slow
def test_a_seed_blind_interval_would_find_gaps_that_are_not_there() -> None:
    """Control of the test above: with 7 pp of training noise and one seed an arm, equal students often look unequal."""
    blind = [world(run, 1, 0.0, 0.0, 0.07, n=200).student_gap for run in range(100)]
    aware = [world(run, 5, 0.0, 0.0, 0.07, n=200).student_gap for run in range(100)]
    false = [sum((i.low or 0) > 0 or (i.high or 0) < 0 for i in found) / 100 for found in (blind, aware)]
    assert false[0] >= 0.25 and false[1] <= 0.1, false


# --- from records ----------------------------------------------------------------------------------------------------


def played(harness: str, model: str, solved: str) -> list[Scorecard]:
    cards = [a_card(harness, t, s == "1", purpose="test") for t, s in enumerate(solved) if s != "?"]
    return [
        card.model_copy(
            update={
                "rollout_id": f"{model}-{card.rollout_id}",
                "key": RolloutKey.model_validate(card.key.model_dump() | {"model_id": model}),
            }
        )
        for card in cards
    ]


def student_of(harness: str, seed: int, base: str = "base", rate: float = 1e-4) -> Distillation:
    return Distillation(
        id=f"dis-{harness}-{seed}-{rate:g}", teacher_harness=harness, teacher_model="teacher", base_model=base,
        student_model=f"student-{harness}-{seed}", recipe={"rate": rate}, seed=seed, data_sha256="d",
        template_sha256="t", rows=9, trained_tokens=9, dropped={}, train_loss_first=2.0, train_loss_last=0.1,
        train_s=9.0, checkpoint="c",
    )  # fmt: skip


def a_run(path: Path) -> Store:
    store = Store.create(path, RunConfig())
    for harness, teacher, student, control in (
        ("a", "11110000", "00010000", "00000000"),
        ("b", "11111111", "111111??", "0000000?"),
    ):
        cards = played(harness, "teacher", teacher) + played(harness, "base", control)
        for card in cards + played(harness, f"student-{harness}-0", student):
            store.append(card)
        store.append(student_of(harness, 0))
    return store


def test_a_gap_is_taken_on_the_tasks_that_every_arm_has_scored(tmp_path: Path) -> None:
    found = gap(a_run(tmp_path / "run"), "a", "b")
    assert (found.n_tasks, found.student_seeds) == (6, (0,))
    assert found.teacher_gap.point == pytest.approx(2 / 6) and found.student_gap.point == pytest.approx(5 / 6)
    assert found.control_a.point == 0.0 and found.lift_b.point == 1.0
    assert "2 of 8 test tasks are left out: not scored in every arm" in found.notes
    assert "1 seed per arm: the interval leaves out training noise" in found.notes


def test_the_same_records_give_the_same_gap_and_new_students_a_new_one(tmp_path: Path) -> None:
    store = a_run(tmp_path / "run")
    first, again = gap(store, "a", "b"), gap(store, "a", "b")
    assert first.model_dump(exclude={"at"}) == again.model_dump(exclude={"at"})
    for harness in ("a", "b"):
        store.append(student_of(harness, 1))
        for card in played(harness, f"student-{harness}-1", "01010101"):
            store.append(card)
    more = gap(store, "a", "b")
    assert more.id != first.id and more.student_seeds == (0, 1)


def test_students_of_different_recipes_are_never_compared(tmp_path: Path) -> None:
    store = a_run(tmp_path / "run")
    plain = gap(store, "a", "b")
    store.append(student_of("a", 1, rate=9e-4))
    for card in played("a", "student-a-1", "11111111"):
        store.append(card)
    again = gap(store, "a", "b")
    assert again.student_a == plain.student_a and again.student_seeds == (0,)
    assert any("another recipe or teacher are left out: 1" in note for note in again.notes)
    store.append(student_of("b", 1, rate=9e-4))
    for card in played("b", "student-b-1", "11111111"):
        store.append(card)
    newest = gap(store, "a", "b")
    assert newest.student_seeds == (1,) and newest.student_gap.point == 0.0
    alone = Store.create(tmp_path / "alone", RunConfig())
    for harness, rate in (("a", 1e-4), ("b", 9e-4)):
        for card in played(harness, "teacher", "1100") + played(harness, f"student-{harness}-0", "1100"):
            alone.append(card)
        alone.append(student_of(harness, 0, rate=rate))
    assert gap(alone, "a", "b").student_gap.point is None


def with_seeds(store: Store, seeds: int) -> Store:
    for harness in ("a", "b"):
        for seed in range(1, seeds):
            store.append(student_of(harness, seed))
            for card in played(harness, f"student-{harness}-{seed}", "0" * seed + "1" * (8 - seed)):
                store.append(card)
    return store


def test_t05_what_was_too_long_to_learn_is_shown_arm_by_arm(tmp_path: Path) -> None:
    store = a_run(tmp_path / "run")
    assert not any("too long" in note for note in gap(store, "a", "b").notes)
    for harness, lost in (("a", {"overlength": 7, "failed": 3}), ("b", {"overlength_turn": 1})):
        store.append(student_of(harness, 1).model_copy(update={"dropped": lost}))
        for card in played(harness, f"student-{harness}-1", "11111111"):
            store.append(card)
    note = "left out of training as too long: 7 beside 18 rows under A, 1 beside 18 rows under B"
    assert note in gap(store, "a", "b").notes


def test_mcnemar_of_each_seed_stands_beside_the_gap_as_a_diagnostic(tmp_path: Path) -> None:
    first, second = gap(with_seeds(a_run(tmp_path / "run"), 2), "a", "b").mcnemar
    assert (first.seed, first.only_b, first.only_a, first.p) == (0, 5, 0, 0.0625)
    assert (second.seed, second.only_b, second.only_a, second.p) == (1, 0, 0, 1.0)


def test_a_harness_against_itself_deals_its_students_to_both_sides(tmp_path: Path) -> None:
    found = gap(with_seeds(a_run(tmp_path / "run"), 4), "a", "a")
    assert found.teacher_gap.point == 0.0 and found.student_seeds == (0, 1, 2, 3) and found.mcnemar == ()
    sides = (1 + 6) / 16, (7 + 5) / 16  # seeds 0 and 2, seeds 1 and 3
    assert (found.student_a.point, found.student_b.point) == pytest.approx(sides)
    assert found.student_gap.point == pytest.approx(sides[1] - sides[0])


def test_a_look_takes_its_seeds_and_tasks_and_its_interval_its_level(tmp_path: Path) -> None:
    store = with_seeds(a_run(tmp_path / "run"), 3)
    whole = gap(store, "a", "b")
    part = gap(store, "a", "b", Part(0, (0, 1), whole_tasks(store), 0.01))
    assert part.student_seeds == (0, 1) and (part.look, part.level) == (0, 0.01) and part.id != whole.id
    wide = gap(store, "a", "b", Part(0, (0, 1), whole_tasks(store), 0.2))
    assert wide.student_gap.point == part.student_gap.point and wide.student_p == part.student_p
    assert (wide.student_gap.low or 0) > (part.student_gap.low or 0)
    fewer = gap(store, "a", "b", Part(0, (0, 1), frozenset(sorted(whole_tasks(store))[:3]), 0.05))
    assert fewer.n_tasks == 3 and not any("left out" in note for note in fewer.notes)


def whole_tasks(store: Store) -> frozenset[str]:
    return frozenset(card.key.task_id for card in store.all(Scorecard))


def test_students_of_an_earlier_teacher_are_left_out(tmp_path: Path) -> None:
    """After a change of the teacher its students count as soon as both harnesses have one, and only they."""
    store = a_run(tmp_path / "run")
    before = gap(store, "a", "b")
    for harness, solved in (("a", "11000000"), ("b", "11000000")):
        made = student_of(harness, 0).model_copy(update={"id": f"new-{harness}", "teacher_model": "new"})
        store.append(made.model_copy(update={"student_model": f"student-new-{harness}"}))
        for model in ("new", f"student-new-{harness}"):
            for card in played(harness, model, solved):
                store.append(card)
        found = gap(store, "a", "b")
        assert (found.teacher_gap.point == 0) is (harness == "b")
    assert before.teacher_gap.point != 0 and any("recipe or teacher are left out: 2" in note for note in found.notes)


def test_teachers_alone_have_a_gap_and_the_note_says_what_is_missing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    for card in played("a", "teacher", "110011") + played("b", "teacher", "111011"):
        store.append(card)
    found = gap(store, "a", "b")
    assert found.teacher_gap.point == pytest.approx(1 / 6)
    assert found.student_gap.point is None and any("no student gap yet" in note for note in found.notes)


def test_s47_what_can_not_be_compared_is_refused(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "empty", RunConfig())
    with pytest.raises(UsageError, match="no teacher to compare"):
        gap(store, "a", "b")
    mixed = a_run(tmp_path / "mixed")
    mixed.append(student_of("b", 1, base="another"))
    with pytest.raises(UsageError, match="one teacher and one base"):
        gap(mixed, "a", "b")
    moved = Store.create(tmp_path / "moved", RunConfig())
    for card in [
        *played("a", "teacher", "11"),
        *(c.model_copy(update={"checker_hash": "new"}) for c in played("b", "teacher", "11")),
    ]:
        moved.append(card)
    with pytest.raises(UsageError, match="two versions"):
        gap(moved, "a", "b")
