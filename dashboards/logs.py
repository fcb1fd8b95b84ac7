"""Reads the small logs of a run as records; a line that can't be read is counted and named, never guessed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import JsonValue

from evolver.records import Record
from evolver.store import LOGS

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Unread:
    """Lines of one log that no page shows, and why."""

    log: str
    torn: int
    broken: int
    not_finite: int


def stamp_of(path: Path) -> Stamp:
    """Changes whenever a log or the settings of a run change."""
    files = [f for f in (path / "run.json", *(path / f"{name}.jsonl" for name in LOGS.values())) if f.exists()]
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)


@lru_cache(maxsize=64)
def read_log(path: Path, name: str, stamp: Stamp) -> tuple[list[Record], Unread]:
    kind = next(k for k, log in LOGS.items() if log == name)
    file = path / f"{name}.jsonl"
    if not file.exists():
        return [], Unread(name, 0, 0, 0)
    *whole, rest = file.read_bytes().split(b"\n")
    records: list[Record] = []
    broken = not_finite = 0
    for line in whole:
        try:
            value, odd = loads(line)
            records.append(kind.model_validate(value))
            not_finite += odd
        except (ValueError, RecursionError):
            broken += 1
    return records, Unread(name, int(bool(rest)), broken, not_finite)


def loads(text: str | bytes) -> tuple[JsonValue, int]:
    """JSON in which NaN and infinite numbers (which no Store writes) become None, and how many those were."""
    odd = 0

    def number(text: str) -> float | None:
        nonlocal odd
        value = float(text)
        odd += not math.isfinite(value)
        return value if math.isfinite(value) else None

    return json.loads(text, parse_constant=number, parse_float=number), odd
