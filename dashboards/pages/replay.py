"""What really happened in this attempt? Turn by turn: what the model saw, said, called and got back."""

from __future__ import annotations

import streamlit as st

from dashboards import beside, charts, frame, theme, turns, watch, words
from dashboards.app import FOLDER
from dashboards.frames import seen_by
from dashboards.queries import AttemptRow
from dashboards.views import Story
from evolver.errors import UsageError
from evolver.phrasing import UNKNOWN, count
from evolver.records import Rollout


def page() -> None:
    story = frame.story()
    asked = st.query_params.get("r", "")
    row = story.run.attempt(asked)
    if row is None and watch.is_playing(story, asked):
        watch.watch(asked)
        return
    if row is None:
        st.warning(f"No rollout `{asked[:80] or '(none given)'}` in this run.")
        st.page_link(str(FOLDER / "rollouts.py"), label="All rollouts", icon=":material/list:")
        return
    try:
        rollout = story.run.rollout(asked)
    except UsageError as error:
        st.error(str(error))
        return
    if rollout is None:
        st.warning(f"Rollout `{asked[:80]}` has just gone from the log.")
        return
    _head(story, row)
    beside.repeats(story, row)
    if not rollout.turns:
        st.info("The attempt ended before its first turn." + (f" {rollout.error.message}" if rollout.error else ""))
        return
    other = beside.chosen(story, row)
    step = _steps(rollout)
    if other is None:
        _turn(story, rollout, step)
    else:
        _both((story, rollout), other, step)
    _graded(story, rollout)


def _head(story: Story, row: AttemptRow) -> None:
    back, left, right, _ = st.columns([2, 1, 1, 4], vertical_alignment="center")
    back.page_link(str(FOLDER / "rollouts.py"), label="All rollouts", icon=":material/arrow_back:")
    later, earlier = story.run.neighbours(row)
    for place, word, key, other in ((left, "earlier", "j", earlier), (right, "later", "k", later)):
        place.button(word, on_click=_open, args=(other,), disabled=other is None, shortcut=key, help="another attempt")
    blame = f" (blame: {row.blame}: {row.message})" if row.blame else ""
    st.markdown(f"### {theme.OUTCOMES[row.outcome].label} · {row.task_id} · {story.name(row.harness_id)}")
    st.caption(
        f"{row.id} · {row.purpose}, attempt {row.attempt} · {row.model_id} · stopped: {row.stop_reason}{blame} · "
        f"{count(row.tokens)} tokens · {words.seconds(row.seconds)} · "
        f"{words.moment(row.started_at, frame.zone())}"
    )


def _open(rollout_id: str) -> None:
    """Another attempt of the list from its first turn, with nothing beside it."""
    for key in ("beside", "beside_run"):
        st.query_params.pop(key, None)
    st.query_params["r"] = rollout_id
    _go(1)


def _steps(rollout: Rollout) -> int:
    """The chosen turn, counted from 0; the address counts from 1."""
    last = len(rollout.turns)
    back, at, on, rest = st.columns([1, 1, 1, 5], vertical_alignment="bottom")
    with at:
        asked = int(st.number_input(f"turn (of {last})", min_value=1, step=1, key="step", bind="query-params") or 1)
    step = min(asked, last)
    if asked > last:
        st.caption(f"There is no turn {asked}; the last one is shown.")
    back.button(
        "previous", icon=":material/arrow_back:", on_click=_go, args=(step - 1,), disabled=step <= 1, shortcut="Left"
    )
    on.button(
        "next", icon=":material/arrow_forward:", on_click=_go, args=(step + 1,), disabled=step >= last, shortcut="Right"
    )
    rest.caption(" · ".join(m.label for m in theme.CHANNELS.values()) + " · ✕ error in the turn")
    frame.draw(
        charts.time_bar(rollout.turns, step - 1),
        key="time_bar",
        on_select=_take_click,
        points_only=True,
        bar="none",
        alt=f"{last} turns by seconds and channel; turn {step} is chosen",
    )
    return step - 1


def _go(step: int) -> None:
    st.session_state["step"] = step


def _take_click() -> None:
    points = st.session_state["time_bar"]["selection"]["points"]
    index = next((p["customdata"] for p in points if "customdata" in p), None)
    index = index[0] if isinstance(index, list) and index else index
    if isinstance(index, int):
        _go(index + 1)


def _turn(story: Story, rollout: Rollout, step: int) -> None:
    turns.title(rollout.turns[step])
    turn = rollout.turns[step]
    if st.toggle("screen in full width", key="wide", bind="query-params"):
        _screens(story, rollout, step)
        turns.spoken(turn, "this")
        return
    left, right = st.columns([3, 2])
    with left:
        _screens(story, rollout, step)
    with right:
        turns.spoken(turn, "this")


def _both(this: beside.Beside, other: beside.Beside, step: int) -> None:
    """The same turn of two attempts at one task, side by side; each with the names and the frames of its own run."""
    parted = beside.parting(this[1], other[1])
    for place, (story, one), name in zip(st.columns(2), (this, other), ("this", "other"), strict=True):
        with place, st.container(border=True):
            ahead = "after they parted" if step >= parted else "the same so far"
            st.caption(f"{story.name(one.key.harness_id)} · {one.id} · {ahead}")
            if step >= len(one.turns):
                st.info(f"This attempt had ended after turn {len(one.turns)}: {one.stop_reason}.")
                continue
            turns.title(one.turns[step])
            turns.screen(story, seen_by(one, step), one.turns[step], marked=True)
            turns.spoken(one.turns[step], name)


def _screens(story: Story, rollout: Rollout, step: int) -> None:
    turn = rollout.turns[step]
    before, after = st.tabs(["what it acted on", "what came of it"])
    with before:
        turns.screen(story, seen_by(rollout, step), turn, marked=True)
    with after:
        turns.screen(story, turn.observed.image, turn, marked=False)
        if turn.observed.text:
            with st.expander("elements on the screen, as text"):
                frame.long_text(turn.observed.text, "elements")


def _graded(story: Story, rollout: Rollout) -> None:
    card = story.run.card_line(rollout.id)
    scores = card.get("scores") if isinstance(card, dict) else None
    st.subheader("Grading", anchor=False)
    if not isinstance(scores, list) or not scores:
        st.caption("No criterion was graded.")
        return
    rows = []
    for score in scores:
        if isinstance(score, dict):
            value = score.get("value")
            rows.append(
                {
                    "criterion": str(score.get("criterion", UNKNOWN)),
                    "value": words.share(float(value)) if isinstance(value, int | float) else "unscored",
                    "required": "yes" if score.get("required") else "no",
                    "explanation": str(score.get("explanation") or "none given"),
                    "grader": str(score.get("grader", UNKNOWN)),
                }
            )
    st.dataframe(rows, hide_index=True)


if __name__ == "__main__":
    page()
