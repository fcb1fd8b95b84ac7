"""`evolver gap`: the gap of two harnesses of a run, a whole experiment of gaps, and what size of it can find one."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from evolver.commands.experiment import Backend, Fresh, changed, drive, record_end, start
from evolver.commands.talk import AsJson, HarnessA, HarnessB, RunDir, data_console, say, show_json
from evolver.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from devset.task import Task
    from evolver.config import RunConfig
    from evolver.gap_plan import RecipeFacts
    from evolver.lab import Lab
    from evolver.power import Noise, Size
    from evolver.records import Equal, Gap
    from evolver.store import Store
    from evolver.tables import Table

MEASURE = "measure"
SEEDS = (2, 3, 5, 8, 10)


class Measuring(TyperGroup):
    """`evolver gap RUN A B` measures; the other commands are called by their names."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = [MEASURE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Measuring,
    no_args_is_help=True,
    help="Teacher and student gap of two harnesses, and how large an experiment it needs (example: gap RUN A B).",
)


@app.command()
def measure(run: RunDir, a: HarnessA, b: HarnessB, as_json: AsJson = False) -> None:
    """Teacher gap and student gap of two harnesses, B minus A, of each variant. What is missing for it is run first.

    \b
    Example:
      evolver gap runs/demo beta1 beta2
    """
    from evolver.commands.harness import resolved
    from evolver.gap_tables import gap_table
    from evolver.report import harness_names
    from evolver.store import Store
    from evolver.tables import print_tables
    from harnesses.library import Library

    store = Store.open(run)
    library = Library(run / "library")
    pair = resolved(library, a), resolved(library, b)
    library.close()
    found = _measured(store, *pair)
    if not found:
        say("not all of it is measured yet: running what is missing")
        code = drive(store, lambda lab: _measure(lab, *pair))
        if code:
            raise typer.Exit(code)
        found = _measured(store, *pair, whole=False)
    if not found:
        raise UsageError(f"{run} has no students to compare under {a} and {b}; see what the distillation said above")
    if as_json:
        bodies = [one.model_dump(mode="json") for one in found]
        show_json(bodies[0] if len(bodies) == 1 else {"gaps": bodies})
    else:
        names = harness_names(store)
        print_tables([gap_table(one, names) for one in found], data_console())


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file of settings, with [gap] pairs.")],
    out: Annotated[Path, typer.Option(help="The run directory.")],
    backend: Backend = None,
    fresh: Fresh = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it takes; nothing is played.")] = False,
) -> None:
    """Measures all gaps of a config: teachers, students and controls, and no search. The same command resumes it.

    \b
    Each look of the sequential rule ([gap] looks) says beforehand what it takes. Variants ([gap] equal), crossed play
    ([gap] crossed), pairs of a harness with itself (A/A) and the annotator ([distil.annotator]): docs/gap.md.

    \b
    Examples:
      evolver gap run docs/experiments/gap.toml --out runs/gap --dry-run
      evolver gap run docs/experiments/gap.toml --out runs/gap
    """
    from evolver.config import load_config
    from evolver.gap_plan import recipe_facts

    wanted = changed(load_config(config), None, backend)
    if not wanted.gap.pairs:
        raise UsageError(f'{config}: nothing to measure: [gap] pairs = [["beta1", "beta2"]] names two harnesses')
    facts = recipe_facts(wanted.distil.recipe)
    if dry_run:
        _show_plan(wanted, out, facts)
    else:
        start(wanted, out, fresh, partial(_experiment, facts=facts))


def _show_plan(config: RunConfig, out: Path, facts: RecipeFacts) -> None:
    """What the experiment still takes, planned in a copy: a run is neither begun nor written to."""
    from evolver.store import Store

    with tempfile.TemporaryDirectory() as nowhere:
        copy = Path(nowhere) / "run"
        if (out / "run.json").is_file():
            _copy_records(out, copy)
        try:
            _plan_tables(Store.create(copy, config), facts, data_console())
        except UsageError as error:
            raise UsageError(str(error).replace(str(copy), str(out))) from None


