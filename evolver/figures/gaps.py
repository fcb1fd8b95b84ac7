"""The gap of teachers and students: success of both, and the two gaps on one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from evolver.figures.paper import FAINT, in_percent, inked, whiskers
from evolver.marks import BLUE, GREY, VERMILLION
from evolver.phrasing import pp
from evolver.records import Distillation, Equal, Evaluation, Gap, Interval
from evolver.store import Store


def seed_dots(store: Store, equal: Equal | None = None) -> dict[str, list[float]]:
    """Harness id → test success (0..1) of each of its students, one per training seed, as last evaluated; those of a
    variant where one is named."""
    students = {d.student_model: d.teacher_harness for d in store.all(Distillation) if equal in (None, d.equal)}
    last = {
        evaluation.model_id: evaluation.success.point
        for evaluation in store.all(Evaluation)
        if evaluation.purpose == "test" and students.get(evaluation.model_id) == evaluation.harness_id
    }
    found: dict[str, list[float]] = {}
    for student, success in last.items():
        if success is not None:
            found.setdefault(students[student], []).append(success)
    return found


def gap_figure(gap: Gap, names: Mapping[str, str], dots: Mapping[str, Sequence[float]]) -> go.Figure:
    """Left: success of teacher and student, one line per harness. Right: the two gaps B - A on one axis with zero."""
    figure = make_subplots(
        rows=1, cols=2, column_widths=[0.58, 0.42], horizontal_spacing=0.17,
        subplot_titles=("Success on the test tasks", "Gap B − A, percentage points"),
    )  # fmt: skip
    arms = (
        ("A", gap.harness_a, (gap.teacher_a, gap.student_a), (BLUE, "circle", "●")),
        ("B", gap.harness_b, (gap.teacher_b, gap.student_b), (VERMILLION, "diamond", "◆")),
    )
    ends = _apart([interval[1].point for _, _, interval, _ in arms])
    for (letter, harness, intervals, (colour, symbol, glyph)), end in zip(arms, ends, strict=True):
        label = f"{letter}: {names.get(harness, harness[:8])}"
        shift = -0.02 if letter == "A" else 0.02
        figure.add_trace(_slope(label, intervals, shift, colour, symbol), row=1, col=1)
        figure.add_trace(_dots(dots.get(harness, ()), 1 + shift, colour), row=1, col=1)
        if end is not None:
            note = {"text": f"{inked(glyph, colour)} <b>{label}</b>", "showarrow": False, "xanchor": "left"}
            figure.add_annotation(x=1.08, y=end, row=1, col=1, **note)
    _gaps(figure, gap)
    ticks = {"tickvals": [0, 1], "ticktext": ["Teacher", "Student"], "range": [-0.2, 1.62]}
    figure.update_xaxes(**ticks, showgrid=False, zeroline=False, row=1, col=1)
    figure.update_yaxes(range=[-4, 104], ticksuffix=" %", gridcolor=FAINT, zeroline=False, row=1, col=1)
    return figure.update_layout(height=420, showlegend=False, margin={"l": 130, "r": 30, "t": 60, "b": 50})


def _slope(label: str, arms: tuple[Interval, Interval], shift: float, colour: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=[0 + shift, 1 + shift], y=[in_percent(arm.point) for arm in arms], name=label, mode="lines+markers",
        line={"color": colour, "width": 3}, marker={"size": 11, "symbol": symbol},
        error_y=whiskers(arms, colour) | {"thickness": 1.2, "width": 5},
        hovertemplate=f"{label}: %{{y:.1f}} %<extra></extra>",
    )  # fmt: skip


def _dots(values: Sequence[float], x: float, colour: str) -> go.Scatter:
    marker = {"size": 5, "color": colour, "opacity": 0.6}
    return go.Scatter(x=[x - 0.06] * len(values), y=[100 * v for v in values], mode="markers", marker=marker)


def _gaps(figure: go.Figure, gap: Gap) -> None:
    for row, (name, interval) in enumerate((("student", gap.student_gap), ("teacher", gap.teacher_gap))):
        if interval.point is None:
            note = {"text": f"{name} gap unknown", "showarrow": False}
            figure.add_annotation(x=0, y=row, row=1, col=2, **note)
            continue
        figure.add_trace(
            go.Scatter(
                x=[in_percent(interval.point)], y=[row], mode="markers", marker={"size": 12, "color": GREY},
                error_x=whiskers([interval], GREY), hovertemplate=f"{name} gap {pp(interval)}<extra></extra>",
            ),
            row=1, col=2,
        )  # fmt: skip
        note = {"text": pp(interval), "showarrow": False, "yshift": 20}
        figure.add_annotation(x=in_percent(interval.point), y=row, row=1, col=2, **note)
    figure.add_vline(x=0, line_color=GREY, line_width=1.5, row=1, col=2, exclude_empty_subplots=False)
    ticks = {"tickvals": [0, 1], "ticktext": ["Student", "Teacher"], "range": [-0.6, 1.6]}
    figure.update_yaxes(**ticks, showgrid=False, zeroline=False, row=1, col=2)
    figure.update_xaxes(ticksuffix=" pp", gridcolor=FAINT, zeroline=False, rangemode="tozero", row=1, col=2)


def _apart(values: Sequence[float | None], gap: float = 7.0) -> list[float | None]:
    """Heights (in %) for two labels, moved apart where they would lie on each other."""
    heights = [in_percent(value) for value in values]
    a, b = heights
    if a is not None and b is not None and abs(a - b) < gap:
        middle, up = (a + b) / 2, gap / 2 if a >= b else -gap / 2
        return [middle + up, middle - up]
    return heights
