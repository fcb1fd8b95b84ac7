"""The command that lets tasks in, and what it has in common with the one that measures their checkers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from devset.task import SPLITS, Split
from evolver.commands.stopping import finished
from evolver.commands.talk import say, show_table
from evolver.commands.tasks import ADMISSION, RUNS, Limit, find, is_task_dir, splits_of
from evolver.errors import UsageError

if TYPE_CHECKING:
    from devset.task import Task
    from evolver.admission import Admission, Bench

Backend = Literal["auto", "docker", "local"]
AT_ONCE_S = 0.05


def admit(
    task: Annotated[
        list[str] | None, typer.Argument(metavar="[TASK|DIR]...", help="Ids, or one directory of imported tasks.")
    ] = None,
    split: Annotated[Split | None, typer.Option(help="Only this split.")] = None,
    limit: Limit = None,
    backend: Annotated[Backend, typer.Option(help="Where they are run.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="So many at once.")] = 2,
    log: Annotated[Path | None, typer.Option(help="Verdicts; default runs/, or beside imported tasks.")] = None,
) -> None:
    """Lets tasks in only if doing nothing scores 0, each oracle scores 1, and the checker agrees with itself.

    Imported tasks need no oracle: without one they enter as unproven. Verdicts that the log has are not made again.
    Tasks of the sealed test split are let in only when they, or it, are named; that they were opened is kept in runs/.

    \b
    Examples:
      evolver tasks admit files.rename-0003
      evolver tasks admit --split dev --limit 10
      evolver tasks admit ../imported/officebench
    """
    from evolver.imports import VERDICTS, read_tasks

    if task and (split or limit) and not (len(task) == 1 and not split and Path(task[0]).is_dir()):
        raise UsageError("--split and --limit choose among all tasks, and some are named: leave out one of them")
    one = task[0] if task and len(task) == 1 else ""
    folder = Path(one) if one and Path(one).is_dir() and not is_task_dir(one) else None
    if folder is not None:
        chosen = imported = read_tasks(folder)[:limit]
    elif task:
        chosen = [find(one, ADMISSION) for one in task]
        imported = [found for one, found in zip(task, chosen, strict=True) if is_task_dir(one)]
    else:
        chosen = splits_of([split] if split else list(SPLITS), limit, ADMISSION if split else None, RUNS)
        imported = []
    log = log or (folder / VERDICTS if folder else RUNS / VERDICTS)
    verdicts = finished(_admit(chosen, backend, workers, frozenset(t.id for t in imported), log))
    if len(chosen) > 1:
        table(chosen, verdicts)
    held = sum(not verdict.admitted for verdict in verdicts)
    say(f"{len(chosen) - held:,} of {len(chosen):,} admitted; verdicts: {log}")
    if held:
        raise typer.Exit(1)


async def _admit(
    chosen: list[Task], backend: Backend, workers: int, imported: frozenset[str], log: Path
) -> list[Admission]:
    """Prints a verdict per task as it falls and returns them all; `imported` are ids."""
    from evolver.admission import admit as admitting

    found: list[Admission] = []
    async with opened_bench(backend, workers, imported) as bench:
        with Progress("tasks", len(chosen)) as progress:
            async for verdict in admitting(chosen, bench, log):
                found.append(verdict)
                said = "admitted" if verdict.proven else "admitted, unproven"
                said = said if verdict.admitted else f"quarantined: {'; '.join(verdict.reasons)}"
                progress.step(right=verdict.admitted)
                typer.echo(f"{progress.done}/{len(chosen)}  {verdict.task_id}  {verdict.seconds:.1f} s  {said}")
    return found


def table(chosen: Sequence[Task], verdicts: Sequence[Admission]) -> None:
    """Counts per split and category; the time is a worker's, so `workers` of them pass in a second."""
    places = {task.id: (task.split or "no split", task.category) for task in chosen}
    rows = []
    for split, category in sorted(set(places.values())) + [("all", "")]:
        here = [v for v in verdicts if split == "all" or places[v.task_id] == (split, category)]
        admitted, proven = sum(v.admitted for v in here), sum(v.proven for v in here)
        seconds = sum(v.seconds for v in here)
        counts = (f"{n:,}" for n in (len(here), admitted, proven, len(here) - admitted))
        rows.append((split, category, *counts, f"{seconds:,.0f} s", f"{seconds / len(here):.1f} s"))
    columns = ("split", "category", "tasks", "admitted", "proven", "quarantined", "time", "a task")
    show_table("admission", columns, rows)


@asynccontextmanager
async def opened_bench(backend: Backend, workers: int, imported: frozenset[str] = frozenset()) -> AsyncIterator[Bench]:
    """The gate's bench on real machines: check programs grade, the demonstrator makes no slip."""
    from evolver.admission import Bench
    from evolver.executors.local import LocalExecutor
    from evolver.graders.program import ProgramGrader
    from evolver.models.demonstrator import Demonstrator
    from evolver.sandboxes import open_backend
    from harnesses.tree import read_tree, seed_path

    sandboxes = open_backend(backend, spares=1)
    grader = ProgramGrader(sandboxes)
    try:
        yield Bench(
            sandboxes=sandboxes,
            graders=[grader],
            executor=LocalExecutor(workers),
            demonstrator=Demonstrator(slip_rate=0.0),
            gui=read_tree(seed_path("alpha")),
            terminal=read_tree(seed_path("beta1")),
            imported=imported,
        )
    finally:
        await grader.aclose()
        await sandboxes.aclose()


class Progress:
    """Tells on stderr how far something has come, with the time that is left: a bar on a terminal, else lines.

    What comes at once, such as verdicts that a log has, is told together and says nothing about the time.
    """

    def __init__(self, what: str, total: int) -> None:
        from evolver.observers.console import ConsoleObserver, talk_console

        self.done = self._right = 0
        self._what, self._total, self._told = what, total, ConsoleObserver(talk_console())
        self._stepped = time.monotonic()

    def step(self, *, right: bool) -> None:
        self.done, self._right = self.done + 1, self._right + right
        before, self._stepped = self._stepped, time.monotonic()
        if self._stepped - before >= AT_ONCE_S or self.done == self._total:
            share = round(self._right / self.done, 3)
            self._told.progress(self._what, self.done, self._total, {"success": share})

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._told.close()
