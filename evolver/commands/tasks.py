"""Commands about the shared tasks: list, show, admit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from devset.task import SPLITS, Split
from evolver.commands.talk import AsJson, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from devset.task import Task

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The shared tasks. Example: evolver tasks list --split dev"
)
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many.")]


@app.command("list")
def list_tasks(
    split: Annotated[Split | None, typer.Option(help="One split; all if absent.")] = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Lists tasks by split.

    \b
    Example:
      evolver tasks list --split dev --limit 10
    """
    from devset.splits import load_split

    tasks = [task for name in ([split] if split else SPLITS) for task in load_split(name, limit)]
    if as_json:
        show_json({"tasks": [_row(task) for task in tasks]})
        return
    rows = [(t.id, t.split or "none", ", ".join(t.apps), "+".join(sorted(t.channels)), t.instruction) for t in tasks]
    show_table(f"{len(rows):,} tasks", ("task", "split", "apps", "channels", "instruction"), rows)


@app.command()
def show(task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id.")], as_json: AsJson = False) -> None:
    """Shows one task: what is asked, how it is graded, who can solve it.

    \b
    Example:
      evolver tasks show files.rename-0003
    """
    found = find(task)
    if as_json:
        show_json(_row(found))
        return
    criteria = [(c.id, f"{c.weight:g}", "required" if c.required else "", c.description) for c in found.rubric.criteria]
    typer.echo(f"{found.id} ({found.split or 'in no split'}; {found.category}; {', '.join(found.apps)})")
    typer.echo(f"\n{found.instruction}\n")
    typer.echo(f"solvable through: {', '.join(sorted(found.channels)) or 'nothing'}; sha256 {found.hash}")
    show_table("rubric", ("criterion", "weight", "", "description"), criteria)


@app.command()
def admit(
    task: Annotated[list[str] | None, typer.Argument(metavar="[TASK]...", help="Task ids; all if absent.")] = None,
    split: Annotated[Split | None, typer.Option(help="Only this split.")] = None,
    limit: Limit = None,
    backend: Annotated[Literal["auto", "docker", "local"], typer.Option(help="Where they are run.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="So many at once.")] = 2,
    log: Annotated[Path, typer.Option(help="Verdicts are appended here.")] = Path("runs/admissions.jsonl"),
) -> None:
    """Lets tasks in only if doing nothing scores 0, each oracle scores 1, and the checker agrees with itself.

    \b
    Examples:
      evolver tasks admit files.rename-0003
      evolver tasks admit --split dev --limit 10
    """
    from devset.splits import load_split

    if task:
        chosen = [find(one) for one in task]
    else:
        chosen = [one for name in ([split] if split else SPLITS) for one in load_split(name, limit)]
    refused = asyncio.run(_admit(chosen, backend, workers, log))
    say(f"{len(chosen) - refused:,} of {len(chosen):,} admitted; verdicts: {log}")
    if refused:
        raise typer.Exit(1)


async def _admit(chosen: list[Task], backend: Literal["auto", "docker", "local"], workers: int, log: Path) -> int:
    """Prints a verdict per task as it falls and returns how many were refused."""
    from evolver.admission import Bench
    from evolver.admission import admit as admitting
    from evolver.executors.local import LocalExecutor
    from evolver.graders.program import ProgramGrader
    from evolver.models.demonstrator import Demonstrator
    from evolver.sandboxes import open_backend
    from harnesses.tree import read_tree, seed_path

    sandboxes = open_backend(backend, spares=1)
    grader = ProgramGrader(sandboxes)
    bench = Bench(
        sandboxes=sandboxes,
        graders=[grader],
        executor=LocalExecutor(workers),
        demonstrator=Demonstrator(slip_rate=0.0),
        gui=read_tree(seed_path("alpha")),
        terminal=read_tree(seed_path("beta1")),
    )
    refused = 0
    try:
        async for verdict in admitting(chosen, bench, log):
            refused += not verdict.admitted
            said = "admitted" if verdict.admitted else f"REFUSED: {'; '.join(verdict.reasons)}"
            typer.echo(f"{verdict.task_id}  {verdict.seconds:.1f} s  {said}")
    finally:
        await grader.aclose()
        await sandboxes.aclose()
    return refused


def find(task_id: str) -> Task:
    """Raises `UsageError` for an unknown id, with the ids nearest to it."""
    import difflib

    from devset.splits import UnknownTask, find_task, load_split

    try:
        return find_task(task_id)
    except UnknownTask as error:
        known = [task.id for split in SPLITS for task in load_split(split)]
        close = difflib.get_close_matches(task_id, known, n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else "; see `evolver tasks list`"
        raise UsageError(f"{error}{hint}") from None


def _row(task: Task) -> dict[str, object]:
    return {
        "id": task.id,
        "hash": task.hash,
        "family": task.family,
        "split": task.split,
        "seen_in_training": task.seen_in_training,
        "category": task.category,
        "apps": list(task.apps),
        "channels": sorted(task.channels),
        "instruction": task.instruction,
        "criteria": [c.model_dump(mode="json") for c in task.rubric.criteria],
    }
