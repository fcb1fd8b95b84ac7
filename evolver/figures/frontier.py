"""What a point of success costs: the harnesses of one or several runs, and those that no other one beats on both.

A harness without a known cost never enters the frontier; it is counted beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from evolver.figures.paper import arms
from evolver.marks import BLUE, GREY, Mark
from evolver.phrasing import UNKNOWN, or_why, percent, seconds, tokens
from evolver.records import Evaluation, Interval
from evolver.story import Story

Measure = Literal["tokens", "money", "seconds"]
MOST_NAMES = 12
MOST_CROSSES = 40  # of one kind; more would hide the marks
AXES: dict[Measure, str] = {
    "tokens": "tokens per task",
    "money": "US dollars per attempt",
    "seconds": "seconds per task",
}


@dataclass(frozen=True)
class Priced:
    """One harness: its success and its cost, either of which may be unknown. `low` and `high` bound the cost."""

    run: str
    label: str
    name: str
    success: Interval
    cost: float | None
    low: float | None
    high: float | None
    tasks_sha256: str

    @property
    def known(self) -> bool:
        """Whether it has a place on axes of finite numbers."""
        return self.cost is not None and math.isfinite(self.cost) and self.success.point is not None

    @property
    def cost_interval(self) -> Interval:
        return Interval(point=self.cost, low=self.low, high=self.high, n=self.success.n, method="")


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the (cost, success) that nothing beats: none is cheaper and as good, or as cheap and better. Equal
    ones all stay. Cost rises along the answer; n log n."""
    order = sorted(range(len(points)), key=lambda n: (points[n][0], -points[n][1]))
    kept: list[int] = []
    for n in order:
        if not kept or points[n][1] > points[kept[-1]][1] or points[n] == points[kept[-1]]:
            kept.append(n)
    return kept


def priced(story: Story, kind: tuple[str, str], measure: Measure) -> list[Priced]:
    """Every harness of a run that was evaluated for one (split, purpose), by its newest evaluation."""
    newest = {
        made.harness_id: made
        for made in story.evaluations
        if (made.split, made.purpose) == kind and made.model_id not in story.student_models
    }
    return [_priced(story, made, measure) for made in newest.values()]


def _priced(story: Story, made: Evaluation, measure: Measure) -> Priced:
    low = high = None
    if measure == "tokens":
        cost, low, high = made.tokens_per_task.point, made.tokens_per_task.low, made.tokens_per_task.high
    elif measure == "money":
        tries = made.n_tasks * made.attempts
        total = None if made.cost_usd is None or not tries else made.cost_usd / tries  # as old records have it
        cost = total if made.cost_per_task is None else made.cost_per_task
    else:
        cost = made.seconds_per_task
    harness = made.harness_id
    return Priced(
        run=story.records.path.name, label=story.harness_labels.get(harness, harness), name=story.name(harness),
        success=made.success, cost=cost, low=low, high=high, tasks_sha256=made.tasks_sha256,
    )  # fmt: skip


def staircase(shown: Sequence[Priced]) -> list[Priced]:
    """The members of the frontier, the cheapest first."""
    known = [p for p in shown if p.known]
    return [known[n] for n in frontier([(p.cost or 0.0, p.success.point or 0.0) for p in known])]


