"""Commands about harnesses: list, show, diff, tag."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, HarnessA, HarnessB, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from harnesses.diff import Diff
    from harnesses.harness import Harness
    from harnesses.library import Library

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Harness versions. Example: evolver harness diff beta1 beta2"
)
OfRun = Annotated[
    Path | None, typer.Option("--run", metavar="RUN", help="A run directory, whose harnesses are meant as well.")
]


@app.command("list")
def list_harnesses(run: OfRun = None, as_json: AsJson = False) -> None:
    """Lists the seeds, or the harnesses of a run with their verdicts.

    \b
    Examples:
      evolver harness list
      evolver harness list --run runs/demo
    """
    rows = _of_run(run) if run else _seeds()
    if as_json:
        show_json({"harnesses": [dict(zip(("name", "id", "channels", "verdict"), row, strict=True)) for row in rows]})
    else:
        show_table(f"{len(rows)} harnesses", ("name", "id", "channels", "verdict"), rows)


@app.command()
def show(
    harness: Annotated[str, typer.Argument(metavar="HARNESS", help="Name, id, seed or directory.")],
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """Shows a harness: scaffold, tools, prompt, environment.

    \b
    Example:
      evolver harness show beta1
    """
    found = find(harness, run)
    if as_json:
        show_json(found.model_dump(mode="json", exclude={"files"}))
        return
    typer.echo(f"harness {found.id}  channels: {', '.join(sorted(found.channels))}")
    for tool in found.tools:
        typer.echo(f"  tool {tool.name} ({tool.kind}){': ' + ', '.join(tool.actions) if tool.actions else ''}")
    for part, section in (("scaffold", found.scaffold), ("environment", found.environment)):
        typer.echo(f"\n[{part}]")
        for name, value in section.model_dump(mode="json").items():
            typer.echo(f"{name} = {value}")
    typer.echo(f"\n[prompt]\n{found.prompt.system}")


@app.command("diff")
def show_diff(a: HarnessA, b: HarnessB, as_json: AsJson = False) -> None:
    """Shows what changed from A to B: the components, then the patch. Those of a run: `evolver diff RUN A B`.

    \b
    Examples:
      evolver harness diff alpha beta1
      evolver harness diff beta1 my-harness
    """
    from harnesses.diff import diff

    found = diff(find(a, None), find(b, None))
    if as_json:
        show_json({"components": list(found.components), "changes": list(found.changes), "patch": found.patch})
    else:
        print_diff(found)


def print_diff(found: Diff, effect: Iterable[str] = ()) -> None:
    """The components, the changes in words, what is known of their effect, the patch."""
    typer.echo(f"changed: {'+'.join(found.components) or 'nothing'}")
    for line in found.changes:
        typer.echo(f"  {line}")
    for line in effect:
        typer.echo(line)
    typer.echo(f"\n{found.patch}", nl=False)


@app.command()
def tag(
    harness: Annotated[str, typer.Argument(metavar="HARNESS", help="Name or id of a harness of the run.")],
    run: Annotated[Path, typer.Option("--run", metavar="RUN", help="The run directory.")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The tag.")],
    why: Annotated[str, typer.Option(help="What it stands for, in one sentence.")] = "tagged by hand",
) -> None:
    """Gives a harness of a run an annotated git tag; again is no change. A capsule for rounds: `evolver freeze`.

    \b
    Example:
      evolver harness tag beta1 --run runs/demo --as paper-1
    """
    from harnesses.tree import HarnessError

    library = open_library(run)
    try:
        chosen = resolved(library, harness)
        library.tag(chosen, name, why)
    except HarnessError as error:
        raise UsageError(str(error)) from error
    say(f"tagged: {name} = {chosen}")


def open_library(run: Path) -> Library:
    """The library of a run. Raises `UsageError` when there is no run, or nothing in it yet."""
    from evolver.store import Store
    from harnesses.library import Library

    Store.open(run)
    if not (run / "library" / "HEAD").is_file():
        raise UsageError(f"{run} has no harnesses yet: run the experiment first")
    return Library(run / "library")


def resolved(library: Library, asked: str) -> str:
    """The full id of a harness by name, id or unique prefix; a seed that the library lacks is added to it.

    Raises `UsageError` with what is near it.
    """
    from evolver.authors.human import enter
    from harnesses.library import UnknownHarness
    from harnesses.tree import SEEDS

    try:
        return enter(library, asked) if asked in SEEDS else library.resolve(asked)
    except UnknownHarness as error:
        raise UsageError(str(error)) from None


def find(asked: str, run: Path | None) -> Harness:
    """A harness of a run, a seed, or a directory. Raises `UsageError`."""
    from evolver.authors.human import read_named
    from harnesses.library import UnknownHarness
    from harnesses.tree import SEEDS

    if run is None:
        return read_named(asked)
    library = open_library(run)
    try:
        return library.get(asked)
    except UnknownHarness:
        if asked in SEEDS or Path(asked).is_dir():
            return read_named(asked)
        return library.get(resolved(library, asked))


def _seeds() -> list[tuple[str, ...]]:
    from harnesses.tree import SEEDS, read_tree, seed_path

    trees = [(name, read_tree(seed_path(name))) for name in SEEDS]
    return [(name, tree.id, "+".join(sorted(tree.channels)), "seed") for name, tree in trees]


def _of_run(run: Path) -> list[tuple[str, ...]]:
    from evolver.population import population_of
    from evolver.store import Store

    library, store = open_library(run), Store.open(run)
    population = population_of(store)
    verdicts = {d.candidate_harness: d.verdict for d in population.decisions}
    rows: list[tuple[str, ...]] = []
    for name, harness_id in library.names().items():
        verdict = "incumbent" if harness_id == population.incumbent else verdicts.get(harness_id, "undecided")
        rows.append((name, harness_id, "+".join(sorted(library.get(harness_id).channels)), verdict))
    return rows
