"""The two figures of a run (Plotly): the gap of teachers and students, and the candidates against their incumbents.

The same figures serve the report, the dashboard and the README.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from evolver.errors import NotReady
from evolver.marks import BLUE, GREY, VERDICTS, VERMILLION
from evolver.phrasing import pp
from evolver.records import Decision, Distillation, Evaluation, Gap, Interval
from evolver.report import effect_of
from evolver.store import Store

FAINT = "rgba(128, 128, 128, 0.35)"
BAND = "rgba(128, 128, 128, 0.14)"


def seed_dots(store: Store) -> dict[str, list[float]]:
    """Harness id → test success (0..1) of each of its students, one per training seed."""
    students = {d.student_model for d in store.all(Distillation)}
    found: dict[str, list[float]] = {}
    for evaluation in store.all(Evaluation):
        if evaluation.model_id in students and evaluation.purpose == "test" and evaluation.success.point is not None:
            found.setdefault(evaluation.harness_id, []).append(evaluation.success.point)
    return found


def gap_figure(gap: Gap, names: Mapping[str, str], dots: Mapping[str, Sequence[float]]) -> go.Figure:
    """Left: success of teacher and student, one line per harness. Right: the two gaps B - A on one axis with zero."""
    figure = make_subplots(
        rows=1, cols=2, column_widths=[0.58, 0.42], horizontal_spacing=0.17,
        subplot_titles=("Success on the test tasks", "Gap B − A, percentage points"),
    )  # fmt: skip
    arms = (
        ("A", gap.harness_a, (gap.teacher_a, gap.student_a), (BLUE, "circle")),
        ("B", gap.harness_b, (gap.teacher_b, gap.student_b), (VERMILLION, "diamond")),
    )
    ends = _apart([interval[1].point for _, _, interval, _ in arms])
    for (letter, harness, intervals, (colour, symbol)), end in zip(arms, ends, strict=True):
        label = f"{letter}: {names.get(harness, harness[:8])}"
        shift = -0.02 if letter == "A" else 0.02
        figure.add_trace(_slope(label, intervals, shift, colour, symbol), row=1, col=1)
        figure.add_trace(_dots(dots.get(harness, ()), 1 + shift, colour), row=1, col=1)
        if end is not None:
            note = {"text": f"<b>{label}</b>", "font": {"color": colour}, "showarrow": False, "xanchor": "left"}
            figure.add_annotation(x=1.08, y=end, row=1, col=1, **note)
    _gaps(figure, gap)
    ticks = {"tickvals": [0, 1], "ticktext": ["Teacher", "Student"], "range": [-0.2, 1.62]}
    figure.update_xaxes(**ticks, showgrid=False, zeroline=False, row=1, col=1)
    figure.update_yaxes(range=[-4, 104], ticksuffix=" %", gridcolor=FAINT, zeroline=False, row=1, col=1)
    return _dressed(figure, 420)


def forest_figure(decisions: Sequence[Decision], names: Mapping[str, str], min_effect: float) -> go.Figure:
    """One row per candidate, sorted by effect: 95 % interval in pp, zero line, zone of small effects."""
    figure = go.Figure()
    measured = [(d, *effect_of(d)) for d in decisions]
    shown = sorted(((d, e, w) for d, e, w in measured if e and e.point is not None), key=lambda row: row[1].point or 0)
    labels = [
        f"{names.get(d.candidate_harness, d.candidate_harness[:8])} v {_incumbent(d, names)}" for d, _, _ in shown
    ]
    if min_effect:
        figure.add_vrect(x0=-100 * min_effect, x1=100 * min_effect, fillcolor=BAND, line_width=0, layer="below")
    figure.add_vline(x=0, line_color=GREY, line_width=1.5)
    for row, (decision, effect, where) in enumerate(shown):
        mark = VERDICTS[decision.verdict]
        marker = {"color": mark.colour, "symbol": mark.symbol, "size": 11, "line": {"width": 2, "color": mark.colour}}
        figure.add_trace(
            go.Scatter(
                x=[_pp(effect.point)], y=[row], mode="markers", marker=marker, error_x=_spread(effect, mark.colour),
                hovertemplate=f"{labels[row]}<br>{pp(effect)}<extra></extra>", customdata=[decision.candidate_harness],
            )
        )  # fmt: skip
        text = f"<b>{mark.label}</b>  {pp(effect)}, {where}, n = {effect.n}"
        note = {"text": text, "font": {"color": mark.colour}, "showarrow": False, "xanchor": "left"}
        figure.add_annotation(x=1.02, xref="paper", y=row, yref="y", **note)
    ticks = {"tickvals": list(range(len(shown))), "ticktext": labels, "range": [-0.6, len(shown) - 0.4]}
    figure.update_yaxes(**ticks, showgrid=False, zeroline=False)
    title = "success of the candidate − incumbent, percentage points"
    figure.update_xaxes(title=title, gridcolor=FAINT, zeroline=False, rangemode="tozero")
    return _dressed(figure, 170 + 46 * len(shown)).update_layout(margin={"r": 400})


def save_png(figure: go.Figure, path: Path) -> None:
    """Raises `NotReady` where no Chromium is installed, with which Plotly draws its pictures."""
    try:
        figure.write_image(path, scale=2, width=figure.layout.width or 1000)
    except (RuntimeError, ValueError, ImportError) as error:
        raise NotReady(f"no picture {path} (it needs Chromium: apt-get install chromium): {_line(error)}") from error


def _slope(label: str, arms: tuple[Interval, Interval], shift: float, colour: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=[0 + shift, 1 + shift], y=[_pp(arm.point) for arm in arms], name=label, mode="lines+markers",
        line={"color": colour, "width": 3}, marker={"size": 11, "symbol": symbol},
        error_y={
            "type": "data", "symmetric": False, "color": colour, "thickness": 1.2, "width": 5,
            "array": [_above(arm) for arm in arms], "arrayminus": [_below(arm) for arm in arms],
        },
        hovertemplate=f"{label}: %{{y:.1f}} %<extra></extra>",
    )  # fmt: skip


def _dots(values: Sequence[float], x: float, colour: str) -> go.Scatter:
    marker = {"size": 5, "color": colour, "opacity": 0.6}
    return go.Scatter(x=[x - 0.06] * len(values), y=[100 * v for v in values], mode="markers", marker=marker)


def _gaps(figure: go.Figure, gap: Gap) -> None:
    for row, (name, interval) in enumerate((("student", gap.student_gap), ("teacher", gap.teacher_gap))):
        if interval.point is None:
            note = {"text": f"{name} gap unknown", "font": {"color": GREY}, "showarrow": False}
            figure.add_annotation(x=0, y=row, row=1, col=2, **note)
            continue
        figure.add_trace(
            go.Scatter(
                x=[_pp(interval.point)], y=[row], mode="markers", marker={"size": 12, "color": GREY},
                error_x=_spread(interval, GREY), hovertemplate=f"{name} gap {pp(interval)}<extra></extra>",
            ),
            row=1, col=2,
        )  # fmt: skip
        note = {"text": pp(interval), "showarrow": False, "yshift": 20}
        figure.add_annotation(x=_pp(interval.point), y=row, row=1, col=2, **note)
    figure.add_vline(x=0, line_color=GREY, line_width=1.5, row=1, col=2, exclude_empty_subplots=False)
    ticks = {"tickvals": [0, 1], "ticktext": ["Student", "Teacher"], "range": [-0.6, 1.6]}
    figure.update_yaxes(**ticks, showgrid=False, zeroline=False, row=1, col=2)
    figure.update_xaxes(ticksuffix=" pp", gridcolor=FAINT, zeroline=False, rangemode="tozero", row=1, col=2)


def _dressed(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        template="plotly_white", height=height, showlegend=False, font={"size": 13},
        margin={"l": 130, "r": 30, "t": 60, "b": 50}, paper_bgcolor="white", plot_bgcolor="white",
    )  # fmt: skip
    return figure


def _spread(interval: Interval, colour: str) -> dict[str, object]:
    return {
        "type": "data", "symmetric": False, "color": colour, "thickness": 2, "width": 6,
        "array": [_above(interval)], "arrayminus": [_below(interval)],
    }  # fmt: skip


def _apart(values: Sequence[float | None], gap: float = 7.0) -> list[float | None]:
    """Heights (in %) for two labels, moved apart where they would lie on each other."""
    heights = [_pp(value) for value in values]
    a, b = heights
    if a is not None and b is not None and abs(a - b) < gap:
        middle, up = (a + b) / 2, gap / 2 if a >= b else -gap / 2
        return [middle + up, middle - up]
    return heights


def _incumbent(decision: Decision, names: Mapping[str, str]) -> str:
    return names.get(decision.incumbent_harness, decision.incumbent_harness[:8])


def _pp(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _above(interval: Interval) -> float:
    return 0.0 if interval.high is None or interval.point is None else 100 * (interval.high - interval.point)


def _below(interval: Interval) -> float:
    return 0.0 if interval.low is None or interval.point is None else 100 * (interval.point - interval.low)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
