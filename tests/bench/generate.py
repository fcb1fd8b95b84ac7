"""Generation rounds that are killed on the way: real rollouts in sandboxes, and a million units that play nothing.

Each round runs with Ray while a random worker is killed (-9) every few seconds, and the driver twice; then the same
round runs undisturbed. Goal: exactly the planned units, none lost, none double, the books exact, the same root hash,
the driver's memory flat and few files at any time. `--tasks 40 --units 20000` is a small version.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from evolver.rounds.book import NANO, Book, Cost
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.folder import BOOK, Plan, Round
from evolver.rounds.manifest import Manifest
from evolver.rounds.plan import TaskRef
from evolver.rounds.reader import check_round
from evolver.rounds.watch import Schedule, Watch
from evolver.testing.rounds import COST, NoopSpec

TASKS, UNITS, WORKERS = 2_000, 1_000_000, 2
KILL_EVERY_S, DRIVER_KILLS = 10.0, 2
LEASE_UNITS, SHARD_UNITS = 2_000, 20_000
MEMORY_GROWTH, FILES = 0.25, 400  # of the driver, after the first quarter; in the folder, beside blobs
CAPSULE_ID = "0" * 64


# --- the driver, in a process of its own ----------------------------------------------------------------------------


async def drive_noop(out: Path, units: int, pause_s: float) -> None:
    from evolver.executors.ray import RayCrew

    bills = out / "bills"
    bills.mkdir(parents=True, exist_ok=True)
    refs = [TaskRef(f"task-{n}", f"{n:064d}") for n in range(1_000)]
    plan = Plan(CAPSULE_ID, "none", "none", "noop", "none", refs, units, shard_units=min(SHARD_UNITS, units // 4))
    round_ = Round.open(out, plan)
    crew = RayCrew(NoopSpec(out, CAPSULE_ID, pause_s, bills), WORKERS)
    rules = Rules(lease_units=min(LEASE_UNITS, units // 40), unit_nusd=COST.nusd, deadline_s=60.0, workers=WORKERS)
    try:
        await Driver(round_, crew, rules, Watch(round_.book, Schedule(), units)).run()
    finally:
        await crew.aclose()
        round_.close()


async def drive_real(out: Path, capsule: Path, units: int) -> None:
    from evolver.rounds.start import RoundSettings, Wanted, generate

    settings = RoundSettings(workers=WORKERS, shard_units=max(10, units // 20), probe_every=2_000)
    await generate(Wanted(capsule, "train", out, units, "ray", settings), lambda *told: None, lambda line: None)


# --- those who disturb it -------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What was seen of a round from outside: MiB of the driver's memory and files in its folder, over time."""

    memory: list[float] = field(default_factory=list)
    files: int = 0
    worker_kills: int = 0
    driver_kills: int = 0
    seconds: float = 0.0