def _copy_records(run: Path, copy: Path) -> None:
    """What a plan reads of a run: all records, the largest log by a link, and the library."""
    copy.mkdir()
    shutil.copy(run / "run.json", copy)
    for log in run.glob("*.jsonl"):
        if log.name == "rollouts.jsonl":
            (copy / log.name).symlink_to(log.resolve())
        else:
            shutil.copy(log, copy)
    if (run / "library").is_dir():
        shutil.copytree(run / "library", copy / "library")


def _plan_tables(store: Store, facts: RecipeFacts, console: Console) -> tuple[list[tuple[str, str]], list[Task]]:
    """Prints what the looks take; returns pairs of harness ids and the test tasks."""
    from evolver.authors.human import enter
    from evolver.gap_plan import plan, plan_table
    from evolver.ground import tasks_of
    from evolver.students import measures
    from evolver.tables import print_tables
    from harnesses.library import Library

    library = Library(store.path / "library")
    pairs = [(enter(library, a), enter(library, b)) for a, b in store.config.gap.pairs]
    library.close()
    tasks = tasks_of(store, "test", store.config.tasks.test, "gap")
    looks = list(measures(store.config, pairs, tasks))
    first, every = [of_pair[0] for of_pair in looks], [one for of_pair in looks for one in of_pair]
    tables = [plan_table(plan(store, first, facts), "What the first look takes")]
    if len(every) > len(first):
        tables.append(plan_table(plan(store, every, facts), "What all looks take, if no gap is found before"))
    print_tables(tables, console)
    return pairs, tasks


async def _experiment(lab: Lab, facts: RecipeFacts) -> int:
    """Says what it takes, then does it; 4 when a cap was reached, which loses nothing."""
    from evolver.calibrate import require_fit_judge
    from evolver.errors import BudgetSpent
    from evolver.observers.console import talk_console
    from evolver.students import distil_in_child, measure_gaps, once_each

    pairs, tasks = _plan_tables(lab.store, facts, talk_console())
    require_fit_judge(lab, tasks)
    try:
        await measure_gaps(lab, pairs, tasks, once_each(distil_in_child))
    except BudgetSpent as error:
        record_end(lab.store, "budget", str(error))
        say(f"evolver: {error}")
        return 4
    record_end(lab.store, "done", f"{len(pairs)} pairs measured")
    return 0


@app.command()
def plan(
    effect: Annotated[float, typer.Option(help="The gap to be found, in points of success.")] = 12.5,
    seeds: Annotated[int, typer.Option("-k", "--seeds", min=1, help="Students an arm.")] = 5,
    tasks: Annotated[int, typer.Option("-n", "--tasks", min=2, help="Test tasks.")] = 200,
    task_noise: Annotated[
        float, typer.Option(min=0, max=50, help="Standard deviation of the gap from task to task, in points.")
    ] = 20.0,
    seed_noise: Annotated[
        float, typer.Option(min=0, max=50, help="The same, of a student's success over training seeds.")
    ] = 4.0,
    as_json: AsJson = False,
) -> None:
    """Chance to find a gap with so many students and tasks, the least one found, and what 80 % would take.

    \b
    Example:
      evolver gap plan --effect 12.5 --seeds 5 --tasks 200 --seed-noise 4
    """
    from evolver.power import Noise, Size
    from evolver.tables import print_tables, to_rows

    if not 0 < abs(effect) < 100:
        raise UsageError(f"--effect is a gap in points, above 0 and below 100, got {effect:g}")
    noise = Noise(task=task_noise / 100, seed=seed_noise / 100)
    tables = plan_tables(abs(effect) / 100, noise, Size(seeds, tasks))
    if as_json:
        show_json({table.title: to_rows(table) for table in tables})
    else:
        print_tables(tables, data_console())


