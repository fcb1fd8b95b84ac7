"""The other attempts at the same task, and one of them turn by turn beside the attempt that is replayed."""

from __future__ import annotations

import streamlit as st

from dashboards import frame, theme
from dashboards.queries import AttemptRow
from dashboards.views import Story
from evolver.errors import UsageError
from evolver.evidence.pairs import divergence
from evolver.records import Rollout

NONE = "none"


def repeats(story: Story, row: AttemptRow, others: list[AttemptRow]) -> None:
    """k of n under this harness, each attempt a link: the first one never hides the rest."""
    same = [one for one in others if _arm(one) == _arm(row)]
    graded = [one for one in same if one.outcome in ("solved", "failed")]
    solved = sum(one.outcome == "solved" for one in graded)
    links = " · ".join(
        f"**{_said(one)}**" if one.id == row.id else f"[{_said(one)}]({frame.link('replay', r=one.id, step='1')})"
        for one in same
    )
    st.markdown(f"{solved} of {len(graded)} graded attempts of {story.name(row.harness_id)} solve this task: {links}")


def _arm(row: AttemptRow) -> tuple[str, str, str]:
    return row.harness_id, row.purpose, row.model_id


def _said(row: AttemptRow) -> str:
    return f"{theme.OUTCOMES[row.outcome].glyph} no. {row.attempt}"


def chosen(story: Story, row: AttemptRow, others: list[AttemptRow]) -> Rollout | None:
    """The attempt that the reader wants beside this one; other harnesses come first, of them the same number."""
    rest = sorted(
        (one for one in others if one.id != row.id),
        key=lambda one: (one.harness_id == row.harness_id, one.attempt != row.attempt, one.purpose != row.purpose),
    )
    asked = st.query_params.get("beside")
    if asked not in (None, NONE) and asked not in {one.id for one in rest}:
        st.warning(f"No attempt `{asked[:80]}` at this task in this run.")
    if not rest:
        return None
    by_id = {one.id: f"{story.name(one.harness_id)} · {_said(one)} ({one.purpose}) · {one.id}" for one in rest}
    wanted = st.selectbox(
        "beside it", [NONE, *by_id], key="beside", bind="query-params", format_func=lambda key: by_id.get(key, NONE)
    )
    if wanted not in by_id:
        return None
    try:
        return story.run.rollout(str(wanted))
    except UsageError as error:
        st.error(str(error))
        return None


def parting(rollout: Rollout, other: Rollout) -> int:
    """Says where the two part and offers to go there; the turn, counted from 0."""
    turn, how = divergence(rollout.turns, other.turns)
    left, right = st.columns([3, 1], vertical_alignment="center")
    left.markdown(f"The two go the same way for {turn} turns; then: **{how}**.")
    last = len(rollout.turns)
    right.button(
        "to the first divergence",
        icon=":material/call_split:",
        on_click=_go,
        args=(min(turn + 1, last),),
        disabled=how == "no difference seen",
    )
    return turn


def _go(step: int) -> None:
    st.session_state["step"] = step
