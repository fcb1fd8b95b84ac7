"""Sums of what may be unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def total(values: Iterable[Number | None]) -> Number | None:
    """Their sum, 0 of none; None as soon as one is unknown."""
    found: Number = 0
    for value in values:
        if value is None:
            return None
        found += value
    return found
