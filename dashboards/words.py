"""How values are said on the pages: as in the report, and with the reason wherever a value is unknown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

from evolver import phrasing
from evolver.phrasing import UNKNOWN
from evolver.records import Interval


def percent(interval: Interval | None) -> str:
    return _reasoned(interval, phrasing.percent)


def points(interval: Interval | None) -> str:
    """A difference in percentage points."""
    return _reasoned(interval, phrasing.pp)


def tokens(interval: Interval | None) -> str:
    return _reasoned(interval, _tokens)


def _tokens(interval: Interval) -> str:
    point, low, high = (phrasing.count(v) for v in (interval.point, interval.low, interval.high))
    return f"{point} [no interval]" if UNKNOWN in (low, high) else f"{point} [{low}, {high}]"


def _reasoned(interval: Interval | None, say: Callable[[Interval], str]) -> str:
    if interval is None:
        return UNKNOWN
    lacking = interval.point is None or interval.low is None or interval.high is None
    return f"{say(interval)} ({interval.method})" if lacking else say(interval)


def p_value(value: float) -> str:
    return f"p = {value:.4f}" if value >= 0.0001 else "p < 0.0001"


def share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f} s"


def moment(at: float | None, zone: str | None) -> str:
    """An instant in the reader's zone, which is always printed; UTC when the zone is not known."""
    if at is None:
        return UNKNOWN
    return datetime.fromtimestamp(at, ZoneInfo(zone or "UTC")).strftime("%Y-%m-%d %H:%M:%S %Z")


def short(digest: str) -> str:
    return digest[:8]
