"""Every attempt of the run, a page of 50 at a time; each line opens its replay."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from dashboards import frame, theme, words
from dashboards.queries import PAGE_ROWS, AttemptRow
from dashboards.views import Story
from evolver.phrasing import UNKNOWN, count

ANY = "any"
FILTERS = (("harness_id", "harness"), ("purpose", "purpose"), ("outcome", "outcome"), ("apps", "app"))


def page() -> None:
    story = frame.story()
    st.header("What really happened in each attempt?", anchor=False)
    total, sealed = story.run.count(), story.run.sealed
    if sealed:
        st.info(
            f"{sealed:,} attempts on test are sealed. `evolver rollout list {story.run.path} --open-test WHY` opens "
            "them; the run keeps who did so and why."
        )
    if total == 0 and not sealed:
        st.info("No attempt has been written yet.")
        return
    places = st.columns([3, 2, 2, 2, 3, 2])
    filters = _filters(story, places[:4])
    with places[4]:
        wanted = _search(story)
    if wanted:
        filters = {"id": wanted}
    n = story.run.count(filters)
    pages = max(1, math.ceil(n / PAGE_ROWS))
    with places[5]:
        number = _page_number(pages)
    rows = story.run.page(number, filters)
    st.caption(f"{n:,} of {total:,} rollouts · page {number} of {pages} · newest first")
    if not rows:
        st.info("No rollout fits these filters.")
        return
    _table(story, rows)


def _filters(story: Story, places: Sequence[st.delta_generator.DeltaGenerator]) -> dict[str, str]:
    """What the reader chose; a value from the address that does not occur in the run counts as no filter."""
    chosen: dict[str, str] = {}
    for place, (column, label) in zip(places, FILTERS, strict=True):
        names = story.harness_labels if column == "harness_id" else {}
        by_label = {names.get(value, value): value for value in story.run.distinct(column)}
        with place:
            value = st.selectbox(label, [ANY, *by_label], key=f"r_{label}", bind="query-params", on_change=_first_page)
        if value in by_label:
            chosen[column] = by_label[str(value)]
    return chosen


def _first_page() -> None:
    st.session_state["r_page"] = 1


def _search(story: Story) -> str | None:
    asked = st.text_input(
        "rollout id", key="r_id", bind="query-params", placeholder="whole id, as in r-0123abcd…", on_change=_first_page
    )
    if not asked:
        return None
    if story.run.attempt(asked) is None:
        st.warning(f"No rollout `{asked[:80]}` in this run.")
        return None
    return asked


def _page_number(pages: int) -> int:
    asked = int(st.number_input("page", min_value=1, step=1, key="r_page", bind="query-params") or 1)
    if asked > pages:
        st.caption(f"There is no page {asked}; the last one is shown.")
    return min(asked, pages)


def _table(story: Story, rows: list[AttemptRow]) -> None:
    st.dataframe(
        [
            {
                "replay": frame.link("replay", r=row.id, step="1"),
                "outcome": theme.OUTCOMES[row.outcome].label + (f" ({row.blame})" if row.blame else ""),
                "task": row.task_id,
                "harness": story.name(row.harness_id),
                "purpose": row.purpose,
                "attempt": row.attempt,
                "channel": theme.CHANNELS[row.channel].label if row.channel in theme.CHANNELS else UNKNOWN,
                "turns": count(row.turns),
                "tokens": count(row.tokens),
                "seconds": words.seconds(row.seconds),
                "rubric": words.share(row.rubric),
                "stopped": row.stop_reason,
                "apps": ", ".join(row.apps or ()) or UNKNOWN,
                "started": words.moment(row.started_at, frame.zone()),
                "model": row.model_id,
            }
            for row in rows
        ],
        hide_index=True,
        height=min(38 + 35 * len(rows), 900),
        column_config={"replay": frame.link_column("replay", "r")},
    )


if __name__ == "__main__":
    page()
