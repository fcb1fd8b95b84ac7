"""Every colour, shape and word by which a page tells verdicts, channels, outcomes and harnesses apart."""

from __future__ import annotations

from evolver import marks
from evolver.marks import BLUE, GREEN, GREY, PURPLE, VERMILLION, Mark

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#0e1117"
HALO = "#ffffff"
LIGHT_TEXT, DARK_TEXT = "#31333f", "#fafafa"  # of every word in a chart
DARK_ACCENT = "#2e8bc8"  # of what is chosen: blue, light enough to be read on the dark page

VERDICTS = {**marks.VERDICTS, "missing": Mark(GREY, "cross-open", "＋", "not in this run")}
VERDICTS["folded"] = Mark(GREY, "triangle-down-open", "▽", "closed branches, folded")
CHANNELS = {
    "gui": Mark(BLUE, "circle", "●", "gui"),
    "terminal": Mark(GREEN, "square", "■", "terminal"),
    "both": Mark(PURPLE, "diamond", "◆", "both"),
    "none": Mark(GREY, "circle-open", "○", "none"),
}
OUTCOMES = {
    "solved": Mark(BLUE, "circle", "●", "solved"),
    "failed": Mark(VERMILLION, "x", "✕", "failed"),
    "unscored": Mark(GREY, "diamond-open", "◇", "unscored"),
    "not graded": Mark(GREY, "circle-open", "○", "not graded"),
}
_HARNESSES = (
    Mark(BLUE, "circle", "●", ""),
    Mark(VERMILLION, "diamond", "◆", ""),
    Mark(GREEN, "square", "■", ""),
    Mark(PURPLE, "triangle-up", "▲", ""),
)
_REST = Mark(GREY, "circle-open", "○", "")


def harness_mark(harness_id: str, known: list[str]) -> Mark:
    """The look of a harness on every page: by its place among all harnesses of the run, grey from the fifth."""
    place = known.index(harness_id) if harness_id in known else len(_HARNESSES)
    return _HARNESSES[place] if place < len(_HARNESSES) else _REST
