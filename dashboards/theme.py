"""Every colour, shape and word by which a page tells verdicts, channels, outcomes and harnesses apart."""

from __future__ import annotations

from evolver.marks import BLUE, CHANNELS, GREEN, GREY, PURPLE, VERDICTS, VERMILLION, Mark, harness_mark

__all__ = ["BLUE", "CHANNELS", "GREEN", "GREY", "PURPLE", "VERDICTS", "VERMILLION", "Mark", "harness_mark"]

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#0e1117"
HALO = "#ffffff"
LIGHT_TEXT, DARK_TEXT = "#31333f", "#fafafa"  # of every word in a chart
DARK_ACCENT = "#2e8bc8"  # of what is chosen: blue, light enough to be read on the dark page

OUTCOMES = {
    "solved": Mark(BLUE, "circle", "●", "solved"),
    "failed": Mark(VERMILLION, "x", "✕", "failed"),
    "unscored": Mark(GREY, "diamond-open", "◇", "unscored"),
    "not graded": Mark(GREY, "circle-open", "○", "not graded"),
}
