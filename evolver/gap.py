"""What a difference between two teachers became between their students: both gaps, controls, lift, amplification."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evolver.crossed import difference, mean
from evolver.errors import UsageError
from evolver.intervals import DIFFERENCE, RESAMPLES, Span, alike_interval, mcnemar_p, nothing, success_interval
from evolver.population import cards_of, final_cards, per_task, require_one_version, success_value
from evolver.records import Distillation, Equal, Gap, Interval, Scorecard, SeedTest

if TYPE_CHECKING:
    from evolver.store import Store

Array = NDArray[np.float64]
Means = Mapping[str, float]  # task id → success of its attempts, averaged


@dataclass(frozen=True)
class Side:
    """One harness on the test split. `students` maps a training seed to that student's means."""

    teacher: Means
    students: Mapping[int, Means]
    control: Means


@dataclass(frozen=True)
class Estimates:
    """The intervals of a Gap record (differences are B minus A); `student_p` is None without two seeds an arm."""

    teacher_gap: Interval
    student_a: Interval
    student_b: Interval
    student_gap: Interval
    lift_a: Interval
    lift_b: Interval
    amplification: Interval
    notes: tuple[str, ...]
    student_p: float | None = None


class _Draws:
    """Bootstrap draws that both gaps of a ratio share: tasks are resampled together for all arms, seeds within one."""

    def __init__(self, n_tasks: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tasks = self.rng.multinomial(n_tasks, np.full(n_tasks, 1 / n_tasks), size=RESAMPLES) / n_tasks

    def mean(self, arm: Array) -> Array:
        """Resampled means of one arm, shape (RESAMPLES,). `arm` has shape (tasks,)."""
        return np.asarray(self.tasks @ arm)

    def seeds_mean(self, arm: Array) -> Array:
        """As `mean`, for students: shape (seeds, tasks) → (RESAMPLES,). With one seed only tasks are resampled."""
        centre = np.asarray(self.tasks @ arm.mean(axis=0))
        count = arm.shape[0]
        if count == 1:
            return centre
        weights = self.rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
        return np.asarray(centre + weights @ _seed_effects(arm))


def _seed_effects(arm: Array) -> Array:
    """How far each training seed moves its student from the arm's mean, ready to be resampled; shape (seeds,).

    Chance on the tasks, which resampling tasks covers already, is taken out of the spread (variance components of a
    seeds x tasks layout). What is left is widened by sqrt(s / (s - 1)) and by Student's t over the normal quantile:
    a plain bootstrap of 2 to 5 seeds is far too sure of itself.
    """
    from scipy.stats import norm, t

    seeds, tasks = arm.shape
    effects = arm.mean(axis=1) - arm.mean()
    spread = float(effects @ effects) / (seeds - 1)
    if spread == 0 or tasks < 2:
        return np.zeros(seeds)
    residuals = arm - arm.mean(axis=0) - effects[:, None]
    chance = float((residuals**2).sum()) / ((seeds - 1) * (tasks - 1)) / tasks
    widen = np.sqrt(seeds / (seeds - 1)) * t.ppf(0.975, 2 * seeds - 2) / norm.ppf(0.975)
    return np.asarray(effects * widen * np.sqrt(max(0.0, spread - chance) / spread))


def estimate(
    teachers: tuple[Array, Array],
    students: tuple[Array, Array],
    controls: tuple[Array, Array],
    seed: int,
    level: float = 0.05,
) -> Estimates:
    """The pure core. Teachers and controls have shape (tasks,), students (seeds, tasks); all in one order of tasks.

    The interval of the student gap covers 1 - `level`, all others 95 %. An arm without data has size 0, and what needs
    it comes out empty (all None).
    """
    n = next((arm.shape[-1] for arm in (*teachers, *students, *controls) if arm.size), 0)
    if n == 0:
        none = nothing()
        return Estimates(none, none, none, none, none, none, none, ("no common test task is scored in every arm",))
    draws = _Draws(n, seed)
    a, b = (None if arm.size == 0 else (float(arm.mean()), draws.mean(arm)) for arm in teachers)
    teacher_gap = nothing() if a is None or b is None else _interval(b[0] - a[0], b[1] - a[1], n)
    taught = [None if arm.size == 0 else (float(arm.mean()), draws.seeds_mean(arm)) for arm in students]
    amplification, notes = _amplification(teacher_gap, (a, b), (taught[0], taught[1]), n)
    return Estimates(
        teacher_gap=teacher_gap,
        student_a=_student(students[0], seed),
        student_b=_student(students[1], seed),
        student_gap=_between(students[1], students[0], draws, level),
        lift_a=_between(students[0], np.atleast_2d(controls[0]), draws),
        lift_b=_between(students[1], np.atleast_2d(controls[1]), draws),
        amplification=amplification,
        notes=(*_seed_notes(students), *notes),
        student_p=difference(students[1], students[0]).p if min(map(len, students)) > 1 else None,
    )


Drawn = tuple[float, Array] | None


def _student(arm: Array, seed: int) -> Interval:
    """Success of an arm's students. A single student's is what its evaluation says."""
    if arm.size == 0:
        return nothing()
    if len(arm) == 1:
        return success_interval([float(value) for value in arm[0]], seed)
    return mean(arm).interval()


def _between(arm: Array, base: Array, draws: _Draws, level: float = 0.05) -> Interval:
    """`arm` minus `base`, seed-aware where either has seeds to tell from."""
    if arm.size == 0 or base.size == 0:
        return nothing()
    if len(arm) == len(base) == 1:
        change = arm[0] - base[0]
        return _interval(float(change.mean()), draws.mean(change), len(change))
    return difference(arm, base).interval(1 - level)


def _interval(point: float, draws: Array, n: int, span: Span = DIFFERENCE) -> Interval:
    if _still(draws):
        return alike_interval(point, n, span)
    low, high = np.clip(np.percentile(draws, [2.5, 97.5]), *span)
    return Interval(point=point, low=float(low), high=float(high), n=n, method="paired bootstrap over tasks")


def _still(draws: Array) -> bool:
    """Whether every draw is the same: the tasks were all alike, and resampling them shows no spread."""
    return bool(np.ptp(draws) < 1e-9)


def _amplification(
    teacher_gap: Interval, teachers: tuple[Drawn, Drawn], students: tuple[Drawn, Drawn], n: int
) -> tuple[Interval, list[str]]:
    (a, b), (student_a, student_b) = teachers, students
    if a is None or b is None or student_a is None or student_b is None:
        return nothing(), []
    low, high = teacher_gap.low or 0.0, teacher_gap.high or 0.0
    if low <= 0 <= high:
        note = "no amplification: the teacher gap's interval touches 0, so a ratio to it would mean nothing"
        return nothing("teacher gap touches 0"), [note]
    point, student_draws = (student_b[0] - student_a[0]) / (b[0] - a[0]), student_b[1] - student_a[1]
    if _still(student_draws) or _still(b[1] - a[1]):
        method = "a gap is alike on all tasks: no interval"
        return Interval(point=point, low=None, high=None, n=n, method=method), []
    ratios = student_draws / np.where(b[1] == a[1], np.nan, b[1] - a[1])
    ends = np.nanpercentile(ratios, [2.5, 97.5])
    return (
        Interval(
            point=point, low=float(ends[0]), high=float(ends[1]), n=n, method="bootstrap of student gap / teacher gap"
        ),
        [],
    )


def _seed_notes(students: tuple[Array, Array]) -> list[str]:
    counts = [len(arm) for arm in students]
    if 0 in counts:
        return [f"students per arm: {counts[0]} and {counts[1]}: no student gap yet"]
    if 1 in counts:
        return [f"{min(counts)} seed per arm: the interval leaves out training noise"]
    return []


# --- from a run's records --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The part of a run that a look of the sequential rule takes: `seeds` and `tasks`, judged at `level`."""

    look: int
    seeds: tuple[int, ...]
    tasks: frozenset[str]
    level: float


def gap(store: Store, a: str, b: str, part: Part | None = None, equal: Equal | None = None) -> Gap:
    """The gap of two harness ids on the test split, from what the run holds, or from a part of it.

    Only tasks that every arm has scored count (same versions), and only students of one recipe and teacher, of the
    variant `equal` where one is named. The teacher is the one of the distillations, or the only model that is no
    student's and played both. A harness against itself is an A/A arm: its students are dealt to both sides by turns.
    Raises UsageError when the arms can't be compared.
    """
    cards, students = cards_on_test(store), _students(store, (a, b), equal)
    if part is not None:
        cards = [card for card in cards if card.key.task_id in part.tasks]
        students = [d for d in students if d.seed in part.seeds]
    made = _newest(students, {a, b})
    teacher, base = _models(cards, made, (a, b))
    sides = [_side(cards, mine, h, teacher, base) for h, mine in zip((a, b), _dealt(made, a, b), strict=True)]
    tasks = _common_tasks([arm for s in sides for arm in (s.teacher, s.control, *s.students.values()) if arm])
    require_one_version([c for c in cards if c.key.harness_id in (a, b) and c.key.task_id in tasks])
    level = 0.05 if part is None else part.level
    found = estimate(
        (_row(sides[0].teacher, tasks), _row(sides[1].teacher, tasks)),
        (_rows(sides[0].students, tasks), _rows(sides[1].students, tasks)),
        (_row(sides[0].control, tasks), _row(sides[1].control, tasks)),
        store.config.seed,
        level,
    )
    seeds = sorted({seed for side in sides for seed in side.students})
    name = f"{a}|{b}|{teacher}|{base}|{seeds}|{tasks}|{[d.id for d in made]}"
    name += "" if part is None else f"|look {part.look} at {part.level}"
    name += "" if equal is None else f"|equal {equal}"
    left_out = [*_coverage(cards, tasks, (a, b)), *_overlength(_dealt(made, a, b))]
    lone = [
        [success_interval(list(_row(arm, tasks)), store.config.seed) for arm in (side.teacher, side.control)]
        for side in sides
    ]
    return Gap(
        id=f"gap-{hashlib.sha256(name.encode()).hexdigest()[:16]}",
        harness_a=a,
        harness_b=b,
        teacher_a=lone[0][0],
        teacher_b=lone[1][0],
        teacher_gap=found.teacher_gap,
        student_a=found.student_a,
        student_b=found.student_b,
        student_gap=found.student_gap,
        control_a=lone[0][1],
        control_b=lone[1][1],
        lift_a=found.lift_a,
        lift_b=found.lift_b,
        amplification=found.amplification,
        n_tasks=len(tasks),
        student_seeds=tuple(seeds),
        student_p=found.student_p,
        level=level,
        look=None if part is None else part.look,
        equal=equal,
        mcnemar=_seed_tests(sides, tasks),
        notes=(*found.notes, *_other_recipes(len(students) - len(made)), *left_out),
        at=time.time(),
    )


def _dealt(made: Sequence[Distillation], a: str, b: str) -> tuple[list[Distillation], list[Distillation]]:
    """The students of both sides; those of one harness are dealt by turns, in the order of their seeds."""
    if a != b:
        return [d for d in made if d.teacher_harness == a], [d for d in made if d.teacher_harness == b]
    ordered = sorted(made, key=lambda d: d.seed)
    return ordered[::2], ordered[1::2]


def _seed_tests(sides: Sequence[Side], tasks: Sequence[str]) -> tuple[SeedTest, ...]:
    tests = []
    for seed in sorted(sides[0].students.keys() & sides[1].students.keys()):
        a, b = (_row(side.students[seed], tasks) for side in sides)
        only_b, only_a = int((b > a).sum()), int((a > b).sum())
        tests.append(SeedTest(seed=seed, only_b=only_b, only_a=only_a, p=mcnemar_p(only_b, only_a)))
    return tuple(tests)


def cards_on_test(store: Store) -> list[Scorecard]:
    """The last card of every attempt on the test split."""
    return [c for c in final_cards(store.all(Scorecard)) if c.key.split == "test" and c.key.purpose == "test"]


def of_one_recipe(
    store: Store, pair: tuple[str, str], equal: Equal | None = None, teacher: str | None = None
) -> list[Distillation]:
    """The students of both harnesses that may be compared: of one recipe and teacher, and of the variant and the
    teacher that are named."""
    found = _students(store, pair, equal)
    return _newest([d for d in found if teacher in (None, d.teacher_model)], set(pair))


def _students(store: Store, pair: tuple[str, str], equal: Equal | None) -> list[Distillation]:
    return [d for d in store.all(Distillation) if d.teacher_harness in pair and equal in (None, d.equal)]


def _newest(made: Sequence[Distillation], pair: set[str]) -> list[Distillation]:
    """The students of the newest recipe and teacher that both harnesses had, else of the newest ones."""
    kinds = [(d.recipe, d.teacher_model) for d in reversed(made)]
    shared = (k for k in kinds if {d.teacher_harness for d in made if (d.recipe, d.teacher_model) == k} == pair)
    chosen = next(shared, kinds[0] if kinds else None)
    return [d for d in made if (d.recipe, d.teacher_model) == chosen]


def _other_recipes(students: int) -> list[str]:
    said = f"students of another recipe or teacher are left out: {students} (`evolver distil` makes one anew)"
    return [said] if students else []


def _models(cards: Sequence[Scorecard], made: Sequence[Distillation], pair: tuple[str, str]) -> tuple[str, str | None]:
    """(teacher's model id, untrained base's model id or None)."""
    teachers, bases = {d.teacher_model for d in made}, {d.base_model for d in made}
    if len(teachers) > 1 or len(bases) > 1:
        raise UsageError(
            f"the students are of teachers {sorted(teachers)} and bases {sorted(bases)}: "
            "a gap needs one teacher and one base model"
        )
    if made:
        return made[0].teacher_model, made[0].base_model
    played = [{c.key.model_id for c in cards if c.key.harness_id == h} for h in pair]
    both = sorted(played[0] & played[1])
    if len(both) != 1:
        raise UsageError(
            f"no teacher to compare {pair[0][:12]} and {pair[1][:12]} with: models on the test split under both: "
            f"{', '.join(both) or 'none'}; run `evolver distil` for both harnesses first"
        )
    return both[0], None


def _side(
    cards: Sequence[Scorecard], made: Sequence[Distillation], harness: str, teacher: str, base: str | None
) -> Side:
    def means(model_id: str) -> Means:
        return per_task(cards_of(cards, harness, "test", model_id), success_value)

    students = {d.seed: means(d.student_model) for d in made}
    return Side(
        teacher=means(teacher),
        students={seed: found for seed, found in sorted(students.items()) if found},
        control=means(base) if base else {},
    )


def _common_tasks(arms: Sequence[Means]) -> list[str]:
    return sorted(set.intersection(*(set(arm) for arm in arms))) if arms else []


def _coverage(cards: Sequence[Scorecard], tasks: Sequence[str], pair: tuple[str, str]) -> list[str]:
    asked = {card.key.task_id for card in cards if card.key.harness_id in pair}
    lost = len(asked) - len(tasks)
    return [f"{lost} of {len(asked)} test tasks are left out: not scored in every arm"] if lost else []


def _overlength(sides: Sequence[Sequence[Distillation]]) -> list[str]:
    """What was too long to learn, arm by arm: a harness with longer turns loses more of its data."""
    if not any("overlength" in reason for side in sides for d in side for reason in d.dropped):
        return []
    said = []
    for name, side in zip("AB", sides, strict=True):
        lost = [sum(n for reason, n in d.dropped.items() if "overlength" in reason) for d in side]
        said.append(f"{sum(lost)} beside {sum(d.rows for d in side)} rows under {name}")
    return [f"left out of training as too long: {', '.join(said)}"]


def _row(arm: Means, tasks: Sequence[str]) -> Array:
    return np.array([arm[task] for task in tasks] if arm else [], dtype=float)


def _rows(arms: Mapping[int, Means], tasks: Sequence[str]) -> Array:
    if not arms or not tasks:
        return np.zeros((0, len(tasks)))
    return np.array([[arm[task] for task in tasks] for arm in arms.values()], dtype=float)
