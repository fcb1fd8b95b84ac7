"""Has students distilled from frozen harnesses, each in a child process, and measures the gaps of given pairs."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from devset.task import Task
from evolver.config import RunConfig
from evolver.crossing import crossing
from evolver.errors import BudgetSpent, UsageError
from evolver.gap import Part, gap, of_one_recipe
from evolver.lab import Lab
from evolver.looks import GapConfig
from evolver.race import interleaved, record_evaluation
from evolver.records import Crossing, Equal, Gap, Scorecard
from evolver.store import Store

BUDGET_EXIT = 4
PR_SET_PDEATHSIG = 1
PATIENCE_S = 10.0
TELL_EVERY_S = 60.0
Pair = tuple[str, str]


@dataclass(frozen=True)
class Order:
    """A student that is wanted: of `seed`, from the teacher under a harness, measured on the first `test_tasks` of the
    run's (None: on all). `equal` names a variant (None: the recipe's own). It also plays the first `under_tasks` under
    each of the harnesses `under`."""

    harness_id: str
    seed: int
    test_tasks: int | None = None
    equal: Equal | None = None
    under: tuple[str, ...] = ()
    under_tasks: int = 0

    @property
    def options(self) -> list[str]:
        """The same, as options of `evolver distil`."""
        given = ["--seed", str(self.seed)]
        given += [] if self.test_tasks is None else ["--test-tasks", str(self.test_tasks)]
        given += [] if self.equal is None else ["--equal", self.equal]
        return given + [word for other in self.under for word in ("--test-tasks", f"{self.under_tasks}@{other}")]


Distil = Callable[[Path, Order], Awaitable[int]]  # (run directory, what is wanted) → exit code


def once_each(distil: Distil) -> Distil:
    """`distil`, but an order that failed keeps its exit code: only another process tries it again."""
    failed: dict[Order, int] = {}

    async def tried(run_dir: Path, order: Order) -> int:
        if order not in failed:
            code = await distil(run_dir, order)
            if code == 0:
                return 0
            failed[order] = code
        return failed[order]

    return tried


async def distil_in_child(run_dir: Path, order: Order) -> int:
    """Runs `evolver distil` and returns its exit code; its output passes through."""
    return await run_python("-m", "evolver", "distil", str(run_dir), order.harness_id, *order.options)


async def run_python(*arguments: str) -> int:
    """Runs Python in a child that dies with this process, however this process dies; returns its exit code. The child
    imports nothing from the folder that this one was started in (`-P`)."""
    libc = ctypes.CDLL(None)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", *arguments, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    try:
        return await child.wait()
    finally:
        if child.returncode is None:
            await _end(child)


async def _end(child: asyncio.subprocess.Process) -> None:
    child.terminate()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


def missing(
    store: Store, teacher: str, orders: Sequence[Order], tasks: Sequence[Task], pair: Pair | None = None
) -> list[Order]:
    """The orders whose student is not there, or has not played those of `tasks`, its own and under others, that it is
    to. Only students of this teacher count, and of the one recipe that a gap of the pair (or of the student's harness
    with itself) takes."""
    played = {(card.key.model_id, card.key.harness_id, card.key.task_id) for card in store.all(Scorecard)}

    def is_made(order: Order) -> bool:
        mine = order.harness_id
        found = of_one_recipe(store, pair or (mine, mine), order.equal, teacher)
        made = [d.student_model for d in found if (d.teacher_harness, d.seed) == (mine, order.seed)]
        own = {(mine, task.id) for task in tasks[: order.test_tasks]}
        wanted = own | {(other, task.id) for other in order.under for task in tasks[: order.under_tasks]}
        return bool(made) and {(made[-1], *place) for place in wanted} <= played

    return [order for order in orders if not is_made(order)]


async def ensure_students(
    lab: Lab, orders: Sequence[Order], distil: Distil, tasks: Sequence[Task] = (), pair: Pair | None = None
) -> None:
    """Distils what is missing of `orders`, whose test tasks are among `tasks` (none: it is enough that they are there),
    for the gap of `pair` if one is named.

    A failed child is reported and costs its lineage nothing; a resumed run tries again. Raises BudgetSpent when a child
    stopped at a cap.
    """
    asked: set[Order] = set()
    # Asked anew after each: a new student may leave one of another recipe, which counted until then, without company.
    while left := [o for o in missing(lab.store, lab.model.id, orders, tasks, pair) if o not in asked]:
        order, done = left[0], len(orders) - len(left)
        asked.add(order)
        named = f"{order.harness_id[:12]}, seed {order.seed}" + (f", equal {order.equal}" if order.equal else "")
        what = f"distil {named}"
        lab.tell(what, done, len(orders), {})
        child = distil(lab.store.path, order)
        code = await _told(child, partial(lab.tell, what, done, len(orders), {}))
        if code == BUDGET_EXIT:
            raise BudgetSpent(f"a cap was reached while distilling {named}: raise it, run it again")
        if code != 0:
            again = f"evolver distil {lab.store.path} {order.harness_id[:12]} {' '.join(order.options)}"
            lab.tell(f"{what} FAILED with exit code {code}; `{again}`", done, len(orders), {})


def orders_of(lab: Lab, harness_ids: Sequence[str]) -> list[Order]:
    """A student of every seed of the config from each harness, measured on all test tasks."""
    return [Order(h, seed) for h in dict.fromkeys(harness_ids) for seed in lab.config.distil.seeds]


async def _told(training: Awaitable[int], tell: Callable[[], None]) -> int:
    """Waits for a training, which leaves no record until it is done, and tells now and then that it goes on."""
    task = asyncio.ensure_future(training)
    try:
        while not (await asyncio.wait([task], timeout=TELL_EVERY_S))[0]:
            tell()
        return task.result()
    finally:
        task.cancel()


@dataclass(frozen=True)
class Measure:
    """One gap to be measured: a pair, a variant, and the look (None: without looks), with the students it takes."""

    pair: Pair
    equal: Equal | None
    part: Part | None
    orders: tuple[Order, ...]
    tasks: tuple[Task, ...]


def measures(config: RunConfig, pairs: Sequence[Pair], tasks: Sequence[Task]) -> Iterator[list[Measure]]:
    """The looks of each variant and pair, in their order; a list of one where the config has no looks."""
    rules, all_seeds = config.gap, config.distil.seeds
    for equal in _variants(rules):
        for pair in pairs:
            others = _others(config, pairs, equal)
            if not rules.looks:
                wanted = tuple(others(Order(h, seed, None, equal)) for h in dict.fromkeys(pair) for seed in all_seeds)
                yield [Measure(pair, equal, None, wanted, tuple(tasks))]
                continue
            looks = []
            for look, size in enumerate(rules.sizes):
                seeds = rules.seeds_of(pair, all_seeds, size)
                part = Part(look, seeds, frozenset(task.id for task in tasks[: size.tasks]), rules.level(look))
                wanted = tuple(others(Order(h, s, size.tasks, equal)) for h in dict.fromkeys(pair) for s in seeds)
                looks.append(Measure(pair, equal, part, wanted, tuple(tasks[: size.tasks])))
            yield looks


def _variants(rules: GapConfig) -> tuple[Equal | None, ...]:
    return rules.equal or (None,)


def _others(config: RunConfig, pairs: Sequence[Pair], equal: Equal | None) -> Callable[[Order], Order]:
    """Adds to an order the harnesses that its own is paired with, where the student is to play crossed: the first
    seeds of the first variant."""
    crossed = config.gap.crossed

    def with_others(order: Order) -> Order:
        mine = order.harness_id
        found = tuple(dict.fromkeys(h for pair in pairs if mine in pair for h in pair if h != mine))
        if crossed is None or not found or equal != _variants(config.gap)[0]:
            return order
        first = config.distil.seeds[: crossed.seeds]
        return replace(order, under=found, under_tasks=crossed.tasks) if order.seed in first else order

    return with_others


async def measure_gaps(lab: Lab, pairs: Sequence[Pair], tasks: Sequence[Task], distil: Distil) -> None:
    """One Gap record a pair and variant; with looks (`[gap] looks`), one a look until the gap is found or the looks are
    used up, and no pair goes on before all have had their look. With `gap.crossed`, one Crossing record a pair of two
    harnesses after each round of looks.

    Raises UsageError when there are fewer test tasks than the last look, or the crossed play, wants.
    """
    rules = lab.config.gap
    wants = [("gap.looks", size.tasks) for size in rules.sizes[-1:]]
    wants += [("gap.crossed", rules.crossed.tasks)] if rules.crossed else []
    for name, wanted in wants:
        if pairs and wanted > len(tasks):
            raise UsageError(f"{name} wants {wanted} test tasks, there are {len(tasks)}")
    open_ = list(measures(lab.config, pairs, tasks))
    for look in range(max(1, len(rules.looks))):
        open_ = [looks for looks in open_ if not (await _measured(lab, looks[look], tasks, distil)).found]
        _record_crossings(lab, pairs)


def _record_crossings(lab: Lab, pairs: Sequence[Pair]) -> None:
    rules = lab.config.gap
    for a, b in pairs:
        found = crossing(lab.store, a, b, _variants(rules)[0]) if rules.crossed and a != b else None
        if found is not None and lab.store.get(Crossing, found.id) is None:
            lab.record(found)


async def _measured(lab: Lab, wanted: Measure, tasks: Sequence[Task], distil: Distil) -> Gap:
    """Teachers on these test tasks side by side, their students where missing, then the record."""
    (a, b), part = wanted.pair, wanted.part
    arms = interleaved(dict.fromkeys(wanted.pair, range(1)), wanted.tasks, "test")
    await lab.score(arms, label=f"test {a[:12]} and {b[:12]}")
    for harness_id in dict.fromkeys(wanted.pair):
        record_evaluation(lab, harness_id, "test", wanted.tasks)
    await ensure_students(lab, wanted.orders, distil, tasks, wanted.pair)
    found = gap(lab.store, a, b, part, wanted.equal)
    if lab.store.get(Gap, found.id) is None:
        lab.record(found)
    return found
