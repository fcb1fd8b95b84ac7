"""The time bar of a replay: the one figure that only a page has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go

from dashboards import theme
from evolver.records import Turn


def time_bar(turns: Sequence[Turn], step: int) -> go.Figure:
    """One block per turn: width = seconds, hue = channel, ✕ = an error; the chosen turn is full and framed."""
    widths = [max(0.05, turn.model_s + turn.tools_s) for turn in turns]
    marks = [theme.CHANNELS[turn.channel] for turn in turns]
    chosen = [turn.index == step for turn in turns]
    failed = [turn.completion.invalid is not None or any(r.is_error for r in turn.results) for turn in turns]
    signs = ["✕" if bad else mark.glyph if now else "" for bad, mark, now in zip(failed, marks, chosen, strict=True)]
    figure = go.Figure()
    figure.add_bar(
        x=widths,
        y=["turn"] * len(turns),
        base=[0.0, *accumulate(widths)][:-1],
        orientation="h",
        customdata=[turn.index for turn in turns],
        marker={
            "color": [mark.colour for mark in marks],
            "opacity": [1.0 if now else 0.55 for now in chosen],
            "line": {"width": [4 if now else 1 for now in chosen], "color": theme.LIGHT_PAGE},
        },
        text=signs,
        textposition="inside",
        textangle=0,
        textfont={"color": theme.HALO, "size": 14},
        insidetextanchor="middle",
        hovertext=[f"turn {t.index + 1}: {m.word}, {w:.1f} s" for t, m, w in zip(turns, marks, widths, strict=True)],
        hoverinfo="text",
    )
    figure.update_xaxes(title="seconds (model and tools)", range=[0, sum(widths) or 1], showgrid=False)
    figure.update_yaxes(visible=False)
    figure.update_layout(height=110, margin={"l": 10, "r": 10, "t": 5, "b": 10}, barmode="overlay", bargap=0.1)
    return figure
