"""How a number with its interval is written, the same on screen, in reports and under figures."""

from __future__ import annotations

from evolver.records import Interval


def percent(interval: Interval) -> str:
    """A share with its interval, as in `90.0 % [78.1, 96.0]`; what is unknown says so."""
    if interval.point is None:
        return "unknown"
    point = f"{interval.point * 100:.1f} %"
    if interval.low is None or interval.high is None:
        return f"{point} [no interval]"
    return f"{point} [{interval.low * 100:.1f}, {interval.high * 100:.1f}]"


def pp(interval: Interval) -> str:
    """A difference in percentage points with its interval, as in `+12.5 pp [+3.1, +20.0]`."""
    if interval.point is None:
        return "unknown"
    point = f"{interval.point * 100:+.1f} pp"
    if interval.low is None or interval.high is None:
        return f"{point} [no interval]"
    return f"{point} [{interval.low * 100:+.1f}, {interval.high * 100:+.1f}]"
