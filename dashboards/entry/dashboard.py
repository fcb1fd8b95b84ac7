"""The script that Streamlit runs. It lies apart from `pages/`, because Streamlit takes a folder of that name beside its
script for pages of its own, and would open the first deep link after a start without the frame of `app.py`."""

from __future__ import annotations

from dashboards.app import main

if __name__ == "__main__":
    main()
