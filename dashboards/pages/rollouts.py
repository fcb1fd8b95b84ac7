"""Every attempt of the run, a page at a time; each line opens its replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from dashboards import frame, theme, watch, words
from dashboards.queries import PAGE_ROWS, AttemptRow, side
from dashboards.views import Story
from evolver import pairing
from evolver.phrasing import UNKNOWN, count

ANY = "any"
FILTERS = (("harness_id", "harness"), ("purpose", "purpose"), ("outcome", "outcome"), ("apps", "app"))
SIZES = (PAGE_ROWS, 20, 100, 200)
REPLAY = "replay"


def page() -> None:
    story = frame.story()
    st.header("What really happened in each attempt?", anchor=False)
    watch.now()
    total, sealed = story.run.count(), story.run.sealed
    if sealed:
        st.info(
            f"{sealed:,} attempts on test are sealed. `evolver rollout list {story.run.path} --open-test WHY` opens "
            "them; the run keeps who did so and why."
        )
    if total == 0 and not sealed:
        st.info("No attempt has been written yet.")
        return
    cell = _cell(story)
    places = st.columns([3, 2, 2, 2, 3, 2, 2])
    filters: dict[str, str | Sequence[str]] = dict(_filters(story, places[:4]))
    with places[4]:
        wanted = _search(story)
    if wanted:
        filters = {"id": wanted}
    elif cell is not None:
        filters |= {"id": list(cell)}
    with places[6]:
        asked = st.selectbox("rows a page", SIZES, key="r_rows", bind="query-params", on_change=_first_page)
        size = int(asked or PAGE_ROWS)
    n = story.run.count(filters)
    pages = max(1, math.ceil(n / size))
    with places[5]:
        number = _page_number(pages)
    rows = story.run.page(number, filters, size)
    shown = f" · rows {size * (number - 1) + 1:,} to {size * (number - 1) + len(rows):,}" if rows else ""
    st.caption(f"{n:,} of {total:,} rollouts · page {number} of {pages}{shown} · newest first")
    if not rows:
        st.info("No rollout fits these filters.")
        return
    _table(story, rows, cell or {})
    frame.csv_button("rollouts", lambda: [_cells(story, row) for row in story.run.page(1, filters, n)])


def _cell(story: Story) -> Mapping[str, dict[str, str]] | None:
    """Rollout of B → the address of A's beside it, for a cell of a comparison's 2×2 table; None: none is asked for."""
    asked = {key: st.query_params.get(key, "") for key in ("pairs", "base", "cand", "base_run", "on")}
    if not asked["pairs"]:
        return None
    base = story if asked["base_run"] in ("", story.run.path.name) else frame.story_of(asked["base_run"])
    ids = [
        {label: h for h, label in one.harness_labels.items()}.get(asked[key]) if one else None
        for one, key in ((base, "base"), (story, "cand"))
    ]
    kind = tuple(asked["on"].split("/", 2))
    if base is None or ids[0] is None or ids[1] is None or asked["pairs"] not in pairing.CELLS or len(kind) != 3:
        st.warning("The address asks for a cell of a comparison that is not in this run: no rollout is left out.")
        return None
    found = pairing.Pairing(side(base.run, ids[0], kind), side(story.run, ids[1], kind))
    st.info(
        f"Paired attempts that {pairing.CELLS[asked['pairs']]}: A = {asked['base']}"
        f"{'' if base is story else f' of run {base.run.path.name}'}, B = {asked['cand']}. Shown are B's attempts.",
        icon=":material/join:",
    )
    if st.button("all rollouts", icon=":material/close:"):
        del st.query_params["pairs"]
        st.rerun()
    run = {} if base is story else {"beside_run": base.run.path.name}
    return {b.rollout_id: {"beside": a.rollout_id, **run} for a, b in found.cell(asked["pairs"])}


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
    if story.run.attempt(asked.strip()) is None:
        st.warning(f"No rollout `{asked[:80]}` in this run.")
        return None
    return asked.strip()


def _page_number(pages: int) -> int:
    asked = int(st.number_input("page", min_value=1, step=1, key="r_page", bind="query-params") or 1)
    if asked > pages:
        st.caption(f"There is no page {asked}; the last one is shown.")
    return min(asked, pages)


def _table(story: Story, rows: list[AttemptRow], beside: Mapping[str, dict[str, str]]) -> None:
    drawn = [_row(story, row, beside.get(row.id, {})) for row in rows]
    columns = [name for name in drawn[0] if name != REPLAY]
    hidden = st.multiselect("hidden columns", columns, key="r_hidden", bind="query-params", placeholder="none")
    st.dataframe(
        [{name: value for name, value in row.items() if name not in hidden} for row in drawn],
        hide_index=True,
        height=min(38 + 35 * len(rows), 900),
        column_config={REPLAY: frame.link_column(REPLAY, "r")},
    )


def _row(story: Story, row: AttemptRow, beside: Mapping[str, str]) -> dict[str, str]:
    return {
        REPLAY: frame.link("replay", {"r": row.id, "step": "1", **beside}),
        "outcome": theme.OUTCOMES[row.outcome].label + (f" ({row.blame})" if row.blame else ""),
        "task": row.task_id,
        "harness": story.name(row.harness_id),
        "purpose": row.purpose,
        "attempt": f"no. {row.attempt}, of {row.repeats}",
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


def _cells(story: Story, row: AttemptRow) -> dict[str, object]:
    """An attempt as cells of a CSV file: what is known of it, in full."""
    return {**vars(row), "apps": " ".join(row.apps or ()), "harness": story.name(row.harness_id)}


if __name__ == "__main__":
    page()
