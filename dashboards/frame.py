"""What stands around every page: which run, how fresh, what could not be read, the simulation's ribbon."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import plotly.graph_objects as go
import streamlit as st

from dashboards import theme, views, words
from dashboards.logs import stamp_of
from dashboards.queries import Run, find_runs, open_run
from dashboards.views import Story
from evolver.config import DemonstratorSpec
from evolver.errors import UsageError
from evolver.live import worker
from evolver.records import Interval
from evolver.report import teacher_line
from evolver.tables import Table

RUNS_DIR = "EVOLVER_RUNS_DIR"
READ_ONLY = "EVOLVER_READ_ONLY"
REFRESH_S = "5s"
LONGEST_TEXT = 20_000
# Streamlit leaves 6 rem above the first line; its captions and the code amid words have too little contrast to be read.
PAGE_STYLE = (
    ".stMainBlockContainer {padding-top: 4rem} "
    "[data-testid=stCaptionContainer], [data-testid=stCaptionContainer] p {color: inherit !important; opacity: 0.9} "
    ".stMain :not(pre) > code {color: inherit}"
    ".st-key-editor textarea {font-family: monospace; font-size: 0.85rem}"
)


def story() -> Story:
    """The run that the bar has chosen, for a page to draw."""
    return views.story(st.session_state["shown_run"])


def read_only() -> bool:
    """Whether the server was started to show and never to act."""
    return bool(os.environ.get(READ_ONLY))


def zone() -> str | None:
    """The reader's time zone, as the browser says it."""
    return st.context.timezone


def link(page: str, address: Mapping[str, str]) -> str:
    """The address of another page about the same run."""
    return link_in(st.session_state["shown_run"], page, address)


def link_in(run: Run, page: str, address: Mapping[str, str]) -> str:
    """The address of another page about a run that need not be the one shown."""
    return f"{page}?{urlencode({'run': run.path.name, **address} if st.session_state['several_runs'] else address)}"


def other_runs() -> list[Path]:
    """The runs beside the one that is shown, the newest first."""
    shown: Run = st.session_state["shown_run"]
    return [path for path in find_runs(root()) if path != shown.path]


def story_of(name: str) -> Story | None:
    """Another run of the folder by its name; None (and a word why) when it can't be opened."""
    path = next((path for path in other_runs() if path.name == name), None)
    if path is None:
        st.warning(f"No run `{name[:80]}` here.")
        return None
    try:
        return views.story(open_run(path))
    except UsageError as error:
        st.error(str(error))
        return None


def root() -> Path:
    """The folder whose runs and rounds are shown."""
    return Path(os.environ.get(RUNS_DIR, "runs"))


def link_column(title: str, key: str) -> object:
    """A column of such addresses; a cell shows the value of `key`."""
    return st.column_config.LinkColumn(title, display_text=rf"[?&]{key}=([^&]+)", pinned=True)


def draw(
    figure: go.Figure,
    alt: str,
    *,
    key: str | None = None,
    on_select: Callable[[], None] | Literal["ignore", "rerun"] = "ignore",
    points_only: bool = False,
    bar: Literal["all", "png", "none"] = "png",
) -> None:
    """A chart with words that can be read on the reader's theme; `alt` is the sentence that it says. Marks are chosen
    by click, box or lasso, or with `points_only` by click; `bar` says which of the chart's own buttons it has."""
    dark = st.context.theme.type == "dark"
    text, ground = (theme.DARK_TEXT, theme.DARK_PAGE) if dark else (theme.LIGHT_TEXT, theme.LIGHT_PAGE)
    figure.update_layout(font_color=text, legend_font_color=text)
    figure.update_xaxes(tickfont_color=text, title_font_color=text)
    figure.update_yaxes(tickfont_color=text, title_font_color=text)
    for note in figure.layout.annotations:
        note.update(font_color=note.font.color or text, bgcolor=ground if note.showarrow else None)
    modes = ("points",) if points_only else ("points", "box", "lasso")
    config: dict[str, object] = {
        "displaylogo": False,
        "toImageButtonOptions": {"filename": key or "figure", "scale": 2},
    }
    if bar == "png":
        config["modeBarButtons"] = [["toImage"]]
    elif bar == "none":
        config["displayModeBar"] = False
    st.plotly_chart(figure, alt=alt, key=key, on_select=on_select, selection_mode=modes, config=config)


