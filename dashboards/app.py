"""The dashboard: the bar on top, then the page that the address names."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboards import frame

FOLDER = Path(__file__).parent / "pages"
PAGES = (
    ("overview", "Overview", ":material/flag:"),
    ("lineage", "Lineage", ":material/account_tree:"),
    ("compare", "Compare", ":material/compare_arrows:"),
    ("frontier", "Frontier", ":material/stairs:"),
    ("channels", "Channels", ":material/mouse:"),
    ("gap", "Gap", ":material/trending_down:"),
    ("rollouts", "Rollouts", ":material/list:"),
    ("rounds", "Rounds", ":material/inventory_2:"),
    ("propose", "Propose", ":material/edit_note:"),
    ("freeze", "Freeze", ":material/ac_unit:"),
)


def main() -> None:
    st.set_page_config(page_title="evolver", page_icon=":material/science:", layout="wide")
    pages = [
        st.Page(FOLDER / f"{name}.py", title=title, icon=icon, url_path=name, default=name == "overview")
        for name, title, icon in PAGES
    ]
    replay = st.Page(FOLDER / "replay.py", title="Replay", url_path="replay", visibility="hidden")
    chosen = st.navigation([*pages, replay], position="top")
    if frame.bar(needed=chosen.url_path != "rounds"):
        chosen.run()
