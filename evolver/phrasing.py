"""How a number with its interval is written, the same on screen, in reports and under figures."""

from __future__ import annotations

from collections.abc import Callable

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


def tokens(interval: Interval) -> str:
    """A number of tokens, as in `1,800 [1,500, 2,100]`."""
    return _said(interval, "{:,.0f}", 1, "")


def p_value(p: float) -> str:
    """As in `p = 0.0312`; what four places would round to nothing is `p < 0.0001`."""
    return f"p = {p:.4f}" if p >= 0.0001 else "p < 0.0001"


def usd(interval: Interval) -> str:
    """Dollars with their interval, as in `$0.0123 [$0.0110, $0.0139]`."""
    small = interval.point is not None and 0 < interval.point < 1
    return _said(interval, "${:,.4f}" if small else "${:,.2f}", 1, "")


def or_why(interval: Interval | None, say: Callable[[Interval], str]) -> str:
    """As `say` writes it; with the reason wherever a value or its interval is unknown."""
    if interval is None:
        return UNKNOWN
    lacking = interval.point is None or interval.low is None or interval.high is None
    return f"{say(interval)} ({interval.method})" if lacking else say(interval)


def share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f} s"


def short(digest: str) -> str:
    """Enough of an id to tell it from the others on a page."""
    return digest[:8]


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
