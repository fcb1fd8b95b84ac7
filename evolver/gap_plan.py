"""What a gap experiment takes before it is begun: rollouts, students and time, done and to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points

from evolver.errors import NotReady
from evolver.population import final_cards
from evolver.records import Distillation, Equal, Rollout, Scorecard
from evolver.store import Store
from evolver.students import Measure, Order
from evolver.tables import Table

RECIPES = "evolver.recipes"
FEWEST = 20  # rollouts of a kind before their own time is taken for the rest


@dataclass(frozen=True)
class RecipeFacts:
    """What a plan must know of a recipe; the package that trains says it."""

    n_rollouts: int
    epochs: int
    concurrency: int


@dataclass(frozen=True)
class Rates:
    """Seconds of wall time: of a rollout of the teacher, of a rollout of a student (many at once), and of training on
    one rollout for an epoch. As measured on two cores with sandboxes of the local back end (docs/gap.md)."""

    teacher_s: float = 1.3
    student_s: float = 2.5
    train_s: float = 0.4


@dataclass(frozen=True)
class Work:
    """One kind of work: how much of it there is, how much is done, and the seconds of wall time that one takes."""

    what: str
    total: int
    done: int
    seconds_each: float

    @property
    def left(self) -> int:
        return self.total - self.done

    @property
    def seconds(self) -> float:
        return self.left * self.seconds_each


def recipe_facts(name: str) -> RecipeFacts:
    """Asks the training package, by an entry point. Raises NotReady where it is not installed."""
    for plug_in in entry_points(group=RECIPES, name="facts"):
        try:
            ask: Callable[[str], Mapping[str, int]] = plug_in.load()
        except ImportError as error:
            raise NotReady(f"students need {error.name}: pip install -e '.[train]'") from error
        return RecipeFacts(**ask(name))
    raise NotReady("students need the package's entry points: pip install -e '.[train]'")


def plan(store: Store, wanted: Sequence[Measure], facts: RecipeFacts, rates: Rates | None = None) -> list[Work]:
    """The work of these gaps; what they share is counted once, and what the run has is done.

    Train rollouts are the fewest: a recipe that wants accepted ones plays on until it has them. Times are the run's own
    where it has some.
    """
    rates = _measured(store, facts, rates or Rates())
    done = _Done(store)
    tested = {(h, task.id) for one in wanted for h in one.pair for task in one.tasks}
    trained = {(order.harness_id, n) for one in wanted for order in one.orders for n in range(facts.n_rollouts)}
    students = {_student(order) for one in wanted for order in one.orders}
    played = {place for one in wanted for order in one.orders for place in _places(order, one)}
    each = rates.train_s * facts.n_rollouts * facts.epochs
    return [
        Work("teacher's train rollouts", len(trained), len(trained & done.trained), rates.teacher_s),
        Work("teacher's test rollouts", len(tested), len(tested & done.taught), rates.teacher_s),
        Work("students trained", len(students), len(students & done.students.keys()), each),
        Work("students' test rollouts", len(played), len(played & done.played), rates.student_s),
        Work("untrained controls' test rollouts", len(tested), len(tested & done.controls), rates.student_s),
    ]


Student = tuple[str, int, Equal | None]  # harness, seed, variant
Place = tuple[Student, str, str]  # a student under a harness on a task


def _student(order: Order) -> Student:
    return order.harness_id, order.seed, order.equal


def _places(order: Order, one: Measure) -> set[Place]:
    """What a student plays: the gap's tasks under its own harness, the first of them under the others."""
    here, crossed = one.tasks[: order.test_tasks], one.tasks[: order.under_tasks]
    own = {(_student(order), order.harness_id, task.id) for task in here}
    return own | {(_student(order), other, task.id) for other in order.under for task in crossed}


class _Done:
    """What a run holds already, in the terms of a plan."""

    def __init__(self, store: Store) -> None:
        cards = [card.key for card in final_cards(store.all(Scorecard))]
        made = store.all(Distillation)
        bases = {d.base_model for d in made}
        test = [key for key in cards if key.purpose == "test"]
        train = [key.harness_id for key in cards if (key.purpose, key.model_id) == ("train", store.config.teacher_id)]
        self.trained = {(h, n) for h in set(train) for n in range(train.count(h))}
        self.taught = {(key.harness_id, key.task_id) for key in test if key.model_id == store.config.teacher_id}
        self.controls = {(key.harness_id, key.task_id) for key in test if key.model_id in bases}
        # A student stands for its variant, and for "whatever the recipe says".
        self.students: dict[Student, str] = {}
        for d in made:
            for equal in (d.equal, None):
                self.students[d.teacher_harness, d.seed, equal] = d.student_model
        models: dict[str, list[Student]] = {}
        for student, model in self.students.items():
            models.setdefault(model, []).append(student)
        self.played = {(one, k.harness_id, k.task_id) for k in test for one in models.get(k.model_id, ())}


def _measured(store: Store, facts: RecipeFacts, rates: Rates) -> Rates:
    """`rates`, with the run's own times in place of what it has seen enough of."""
    teacher: list[float] = []
    student: list[float] = []
    for rollout in store.all(Rollout):
        if rollout.error is None and rollout.key.purpose in ("train", "test"):
            own = teacher if rollout.key.model_id == store.config.teacher_id else student
            own.append(rollout.finished_at - rollout.started_at)
    trained = [d.train_s for d in store.all(Distillation)]
    if len(teacher) >= FEWEST:
        rates = replace(rates, teacher_s=sum(teacher) / len(teacher) / store.config.sandbox.workers)
    if len(student) >= FEWEST:
        rates = replace(rates, student_s=sum(student) / len(student) / facts.concurrency)
    if trained:
        rates = replace(rates, train_s=sum(trained) / len(trained) / facts.n_rollouts / facts.epochs)
    return rates


def plan_table(works: Sequence[Work], title: str) -> Table:
    """How much of each kind of work there is, and the time that what is left takes."""
    rows = tuple(
        (work.what, f"{work.total:,}", f"{work.done:,}", f"{work.left:,}", clock(work.seconds)) for work in works
    )
    total = ("together", "", "", "", clock(sum(work.seconds for work in works)))
    return Table(
        title,
        ("", "all", "done", "left", "time"),
        (*rows, total),
        "Time: on the wall, by what this run has measured, else as on two idle cores with local sandboxes.",
        frozenset({"all", "done", "left", "time"}),
    )


def clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
