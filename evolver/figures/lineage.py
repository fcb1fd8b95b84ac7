"""The lineage: as a tree of what was tried, and as the incumbent's success over what the run had spent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import plotly.graph_objects as go

from evolver.figures.labels import Box, places
from evolver.figures.paper import MARGIN, arms, in_percent, inked
from evolver.figures.tree import Node
from evolver.marks import BLUE, GREEN, GREY, VERDICTS
from evolver.phrasing import or_why, percent
from evolver.records import Interval
from evolver.story import PathPoint

MOST_LANES = 12
SPENT, SOLVED = (-0.04, 1.2), (-14.0, 118.0)  # of the axes: shares of the tokens, success in percent
AREA, ARM_PX = (960.0, 270.0), 5.0  # pixels of the path on a narrow page, and of half a whisker


def _bare(interval: Interval) -> Interval:
    """The point alone, for a mark among hundreds."""
    return interval.model_copy(update={"low": None, "high": None})


def incumbent_path(points: Sequence[PathPoint], named: Collection[str]) -> go.Figure:
    """Success on dev over tokens spent: the incumbent as a step line, every decided candidate as a mark; those whose
    candidate is in `named` have their name beside them, as far as names fit without lying on each other."""
    figure = go.Figure()
    known = [p for p in points if p.success.point is not None]
    beside = _names(known, named)
    steps = [p for p in known if p.verdict in ("start", "promote")]
    if steps:
        last = max(p.tokens for p in points)
        figure.add_scatter(
            x=[*(p.tokens for p in steps), last],
            y=[*(in_percent(p.success.point) for p in steps), in_percent(steps[-1].success.point)],
            mode="lines",
            line={"shape": "hv", "width": 4, "color": BLUE},
            name="incumbent",
            hoverinfo="skip",
        )
    for verdict, mark in reversed(VERDICTS.items()):  # the incumbents lie on top
        some = [p for p in known if p.verdict == verdict]
        if some:
            figure.add_scatter(
                x=[p.tokens for p in some],
                y=[in_percent(p.success.point) for p in some],
                mode="markers+text",
                name=mark.word,
                text=[p.name if beside.get(p.candidate) else "" for p in some],
                textposition=[beside.get(p.candidate) or "top right" for p in some],
                error_y=arms([p.success if p.candidate in named else _bare(p.success) for p in some]),
                marker={
                    "color": mark.colour,
                    "symbol": mark.symbol,
                    "size": [12 if p.candidate in named else 5 for p in some],
                    "line": {"width": 2, "color": mark.colour},
                },
                customdata=[[p.name, or_why(p.success, percent), p.success.n] for p in some],
                hovertemplate="%{customdata[0]}<br>%{customdata[1]}, n=%{customdata[2]}<br>%{x:,} tok<extra></extra>",
            )
    widest = max((p.tokens for p in points), default=0) or 1
    low, high = (end * widest for end in SPENT)
    figure.update_xaxes(title="tokens spent (author, teacher, judge, student; known ones)", range=[low, high])
    figure.update_yaxes(title="success on dev, %", range=list(SOLVED), tickvals=[0, 20, 40, 60, 80, 100])
    figure.update_layout(height=380, margin=MARGIN, legend={"orientation": "h", "y": 1.12, "x": 0})
    return figure


def _names(known: Sequence[PathPoint], named: Collection[str]) -> dict[str, str | None]:
    """Candidate → where its name stands; the path's own names choose first. Pixels are those of a narrow page."""
    widest = max((p.tokens for p in known), default=0) or 1
    ordered = sorted((p for p in known if p.candidate in named), key=lambda p: p.verdict not in ("start", "promote"))

    def right(tokens: int) -> float:
        return AREA[0] * (tokens / widest - SPENT[0]) / (SPENT[1] - SPENT[0])

    def up(share: float | None) -> float:
        return AREA[1] * (100 * (share or 0.0) - SOLVED[0]) / (SOLVED[1] - SOLVED[0])

    marks = [(right(p.tokens), up(p.success.point)) for p in ordered]
    arms_of = [
        Box(x - ARM_PX, up(p.success.low), x + ARM_PX, up(p.success.high))
        for (x, _), p in zip(marks, ordered, strict=True)
        if p.success.low is not None
    ]
    found = places(marks, [p.name for p in ordered], AREA, arms_of)
    return {p.candidate: place for p, place in zip(ordered, found, strict=True)}


def tree(nodes: Sequence[Node], chosen: str | None, flags: Mapping[str, str]) -> go.Figure:
    """The lineage: generation to the right, verdict as shape and colour, the incumbent's path thick. `flags` maps node
    id → its stages and tags, which stand above it."""
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
        line = {"width": 6, "color": BLUE} if thick else {"width": 1.5, "color": GREY}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False)
    _stand_out(figure, at, chosen, flags)
    few = max((n.y for n in nodes), default=0.0) <= MOST_LANES  # else names would lie on the marks below them
    for verdict, mark in VERDICTS.items():
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
    """A ring round the chosen node, and a frame with its words round each node that has a stage or a tag."""
    flagged = [at[key] for key in flags if key in at]
    looks: tuple[tuple[list[Node], dict[str, object], list[str]], ...] = (
        (
            [at[chosen]] if chosen is not None and chosen in at else [],
            {"symbol": "circle-open", "size": 26, "color": GREY},
            [""],
        ),
        (flagged, {"symbol": "square-open", "size": 24, "color": GREEN}, [flags[n.id] for n in flagged]),
    )
    for some, marker, text in looks:
        if some:
            figure.add_scatter(
                x=[n.x for n in some], y=[n.y for n in some], mode="markers+text",
                marker=marker | {"line": {"width": 2}},
                text=[f"{inked('⚑', GREEN)} {line}<br>" if line else "" for line in text],
                textposition="top center", hoverinfo="skip", showlegend=False,
            )  # fmt: skip
