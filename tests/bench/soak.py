"""Whether 200 desktop rollouts, 6 at a time, leave anything behind: containers, processes, descriptors, files, memory.

Half of them click (alpha), half may use the shell too (beta1); the demonstrator plays, slips included. Goal: nothing
leaked, no rollout lost, and this process grows by less than 100 KiB a rollout once it has warmed up.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from devset.splits import load_split
from devset.task import Task
from evolver.executors.local import LocalExecutor
from evolver.models.demonstrator import Demonstrator
from evolver.records import Rollout, RolloutKey
from evolver.rollout import Job, run_rollout
from evolver.sandboxes import open_backend
from harnesses.harness import Harness
from harnesses.tree import read_tree, seed_path

FAMILIES = ("text.append", "files.rename", "files.new-folder", "files.move")
ROLLOUTS, WORKERS, SPARES = 200, 6, 2
RUN_ID = "soak"
GROWTH_KB = 100.0


@dataclass(frozen=True)
class Held:
    """What this process and its machine hold; `temporary` counts what lies in the folder for temporary files."""

    containers: int
    networks: int
    children: int
    descriptors: int
    threads: int
    temporary: int
    memory_mb: float


def lines(*argv: str) -> int:
    return len(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines())


def held(temporary: Path) -> Held:
    gc.collect()
    process = psutil.Process()
    return Held(
        containers=lines("docker", "ps", "--all", "--quiet", "--filter", f"label=evolver.run={RUN_ID}"),
        networks=lines("docker", "network", "ls", "--quiet"),
        children=len(process.children(recursive=True)),
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        temporary=len(list(temporary.iterdir())),
        memory_mb=process.memory_info().rss / (1 << 20),
    )


def layers() -> str:
    """What the daemon's containers and volumes take on disk, in its own words."""
    argv = ["docker", "system", "df", "--format", "{{.Type}} {{.Size}}"]
    table = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return ", ".join(line for line in table if line.startswith(("Containers", "Local Volumes")))


def job(number: int, harness: Harness, task: Task) -> Job:
    model = Demonstrator(slip_rate=0.05, seed=number)
    key = RolloutKey(
        purpose="adhoc", harness_id=harness.id, model_id=model.id, task_id=task.id, task_hash=task.hash,
        split=task.split, attempt=number, seed=0,
    )  # fmt: skip
    return Job(key=key, rollout_id=f"{RUN_ID}-{number}", harness=harness, task=task, model=model, run_id=RUN_ID)


def jobs(count: int) -> list[Job]:
    tasks = [t for t in load_split("train") if t.family in FAMILIES and t.oracle.gui is not None]
    harnesses = [read_tree(seed_path(name)) for name in ("alpha", "beta1")]
    return [job(n, harnesses[n % 2], tasks[n // 2 % len(tasks)]) for n in range(count)]


@dataclass
class Played:
    """The rollouts without their turns, how many turns went by which channel, and MiB of memory after so many."""

    rollouts: list[Rollout] = field(default_factory=list)
    channels: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[int, float]] = field(default_factory=list)


async def play(todo: list[Job], blobs: Path, temporary: Path) -> Played:
    backend = open_backend("docker", spares=SPARES)

    def put(data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return name

    async def one(item: Job) -> Rollout:
        return (await run_rollout(item, backend, put))[0]

    played = Played()
    try:
        for environment in {item.harness.environment for item in todo}:
            await backend.prepare(environment)
        async for rollout in LocalExecutor(WORKERS).map(one, todo):
            played.channels.update(turn.channel for turn in rollout.turns)
            played.rollouts.append(rollout.model_copy(update={"turns": ()}))
            if len(played.rollouts) % 5 == 0:
                played.memory.append((len(played.rollouts), held(temporary).memory_mb))
    finally:
        await backend.aclose()
    return played


def growth(memory: list[tuple[int, float]]) -> float:
    """KiB a rollout, by least squares over what came after the first third."""
    later = memory[len(memory) // 3 :]
    if len(later) < 3:
        return 0.0
    return statistics.linear_regression(*zip(*later, strict=True)).slope * 1024


async def soak(count: int) -> bool:
    todo, began = jobs(count), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        blobs, temporary = Path(folder) / "blobs", Path(folder) / "tmp"
        blobs.mkdir()
        temporary.mkdir()
        tempfile.tempdir = str(temporary)
        before, disk_before = held(temporary), layers()
        played = await play(todo, blobs, temporary)
        await asyncio.sleep(1)
        after, disk_after = held(temporary), layers()
        kept_mb = sum(path.stat().st_size for path in blobs.iterdir()) / (1 << 20)
    rollouts, memory = played.rollouts, played.memory
    minutes, slope = (time.monotonic() - began) / 60, growth(memory)
    ends = Counter(r.stop_reason if r.error is None else f"error: {r.error.kind}" for r in rollouts)
    lost = [f"{r.id}: {r.error.message[:200]}" for r in rollouts if r.error is not None]
    print(f"{len(rollouts)} rollouts, {WORKERS} at a time, in {minutes:.1f} min: {dict(ends)}")
    print(f"turns by channel: {dict(played.channels)}; {kept_mb:.0f} MiB of pictures and states written")
    print(*lost, sep="\n", end="\n" if lost else "")
    print(f"before: {before}; {disk_before}")
    print(f"after:  {after}; {disk_after}")
    print("memory, MiB: " + ", ".join(f"{mb:.0f} after {number}" for number, mb in memory[:: max(len(memory) // 8, 1)]))
    leaked = [
        name
        for name in ("containers", "networks", "children", "temporary")
        if getattr(after, name) > getattr(before, name)
    ]
    if after.descriptors > before.descriptors + 5:  # the daemon's client keeps connections for its next call
        leaked.append("descriptors")
    met = not leaked and not lost and slope < GROWTH_KB
    print(
        f"soak: {len(rollouts)} rollouts, leaked {', '.join(leaked) or 'nothing'}, {len(lost)} lost, memory "
        f"{slope:+.0f} KiB a rollout (goal under {GROWTH_KB:g}) {'goal met' if met else 'short of goal'}"
    )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=ROLLOUTS, help="how many rollouts")
    return 0 if asyncio.run(soak(parser.parse_args().n)) else 1


if __name__ == "__main__":
    sys.exit(main())
