"""The dashboard's entry script: the bar on top, then the page that the address names. Read-only."""

from __future__ import annotations

import streamlit as st

from dashboards import frame

PAGES = (
    ("overview", "Overview", ":material/flag:"),
    ("lineage", "Lineage", ":material/account_tree:"),
    ("channels", "Channels", ":material/mouse:"),
    ("gap", "Gap", ":material/trending_down:"),
    ("rollouts", "Rollouts", ":material/list:"),
)


def main() -> None:
    st.set_page_config(page_title="evolver", page_icon=":material/science:", layout="wide")
    pages = [
        st.Page(f"pages/{name}.py", title=title, icon=icon, url_path=name, default=name == "overview")
        for name, title, icon in PAGES
    ]
    replay = st.Page("pages/replay.py", title="Replay", url_path="replay", visibility="hidden")
    chosen = st.navigation([*pages, replay], position="top")
    if frame.bar():
        chosen.run()


if __name__ == "__main__":
    main()
