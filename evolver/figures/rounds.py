"""A generation round: why attempts were turned away, and how near each instrument is to its alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from evolver.figures.paper import MARGIN
from evolver.marks import BLUE, GREY, VERMILLION
from evolver.rounds.view import InstrumentView


def rejections(counts: Mapping[str, int], accepted: int) -> go.Figure:
    """One bar per reason, the commonest on top, under the accepted ones."""
    rows = [("accepted", accepted, BLUE), *((reason, n, GREY) for reason, n in counts.items())]
    total = sum(n for _, n, _ in rows) or 1
    figure = go.Figure()
    figure.add_bar(
        x=[n for _, n, _ in rows], y=[reason for reason, _, _ in rows], orientation="h",
        marker={"color": [colour for _, _, colour in rows]},
        text=[f"{n:,} ({100 * n / total:.1f} %)" for _, n, _ in rows], textposition="outside", cliponaxis=False,
        hoverinfo="skip",
    )  # fmt: skip
    figure.update_xaxes(title="units", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", type="category")
    return figure.update_layout(height=110 + 32 * len(rows), margin=MARGIN | {"r": 110}, showlegend=False, bargap=0.35)


def instruments(seen: Sequence[InstrumentView]) -> go.Figure:
    """Each instrument's statistic as a share of what raises its alarm; the line at 100 % is that alarm."""
    figure = go.Figure()
    figure.add_vline(x=100, line_color=VERMILLION, line_width=2)
    for alarm, colour, symbol in ((False, BLUE, "circle"), (True, VERMILLION, "x")):
        some = [one for one in seen if one.alarm is alarm]
        figure.add_scatter(
            x=[_share(one) for one in some], y=[one.name for one in some], mode="markers",
            marker={"size": 13, "color": colour, "symbol": symbol}, customdata=[[one.off, one.seen] for one in some],
            hovertemplate="%{y}: %{customdata[0]:,} of %{customdata[1]:,} looks off<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="evidence of drift, % of what raises the alarm", range=[-4, 112], zeroline=False)
    figure.update_yaxes(categoryorder="array", categoryarray=[one.name for one in reversed(seen)], type="category")
    return figure.update_layout(height=110 + 32 * max(1, len(seen)), margin=MARGIN, showlegend=False)


def _share(one: InstrumentView) -> float:
    """In percent; below nothing is nothing, above the alarm is the alarm."""
    return min(100.0, max(0.0, 100 * one.statistic / one.threshold)) if one.threshold > 0 else 0.0
