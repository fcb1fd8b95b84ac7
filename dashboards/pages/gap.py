"""Does the better teacher make the better student?"""

from __future__ import annotations

import streamlit as st

from dashboards import frame, words
from dashboards.views import Story
from evolver.figures import gap_figure, seed_dots
from evolver.gap_tables import (
    crossing_tables,
    gap_caption,
    gap_table,
    learnability_tables,
    newest_gaps,
    pairs_table,
    variant_text,
)
from evolver.learnable import learned
from evolver.phrasing import UNKNOWN, count
from evolver.records import Distillation, Gap


def page() -> None:
    story = frame.story()
    st.header("Does the better teacher make the better student?", anchor=False)
    gaps = {
        f"{story.name(g.harness_a)} to {story.name(g.harness_b)}{variant_text(g.equal)}": g
        for g in reversed(newest_gaps(story.run))
    }
    if not gaps:
        st.info("No gap has been measured in this run yet. `evolver gap RUN A B` measures one.")
        return
    gap = _chosen(gaps)
    a, b = story.name(gap.harness_a), story.name(gap.harness_b)
    said = f"B minus A: teachers {words.points(gap.teacher_gap)}, students {words.points(gap.student_gap)}."
    st.markdown(f"#### A = {a}, B = {b}. {said}")
    frame.draw(
        gap_figure(gap, story.names, seed_dots(story.run, gap.equal)), alt=f"A = {a}, B = {b}. {said}", key="gap_figure"
    )
    st.caption(f"{gap_caption(gap)} Dots are single training seeds. A negative gap means that {a} is ahead.")
    table = gap_table(gap, story.names)
    st.dataframe([dict(zip(table.columns, row, strict=True)) for row in table.rows], hide_index=True)
    _students(story, gap)
    variant = [g for g in gaps.values() if g.equal == gap.equal]
    for more in (
        *pairs_table(variant, story.names),
        *crossing_tables(story.run, story.names),
        *learnability_tables(learned(story.run), story.names),
    ):
        frame.words_table(more)


def _chosen(gaps: dict[str, Gap]) -> Gap:
    newest = next(iter(gaps.values()))
    asked = st.query_params.get("gap")
    if asked is not None and asked not in gaps:
        st.warning(f"No gap `{asked[:80]}` in this run; the newest is shown.")
    if len(gaps) == 1:
        return newest
    chosen = st.selectbox("gap (A to B)", list(gaps), key="gap", bind="query-params")
    return gaps.get(str(chosen), newest)


def _students(story: Story, gap: Gap) -> None:
    made = [d for d in story.run.all(Distillation) if d.teacher_harness in (gap.harness_a, gap.harness_b)]
    if not made:
        return
    st.subheader("Students of these two harnesses", anchor=False)
    rows = [
        {
            "harness": story.name(d.teacher_harness),
            "seed": d.seed,
            "base model": str(d.recipe.get("base", d.base_model)),
            "rows": count(d.rows),
            "trained tokens": count(d.trained_tokens),
            "loss first": _loss(d.train_loss_first),
            "loss last": _loss(d.train_loss_last),
            "training": words.seconds(d.train_s),
            "dropped": ", ".join(f"{n} {why}" for why, n in d.dropped.items()) or "none",
            "data": words.short(d.data_sha256),
        }
        for d in made
    ]
    st.dataframe(rows, hide_index=True)


def _loss(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}"


if __name__ == "__main__":
    page()
