"""An attempt while it is played: its turns so far, in a file of the run that is gone once the attempt is recorded.

For people who watch. Nothing is decided from it, and a disk that takes no more does the attempt no harm. Attempts on a
sealed split are not shown.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from devset.splits import SEALED
from evolver.records import RolloutKey, Turn
from evolver.rollout import Job

FOLDER = "live"


@dataclass(frozen=True)
class Playing:
    """An attempt that has not ended, as far as its last finished turn; times in seconds since 1970."""

    id: str
    key: RolloutKey
    started_at: float
    changed_at: float
    turns: tuple[Turn, ...]


@contextmanager
def watched(run_dir: Path, job: Job) -> Iterator[Job]:
    """The same job, whose finished turns are written as they come."""
    if job.key.split in SEALED:
        yield job
        return
    path = run_dir / FOLDER / f"{job.rollout_id}.jsonl"
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        head = {"key": job.key.model_dump(mode="json"), "started_at": time.time()}
        path.write_text(json.dumps(head) + "\n")
    written = 0

    def goes_on(turns: Sequence[Turn]) -> bool:
        nonlocal written
        with suppress(OSError), path.open("a") as log:
            log.writelines(turn.model_dump_json() + "\n" for turn in turns[written:])
        written = len(turns)
        return job.goes_on(turns)

    try:
        yield replace(job, goes_on=goes_on)
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def playing(run_dir: Path) -> list[Playing]:
    """What is being played in a run, the newest first; what a crash left behind stays until it is played again."""
    found = [one for path in (run_dir / FOLDER).glob("*.jsonl") if (one := _read(path)) is not None]
    return sorted(found, key=lambda one: -one.started_at)


def _read(path: Path) -> Playing | None:
    """None for one that has ended meanwhile, or whose first line is not whole yet."""
    try:
        changed = path.stat().st_mtime
        head, *lines = path.read_text().split("\n")[:-1]  # a torn last line is being written
        first = json.loads(head)
        turns = tuple(Turn.model_validate_json(line) for line in lines)
        return Playing(path.stem, RolloutKey.model_validate(first["key"]), first["started_at"], changed, turns)
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None


def worker(run_dir: Path) -> int | None:
    """The process that drives a run now (by the kernel's list of locks, so that looking disturbs nothing); None when
    there is none, or no such list."""
    try:
        lock, listed = (run_dir / ".run.lock").stat(), Path("/proc/locks").read_text()
    except OSError:
        return None
    wanted = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    held = [line.split() for line in listed.splitlines()]
    return next((int(words[4]) for words in held if "FLOCK" in words[1:2] and wanted in words[5:6]), None)
