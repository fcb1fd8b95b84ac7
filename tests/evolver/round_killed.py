"""A small round in a process of its own, which is killed at one of the points where it touches the disk."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from tests.evolver.rounds import driven

TOUCHES = ("sqlite3.connect", "open", "os.rename", "os.remove", "os.truncate", "os.link", "os.mkdir")


def start(path: Path, touches: int, after_s: float) -> None:
    """Drives the round, killed at the so many-th time that it opens, renames or removes a file of it, or, if given, so
    many seconds after the first."""
    left = touches

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in TOUCHES and str(path) in str(arguments[0]):
            left -= 1
            if after_s and left == touches - 1:
                threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
            if not after_s and left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)
    driven(path)
