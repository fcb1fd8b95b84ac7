"""How values are said on the pages: as in the report, and with the reason wherever a value is unknown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

from evolver import phrasing
from evolver.phrasing import UNKNOWN, or_why, p_value, seconds, share, short
from evolver.records import Interval

__all__ = ["ago", "counted", "moment", "p_value", "percent", "points", "seconds", "share", "short", "tokens", "usd"]


def percent(interval: Interval | None) -> str:
    return or_why(interval, phrasing.percent)


def points(interval: Interval | None) -> str:
    """A difference in percentage points."""
    return or_why(interval, phrasing.pp)


def tokens(interval: Interval | None) -> str:
    return or_why(interval, phrasing.tokens)


def usd(interval: Interval | None) -> str:
    return or_why(interval, phrasing.usd)


def counted(interval: Interval | None, say: Callable[[Interval | None], str]) -> str:
    """As `say` writes it, with the number of tasks that it is over where that is known."""
    return f"{say(interval)}, n = {interval.n}" if interval is not None and interval.n else say(interval)


def ago(seconds: float) -> str:
    """How long ago something was, in the unit that fits."""
    for length, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"


def moment(at: float | None, zone: str | None) -> str:
    """An instant in the reader's zone, which is always printed; UTC when the zone is not known."""
    if at is None:
        return UNKNOWN
    return datetime.fromtimestamp(at, ZoneInfo(zone or "UTC")).strftime("%Y-%m-%d %H:%M:%S %Z")
