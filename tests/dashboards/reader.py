"""Opens pages of the dashboard as Streamlit runs them, and gathers what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import dashboards
from dashboards.frame import RUNS_DIR

FOLDER = Path(dashboards.__file__).parent


class Reader:
    """Opens pages of the dashboard over one folder of runs."""

    def __init__(self, runs: Path, environment: pytest.MonkeyPatch) -> None:
        environment.setenv(RUNS_DIR, str(runs))
        self.app = AppTest.from_file(FOLDER / "entry" / "dashboard.py", default_timeout=60).run()

    def open(self, page: str, **address: str) -> AppTest:
        for name, value in address.items():
            self.app.query_params[name] = value
        self.app.switch_page(f"../pages/{page}.py").run()
        assert not self.app.exception, [e.message for e in self.app.exception]
        return self.app


def said(app: AppTest) -> str:
    """All words on a page, tables included."""
    parts = [
        e.value
        for kind in (app.markdown, app.caption, app.header, app.subheader, app.info, app.warning, app.error, app.code)
        for e in kind
    ]
    parts += [f"{m.label} {m.value}" for m in app.metric]
    parts += [frame.value.to_csv() for frame in app.dataframe]
    return "\n".join(map(str, parts))
