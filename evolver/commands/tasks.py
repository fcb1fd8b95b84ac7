"""Commands about the shared tasks: list, show, import, report. Beside it lie admission, quality and overlap."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from devset.task import SPLITS, Split
from evolver.commands.talk import AsJson, OpenTest, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from devset.task import Task

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The shared tasks. Example: evolver tasks list --split dev"
)
Source = Literal["officebench", "harbor", "osworld", "miniwob"]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many.")]
RUNS = Path("runs")
ADMISSION = "admission"
UNSEAL = "to see it all the same, say what for: --open-test WHY (it is recorded)"
Place = Annotated[Path, typer.Option("--run", metavar="RUN", help="Where an opening of test is recorded.")]


@app.command("list")
def list_tasks(
    split: Annotated[Split | None, typer.Option(help="One split; all but test if absent.")] = None,
    limit: Limit = None,
    open_test: OpenTest = None,
    run: Place = RUNS,
    as_json: AsJson = False,
) -> None:
    """Lists tasks by split.

    \b
    Examples:
      evolver tasks list --split dev --limit 10
      evolver tasks list --split test --open-test "final report" --run runs/mine
    """
    tasks = splits_of([split] if split else list(SPLITS), limit, open_test, run)
    if as_json:
        show_json({"tasks": [_row(task) for task in tasks]})
        return
    rows = [(t.id, t.split or "none", ", ".join(t.apps), "+".join(sorted(t.channels)), t.instruction) for t in tasks]
    show_table(f"{len(rows):,} tasks", ("task", "split", "apps", "channels", "instruction"), rows)


@app.command()
def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id.")],
    open_test: OpenTest = None,
    run: Place = RUNS,
    as_json: AsJson = False,
) -> None:
    """Shows one task: what is asked, how it is graded, who can solve it.

    \b
    Example:
      evolver tasks show files.rename-0003
    """
    found = find(task, open_test, run)
    if as_json:
        show_json(_row(found))
        return
    criteria = [(c.id, f"{c.weight:g}", "required" if c.required else "", c.description) for c in found.rubric.criteria]
    typer.echo(f"{found.id} ({found.split or 'in no split'}; {found.category}; {', '.join(found.apps)})")
    typer.echo(f"\n{found.instruction}\n")
    typer.echo(f"solvable through: {', '.join(sorted(found.channels)) or 'nothing'}; sha256 {found.hash}")
    typer.echo(f"skills: {', '.join(found.skill_ids)}")
    show_table("rubric", ("criterion", "weight", "", "description"), criteria)


@app.command("import")
def import_tasks(
    source: Annotated[Source, typer.Argument(help="The format.")],
    out: Annotated[Path, typer.Option(help="Task directories are written here, outside this repository.")],
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="Where the published tasks lie; miniwob is downloaded if absent."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Imports published tasks as task directories of our own format; lists every one that can't be, and why.

    \b
    Examples:
      evolver tasks import officebench ~/OfficeBench --out ../imported/officebench
      evolver tasks import harbor ~/my-tasks --out ../imported/harbor
      evolver tasks import osworld ~/OSWorld/evaluation_examples --out ../imported/osworld
      evolver tasks import miniwob --out ../imported/miniwob
    """
    from devset.importers.offer import ImportFailed, write_offers
    from evolver.imports import offers, outside

    if path is not None and not path.exists():
        raise UsageError(f"PATH {path}: does not exist")
    try:
        made = list(write_offers(offers(source, path), source, outside(out)))
    except ImportFailed as error:
        raise UsageError(str(error)) from error
    refused = [offer for offer in made if offer.task is None]
    if as_json:
        taken = [{"id": offer.id, "hash": offer.task.hash} for offer in made if offer.task is not None]
        show_json({"imported": taken, "refused": {offer.id: list(offer.reasons) for offer in refused}})
    else:
        for offer in refused:
            typer.echo(f"{offer.id}  NOT IMPORTED: {'; '.join(offer.reasons)}")
    say(f"{len(made) - len(refused):,} of {len(made):,} tasks imported: {out}")
    if len(refused) == len(made):
        raise typer.Exit(1)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Directories of imported tasks.")],
    as_json: AsJson = False,
) -> None:
    """Shows per source what was offered, imported and admitted, why not, and how good its checkers are.

    \b
    Example:
      evolver tasks report ../imported/officebench ../imported/harbor
    """
    from evolver.imports import source_report

    found = [source_report(folder) for folder in folders]
    if as_json:
        show_json({"sources": [one.model_dump(mode="json") for one in found]})
        return
    columns = ("source", "folder", "offered", "imported", "admitted", "proven", "quarantined", "not run",
               "no-op passes", "always-fail passes", "checker crashes", "time")  # fmt: skip
    rows = [
        (r.source, Path(r.folder).name,
         *(f"{n:,}" for n in (r.offered, r.imported, r.admitted, r.proven, r.quarantined, r.not_run)),
         _percent(r.noop_passes), _percent(r.fail_passes), _percent(r.checker_crashes), f"{r.seconds:,.0f} s")
        for r in found
    ]  # fmt: skip
    show_table("imported tasks", columns, rows)
    for one in found:
        kinds = [("not imported", one.refused_reasons), ("quarantined", one.quarantine_reasons)]
        lines = [(what, f"{n}", reason) for what, counted in kinds for reason, n in counted.items()]
        if lines:
            show_table(f"{one.source}, {Path(one.folder).name}: reasons", ("", "tasks", "reason"), lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def find(task_id: str, why: str | None = None, place: Path = RUNS) -> Task:
    """The task of this id, or in this directory. Raises `UsageError` for an unknown id, with the ids nearest to it, and
    for one of test unless `why` is given."""
    import difflib

    from devset.directory import TaskError, read_task_dir
    from devset.splits import SEALED, Sealed, UnknownTask, find_task, load_split

    if is_task_dir(task_id):
        try:
            return read_task_dir(Path(task_id).resolve())
        except TaskError as error:
            raise UsageError(str(error)) from error
    if "/" in task_id:
        raise UsageError(f"{task_id}: is no task directory (it holds no task.toml)")
    try:
        found = find_task(task_id, unsealed=why is not None)
    except Sealed as error:
        raise UsageError(f"{error}; {UNSEAL}") from None
    except UnknownTask as error:
        known = [task.id for split in SPLITS if split not in SEALED for task in load_split(split)]
        close = difflib.get_close_matches(task_id, known, n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else "; see `evolver tasks list`"
        raise UsageError(f"{error}{hint}") from None
    if why is not None and found.split in SEALED:
        _record(place, found.split, why)
    return found


def is_task_dir(name: str) -> bool:
    return (Path(name) / "task.toml").is_file()


def splits_of(splits: list[Split], limit: int | None, why: str | None, place: Path) -> list[Task]:
    """The tasks of the splits; a sealed one is opened when `why` says what for, else left out of several, and refused
    alone."""
    from devset.splits import SEALED, load_split

    chosen = [split for split in splits if split not in SEALED or why is not None]
    left_out = [split for split in splits if split not in chosen]
    if left_out and not chosen:
        raise UsageError(f"split {left_out[0]!r} is sealed: it is for final comparisons; {UNSEAL}")
    if left_out:
        say(f"without {', '.join(left_out)}, which is sealed")
    for split in chosen:
        if split in SEALED and why is not None:
            _record(place, split, why)
    return [task for split in chosen for task in load_split(split, limit, unsealed=True)]


def _record(place: Path, split: Split, why: str) -> None:
    from evolver.opening import record_opening
    from evolver.store import Store

    record_opening(Store.open(place) if (place / "run.json").is_file() else place, split, why, flagged=True)


def _row(task: Task) -> dict[str, object]:
    return {
        "id": task.id,
        "hash": task.hash,
        "family": task.family,
        "skills": list(task.skill_ids),
        "split": task.split,
        "seen_in_training": task.seen_in_training,
        "category": task.category,
        "apps": list(task.apps),
        "channels": sorted(task.channels),
        "instruction": task.instruction,
        "criteria": [c.model_dump(mode="json") for c in task.rubric.criteria],
    }
