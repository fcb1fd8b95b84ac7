"""Ends a run that no longer gets anywhere, and says where it hangs: the stacks of its threads and tasks."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import JsonValue

from evolver.records import Record

STALLED_EXIT = 5


class Watchdog:
    """Writes the stacks to `path` and ends the program with `STALLED_EXIT` when it was told nothing for `limit_s`.

    It watches from a thread of its own, since a program that hangs may well hang in its event loop. Nothing is cleaned
    up: records are durable, and what runs in sandboxes is reaped by the next start. `end` is called with the exit code.
    """

    def __init__(self, limit_s: float, path: Path, end: Callable[[int], object] = os._exit) -> None:
        self._limit_s = limit_s
        self._path = path
        self._end = end
        self._told = time.monotonic()
        self._closed = threading.Event()
        self._tasks = _tasks_here()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def on_record(self, record: Record) -> None:
        self._told = time.monotonic()

    def progress(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None:
        self._told = time.monotonic()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(max(0.01, self._told + self._limit_s - time.monotonic())):
            waited = time.monotonic() - self._told
            if waited >= self._limit_s:
                self._dump(waited)
                self._end(STALLED_EXIT)
                return

    def _dump(self, waited_s: float) -> None:
        why = f"no progress for {waited_s:.0f} s"
        with self._path.open("w") as out:
            out.write(f"{why}\n\n")
            for task in self._tasks():
                task.print_stack(file=out)
            out.flush()
            faulthandler.dump_traceback(out, all_threads=True)
        sys.stderr.write(f"evolver: {why}: ended; where it hung: {self._path}\n")
        sys.stderr.flush()


def _tasks_here() -> Callable[[], set[asyncio.Task[object]]]:
    """The tasks of the loop that runs now, asked for later and from another thread; none where no loop runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return set
    return lambda: asyncio.all_tasks(loop)
