"""Plotly figures of two harnesses side by side: the gap with its noise floor, its odds as dots, and the gap per app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from evolver.compare import Comparison
from evolver.figures.paper import in_percent, whiskers
from evolver.marks import BLUE, GREY, PURPLE, VERMILLION
from evolver.phrasing import or_why, pp
from evolver.records import Interval

AXIS = "gap B − A, percentage points of success"


def gap(found: Interval, noise: Interval, names: tuple[str, str]) -> go.Figure:
    """The gap as a point with its 95 % interval on one axis with zero; the grey band is A against itself."""
    figure = go.Figure()
    if noise.low is not None and noise.high is not None:
        figure.add_vrect(x0=100 * noise.low, x1=100 * noise.high, fillcolor=GREY, opacity=0.35, line_width=0)
    figure.add_scatter(
        x=[in_percent(found.point)],
        y=[0],
        mode="markers",
        marker={"size": 15, "color": BLUE},
        error_x=whiskers([found], BLUE),
        hovertemplate=or_why(found, pp) + "<extra></extra>",
    )
    figure.add_annotation(x=0.5, xref="paper", y=0, text=f"<b>{or_why(found, pp)}</b>", showarrow=False, yshift=26)
    _ends(figure, names)
    _axis(figure, [found, noise])
    figure.update_yaxes(visible=False, range=[-1, 1])
    return _laid(figure, 215).update_layout(margin_t=55)  # the words on top stay below the button of a page


def odds(draws: Sequence[float], names: tuple[str, str]) -> go.Figure:
    """Each dot is one of equally likely values of the gap, stacked where they lie close together."""
    wide = max((abs(100 * d) for d in draws), default=1.0) or 1.0
    step = wide / 12
    height: dict[int, int] = {}
    xs, ys = [], []
    for draw in draws:
        column = round(100 * draw / step)
        height[column] = height.get(column, 0) + 1
        xs.append(column * step)
        ys.append(height[column])
    ahead = [draw > 0 for draw in draws]
    figure = go.Figure()
    for wanted, colour, symbol, word in (
        (True, BLUE, "circle", f"{names[1]} ahead"),
        (False, VERMILLION, "circle-open", f"{names[1]} not ahead"),
    ):
        figure.add_scatter(
            x=[x for x, won in zip(xs, ahead, strict=True) if won is wanted],
            y=[y for y, won in zip(ys, ahead, strict=True) if won is wanted],
            mode="markers",
            name=f"{word}: {ahead.count(wanted)} of {len(draws)}",
            marker={"size": 13, "color": colour, "symbol": symbol, "line": {"width": 2, "color": colour}},
            hoverinfo="skip",
        )
    _axis(figure, [])
    figure.update_xaxes(range=[-1.15 * wide, 1.15 * wide])
    figure.update_yaxes(visible=False, range=[0, max(ys, default=1) + 1])
    return _laid(figure, 230).update_layout(showlegend=True, legend={"orientation": "h", "y": 1.2, "x": 0})


def forest(apps: Mapping[str, Comparison], whole: Comparison) -> go.Figure:
    """One row per app, sorted by effect, with n at the right; the diamond below them is all tasks together."""
    rows = [(app, made.effect, "circle") for app, made in apps.items()]
    rows.append(("all tasks", whole.effect, "diamond"))
    figure = go.Figure()
    for symbol, colour in (("circle", BLUE), ("diamond", PURPLE)):
        alike = [(n, effect) for n, (_, effect, looks) in enumerate(rows) if looks == symbol]
        some = [(n, effect) for n, effect in alike if effect.point is not None]
        figure.add_scatter(
            x=[in_percent(effect.point) for _, effect in some],
            y=[n for n, _ in some],
            mode="markers",
            marker={"size": 12, "color": colour, "symbol": symbol},
            error_x=whiskers([effect for _, effect in some], colour),
            customdata=[[rows[n][0], or_why(effect, pp)] for n, effect in some],
            hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
        )
    for number, (_, effect, _) in enumerate(rows):
        text = f"{pp(effect)}, n = {effect.n}"
        figure.add_annotation(x=1.02, xref="paper", y=number, text=text, showarrow=False, xanchor="left")
    _axis(figure, [effect for _, effect, _ in rows])
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[name for name, _, _ in rows],
        range=[len(rows) - 0.4, -0.6],
        showgrid=False,
        zeroline=False,
    )
    return _laid(figure, 120 + 40 * len(rows)).update_layout(margin={"l": 10, "r": 250, "t": 20, "b": 40})


def _ends(figure: go.Figure, names: tuple[str, str]) -> None:
    """Which side means what, in words."""
    for x, anchor, text in ((0.0, "left", f"← {names[0]} better"), (1.0, "right", f"{names[1]} better →")):
        figure.add_annotation(
            x=x, xref="paper", y=1.0, yref="paper", text=text, showarrow=False, xanchor=anchor, yanchor="bottom"
        )


def _axis(figure: go.Figure, shown: Sequence[Interval]) -> None:
    """An axis in percentage points that always holds zero, with room round what is shown."""
    ends = [100 * v for i in shown for v in (i.low, i.high, i.point) if v is not None]
    figure.add_vline(x=0, line_color=GREY, line_width=1.5)
    figure.update_xaxes(title=AXIS, zeroline=False)
    if ends:
        low, high = min(0.0, *ends), max(0.0, *ends)
        room = 0.08 * ((high - low) or 10.0)
        figure.update_xaxes(range=[low - room, high + room])


def _laid(figure: go.Figure, height: int) -> go.Figure:
    return figure.update_layout(height=height, showlegend=False, margin={"l": 10, "r": 10, "t": 30, "b": 40})
