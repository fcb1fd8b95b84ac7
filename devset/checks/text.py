"""Atomic checks of text, CSV, JSON and SQLite files."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from devset.checks.home import Wrong, read_bytes, read_text

Scalar = str | int | float | bool | None


def lines(home: Path, path: str) -> list[str]:
    """Lines without trailing blanks; blank lines at the end do not count (editors differ in the last newline)."""
    found = [line.rstrip() for line in read_text(home, path).split("\n")]
    while found and not found[-1]:
        found.pop()
    return found


def text_is(home: Path, *, path: str, expected: Sequence[str]) -> str:
    """The file has exactly these lines, in this order."""
    found = lines(home, path)
    if found != list(expected):
        raise Wrong(f"{path} has {len(found)} line(s) {_short(found)}, expected {_short(list(expected))}")
    return f"{path} has exactly the expected {len(expected)} line(s)"


def line_count(home: Path, *, path: str, line: str, times: int) -> str:
    """Exactly `times` lines equal `line`."""
    found = lines(home, path).count(line)
    if found != times:
        raise Wrong(f"{path} has the line {line!r} {found} time(s), expected {times}")
    return f"{path} has the line {line!r} {times} time(s)"


def number_is(home: Path, *, path: str, expected: float) -> str:
    """The whole file is one number equal to `expected` to the cent (`1,234.50` and `1234.5` are the same)."""
    text = read_text(home, path).strip()
    if not re.fullmatch(r"[-+]?[0-9][0-9,]*(\.[0-9]+)?", text) or len(text) > 40:
        raise Wrong(f"{path} holds {text[:60]!r}, expected one number")
    found = float(text.replace(",", ""))
    if abs(found - expected) > 0.005:
        raise Wrong(f"{path} holds {found}, expected {expected}")
    return f"{path} holds {expected}"


def csv_is(home: Path, *, path: str, rows: Sequence[Sequence[str]]) -> str:
    """The CSV file has exactly these rows; quoting is free."""
    try:
        found = [row for row in csv.reader(io.StringIO(read_text(home, path))) if row]
    except csv.Error as error:
        raise Wrong(f"{path} is not a CSV file: {error}") from error
    wanted = [list(row) for row in rows]
    if found != wanted:
        at = next(
            (i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted))
        )
        raise Wrong(f"{path} differs from row {at + 1} on ({len(found)} rows, expected {len(wanted)})")
    return f"{path} has exactly the expected {len(wanted)} rows"


def json_value(home: Path, *, path: str, keys: Sequence[str | int], expected: Scalar) -> str:
    """The value found by following `keys` into the JSON document."""
    try:
        value = json.loads(read_text(home, path))
        for key in keys:
            value = value[key]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise Wrong(f"{path} has no value at {list(keys)}: {type(error).__name__}") from error
    if type(value) is not type(expected) or value != expected:
        raise Wrong(f"{path} has {str(value)[:60]!r} at {list(keys)}, expected {expected!r}")
    return f"{path} has {expected!r} at {list(keys)}"


def sqlite_value(home: Path, *, path: str, query: str, expected: Scalar) -> str:
    """The first column of the first row of `query` on a read-only copy; a query is cut after 10 million steps."""
    data = read_bytes(home, path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        copy.write_bytes(data)
        connection = sqlite3.connect(f"file:{copy}?mode=ro&immutable=1", uri=True)
        connection.set_progress_handler(lambda: 1, 10_000_000)
        try:
            row = connection.execute(query).fetchone()
        except sqlite3.Error as error:
            raise Wrong(f"{path} can't answer the query: {error}") from error
        finally:
            connection.close()
    if row is None or row[0] != expected:
        raise Wrong(f"{path} answers {str(row)[:60]}, expected {expected!r}")
    return f"{path} answers {expected!r}"


def _short(found: list[str]) -> str:
    text = repr(found)
    return text if len(text) <= 160 else text[:160] + "..."