def plan_tables(effect: float, noise: Noise, size: Size) -> list[Table]:
    """What this size finds, what the wanted effect takes, and what the sequential rule (3 x 100, then 5 x 200) does."""
    from evolver.power import Size, least_gap, levels, power, power_of_looks, tasks_needed
    from evolver.tables import Table

    points = f"{100 * effect:g}"
    rule = (Size(3, 100), Size(5, 200))
    allowed, found = levels(rule, noise), power_of_looks(effect, noise, rule)
    caption = (
        f"Success {100 * noise.base:g} % on average, differing by {100 * noise.spread:g} points from task to task; the "
        f"gap by {100 * noise.task:g} points from task to task, training by {100 * noise.seed:g} points from seed to "
        "seed. Two-sided at 5 %."
    )
    one_seed = "One seed an arm: training noise can't be told from a gap; the figure is for a test that ignores it."
    here = Table(
        "What this size finds",
        ("seeds an arm", "tasks", f"power at {points} points", "least gap found with 80 %"),
        (
            (str(size.seeds), str(size.tasks), f"{power(effect, noise, size):.2f}",
             f"{100 * least_gap(noise, size):.1f} points"),
        ),
        caption,
        notes=(one_seed,) if size.seeds == 1 else (),
    )  # fmt: skip
    wanted = Table(
        f"Tasks that find {points} points with 80 %",
        ("seeds an arm", "tasks"),
        tuple((str(k), _needed(tasks_needed(effect, noise, k))) for k in SEEDS),
    )
    looks = Table(
        "The sequential rule",
        ("look", "seeds an arm", "tasks", "two-sided level", "found by then"),
        tuple(
            (str(number + 1), str(look.seeds), str(look.tasks), f"{allowed[number]:.4f}", f"{found[number]:.2f}")
            for number, look in enumerate(rule)
        ),
    )
    return [here, wanted, looks]


def _needed(tasks: int | None) -> str:
    return "more than 5,000: training noise hides it" if tasks is None else str(tasks)


async def _measure(lab: Lab, a: str, b: str) -> int:
    from evolver.calibrate import require_fit_judge
    from evolver.ground import tasks_of
    from evolver.students import distil_in_child, measure_gaps, once_each

    tasks = tasks_of(lab.store, "test", lab.config.tasks.test, "gap")
    require_fit_judge(lab, tasks)
    await measure_gaps(lab, [(a, b)], tasks, once_each(distil_in_child))
    return 0


def _measured(store: Store, a: str, b: str, *, whole: bool = True) -> list[Gap]:
    """The gap of each variant; none while one of them is not measured, or (`whole`) not with all students and tasks."""
    if whole and not store.config.gap.looks and _is_missing(store, a, b):
        return []
    found = [_measured_variant(store, a, b, equal) for equal in store.config.gap.equal or (None,)]
    return [one for one in found if one is not None] if None not in found else []


def _is_missing(store: Store, a: str, b: str) -> bool:
    """Whether a student is missing, or test tasks of one. These are compared with, not shown: that opens no split."""
    from evolver.ground import with_imported
    from evolver.opening import own_tasks
    from evolver.students import measures, missing

    config = store.config
    try:
        tasks = with_imported(store, "test", own_tasks(config, "test", config.tasks.test))
    except UsageError as error:
        say(f"shown as it is on record; whether all of it is measured can't be told: {error}")
        return False
    wanted = [one for looks in measures(config, [(a, b)], tasks) for one in looks]
    return any(missing(store, config.teacher_id, one.orders, tasks, one.pair) for one in wanted)


def _measured_variant(store: Store, a: str, b: str, equal: Equal | None) -> Gap | None:
    """The gap as the records have it now, kept as a record; None while an arm is missing.

    Under a sequential rule it is the pair's last look, and None while that asks for another.
    """
    from evolver.gap import gap as gap_of
    from evolver.records import Gap

    looks = store.config.gap.looks
    if looks:
        mine = [g for g in store.all(Gap) if (g.harness_a, g.harness_b, g.equal) == (a, b, equal)]
        last = next((g for g in reversed(mine) if g.look is not None), None)
        return last if last is not None and (last.found or last.look == len(looks) - 1) else None
    try:
        found = gap_of(store, a, b, equal=equal)
    except UsageError:  # no teacher has played both yet
        return None
    if found.student_gap.point is None or found.teacher_gap.point is None:
        return None
    known = store.get(Gap, found.id)
    if known is None:
        store.append(found)
    return known or found
