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
MOST = 60
Beside = tuple[Story, Rollout]


def repeats(story: Story, row: AttemptRow) -> None:
    """k of n under this harness, each attempt a link: the first one never hides the rest."""
    same = sorted(story.run.repeats(row, MOST), key=lambda one: (one.attempt, one.id))
    graded = [one for one in same if one.outcome in ("solved", "failed")]
    solved = sum(one.outcome == "solved" for one in graded)
    links = " · ".join(
        f"**{_said(one)}**"
        if one.id == row.id
        else f"[{_said(one)}]({frame.link('replay', {'r': one.id, 'step': '1'})})"
        for one in same
    )
    shown = f" (the newest {len(same)} of {row.repeats})" if row.repeats > len(same) else ""
    name = story.name(row.harness_id)
    st.markdown(f"{solved} of {len(graded)} graded attempts of {name} solve this task{shown}: {links}")


def _said(row: AttemptRow) -> str:
    return f"{theme.OUTCOMES[row.outcome].glyph} no. {row.attempt}"


def chosen(story: Story, row: AttemptRow) -> Beside | None:
    """The attempt that the reader or the address wants beside this one, with the run that it is of."""
    asked, elsewhere = st.query_params.get("beside"), st.query_params.get("beside_run", story.run.path.name)
    if asked is not None and elsewhere != story.run.path.name:
        other = frame.story_of(elsewhere)
        return None if other is None else _beside(other, row, asked)
    rest = {one.id: one for one in story.run.rivals(row, MOST)}
    wanted = story.run.attempt(asked) if asked not in (None, NONE) else None
    if wanted is not None and (wanted.task_id, wanted.task_hash) == (row.task_id, row.task_hash):
        rest.setdefault(wanted.id, wanted)
    elif asked not in (None, NONE):
        st.warning(f"No attempt `{asked[:80]}` at this task in this run.")
    if not rest:
        return None
    said = {key: f"{story.name(one.harness_id)} · {_said(one)} ({one.purpose}) · {key}" for key, one in rest.items()}
    label = "beside it" if len(rest) < MOST else f"beside it (the {MOST} nearest; any other by its id in the address)"
    options, key = [NONE, *said], f"beside {row.id}"
    index = options.index(str(asked)) if asked in said else 0
    # Not bound to the address, which would hold what is shown of an option instead of its id.
    picked = st.selectbox(
        label, options, index=index, key=key, on_change=_named, args=(key,), format_func=lambda k: said.get(k, NONE)
    )
    return _beside(story, row, str(picked)) if picked in said else None


def _named(key: str) -> None:
    st.query_params["beside"] = st.session_state[key]


def _beside(story: Story, row: AttemptRow, rollout_id: str) -> Beside | None:
    listed = story.run.attempt(rollout_id)  # what is sealed is not listed
    if listed is None or (listed.task_id, listed.task_hash) != (row.task_id, row.task_hash):
        st.warning(f"No attempt `{rollout_id[:80]}` at this task in run {story.run.path.name}.")
        return None
    try:
        found = story.run.rollout(rollout_id)
        return None if found is None else (story, found)
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
