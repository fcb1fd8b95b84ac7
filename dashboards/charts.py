"""Plotly figures of the pages; each takes plain views and says its numbers in words beside the marks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate

import plotly.graph_objects as go

from dashboards import theme, words
from dashboards.tree import Node
from dashboards.views import PathPoint
from evolver.records import Interval, Turn

MOST_LANES = 12
MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}


def percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def arms(intervals: Sequence[Interval], scale: float = 100) -> dict[str, object]:
    """Asymmetric error arms, in percent unless told otherwise; none where an interval is unknown."""
    up = [_arm(i.high, i.point, scale) for i in intervals]
    down = [_arm(i.point, i.low, scale) for i in intervals]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5, "width": 4}


def _arm(high: float | None, low: float | None, scale: float) -> float:
    return 0.0 if high is None or low is None else scale * (high - low)


def _bare(interval: Interval) -> Interval:
    """The point alone, for a mark among hundreds."""
    return interval.model_copy(update={"low": None, "high": None})


def incumbent_path(points: Sequence[PathPoint], named: Collection[str]) -> go.Figure:
    """Success on dev over tokens spent: the incumbent as a step line, every decided candidate as a mark; those whose
    candidate is in `named` have their name beside them."""
    figure = go.Figure()
    known = [p for p in points if p.success.point is not None]
    steps = [p for p in known if p.verdict in ("start", "promote")]
    if steps:
        last = max(p.tokens for p in points)
        figure.add_scatter(
            x=[*(p.tokens for p in steps), last],
            y=[*(percent(p.success.point) for p in steps), percent(steps[-1].success.point)],
            mode="lines",
            line={"shape": "hv", "width": 4, "color": theme.BLUE},
            name="incumbent",
            hoverinfo="skip",
        )
    for verdict, mark in reversed(theme.VERDICTS.items()):  # the incumbents lie on top
        some = [p for p in known if p.verdict == verdict]
        if some:
            figure.add_scatter(
                x=[p.tokens for p in some],
                y=[percent(p.success.point) for p in some],
                mode="markers+text",
                name=mark.word,
                text=[p.name if p.candidate in named else "" for p in some],
                textposition="top right",
                error_y=arms([p.success if p.candidate in named else _bare(p.success) for p in some]),
                marker={
                    "color": mark.colour,
                    "symbol": mark.symbol,
                    "size": [12 if p.candidate in named else 5 for p in some],
                    "line": {"width": 2, "color": mark.colour},
                },
                customdata=[[p.name, words.percent(p.success), p.success.n] for p in some],
                hovertemplate="%{customdata[0]}<br>%{customdata[1]}, n=%{customdata[2]}<br>%{x:,} tok<extra></extra>",
            )
    widest = max((p.tokens for p in points), default=0) or 1
    figure.update_xaxes(
        title="tokens spent (author, teacher, judge, student; known ones)", range=[-0.04 * widest, 1.14 * widest]
    )
    figure.update_yaxes(title="success on dev, %", range=[-4, 114], tickvals=[0, 20, 40, 60, 80, 100])
    figure.update_layout(height=380, margin=MARGIN, legend={"orientation": "h", "y": 1.12, "x": 0})
    return figure


def tree(nodes: Sequence[Node], chosen: str | None, flags: Mapping[str, str]) -> go.Figure:
    """The lineage: generation to the right, verdict as shape and colour, the incumbent's path thick. `flags` maps node
    id → stages and names as a frozen harness, which stand above it."""
    figure = go.Figure()
    at = {n.id: n for n in nodes}
    for thick in (False, True):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for node in nodes:
            for parent in (at[p] for p in node.parents if p in at):
                if (node.on_path and parent.on_path) == thick:
                    xs += [parent.x, node.x, None]
                    ys += [parent.y, node.y, None]
        line = {"width": 6, "color": theme.BLUE} if thick else {"width": 1.5, "color": theme.GREY}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False)
    _stand_out(figure, at, chosen, flags)
    few = max((n.y for n in nodes), default=0.0) <= MOST_LANES  # else names would lie on the marks below them
    for verdict, mark in theme.VERDICTS.items():
        some = [n for n in nodes if n.verdict == verdict]
        if some:
            figure.add_scatter(
                x=[n.x for n in some],
                y=[n.y for n in some],
                mode="markers+text",
                name=mark.word,
                customdata=[n.id for n in some],
                text=[f"<br>{n.name}" if few or n.on_path or verdict == "folded" else "" for n in some],
                textposition="bottom center",
                hovertext=[n.name for n in some],
                hovertemplate="%{hovertext}<br>" + mark.word + "<extra></extra>",
                marker={
                    "color": mark.colour,
                    "symbol": mark.symbol,
                    "size": 16,
                    "line": {"width": 2, "color": mark.colour},
                },
            )
    deepest = max((n.x for n in nodes), default=0)
    lowest = max((n.y for n in nodes), default=0.0)
    figure.update_xaxes(title="generation", range=[-0.4, deepest + 0.4], dtick=1, showgrid=False, zeroline=False)
    figure.update_yaxes(visible=False, range=[lowest + 0.6, -0.6])
    height = int(min(900, 200 + 70 * (lowest + 1)))
    figure.update_layout(
        height=height, margin=MARGIN, legend={"orientation": "h", "y": 1.1, "x": 0}, clickmode="event+select"
    )
    return figure


def _stand_out(figure: go.Figure, at: Mapping[str, Node], chosen: str | None, flags: Mapping[str, str]) -> None:
    """A ring round the chosen node, and a frame with its words round each node that has a stage or is frozen."""
    flagged = [at[key] for key in flags if key in at]
    looks: tuple[tuple[list[Node], dict[str, object], list[str]], ...] = (
        ([at[chosen]] if chosen in at else [], {"symbol": "circle-open", "size": 26, "color": theme.GREY}, [""]),
        (flagged, {"symbol": "square-open", "size": 24, "color": theme.GREEN}, [flags[n.id] for n in flagged]),
    )
    for some, marker, text in looks:
        if some:
            figure.add_scatter(
                x=[n.x for n in some], y=[n.y for n in some], mode="markers+text",
                marker=marker | {"line": {"width": 2}},
                text=[f"⚑ {line}<br>" if line else "" for line in text], textposition="top center", hoverinfo="skip",
                textfont={"color": theme.GREEN}, showlegend=False,
            )  # fmt: skip


def channel_dots(
    shares: Mapping[str, Mapping[str, Interval]], marks: Mapping[str, theme.Mark], name: Callable[[str], str]
) -> go.Figure:
    """Terminal share of the calls per app; `shares` maps app → harness id → interval, in the order to be drawn."""
    figure = go.Figure()
    apps = list(shares)
    for row, app in enumerate(apps):
        ends = [percent(i.point) for i in shares[app].values() if i.point is not None]
        if len(ends) > 1:
            figure.add_scatter(
                x=[min(ends), max(ends)],
                y=[row, row],
                mode="lines",
                line={"width": 1.5, "color": theme.GREY},
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
            x=[percent(i.point) for _, i in rows],
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
            customdata=[[words.percent(i), apps[r]] for r, i in rows],
            hovertemplate="%{customdata[1]}: %{customdata[0]} by terminal<extra>" + name(harness) + "</extra>",
        )
        silent = [r for r, a in enumerate(apps) if harness in shares[a] and shares[a][harness].point is None]
        figure.add_scatter(
            x=[0] * len(silent),
            y=[r + offset for r in silent],
            mode="text",
            text=[f"{mark.glyph} no calls"] * len(silent),
            textposition="middle right",
            textfont={"color": theme.GREY},
            hoverinfo="skip",
            showlegend=False,
        )
    figure.update_xaxes(title="share of calls through the terminal, % (0 = all by GUI)", range=[-4, 104])
    figure.update_yaxes(tickvals=list(range(len(apps))), ticktext=apps, range=[len(apps) - 0.4, -0.6], zeroline=False)
    figure.update_layout(height=150 + 78 * len(apps), margin=MARGIN, legend={"orientation": "h", "y": 1.15, "x": 0})
    return figure


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
