"""Where does each harness click and where does it type?"""

from __future__ import annotations

import streamlit as st

from dashboards import frame, theme, words
from dashboards.views import Story
from evolver.figures.channels import channel_dots
from evolver.phrasing import UNKNOWN, count
from evolver.records import Interval


def page() -> None:
    story = frame.story()
    st.header("Where does each harness click and where does it type?", anchor=False)
    having = [h for h in story.harness_ids if story.channel_rows(h)]
    if not having:
        st.info("No evaluation has been written yet, so no channel table exists.")
        return
    by_label = {story.harness_labels[h]: h for h in having}
    first = [h for h in (story.root, story.incumbent) if h in having]
    default = [story.harness_labels[h] for h in dict.fromkeys([*first, *having])][:2]
    picked = st.multiselect(
        "harnesses", list(by_label), default=default, key="ch", bind="query-params", max_selections=4
    )
    chosen = [by_label[label] for label in picked if label in by_label]
    if not chosen:
        st.info("Choose at least one harness.")
        return
    shares = story.terminal_shares(chosen)
    marks = {h: theme.harness_mark(h, story.harness_ids) for h in chosen}
    frame.draw(channel_dots(shares, marks, story.name), alt=_said(story, shares), key="channels")
    used = "; ".join(
        f"{story.name(h)}: {e.purpose} on {e.split}, {e.n_tasks} tasks" for h in chosen if (e := story.evaluation(h))
    )
    st.caption(
        "Terminal share of the calls of each app, sorted by how much it moved. Bars are 95 % Wilson intervals over n "
        "calls; calls of one attempt are alike, so the true interval is wider. Turns that used no channel are not in "
        f"it, they are counted below. {used}."
    )
    _table(story, chosen)


def _said(story: Story, shares: dict[str, dict[str, Interval]]) -> str:
    return "; ".join(
        f"{app}: " + ", ".join(f"{story.name(h)} {words.percent(i)}" for h, i in row.items())
        for app, row in shares.items()
    )


def _table(story: Story, chosen: list[str]) -> None:
    rows = []
    apps = [(row, harness) for harness in chosen for row in story.channel_rows(harness)]
    for row, harness in sorted(apps, key=lambda pair: (pair[0].app, story.name(pair[1]))):
        success = "; ".join(f"{c} {words.percent(i)} n={i.n}" for c, i in row.success_by_channel.items())
        rows.append(
            {
                "app": frame.link("rollouts", {"r_harness": story.harness_labels[harness], "r_app": row.app}),
                "harness": story.name(harness),
                "rollouts": count(row.rollouts),
                "gui calls": count(row.gui_calls),
                "terminal calls": count(row.terminal_calls),
                "turns without channel": count(row.none_turns),
                "switches": count(row.switches),
                "tokens": count(row.tokens),
                "seconds": words.seconds(row.seconds),
                "success by channel": success or UNKNOWN,
            }
        )
    st.dataframe(rows, hide_index=True, column_config={"app": frame.link_column("app", "r_app")})
    st.caption("An app opens the attempts of that harness over it.")


if __name__ == "__main__":
    page()
