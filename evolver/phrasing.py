"""How a number with its interval is written, the same on screen, in reports and under figures."""

from __future__ import annotations

from evolver.records import Interval

UNKNOWN = "unknown"


def percent(interval: Interval) -> str:
    """A share with its interval, as in `90.0 % [78.1, 96.0]`."""
    return _said(interval, "{:.1f}", 100, " %")


def pp(interval: Interval) -> str:
    """A difference in percentage points with its interval, as in `+12.5 pp [+3.1, +20.0]`."""
    return _said(interval, "{:+.1f}", 100, " pp")


def ratio(interval: Interval) -> str:
    """A ratio with its interval, as in `2.31 x [1.20, 4.05]`, or that it is not defined."""
    if interval.point is None:
        return f"not defined ({interval.method})"
    return _said(interval, "{:.2f}", 1, " x")


def number(interval: Interval) -> str:
    """A bare number with its interval, as in `0.82 [0.71, 0.93]`."""
    return _said(interval, "{:.2f}", 1, "")


def count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def dollars(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"${value:,.4f}" if 0 < value < 1 else f"${value:,.2f}"


def _said(interval: Interval, form: str, scale: float, unit: str) -> str:
    if interval.point is None:
        return UNKNOWN
    point = form.format(interval.point * scale) + unit
    if interval.low is None or interval.high is None:
        return f"{point} [no interval]"
    return f"{point} [{form.format(interval.low * scale)}, {form.format(interval.high * scale)}]"
