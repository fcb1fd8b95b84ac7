"""Tables of words, and how they are set: on a terminal, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True)
class Table:
    """One table of words, with sentences under it. `right` names the columns that are set flush right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    right: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """`lines` come first: whose run it is, who taught, how it ended."""

    title: str
    lines: tuple[str, ...]
    tables: tuple[Table, ...]


def print_report(shown: Report, console: Console) -> None:
    """To a terminal or a pipe; columns are as wide as their words need, so that nothing is lost when piped."""
    console.print(Text(shown.title, style="bold"))
    for line in shown.lines:
        console.print(Text(line))
    print_tables(shown.tables, console)


def print_tables(tables: Sequence[Table], console: Console) -> None:
    for table in tables:
        console.print()
        console.print(to_rich(table))
        for line in (table.caption, *table.notes):
            console.print(Text(line, style="dim"))


def to_rich(table: Table) -> RenderableType:
    if not table.rows:
        return Text(f"{table.title}: nothing yet", style="bold")
    made = RichTable(title=table.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in table.columns:
        made.add_column(column, justify="right" if column in table.right else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def to_markdown(shown: Report) -> str:
    parts = [f"# {shown.title}", "\n".join(f"- {line}" for line in shown.lines)]
    for table in shown.tables:
        notes = "\n".join(f"- {note}" for note in table.notes)
        parts += [f"## {table.title}", _markdown_rows(table), table.caption, notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_rows(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = ["---:" if column in table.right else "---" for column in table.columns]
    return "\n".join([line(table.columns), line(rule), *(line(row) for row in table.rows)]) if table.rows else ""


def to_json(shown: Report) -> dict[str, object]:
    """One object: title, lines, and each table as a list of rows by column name."""
    tables = {table.title: to_rows(table) for table in shown.tables}
    return {"title": shown.title, "lines": list(shown.lines), "tables": tables}


def to_rows(table: Table) -> list[dict[str, str]]:
    """The rows of a table by column name."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