def chart(shown: Sequence[Priced], measure: Measure, several: bool) -> go.Figure:
    """Success over cost; crosses are both intervals, what the frontier beats is grey, steps and no diagonals."""
    figure = go.Figure()
    members = staircase(shown)
    known = [p for p in shown if p.known]
    if members:
        last = max(p.cost or 0.0 for p in known)
        steps = [*((p.cost, 100 * (p.success.point or 0.0)) for p in members)]
        steps.append((1.15 * last, steps[-1][1]))
        figure.add_scatter(
            x=[x for x, _ in steps], y=[y for _, y in steps], mode="lines", hoverinfo="skip", name="frontier",
            line={"shape": "hv", "width": 3, "color": BLUE},
        )  # fmt: skip
    beaten = [p for p in known if p not in members]
    for some, look, word in (
        (beaten, Mark(GREY, "circle-open", "○", ""), "beaten by the frontier"),
        (members, Mark(BLUE, "circle", "●", ""), "on the frontier"),
    ):
        crossed = some if len(some) <= MOST_CROSSES else []
        figure.add_scatter(
            x=[p.cost for p in some],
            y=[100 * (p.success.point or 0.0) for p in some],
            mode="markers",
            name=word,
            customdata=[[p.run, p.label, or_why(p.success, percent)] for p in some],
            hovertemplate="%{customdata[0]}: %{customdata[1]}<br>%{customdata[2]}, %{x:,.4g}<extra></extra>",
            error_x=arms([p.cost_interval for p in crossed], 1) | {"color": look.colour},
            error_y=arms([p.success for p in crossed]) | {"color": look.colour},
            marker={
                "color": look.colour,
                "symbol": look.symbol,
                "size": 13,
                "line": {"width": 2, "color": look.colour},
            },
        )
    _gutter(figure, shown)
    _names(figure, members, several)
    scale = "log" if known and all((p.cost or 0.0) > 0 for p in known) else "linear"
    figure.update_xaxes(title=f"{AXES[measure]} ({scale} scale)", type=scale, showgrid=False)
    if scale == "log":
        ticks = _ticks([end for p in known for end in (p.cost, p.low, p.high) if end])
        figure.update_xaxes(tickvals=ticks, ticktext=[f"{tick:,.6g}" for tick in ticks])
    figure.update_yaxes(title="success, %", range=[-6, 108], tickvals=[0, 20, 40, 60, 80, 100])
    figure.add_annotation(x=0.0, y=1.0, xref="paper", yref="paper", text="↖ better", showarrow=False, xanchor="left")
    return figure.update_layout(
        height=520, margin={"l": 10, "r": 10, "t": 40, "b": 40}, legend={"orientation": "h", "y": 1.1, "x": 0.1},
        clickmode="event+select",
    )  # fmt: skip


def _names(figure: go.Figure, members: Sequence[Priced], several: bool) -> None:
    """The names of the frontier's members at the end of thin lines, so that close ones don't lie on each other."""
    log = all((p.cost or 0.0) > 0 for p in members)
    for place, point in enumerate(reversed(members[-MOST_NAMES:])):
        at = math.log10(point.cost or 1.0) if log else point.cost
        down = 1 if (point.success.point or 0.0) > 0.4 else -1
        figure.add_annotation(
            x=at, y=100 * (point.success.point or 0.0), text=_short(point, several), ax=40,
            ay=down * (80 + 24 * (place % 5)),
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=GREY, xanchor="left", standoff=8,
        )  # fmt: skip


def _ticks(values: Sequence[float]) -> list[float]:
    """1, 2, 5, 10, 20, 50, ... over the range of some values above 0."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [m * 10.0**e for e in powers for m in (1, 2, 5) if low / 2 <= m * 10.0**e <= 2 * high]


def _short(point: Priced, several: bool) -> str:
    return f"{point.name} ({point.run})" if several else point.name


def _gutter(figure: go.Figure, shown: Sequence[Priced]) -> None:
    """Those that have no place on the axes are counted in its corner."""
    lost = sum(not p.known for p in shown)
    if lost:
        text = f"{lost} of {len(shown)} not drawn: cost or success unknown"
        figure.add_annotation(x=1.0, y=0.0, xref="paper", yref="paper", text=text, showarrow=False, xanchor="right")


def cost_text(point: Priced, measure: Measure) -> str:
    if point.cost is None:
        return UNKNOWN
    if measure == "money":
        return f"${point.cost:,.4f}"
    if measure == "seconds":
        return seconds(point.cost)
    return or_why(point.cost_interval, tokens)
