"""What stands around every page: which run, how fresh, what could not be read, the simulation's ribbon."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from dashboards.logs import stamp_of
from dashboards.queries import Run, find_runs, open_run
from dashboards.views import Story
from evolver.config import DemonstratorSpec
from evolver.errors import UsageError
from evolver.report import teacher_line

RUNS_DIR = "EVOLVER_RUNS_DIR"
REFRESH_S = "5s"
PAGE_STYLE = ".stMainBlockContainer {padding-top: 4rem}"  # Streamlit leaves 6 rem above the first line


def story() -> Story:
    """The run that the bar has chosen, for a page to draw."""
    return Story(st.session_state["shown_run"])


def zone() -> str | None:
    """The reader's time zone, as the browser says it."""
    return st.context.timezone


def link(page: str, **address: str) -> str:
    """The address of another page about the same run."""
    run: Run = st.session_state["shown_run"]
    return f"{page}?{urlencode({'run': run.path.name, **address} if st.session_state['several_runs'] else address)}"


def link_column(title: str, key: str) -> object:
    """A column of such addresses; a cell shows the value of `key`."""
    return st.column_config.LinkColumn(title, display_text=rf"[?&]{key}=([^&]+)", pinned=True)


def bar() -> bool:
    """Draws the bar and chooses the run. False when there is nothing to show (and says what to do)."""
    st.html(f"<style>{PAGE_STYLE}</style>")
    root = Path(os.environ.get(RUNS_DIR, "runs"))
    runs = find_runs(root)
    if not runs:
        _empty(root)
        return False
    left, middle, right = st.columns([2, 3, 3], vertical_alignment="center")
    with left:
        path = runs[0] if len(runs) == 1 else _choose(runs)
        if len(runs) == 1:
            st.markdown(f"run **{path.name}**")
    try:
        run = open_run(path)
    except UsageError as error:
        st.error(str(error))
        return False
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
    ended = run.ending()
    state = "running or stopped without a word" if ended is None else f"ended: {ended.reason}"
    st.caption(f"{run.count() + run.sealed:,} rollouts · {state}", text_alignment="right")
    if stamp_of(run.path) != run.stamp and st.button("new records · show", icon=":material/refresh:"):
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


def _empty(root: Path) -> None:
    st.title("No run yet")
    st.write(f"Nothing to show in `{root}`. Two commands make a run and show it:")
    st.code("make demo\nmake dashboard", language="bash")
