"""A command in a process of its own, which is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import pytest

from tests.evolver.test_cli import ROOT

PATIENCE_S = 120.0


def stopped(
    words: Sequence[str], begun: Callable[[], bool], stop: signal.Signals = signal.SIGTERM, after_s: float = 0.0
) -> tuple[int, str]:
    """Runs `evolver WORDS` from the checkout, sends `stop` once (and so many seconds after) it has `begun`, and returns
    its exit code and what it said. Skips where there is no sandbox back end."""
    argv, env = [sys.executable, "-m", "evolver", *words], {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env, cwd=ROOT)
    deadline = time.monotonic() + PATIENCE_S
    while not begun() and child.poll() is None:
        assert time.monotonic() < deadline, f"{words} did not begin"
        time.sleep(0.05)
    if child.poll() == 3:
        pytest.skip("no sandbox back end here")
    time.sleep(after_s)
    child.send_signal(stop)
    _, err = child.communicate(timeout=60)
    return child.returncode, err
