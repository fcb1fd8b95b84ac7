"""What all figures share: whiskers in percent, and the white paper that a figure stands on outside of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from evolver.errors import NotReady
from evolver.records import Interval

MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}
FAINT = "rgba(128, 128, 128, 0.35)"
BAND = "rgba(128, 128, 128, 0.14)"


def in_percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def arms(intervals: Sequence[Interval], scale: float = 100) -> dict[str, object]:
    """Asymmetric error arms, in percent unless told otherwise; none where an interval is unknown."""
    up = [_arm(i.high, i.point, scale) for i in intervals]
    down = [_arm(i.point, i.low, scale) for i in intervals]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5, "width": 4}


def whiskers(shown: Sequence[Interval], colour: str) -> dict[str, object]:
    """Arms in percent that stand out as much as the mark between them."""
    return arms(shown) | {"color": colour, "thickness": 2, "width": 6}


def inked(glyph: str, colour: str) -> str:
    """A glyph in its colour amid words in the colour of all words: a hue that marks stand out in can be too pale to
    be read as text."""
    return f'<span style="color:{colour}">{glyph}</span>'


def on_paper(figure: go.Figure) -> go.Figure:
    """The figure on white, whatever the reader's theme is."""
    return figure.update_layout(template="plotly_white", paper_bgcolor="white", plot_bgcolor="white", font={"size": 13})


def save_png(figure: go.Figure, path: Path) -> None:
    """Raises `NotReady` where no Chromium is installed, with which Plotly draws its pictures."""
    try:
        figure.write_image(path, scale=2, width=figure.layout.width or 1000)
    except (RuntimeError, ValueError, ImportError) as error:
        raise NotReady(f"no picture {path} (it needs Chromium: apt-get install chromium): {_line(error)}") from error


def _arm(high: float | None, low: float | None, scale: float) -> float:
    return 0.0 if high is None or low is None else scale * (high - low)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
