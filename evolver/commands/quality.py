"""The command that measures how good the checkers of our own tasks are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from devset.task import Split
from evolver.commands.admission import Backend, Progress, opened_bench
from evolver.commands.stopping import finished
from evolver.commands.talk import AsJson, say, show_json, show_table
from evolver.commands.tasks import ADMISSION, RUNS, Limit, splits_of
from evolver.errors import UsageError

if TYPE_CHECKING:
    from devset.task import Task
    from evolver.quality import Quality, Trial

LOG = RUNS / "quality.jsonl"


def quality(
    split: Annotated[Split | None, typer.Option(help="Tasks of this split; dev if absent.")] = None,
    family: Annotated[str | None, typer.Option(help="Instances of this family (3, or --limit) instead.")] = None,
    limit: Limit = None,
    backend: Annotated[Backend, typer.Option(help="Where they are run.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="So many at once.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Measures checkers in real sandboxes: wrong solutions must fail, equivalent ones pass, words alone not be enough.

    What was tried is kept in runs/quality.jsonl and not tried again. Exit code 1: a checker was wrong about one of
    them, or one could not be scored.

    \b
    Examples:
      evolver tasks quality --split dev
      evolver tasks quality --family files.rename --limit 1 --backend local
    """
    from evolver.quality import quality_of

    if split and family:
        raise UsageError("--split and --family choose tasks in two ways: leave out one of them")
    if family is not None:
        tasks = _instances(family, limit or 3)
    else:
        chosen: Split = split or "dev"
        tasks = splits_of([chosen], limit, ADMISSION, RUNS)
    trials = finished(_measure(tasks, backend, workers))
    figures, faults = quality_of(trials), [trial for trial in trials if trial.wrong or trial.success is None]
    if as_json:
        found = [fault.model_dump(mode="json") for fault in faults]
        show_json({"figures": [one.model_dump(mode="json") for one in figures], "faults": found})
    else:
        _print(figures, faults)
    say(f"{len(trials):,} tries on {len(tasks):,} tasks, {len(faults):,} of them at fault; kept in {LOG}")
    if faults:
        raise typer.Exit(1)


def _instances(name: str, count: int) -> list[Task]:
    from devset.families import families

    known = families()
    if name not in known:
        raise UsageError(f"--family {name}: unknown; known are {', '.join(known)}")
    return [known[name].instance(seed) for seed in range(count)]


async def _measure(tasks: list[Task], backend: Backend, workers: int) -> list[Trial]:
    from evolver.quality import measure, tries_of

    trials: list[Trial] = []
    total = sum(len(tries_of(task)) for task in tasks)
    async with opened_bench(backend, workers) as bench:
        with Progress("tries", total) as progress:
            async for trial in measure(tasks, bench, LOG):
                trials.append(trial)
                progress.step(right=not trial.wrong)
    return trials


def _print(figures: list[Quality], faults: list[Trial]) -> None:
    from evolver.phrasing import percent

    columns = ("category", "tasks", "wrong solutions killed", "n", "mutants", "n", "generic", "n", "equivalents pass",
               "n", "instruction-only solves", "unscored")  # fmt: skip
    rows = [
        (q.category, f"{q.tasks:,}", percent(q.killed), f"{q.killed.n:,}", percent(q.own), f"{q.own.n:,}",
         percent(q.generic), f"{q.generic.n:,}", percent(q.accepted), f"{q.accepted.n:,}", percent(q.blind),
         f"{q.unscored:,}")
        for q in figures
    ]  # fmt: skip
    show_table("checkers [95 %]", columns, rows)
    if faults:
        shown = [
            (t.task_id, t.kind, t.name, "unscored" if t.success is None else "passes" if t.success else "fails", t.why)
            for t in faults
        ]
        show_table("at fault", ("task", "kind", "try", "", "why"), shown)
