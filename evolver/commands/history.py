"""Commands that look back on a run: its lineage as a graph, two harnesses side by side, what an author is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, HarnessA, HarnessB, RunDir, data_console, say, show_json
from evolver.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from evolver.history import Entry

RAIL, FADED = "cyan", "dim"


def log(run: RunDir, as_json: AsJson = False) -> None:
    """The lineage of a run as a graph, newest first: every candidate with its verdict, effect, author and cost.

    \b
    Examples:
      evolver log runs/demo
      evolver log runs/demo --json
    """
    from rich.text import Text

    from evolver.graph import draw
    from evolver.history import history
    from evolver.population import population_of
    from evolver.store import Store

    store = Store.open(run)
    entries = {entry.harness_id: entry for entry in history(store)}
    if as_json:
        show_json(
            {"run": store.run_id, "lineage": store.config.lineage, "candidates": [e.plain() for e in entries.values()]}
        )
        return
    if not entries:
        say(f"{run} has no candidates yet")
        return
    trunk = population_of(store).incumbent
    parents = {entry.harness_id: entry.parents for entry in entries.values()}
    rows = draw(list(entries), parents, trunk)
    console = data_console()
    for row in rows:
        if row.node is None:
            console.print(Text(row.rails, RAIL))
            continue
        under = row.rails.replace("*", "|" if parents[row.node] else " ")  # its own rail goes on to its parent
        head, *more = _told(entries[row.node])
        for rails, line in ((row.rails, head), *((under, line) for line in more)):
            console.print(Text.assemble((f"{rails} ", RAIL), line))


def _told(entry: Entry) -> list[Text]:
    """A node's lines: name, tags, verdict and effect; author, parts and cost; why."""
    from rich.text import Text

    from evolver.marks import VERDICTS

    mark = VERDICTS[entry.verdict]
    head = Text(entry.name, "bold")
    head.append(f" {entry.harness_id[:8]}", "yellow")
    if entry.tags:
        head.append(f" ({', '.join(entry.tags)})", "bold green")
    head.append(f"  {mark.label}", mark.colour)
    if entry.effect_text:
        head.append(f"  {entry.effect_text}")
    return [head, Text(entry.cost_text, FADED), *([Text(entry.why, FADED)] if entry.why else [])]


def diff(run: RunDir, a: HarnessA, b: HarnessB, as_json: AsJson = False) -> None:
    """What changed from A to B in a run: components, effect on the dev tasks that both played, patch.

    \b
    Examples:
      evolver diff runs/demo alpha beta1
      evolver diff runs/demo beta1 structured-1-33e1d7 --json
    """
    from evolver.commands.harness import find, print_diff
    from evolver.history import effect_between
    from evolver.store import Store
    from harnesses.diff import diff as diff_of

    store = Store.open(run)
    one, other = find(a, run), find(b, run)
    found, effect = diff_of(one, other), effect_between(store, one, other)
    if as_json:
        show_json({
            "a": one.id, "b": other.id, "components": list(found.components), "changes": list(found.changes),
            "effect": effect.plain(), "patch": found.patch,
        })  # fmt: skip
        return
    print_diff(found, effect.lines())


def evidence(
    run: RunDir,
    parent: Annotated[
        str | None, typer.Option("--from", metavar="HARNESS", help="The harness to change; the incumbent if absent.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the whole bundle there.")] = None,
) -> None:
    """What an author is told before it changes a harness: the summary here, or all of its files in a folder.

    \b
    Examples:
      evolver evidence runs/demo
      evolver evidence runs/demo --out /tmp/evidence       transcripts, tables, JSON
    """
    from evolver.commands.harness import find
    from evolver.disk import on_disk
    from evolver.evidence import evidence as evidence_of
    from evolver.population import population_of
    from evolver.store import Store

    store = Store.open(run)
    asked = parent or population_of(store).incumbent
    if asked is None:
        raise UsageError(f"{run} has no harness yet: run the experiment first")
    found = evidence_of(store, find(asked, run))
    if out is None:
        typer.echo(found.summary, nl=False)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty: choose another folder")
    with on_disk(out):
        for path, data in found.files.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes(data)
    say(
        f"wrote {len(found.files)} files, {sum(map(len, found.files.values())):,} bytes: begin with {out / 'README.md'}"
    )
