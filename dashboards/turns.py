"""One turn of an attempt: its headline, the screen with its clicks, what was said, called and answered."""

from __future__ import annotations

import json

import streamlit as st

from dashboards import frame, theme, words
from dashboards.frames import with_rings
from dashboards.views import Story
from evolver.errors import UsageError
from evolver.phrasing import count
from evolver.records import Image, Turn


def title(turn: Turn) -> None:
    st.markdown(f"**Turn {turn.index + 1}** · {theme.CHANNELS[turn.channel].label} · {turn.summary or '(no summary)'}")
    if turn.slip:
        st.badge(f"simulated slip: {turn.slip}", icon=":material/error:", color="orange")


def screen(story: Story, image: Image | None, turn: Turn, *, marked: bool) -> None:
    if image is None:
        st.info("No screenshot was taken here: this harness did not ask for one.", icon=":material/visibility_off:")
        return
    try:
        png = story.run.blob(image.frame_id)
    except UsageError as error:
        st.warning(f"The screenshot can't be shown: {error}", icon=":material/broken_image:")
        return
    drawn = with_rings(png, turn.completion.calls if marked else ())
    if drawn is None:
        st.warning(f"The screenshot can't be shown: blob {image.frame_id} is no image.", icon=":material/broken_image:")
        return
    st.image(drawn, width="stretch", alt=turn.summary)
    st.caption(f"{image.width} × {image.height} px · frame {words.short(image.frame_id)}")


def spoken(turn: Turn, whose: str) -> None:
    said = turn.completion
    if said.reasoning:
        with st.expander("reasoning", expanded=len(said.reasoning) < 800):
            st.text(said.reasoning)
    if said.text:
        st.text(said.text)
    if said.invalid:
        st.error(f"The reply could not be used: {said.invalid}")
    results = {r.call_id: r for r in turn.results}
    for call in said.calls:
        st.code(f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}", language="json", wrap_lines=True)
        result = results.get(call.id)
        if result is None:
            st.caption("no result: the call was not run")
            continue
        st.caption(f"{'✕ error' if result.is_error else 'result'} · {words.seconds(result.seconds)}")
        frame.long_text(result.text or "(empty)", f"{whose} result {call.id}")
    used = said.usage
    st.caption(
        f"{count(used.input_tokens)} tokens in, {count(used.output_tokens)} out "
        f"(counted by {used.counted_by}) · "
        f"model {words.seconds(turn.model_s)}, tools {words.seconds(turn.tools_s)}"
    )
