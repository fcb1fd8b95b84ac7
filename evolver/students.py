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
from evolver.errors import BudgetSpent, UsageError
from evolver.gap import Part, gap
from evolver.lab import Lab
from evolver.race import interleaved, record_evaluation
from evolver.records import Distillation, Gap, Scorecard

# (run directory, harness id, seed, test tasks or all of the run's) → exit code
Distil = Callable[[Path, str, int, int | None], Awaitable[int]]
BUDGET_EXIT = 4
PR_SET_PDEATHSIG = 1
PATIENCE_S = 10.0
TELL_EVERY_S = 60.0


async def distil_in_child(run_dir: Path, harness_id: str, seed: int, test_tasks: int | None) -> int:
    """Runs `evolver distil` and returns its exit code; its output passes through."""
    fewer = [] if test_tasks is None else ["--test-tasks", str(test_tasks)]
    return await run_python("-m", "evolver", "distil", str(run_dir), harness_id, "--seed", str(seed), *fewer)


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


async def ensure_students(
    lab: Lab, harness_ids: Sequence[str], distil: Distil, tasks: Sequence[Task] | None = None, seeds: int | None = None
) -> None:
    """Distils what is missing: the first `seeds` of the config's, each measured on `tasks` (absent: on all).

    A failed child is reported and costs its lineage nothing; a resumed run tries again. Raises BudgetSpent when a child
    stopped at a cap.
    """
    wanted = [(h, seed) for h in dict.fromkeys(harness_ids) for seed in lab.config.distil.seeds[:seeds]]
    for done, (harness_id, seed) in enumerate(wanted):
        if _is_made(lab, harness_id, seed, tasks or ()):
            continue
        what = f"distil {harness_id[:12]}, seed {seed}"
        lab.tell(what, done, len(wanted), {})
        child = distil(lab.store.path, harness_id, seed, None if tasks is None else len(tasks))
        code = await _told(child, partial(lab.tell, what, done, len(wanted), {}))
        if code == BUDGET_EXIT:
            raise BudgetSpent(
                f"a cap was reached while distilling {harness_id[:12]} (seed {seed}): raise it, run it again"
            )
        if code != 0:
            again = f"evolver distil {lab.store.path} {harness_id[:12]} --seed {seed}"
            lab.tell(f"{what} FAILED with exit code {code}; `{again}`", done, len(wanted), {})


def _is_made(lab: Lab, harness_id: str, seed: int, tasks: Sequence[Task]) -> bool:
    """Whether the student is there and has played these test tasks."""
    made = [d for d in lab.store.all(Distillation) if (d.teacher_harness, d.seed) == (harness_id, seed)]
    if not made or not tasks:
        return bool(made)
    played = {c.key.task_id for c in lab.store.all(Scorecard) if c.key.model_id == made[-1].student_model}
    return {task.id for task in tasks} <= played


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
    """One Gap record a pair; with looks (`[gap] looks`), one a look until the gap is found or the looks are used up.

    Raises UsageError when there are fewer test tasks than the last look wants.
    """
    last = lab.config.gap.sizes[-1:]
    if pairs and last and last[0].tasks > len(tasks):
        raise UsageError(f"gap.looks wants {last[0].tasks} test tasks, there are {len(tasks)}")
    for pair in pairs:
        for look, size in enumerate(lab.config.gap.sizes):
            level = lab.config.gap.level(look)
            seeds = lab.config.distil.seeds[: size.seeds]
            part = Part(look, seeds, frozenset(task.id for task in tasks[: size.tasks]), level)
            found = await _measured(lab, pair, tasks[: size.tasks], distil, part)
            if found.found:
                break
        if not lab.config.gap.looks:
            await _measured(lab, pair, tasks, distil, None)


async def _measured(lab: Lab, pair: tuple[str, str], tasks: Sequence[Task], distil: Distil, part: Part | None) -> Gap:
    """Teachers on these test tasks side by side, their students where missing, then the record."""
    a, b = pair
    await lab.score(interleaved(dict.fromkeys(pair, range(1)), tasks, "test"), label=f"test {a[:12]} and {b[:12]}")
    for harness_id in dict.fromkeys(pair):
        record_evaluation(lab, harness_id, "test", tasks)
    if part is None:
        await ensure_students(lab, pair, distil)
    else:
        await ensure_students(lab, pair, distil, tasks, len(part.seeds))
    found = gap(lab.store, a, b, part)
    if lab.store.get(Gap, found.id) is None:
        lab.record(found)
    return found
