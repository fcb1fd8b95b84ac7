"""What commands say and how they say it: talk to stderr, data to stdout, JSON when asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from evolver.observers.console import ConsoleObserver
    from evolver.store import Store

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
OpenTest = Annotated[
    str | None, typer.Option("--open-test", metavar="WHY", help="Show tasks of the sealed test split; is recorded.")
]
HarnessA = Annotated[str, typer.Argument(metavar="A", help="A harness: name, id or seed; a directory to be read.")]
HarnessB = Annotated[str, typer.Argument(metavar="B", help="The one that is held against it.")]
PIPE_WIDTH = 240


def say(line: str) -> None:
    typer.echo(line, err=True)


def show_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1))


def data_console() -> Console:
    """stdout as a Rich console: as wide as the terminal, and wide enough for every table when piped."""
    from evolver.observers.console import talk_console

    console = talk_console(sys.stdout)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def run_console(store: Store) -> ConsoleObserver:
    """Tells on stderr how a run goes, with the names of its harnesses in place of their ids."""
    from evolver.observers.console import ConsoleObserver, talk_console
    from evolver.report import harness_names

    return ConsoleObserver(talk_console(), partial(harness_names, store))


def show_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from evolver.tables import Table, to_rich

    data_console().print(to_rich(Table(title, columns, tuple(rows))))
