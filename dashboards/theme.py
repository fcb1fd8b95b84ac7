"""Every colour, shape and word by which a page tells verdicts, channels and outcomes apart.

Four hues with a contrast of at least 3 on white and on the dark page (Okabe and Ito's blue, vermillion, green, purple)
and one grey. A meaning is always colour + shape + word, so none is carried by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass

BLUE, VERMILLION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#767676"
LIGHT_PAGE, DARK_PAGE = "#ffffff", "#0e1117"
HALO = "#ffffff"


@dataclass(frozen=True)
class Mark:
    """How one meaning looks: colour, plotly symbol, glyph of the same shape, word."""

    colour: str
    symbol: str
    glyph: str
    word: str

    @property
    def label(self) -> str:
        return f"{self.glyph} {self.word}"


VERDICTS = {
    "promote": Mark(BLUE, "circle", "●", "promote"),
    "reject": Mark(VERMILLION, "x", "✕", "reject"),
    "inconclusive": Mark(GREY, "diamond-open", "◇", "inconclusive"),
    "keep": Mark(PURPLE, "square", "■", "keep"),
    "start": Mark(GREEN, "triangle-up", "▲", "start"),
    "undecided": Mark(GREY, "circle-open", "○", "undecided"),
    "missing": Mark(GREY, "cross-open", "＋", "not in this run"),
}
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
