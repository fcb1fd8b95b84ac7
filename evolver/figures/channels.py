"""Where each harness clicks and where it types: the terminal's share of the calls, app by app."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import plotly.graph_objects as go

from evolver.figures.paper import MARGIN, arms, in_percent, inked
from evolver.marks import GREY, Mark
from evolver.phrasing import or_why, percent
from evolver.records import Interval


def channel_dots(
    shares: Mapping[str, Mapping[str, Interval]], marks: Mapping[str, Mark], name: Callable[[str], str]
) -> go.Figure:
    """Terminal share of the calls per app; `shares` maps app → harness id → interval, in the order to be drawn."""
    figure = go.Figure()
    apps = list(shares)
    for row, app in enumerate(apps):
        ends = [100 * i.point for i in shares[app].values() if i.point is not None]
        if len(ends) > 1:
            figure.add_scatter(
                x=[min(ends), max(ends)],
                y=[row, row],
                mode="lines",
                line={"width": 1.5, "color": GREY},
                showlegend=False,
                hoverinfo="skip",
            )
    harnesses = list(dict.fromkeys(h for row in shares.values() for h in row))
    for place, harness in enumerate(harnesses):
        rows = [
            (r, shares[a][harness])
            for r, a in enumerate(apps)
            if harness in shares[a] and shares[a][harness].point is not None
        ]
        offset = 0.24 * (place - (len(harnesses) - 1) / 2)
        mark = marks[harness]
        figure.add_scatter(
            x=[in_percent(i.point) for _, i in rows],
            y=[r + offset for r, _ in rows],
            mode="markers+text",
            name=name(harness),
            error_x=arms([i for _, i in rows]),
            text=[f"n={i.n}" for _, i in rows],
            textposition="top center",
            textfont={"size": 11},
            marker={
                "color": mark.colour,
                "symbol": mark.symbol,
                "size": 12,
                "line": {"width": 1, "color": mark.colour},
            },
            customdata=[[or_why(i, percent), apps[r]] for r, i in rows],
            hovertemplate="%{customdata[1]}: %{customdata[0]} by terminal<extra>" + name(harness) + "</extra>",
        )
        silent = [r for r, a in enumerate(apps) if harness in shares[a] and shares[a][harness].point is None]
        figure.add_scatter(
            x=[0] * len(silent),
            y=[r + offset for r in silent],
            mode="text",
            text=[f"{inked(mark.glyph, mark.colour)} {name(harness)}: no calls"] * len(silent),
            textposition="middle right",
            hoverinfo="skip",
            showlegend=False,
        )
    figure.update_xaxes(title="share of calls through the terminal, % (0 = all by GUI)", range=[-4, 104])
    figure.update_yaxes(tickvals=list(range(len(apps))), ticktext=apps, range=[len(apps) - 0.4, -0.6], zeroline=False)
    figure.update_layout(height=150 + 78 * len(apps), margin=MARGIN, legend={"orientation": "h", "y": 1.15, "x": 0})
    return figure
