"""How a verdict, a channel and a harness look wherever they are shown: colour, shape and word, so that no meaning is
carried by colour alone.

Four hues with a contrast of at least 3 on white and on a dark page (Okabe and Ito's blue, vermillion, green, purple)
and one grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BLUE, VERMILLION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#767676"


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
    "neutral": Mark(GREY, "star-open", "☆", "hidden neutral edit"),
    "start": Mark(GREEN, "triangle-up", "▲", "start"),
    "undecided": Mark(GREY, "circle-open", "○", "undecided"),
    "missing": Mark(GREY, "cross-open", "＋", "not in this run"),
    "folded": Mark(GREY, "triangle-down-open", "▽", "closed branches, folded"),
}
CHANNELS = {
    "gui": Mark(BLUE, "circle", "●", "gui"),
    "terminal": Mark(GREEN, "square", "■", "terminal"),
    "both": Mark(PURPLE, "diamond", "◆", "both"),
    "none": Mark(GREY, "circle-open", "○", "none"),
}
_HARNESSES = (
    Mark(BLUE, "circle", "●", ""),
    Mark(VERMILLION, "diamond", "◆", ""),
    Mark(GREEN, "square", "■", ""),
    Mark(PURPLE, "triangle-up", "▲", ""),
)
_REST = Mark(GREY, "circle-open", "○", "")


def harness_mark(harness_id: str, known: Sequence[str]) -> Mark:
    """The look of a harness in every figure: by its place among all harnesses of the run, grey from the fifth."""
    place = known.index(harness_id) if harness_id in known else len(_HARNESSES)
    return _HARNESSES[place] if place < len(_HARNESSES) else _REST
