"""Starts a command of `evolver` as a process of its own, as a person's shell would, and tells how it is getting on.

What an author wrote runs there, in its sandboxes, and never in the process of the pages.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evolver.live import worker

TAIL_BYTES, TAIL_LINES = 8_000, 12


@dataclass(frozen=True)
class Started:
    """How far a command has come: running, or its exit code when this server saw it end; its last lines."""

    running: bool
    code: int | None
    lines: tuple[str, ...]


@cache
def _children() -> dict[Path, subprocess.Popen[bytes]]:
    """By log: the commands that this server has started."""
    return {}


def start(words: tuple[str, ...], log: Path) -> bool:
    """Starts `evolver WORDS`, which says into `log`; False when the one that wrote there still runs."""
    child = _children().get(log)
    if child is not None and child.poll() is None:
        return False
    with log.open("ab") as said:
        said.write(f"$ evolver {shlex.join(words)}\n".encode())
        said.flush()
        _children()[log] = subprocess.Popen(
            (sys.executable, "-P", "-m", "evolver", *words),
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    return True


def look(log: Path, run: Path) -> Started | None:
    """How the command of a log is getting on; None when none was ever started. One that another server started runs as
    long as some process drives the run."""
    if not log.is_file():
        return None
    with log.open("rb") as said:
        said.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = said.read().decode(errors="replace").splitlines()
    child = _children().get(log)
    code = None if child is None else child.poll()
    running = worker(run) is not None if child is None else code is None
    return Started(running, code, tuple(lines[-TAIL_LINES:]))
