"""A run that gets nowhere ends by itself, says where it hung, and leaves what it had recorded."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evolver.config import RunConfig, SandboxConfig
from evolver.observers.watchdog import STALLED_EXIT, Watchdog

HANGS = """
import asyncio, sys, time
from pathlib import Path
from evolver.observers.watchdog import Watchdog

async def waits_for_nobody():
    await asyncio.Event().wait()

async def main():
    Watchdog(0.5, Path(sys.argv[1]))
    task = asyncio.create_task(waits_for_nobody())
    await asyncio.sleep(0)
    if sys.argv[2] == "blocked":
        time.sleep(60)
    await task

asyncio.run(main())
"""


@pytest.mark.parametrize(("how", "where"), [("waiting", "select"), ("blocked", "in main")])
def test_e26_a_hung_process_dumps_its_stacks_and_exits_with_a_code_of_its_own(
    tmp_path: Path, how: str, where: str
) -> None:
    dump, began = tmp_path / "stalled.txt", time.monotonic()
    ended = subprocess.run([sys.executable, "-c", HANGS, str(dump), how], capture_output=True, text=True, timeout=30)
    assert ended.returncode == STALLED_EXIT == 5
    assert time.monotonic() - began < 20
    text = dump.read_text()
    assert "waits_for_nobody" in text and "no progress for" in text and "Current thread" in text
    assert where in text
    assert str(dump) in ended.stderr


def test_progress_and_an_orderly_end_keep_it_quiet(tmp_path: Path) -> None:
    ends: list[int] = []
    watchdog = Watchdog(0.3, tmp_path / "stalled.txt", ends.append)
    for _ in range(10):
        time.sleep(0.1)
        watchdog.progress("race", 1, 2, {})
    watchdog.close()
    time.sleep(0.5)
    assert ends == [] and not (tmp_path / "stalled.txt").exists()
    assert not any(thread.name == "watchdog" for thread in threading.enumerate())


def test_the_bound_is_longer_than_a_rollout_can_take() -> None:
    with pytest.raises(ValueError, match=r"must be more than sandbox\.ttl_s, 1800"):
        RunConfig(stalled_s=600)
    assert RunConfig(stalled_s=600, sandbox=SandboxConfig(ttl_s=300)).stalled_s == 600
