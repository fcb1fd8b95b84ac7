"""What does a point of success cost?"""

from __future__ import annotations

import streamlit as st

from dashboards import frame, words
from dashboards.views import Story
from evolver.figures import frontier
from evolver.figures.frontier import Measure, Priced

MEASURES: tuple[Measure, ...] = ("tokens", "money", "seconds")
ROWS = 100
MOST_TOLD = 8


def page() -> None:
    st.header("What does a point of success cost?", anchor=False)
    stories = _stories()
    kinds = sorted(
        {(e.split, e.purpose) for story in stories for e in story.evaluations},
        key=lambda kind: (kind != ("dev", "race"), kind),
    )
    if not kinds:
        st.info("No evaluation has been written yet, so nothing has a success or a cost.")
        return
    left, right = st.columns(2)
    with left:
        measure = st.segmented_control("cost in", MEASURES, default="tokens", key="f_cost", bind="query-params")
    with right:
        by_label = {f"{split} ({purpose})": (split, purpose) for split, purpose in kinds}
        chosen = st.selectbox("measured on", list(by_label), key="f_on", bind="query-params")
    cost: Measure = measure if measure in MEASURES else "tokens"
    shown = [p for story in stories for p in frontier.priced(story, by_label[str(chosen)], cost)]
    if not shown:
        st.info("No harness was evaluated on that.")
        return
    if len({p.tasks_sha256 for p in shown}) > 1:
        st.warning("These were not all measured on the same tasks: Compare says which of them pair.")
    _chart(shown, cost, len(stories) > 1)
    _table(shown, cost)


def _stories() -> list[Story]:
    """The run that the bar shows, and others that the reader adds."""
    found = [frame.story()]
    others = [path.name for path in frame.other_runs()]
    if others:
        added = st.multiselect("runs beside this one", others, key="f_runs", bind="query-params")
        found += [story for name in added if (story := frame.story_of(str(name))) is not None]
    return found


def _chart(shown: list[Priced], cost: Measure, several: bool) -> None:
    members = frontier.staircase(shown)
    told = [f"{p.name} {words.percent(p.success)} at {frontier.cost_text(p, cost)}" for p in members]
    said = "; ".join(told[:MOST_TOLD]) + (f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else "")
    frame.draw(
        frontier.chart(shown, cost, several),
        key="frontier",
        on_select="rerun",
        alt=f"Frontier: {said}",
        bar="all",
    )
    lost = sum(not p.known for p in shown)
    st.caption(
        f"{len(members)} of {len(shown)} harnesses are on the frontier: {said}. {lost} without a known cost or success "
        "are not drawn and can't be on it. Crosses are 95 % intervals over tasks (not drawn for more than "
        f"{frontier.MOST_CROSSES} of a kind); a place on the frontier is of "
        "points, not proven."
    )
    _selected(shown)


def _selected(shown: list[Priced]) -> None:
    """Two chosen marks lead to Compare."""
    points = st.session_state["frontier"]["selection"]["points"] if "frontier" in st.session_state else []
    keys = list(dict.fromkeys((p["customdata"][0], p["customdata"][1]) for p in points if "customdata" in p))
    known = {(p.run, p.label): p for p in shown}
    picked = [known[key] for key in keys if key in known]
    if len(picked) != 2:
        st.caption("Choose two marks (shift-click, box or lasso) to compare them." if len(picked) < 2 else "")
        return
    a, b = sorted(picked, key=lambda p: p.cost or 0.0)
    address = {"base": a.label, "cand": b.label}
    if a.run != b.run or frame.other_runs():
        address |= {"base_run": a.run, "cand_run": b.run}
    st.markdown(f"[Compare {a.name} with {b.name}]({frame.link('compare', address)})")


def _table(shown: list[Priced], cost: Measure) -> None:
    st.subheader("The same as a table", anchor=False)
    members = frontier.staircase(shown)
    rest = sorted((p for p in shown if p not in members), key=lambda p: (not p.known, -(p.success.point or 0.0)))
    rows = [*members, *rest]
    if len(rows) > ROWS:
        st.caption(f"The first {ROWS} of {len(rows)}: the frontier, then the most successful.")
    st.dataframe(
        [
            {
                "harness": p.label,
                "run": p.run,
                "frontier": "● on it" if p in members else "○ beaten" if p.known else "◇ no place (unknown)",
                "success": words.percent(p.success),
                "n": p.success.n,
                "cost": frontier.cost_text(p, cost),
            }
            for p in rows[:ROWS]
        ],
        hide_index=True,
    )


if __name__ == "__main__":
    page()
