"""A running `evolver dashboard`, as a person starts it, for tests of the server and of a browser on it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_S = 60.0


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def dashboard(*words: str) -> Iterator[Running]:
    """Started in a session of its own; whatever is left of it is ended afterwards."""
    run = (sys.executable, "-m", "dashboards.cli", *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    assert process.stdout is not None
    try:
        running = Running(process, process.stdout.readline().strip())
        _wait_until_it_answers(running.url)
        yield running
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_it_answers(url: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=5) as answer:
                assert answer.status == 200
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