def long_text(text: str, name: str, language: str | None = None) -> None:
    """A text as it is; of a very long one the beginning, and a button that gets all of it."""
    st.code(text[:LONGEST_TEXT], language=language, wrap_lines=True)
    if len(text) > LONGEST_TEXT:
        st.download_button(
            f"first {LONGEST_TEXT:,} of {len(text):,} characters shown · download all",
            text,
            f"{name}.txt",
            key=f"all {name}",
        )


def ends(interval: Interval) -> dict[str, float | None]:
    """An interval as cells of a CSV file."""
    return {"point": interval.point, "low": interval.low, "high": interval.high, "n": interval.n}


def as_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as a CSV file; None is an empty cell."""
    text = io.StringIO()
    table = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [])
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def csv_button(name: str, rows: Callable[[], Sequence[Mapping[str, object]]]) -> None:
    """Offers rows as a CSV file, which is made when it is asked for."""
    st.download_button(
        "CSV", lambda: as_csv(rows()), f"{name}.csv", "text/csv", key=f"csv {name}", icon=":material/download:",
        type="tertiary", on_click="ignore",
    )  # fmt: skip


def card(where: st.delta_generator.DeltaGenerator, label: str, value: str, note: str) -> None:
    """One number with its name; its interval, if it has one, stands below it with the note."""
    head, _, interval = value.partition(" [")
    with where.container(border=True, height="stretch"):
        st.metric(label, head)
        said = f"95 % interval [{interval} · {note}" if interval else note
        st.caption(said.replace("$", r"\$"))  # else two of them enclose a formula


def words_table(table: Table) -> None:
    """A table of the report, when it has rows."""
    if table.rows:
        st.subheader(table.title, anchor=False)
        st.dataframe([dict(zip(table.columns, row, strict=True)) for row in table.rows], hide_index=True)
        st.caption(" ".join((table.caption, *table.notes)))


def bar(needed: bool) -> bool:
    """Draws the bar and chooses the run. False when a page that needs one has none (and says what to do)."""
    st.html(f"<style>{PAGE_STYLE}</style>")
    here = root()
    runs = find_runs(here)
    if not runs:
        if needed:
            _empty(here)
        return not needed
    left, middle, right = st.columns([2, 3, 3], vertical_alignment="center")
    with left:
        path = runs[0] if len(runs) == 1 else _choose(runs)
        if len(runs) == 1:
            st.markdown(f"run **{path.name}**")
    try:
        run = open_run(path)
    except UsageError as error:
        st.error(str(error))
        return not needed
    st.session_state["shown_run"] = run
    st.session_state["several_runs"] = len(runs) > 1
    with middle:
        scripted = isinstance(run.config.teacher, DemonstratorSpec)
        st.badge(f"teacher: {teacher_line(run)}", icon=":material/smart_toy:", color="orange" if scripted else "gray")
    with right:
        _freshness()
    _trouble(run)
    return True


def _choose(runs: list[Path]) -> Path:
    by_name = {p.name: p for p in runs}
    chosen = st.selectbox("Run", list(by_name), key="run", bind="query-params", label_visibility="collapsed")
    return by_name.get(str(chosen), runs[0])


@st.fragment(run_every=REFRESH_S)
def _freshness() -> None:
    """Polls the files only; the page itself changes when the reader asks for it."""
    run: Run = st.session_state["shown_run"]
    driver, ended, now = worker(run.path), run.ending(), stamp_of(run.path)
    state = (
        f"process {driver} is working on it" if driver is not None
        else "running or stopped without a word" if ended is None else f"ended: {ended.reason}"
    )  # fmt: skip
    written = max((moment for _, moment, _ in now), default=0) / 1e9
    when = f"updated {words.ago(time.time() - written)}" if now else "its folder is gone"
    said = (f"{run.count() + run.sealed:,} rollouts", state, when)
    st.caption(" · ".join(said), text_alignment="right")
    if now != run.stamp and st.button("new records · show", icon=":material/refresh:"):
        st.rerun()


def _trouble(run: Run) -> None:
    for unread in run.unread():
        parts = []
        if unread.torn:
            parts.append("1 torn last line (being written, or cut off by a crash)")
        if unread.broken:
            parts.append(f"{unread.broken} unreadable line{'s' * (unread.broken != 1)}")
        if unread.not_finite:
            parts.append(f"{unread.not_finite} value{'s' * (unread.not_finite != 1)} not finite, shown as unknown")
        st.warning(
            f"{unread.log}.jsonl: {', '.join(parts)}. Nothing on these pages counts them.", icon=":material/warning:"
        )


def _empty(here: Path) -> None:
    st.title("No run yet")
    st.write(f"Nothing to show in `{here}`. Two commands make a run and show it:")
    st.code("make demo\nmake dashboard", language="bash")
