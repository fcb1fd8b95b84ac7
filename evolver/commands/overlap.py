"""The command that looks for tasks that two sets have in common."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from devset.task import SPLITS
from evolver.commands.talk import AsJson, say, show_json, show_table
from evolver.errors import NotReady, UsageError

if TYPE_CHECKING:
    from devset.overlap import Item

SET = "A split, a task directory, a directory of them, or JSON lines with `instruction`."


def overlap(
    a: Annotated[str, typer.Argument(metavar="A", help=SET)],
    b: Annotated[str, typer.Argument(metavar="B", help=SET)],
    threshold: Annotated[float, typer.Option(min=0.05, max=1, help="How alike two tasks must be, 0..1.")] = 0.7,
    by: Annotated[Literal["both", "instruction"], typer.Option(help="What is compared.")] = "both",
    as_json: AsJson = False,
) -> None:
    """Prints the pairs of tasks that are exactly or nearly the same; 1 when there are any, 0 when there are none.

    Two tasks are the same when template and values are: instances of one template with other values are not. Neither
    instruction nor files of a task are shown, so test can be compared without being opened.

    \b
    Examples:
      evolver tasks overlap train test
      evolver tasks overlap train ../benchmark/goals.jsonl --by instruction
    """
    from devset.overlap import overlaps

    one = _items(a)
    other = one if a == b else _items(b)
    try:
        pairs = overlaps(one, other, threshold, by)
    except ImportError as error:
        raise NotReady(f"comparing tasks needs datasketch ({error}): pip install -e '.[devset]'") from None
    if as_json:
        sizes = {"a": {"set": a, "tasks": len(one)}, "b": {"set": b, "tasks": len(other)}}
        show_json({**sizes, "threshold": threshold, "by": by, "pairs": [asdict(pair) for pair in pairs]})
    elif pairs:
        rows = [
            (p.a, p.b, "exact" if p.exact else f"{p.similarity:.2f}", f"{p.instruction:.2f}",
             "none" if p.files is None else f"{p.files:.2f}")
            for p in pairs
        ]  # fmt: skip
        show_table(f"{a} and {b}", (a, b, "alike", "instruction", "files"), rows)
    say(f"{len(pairs):,} pairs of {len(one):,} x {len(other):,} tasks are alike by {threshold:g} or more")
    if pairs:
        raise typer.Exit(1)


def _items(name: str) -> list[Item]:
    from devset.directory import TaskError
    from devset.overlap import NotTasks, items_of, read_items
    from devset.splits import load_split

    split = next((split for split in SPLITS if split == name), None)
    if split is not None:
        return items_of(load_split(split, unsealed=True))
    try:
        return read_items(Path(name))
    except (NotTasks, TaskError) as error:
        raise UsageError(f"{error}; splits are {', '.join(SPLITS)}") from None
