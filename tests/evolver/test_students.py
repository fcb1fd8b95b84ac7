"""The child process that distils: it says how it ended, and never outlives whoever started it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from evolver.students import run_python

SLEEPER = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(120)"
PARENT = f"""
import asyncio, sys
from evolver.students import run_python
asyncio.run(run_python("-c", {SLEEPER!r}, sys.argv[1]))
"""


def pid_in(file: Path) -> int:
    for _ in range(300):
        if file.exists() and file.read_text():
            return int(file.read_text())
        time.sleep(0.1)
    raise AssertionError("the child did not start")


def gone(pid: int) -> bool:
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


async def test_the_exit_code_comes_back() -> None:
    assert await run_python("-c", "raise SystemExit(4)") == 4


async def test_s01_a_cancelled_run_ends_its_child(tmp_path: Path) -> None:
    task = asyncio.create_task(run_python("-c", SLEEPER, str(tmp_path / "pid")))
    pid = await asyncio.to_thread(pid_in, tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(pid)


def test_e04_the_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "pid")])
    pid = pid_in(tmp_path / "pid")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(pid)


async def test_a_child_imports_nothing_from_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert await run_python("-c", "import random") == 0
