"""A table with its explanation, as Markdown for reading and as JSON for programs, each within a bound of bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from evolver.phrasing import UNKNOWN, count, dollars, number, percent, pp
from evolver.records import Interval

Form = Literal["text", "count", "percent", "pp", "number", "dollars"]
Cell = str | int | float | None | Interval | tuple[str, ...]
LONGEST_CELL, LONGEST_VALUE = 200, 400  # characters, in Markdown and in JSON
_INTERVALS = {"percent": percent, "pp": pp, "number": number}


@dataclass(frozen=True)
class Column:
    """`key` names it in JSON, `title` in Markdown; shares and differences are 0..1 in JSON, percent in Markdown."""

    key: str
    title: str
    form: Form = "text"


@dataclass(frozen=True)
class Sheet:
    """`rows` hold one cell a column, the most informative row first: what does not fit is left out from the end."""

    key: str
    title: str
    text: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]

    def markdown(self, limit: int, most: int | None = None) -> str:
        """Heading, text and table, in at most `limit` bytes of UTF-8 and `most` rows; says how many are left out."""
        head = f"## {self.title}\n\n{self.text}\n" if self.text else f"## {self.title}\n"
        if not self.rows:
            return cut(f"{head}\n(nothing yet)\n", limit)
        rule = ["---" if column.form == "text" else "---:" for column in self.columns]
        lines = [_line([column.title for column in self.columns]), _line(rule)]
        kept = [_line([_words(cell, column) for cell, column in zip(row, self.columns, strict=True)])
                for row in self.rows[:most]]  # fmt: skip
        room = limit - size(head) - size("\n".join(lines)) - 60
        shown = first_that_fit(kept, room)
        left = len(self.rows) - len(shown)
        more = f"\n({left} more rows, see evidence.json)\n" if left else ""
        return cut("\n".join([head, *lines, *shown]) + "\n" + more, limit)

    def plain(self, limit: int) -> dict[str, JsonValue]:
        """Columns by key, within `limit` bytes as compact JSON; `left_out` counts the rows that did not fit."""
        rows: list[JsonValue] = []
        empty: dict[str, JsonValue] = {"title": self.title, "about": self.text, "rows": [], "left_out": len(self.rows)}
        room = limit - size(as_json(empty))
        for row in self.rows:
            made: dict[str, JsonValue] = {c.key: _value(cell) for c, cell in zip(self.columns, row, strict=True)}
            room -= size(as_json(made)) + 1
            if room < 0:
                break
            rows.append(made)
        return {"title": self.title, "about": self.text, "rows": rows, "left_out": len(self.rows) - len(rows)}


def as_json(value: Mapping[str, JsonValue]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def cut(text: str, limit: int) -> str:
    """The text in at most `limit` bytes of UTF-8, ended where a line ends if it does not fit."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    end = "\n(cut here: the rest did not fit)\n"
    kept = data[: max(0, limit - size(end))].decode("utf-8", "ignore")
    return (kept[: kept.rfind("\n")] if "\n" in kept else kept) + end


def middle(text: str, longest: int) -> str:
    """The text with its middle left out where it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"


def first_that_fit(lines: Sequence[str], room: int) -> list[str]:
    """The first lines that take at most `room` bytes together, with a line end each."""
    kept: list[str] = []
    for line in lines:
        room -= size(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def short(text: str, longest: int = LONGEST_CELL) -> str:
    """One line of at most `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _words(cell: Cell, column: Column) -> str:
    if cell is None:
        return UNKNOWN if column.form != "text" else ""
    if isinstance(cell, Interval):
        return _INTERVALS.get(column.form, number)(cell)
    if isinstance(cell, tuple):
        return short(", ".join(cell))
    if isinstance(cell, str):
        return short(cell)
    match column.form:
        case "percent":
            return f"{100 * cell:.0f} %"
        case "pp":
            return f"{100 * cell:+.1f} pp"
        case "dollars":
            return dollars(cell)
        case "number":
            return f"{cell:.2f}"
        case _:
            return count(cell)


def _value(cell: Cell) -> JsonValue:
    if isinstance(cell, Interval):
        return cell.model_dump(mode="json")
    if isinstance(cell, tuple):
        return [short(one, LONGEST_VALUE) for one in cell]
    if isinstance(cell, str):
        return short(cell, LONGEST_VALUE)
    return round(cell, 6) if isinstance(cell, float) else cell
