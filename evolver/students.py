"""Has students distilled from frozen harnesses, each in a child process, and measures the gaps of given pairs."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from devset.task import Task
from evolver.errors import BudgetSpent
from evolver.gap import gap
from evolver.lab import Lab
from evolver.race import interleaved, record_evaluation
from evolver.records import Distillation, Gap

Distil = Callable[[Path, str, int], Awaitable[int]]  # (run directory, harness id, seed) → exit code
BUDGET_EXIT = 4
PR_SET_PDEATHSIG = 1
PATIENCE_S = 10.0
TELL_EVERY_S = 60.0


async def distil_in_child(run_dir: Path, harness_id: str, seed: int) -> int:
    """Runs `evolver distil` and returns its exit code; its output passes through."""
    return await run_python("-m", "evolver", "distil", str(run_dir), harness_id, "--seed", str(seed))


async def run_python(*arguments: str) -> int:
    """Runs Python in a child that dies with this process, however this process dies; returns its exit code."""
    libc = ctypes.CDLL(None)
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    try:
        return await child.wait()
    finally:
        if child.returncode is None:
            await _end(child)


async def _end(child: asyncio.subprocess.Process) -> None:
    child.terminate()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


async def ensure_students(lab: Lab, harness_ids: Sequence[str], distil: Distil) -> None:
    """Distils what is missing. A failed child is reported and costs its lineage nothing; a resumed run tries again.

    Raises BudgetSpent when a child stopped at a cap.
    """
    wanted = [(h, seed) for h in dict.fromkeys(harness_ids) for seed in lab.config.distil.seeds]
    for done, (harness_id, seed) in enumerate(wanted):
        if any((d.teacher_harness, d.seed) == (harness_id, seed) for d in lab.store.all(Distillation)):
            continue
        what = f"distil {harness_id[:12]}, seed {seed}"
        lab.tell(what, done, len(wanted), {})
        code = await _told(distil(lab.store.path, harness_id, seed), partial(lab.tell, what, done, len(wanted), {}))
        if code == BUDGET_EXIT:
            raise BudgetSpent(
                f"a cap was reached while distilling {harness_id[:12]} (seed {seed}): raise it, run it again"
            )
        if code != 0:
            again = f"evolver distil {lab.store.path} {harness_id[:12]} --seed {seed}"
            lab.tell(f"{what} FAILED with exit code {code}; `{again}`", done, len(wanted), {})


async def _told(training: Awaitable[int], tell: Callable[[], None]) -> int:
    """Waits for a training, which leaves no record until it is done, and tells now and then that it goes on."""
    task = asyncio.ensure_future(training)
    try:
        while not (await asyncio.wait([task], timeout=TELL_EVERY_S))[0]:
            tell()
        return task.result()
    finally:
        task.cancel()


async def measure_gaps(lab: Lab, pairs: Sequence[tuple[str, str]], tasks: Sequence[Task], distil: Distil) -> None:
    """Teachers on the test split side by side, their students where missing, then one Gap record a pair."""
    for a, b in pairs:
        await lab.score(
            interleaved(dict.fromkeys((a, b), range(1)), tasks, "test"), label=f"test {a[:12]} and {b[:12]}"
        )
        for harness_id in (a, b):
            record_evaluation(lab, harness_id, "test", tasks)
        await ensure_students(lab, (a, b), distil)
        found = gap(lab.store, a, b)
        if lab.store.get(Gap, found.id) is None:
            lab.record(found)
