"""A small whole experiment of coins in a process of its own, which is killed in the middle of it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from pathlib import Path

from evolver.config import DistilConfig, HumanAuthor, RaceConfig, RunConfig, StructuredAuthor, TaskLimitsConfig
from evolver.finalize import finalize
from evolver.lab import Lab
from evolver.loop import run
from evolver.protocols import Request
from evolver.records import Frozen, Record
from evolver.safeguards import ChecksConfig
from evolver.selfcheck import STOP
from tests.evolver.cards import Coin, coin_lab, split_tasks
from tests.evolver.test_loop import CrashAfter
from tests.evolver.test_selfcheck import no_student

CONFIG = RunConfig(
    root="alpha",
    tasks=TaskLimitsConfig(dev=12, select=10, test=6),
    race=RaceConfig(attempts=(1, 2), confirm_attempts=2),
    authors=(
        HumanAuthor(kind="human", harness="beta1", why="a shell"),
        StructuredAuthor(kind="structured", n=2, space=("scaffold.max_steps",)),
    ),
    distil=DistilConfig(max_promotions=0),
    checks=ChecksConfig(tasks=3, attempts=2, graded=2, neutral_every=2),
)


def skill(request: Request) -> tuple[float, int]:
    """9 of 10 tasks with a shell, 4 of 10 without one, none when told to stop."""
    if any(STOP in str(part) for message in request.messages for part in message.parts):
        return 0.0, 100
    return (0.9, 400) if any(tool.name == "bash" for tool in request.tools) else (0.4, 1_000)


class KillAfter(CrashAfter):
    """Ends this process without a last word after so many records."""

    def on_record(self, record: Record) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def experiment(lab: Lab) -> None:
    if not lab.store.all(Frozen):  # from there on `run` refuses, and `finalize` alone goes on
        await run(lab, tasks=split_tasks, distil=no_student)
    await finalize(lab, tasks=split_tasks)


def start(path: Path, records: int, after_s: float = 0.0) -> None:
    """Runs or resumes the experiment, killed after so many records (0: not), or after some seconds."""
    warnings.simplefilter("ignore")
    lab = coin_lab(path, CONFIG, Coin(skill))
    if records:
        lab.observers.append(KillAfter(records))
    if after_s:
        threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    asyncio.run(experiment(lab))
