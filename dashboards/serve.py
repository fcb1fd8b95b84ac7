"""The server's own process: Streamlit, with all that the first visitor would wait for opened before anyone asks.

`python -m dashboards.serve run SCRIPT FLAGS` is `streamlit run SCRIPT FLAGS`.
"""

from __future__ import annotations

import contextlib
import importlib
import threading

from streamlit.web import cli

from dashboards import frame, views
from dashboards.queries import find_runs, open_run
from evolver.errors import UsageError
from evolver.figures.lineage import incumbent_path

LATE = ("pandas", "pyarrow")  # what Streamlit imports at its first table


def warm() -> None:
    """Reads the newest run's logs into the database and draws what a first figure draws; a run that can't be opened
    says so to whoever asks for it."""
    for path in find_runs(frame.root())[:1]:
        with contextlib.suppress(UsageError):
            story = views.story(open_run(path))
            story.run.unread()
            incumbent_path(story.path(), ()).to_json()


def main() -> None:
    for name in LATE:
        importlib.import_module(name)
    threading.Thread(target=warm, name="warm", daemon=True).start()
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
