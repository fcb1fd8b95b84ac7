"""The candidates against their incumbents, one row each, sorted by effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from evolver.figures.paper import BAND, FAINT, in_percent, inked, whiskers
from evolver.marks import GREY, VERDICTS
from evolver.phrasing import pp
from evolver.records import Decision
from evolver.report import effect_of


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
                x=[in_percent(effect.point)], y=[row], mode="markers", marker=marker,
                error_x=whiskers([effect], mark.colour),
                hovertemplate=f"{labels[row]}<br>{pp(effect)}<extra></extra>", customdata=[decision.candidate_harness],
            )
        )  # fmt: skip
        verdict = f"{inked(mark.glyph, mark.colour)} <b>{mark.word}</b>"
        note = {"text": f"{verdict}  {pp(effect)}, {where}, n = {effect.n}", "showarrow": False, "xanchor": "left"}
        figure.add_annotation(x=1.02, xref="paper", y=row, yref="y", **note)
    ticks = {"tickvals": list(range(len(shown))), "ticktext": labels, "range": [-0.6, len(shown) - 0.4]}
    figure.update_yaxes(**ticks, showgrid=False, zeroline=False)
    title = "success of the candidate − incumbent, percentage points"
    figure.update_xaxes(title=title, gridcolor=FAINT, zeroline=False, rangemode="tozero")
    return figure.update_layout(
        height=170 + 46 * len(shown), showlegend=False, margin={"l": 130, "r": 400, "t": 60, "b": 50}
    )


def _incumbent(decision: Decision, names: Mapping[str, str]) -> str:
    return names.get(decision.incumbent_harness, decision.incumbent_harness[:8])
