"""What is played right now: a list, and one attempt turn by turn as its turns are finished."""

from __future__ import annotations

import time

import streamlit as st

from dashboards import frame, turns, words
from dashboards.views import Story
from evolver.live import Playing, playing

EVERY = "2s"
MOST = 12


def is_playing(story: Story, rollout_id: str) -> bool:
    return any(one.id == rollout_id for one in playing(story.run.path))


@st.fragment(run_every=frame.REFRESH_S)
def now() -> None:
    """The attempts that have not ended, each a link; nothing when there is none."""
    story = frame.story()
    found = playing(story.run.path)
    if found:
        links = " · ".join(
            f"[{one.key.task_id}, {story.name(one.key.harness_id)}, turn {len(one.turns) + 1}]"
            f"({frame.link('replay', {'r': one.id})})"
            for one in found[:MOST]
        )
        rest = f" and {len(found) - MOST} more" if len(found) > MOST else ""
        st.info(f"{len(found)} being played: {links}{rest}", icon=":material/play_circle:")


@st.fragment(run_every=EVERY)
def watch(rollout_id: str) -> None:
    """The newest finished turn of an attempt; once it has ended, a button that shows its replay."""
    story = frame.story()
    one = next((one for one in playing(story.run.path) if one.id == rollout_id), None)
    if one is None:
        st.success(f"The attempt `{rollout_id[:80]}` has ended.")
        if st.button("show its replay", icon=":material/replay:"):
            st.rerun()
        return
    _head(story, one)
    if not one.turns:
        st.info("Its first turn is not finished yet.")
        return
    turn = one.turns[-1]
    turns.title(turn)
    seen = next((t.observed.image for t in reversed(one.turns) if t.observed.image is not None), None)
    left, right = st.columns([3, 2])
    with left:
        turns.screen(story, seen, turn, marked=False)
    with right:
        turns.spoken(turn, "live")


def _head(story: Story, one: Playing) -> None:
    st.markdown(f"### ▶ being played · {one.key.task_id} · {story.name(one.key.harness_id)}")
    since = max(0.0, time.time() - one.changed_at)
    st.caption(
        f"{one.id} · {one.key.purpose}, attempt {one.key.attempt} · {one.key.model_id} · since "
        f"{words.moment(one.started_at, frame.zone())} · {len(one.turns)} turns finished, the last "
        f"{words.seconds(since)} ago"
        + ("; no sign of life for an hour: its program may have died" if since > 3600 else "")
    )