def workers_of(driver: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in driver.children(recursive=True):
        with suppress(psutil.Error):
            if child.cmdline()[:1] and "Hired" in child.cmdline()[0]:
                found.append(child)
    return found


def disturbed(
    argv: list[str], out: Path, kill_every_s: float, driver_kills: int, progress: Callable[[], float]
) -> Seen:
    """Runs the driver until it ends by itself; kills workers by the clock and the driver at a third, two thirds, ..."""
    rng, seen, began = random.Random(0), Seen(), time.monotonic()
    marks = [(n + 1) / (driver_kills + 1) for n in range(driver_kills)]
    while True:
        process = subprocess.Popen(argv, start_new_session=True)
        driver, last, counted = psutil.Process(process.pid), time.monotonic(), 0.0
        while process.poll() is None:
            time.sleep(0.2)
            now = time.monotonic()
            with suppress(psutil.Error, FileNotFoundError):
                if progress() > 0:
                    seen.memory.append(driver.memory_info().rss / (1 << 20))
                if now - counted > 2:
                    counted = now
                    seen.files = max(seen.files, count_files(out))
                if kill_every_s and now - last > kill_every_s and (alive := workers_of(driver)):
                    last = now
                    rng.choice(alive).kill()
                    seen.worker_kills += 1
            if seen.driver_kills < driver_kills and progress() >= marks[seen.driver_kills]:
                family = driver.children(recursive=True)
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                psutil.wait_procs(family, timeout=30)
                seen.driver_kills += 1
        if process.returncode == 0:
            seen.seconds = time.monotonic() - began
            return seen
        if process.returncode != -signal.SIGKILL:
            sys.exit(f"the driver ended with {process.returncode}: {' '.join(argv)}")


def count_files(out: Path) -> int:
    return sum(len(names) for folder, _, names in os.walk(out) if not {"blobs", "library"} & set(Path(folder).parts))


def done_share(out: Path, units: int) -> float:
    if not (out / BOOK).exists() or not Manifest.of(out).is_open:
        return 0.0
    book = Book.read(out / BOOK)
    try:
        return book.committed() / units
    finally:
        book.close()


# --- what must hold -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    root: str
    rows: int
    distinct: int
    kept: Cost
    paid: Cost
    in_rows: int  # nano-dollars
    infra: int
    shards: int


def result_of(out: Path) -> Result:
    closed = check_round(out)
    assert closed is not None, "the round is not closed"
    units: set[str] = set()
    rows = in_rows = infra = 0
    for shard in Manifest.of(out).shards:
        table = pq.read_table(out / "shards" / shard.file, columns=["unit", "nusd", "reason"])
        units.update(table["unit"].to_pylist())
        rows += table.num_rows
        in_rows += sum(n or 0 for n in table["nusd"].to_pylist())
        infra += sum(reason == "infra" for reason in table["reason"].to_pylist())
    book = Book.read(out / BOOK)
    found = Result(
        closed.root, rows, len(units), book.cost("kept"), book.cost(), in_rows, infra, len(Manifest.of(out).shards)
    )
    book.close()
    return found


def billed(out: Path) -> int:
    """Calls that the provider of units that play nothing has counted."""
    return sum(int(line) for path in (out / "bills").iterdir() for line in path.read_text().split())


def faults(units: int, result: Result, seen: Seen) -> list[str]:
    steady = seen.memory[len(seen.memory) // 4 :] or [0.0]
    growth = steady[-1] / max(steady[0], 1.0) - 1 if seen.driver_kills == 0 else 0.0
    checks = {
        f"{result.rows} rows of {result.distinct} units, {units} planned": (result.rows, result.distinct)
        == (units, units),
        f"rows cost {result.in_rows}, the book kept {result.kept.nusd} n$": result.in_rows == result.kept.nusd,
        f"memory grew by {growth:.0%}": growth <= MEMORY_GROWTH,
        f"{seen.files} files": seen.files <= FILES,
    }
    return [what for what, holds in checks.items() if not holds]


def told(name: str, units: int, result: Result, seen: Seen) -> str:
    memory = f"{min(seen.memory, default=0):.0f}-{max(seen.memory, default=0):.0f} MiB"
    return (
        f"{name}: {result.rows:,} rows of {result.distinct:,} distinct units in {seen.seconds:.0f} s "
        f"({units / seen.seconds:,.1f} a second), {seen.worker_kills} workers and {seen.driver_kills} drivers killed, "
        f"driver {memory}, at most {seen.files} files, {result.shards} shards, {result.infra} infra, "
        f"kept ${result.kept.nusd / NANO:.6f} of ${result.paid.nusd / NANO:.6f} paid, root {result.root[:16]}"
    )


def compared(
    name: str, units: int, make: Callable[[Path], list[str]], folder: Path, options: argparse.Namespace
) -> bool:
    """The round twice: killed all the time, and left alone."""
    results, short = [], []
    for calm in (False, True):
        out = folder / f"{name}-{'calm' if calm else 'killed'}"
        kills = (0.0, 0) if calm else (options.kill_every, options.driver_kills)
        seen = disturbed(make(out), out, *kills, lambda out=out: done_share(out, units))  # type: ignore[misc]
        results.append(result_of(out))
        print(told(out.name, units, results[-1], seen), flush=True)
        short += faults(units, results[-1], seen)
        if (out / "bills").is_dir():
            calls, paid = billed(out), results[-1].paid
            print(f"  the provider counted {calls:,} calls, the book {paid.calls:,} and {paid.unknown} unknown")
            if abs(calls - paid.calls) > 0.01 * calls:
                short.append(f"{calls} calls billed, {paid.calls} booked")
    if results[0].root != results[1].root:
        short.append("the roots differ")
    print(f"{name}: {'goal met' if not short else 'short of goal: ' + '; '.join(short)}", flush=True)
    return not short


def measure(options: argparse.Namespace, folder: Path) -> bool:
    met, me = True, [sys.executable, str(Path(__file__).resolve())]
    if options.units:
        n, pause = str(options.units), str(options.pause)
        met &= compared(
            "noop",
            options.units,
            lambda out: [*me, "--drive", str(out), "--units", n, "--pause", pause],
            folder,
            options,
        )
    if options.tasks:
        from tests.evolver.round_capsule import made_capsule

        capsule, n = made_capsule(folder / "capsule"), str(options.tasks)
        met &= compared(
            "real", options.tasks, lambda out: [*me, "--drive", str(out), "--capsule", str(capsule), "--tasks", n],
            folder, options,
        )  # fmt: skip
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS, help="real units (0: none)")
    parser.add_argument("--units", type=int, default=UNITS, help="units that play nothing (0: none)")
    parser.add_argument("--kill-every", type=float, default=KILL_EVERY_S, help="seconds between killed workers")
    parser.add_argument("--driver-kills", type=int, default=DRIVER_KILLS)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a lease of such units lasts at least")
    parser.add_argument("--keep", type=Path, default=None, help="a folder to leave the rounds in")
    parser.add_argument("--drive", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--capsule", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive is not None:
        if options.capsule is not None:
            asyncio.run(drive_real(options.drive, options.capsule, options.tasks))
        else:
            asyncio.run(drive_noop(options.drive, options.units, options.pause))
        return 0
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        return 0 if measure(options, options.keep.resolve()) else 1
    with tempfile.TemporaryDirectory(prefix="rounds-") as folder:
        return 0 if measure(options, Path(folder)) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
