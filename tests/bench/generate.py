"""Generation rounds that are killed on the way: real rollouts in sandboxes, and a million units that play nothing.

Each round runs with Ray while a random worker is killed (-9) every few seconds, and the driver twice; then the same
round runs undisturbed. Goal: exactly the planned units, none lost, none double, the books exact, the same root hash,
the driver's memory flat and few files at any time. Figures are printed as they come; the same command goes on where it
was stopped, and `--only` makes one half at a time. `--tasks 40 --units 20000` is a small version.

What is played must not change meanwhile: a capsule pins every line of the platform.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from evolver.disk import replace
from evolver.rounds.book import NANO, Book, Cost
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.folder import BOOK, Plan, Round
from evolver.rounds.manifest import Manifest
from evolver.rounds.plan import TaskRef
from evolver.rounds.reader import check_round
from evolver.rounds.shards import AHEAD
from evolver.rounds.watch import Schedule, Watch
from evolver.testing.rounds import COST, NoopSpec

TASKS, UNITS = 2_000, 1_000_000
NOOP_WORKERS, REAL_WORKERS = 2, 4  # a real unit waits for windows half of its time
KILL_EVERY_S, DRIVER_KILLS = 10.0, 2
LEASE_UNITS, SHARD_UNITS = 2_000, 20_000
PROBE_EVERY = 2_000  # calls
MEMORY_GROWTH = 0.25  # of the driver, after the first quarter
LEASE_FILES, OTHER_FILES = 2, 100  # rows and journal of a lease until its shard is made; all others, beside blobs
LOOK_S, COUNT_S, TELL_S = 0.5, 5.0, 30.0
CAPSULE_ID = "0" * 64
FOLDER = Path("runs/bench-generate")


# --- the driver, in a process of its own ----------------------------------------------------------------------------


async def drive_noop(out: Path, units: int, pause_s: float) -> None:
    from evolver.executors.ray import RayCrew

    bills = bills_of(out)
    bills.mkdir(parents=True, exist_ok=True)
    refs = [TaskRef(f"task-{n}", f"{n:064d}") for n in range(1_000)]
    plan = Plan(CAPSULE_ID, "none", "none", "noop", "none", refs, units, shard_units=min(SHARD_UNITS, units // 4))
    round_ = Round.open(out, plan)
    crew = RayCrew(NoopSpec(out, CAPSULE_ID, pause_s, bills), NOOP_WORKERS)
    lease = min(LEASE_UNITS, units // 40)
    rules = Rules(lease_units=lease, unit_nusd=COST.nusd, deadline_s=60.0, workers=NOOP_WORKERS)
    try:
        await Driver(round_, crew, rules, Watch(round_.book, Schedule(), units)).run()
    finally:
        await crew.aclose()
        round_.close()


async def drive_real(out: Path, capsule: Path, units: int, workers: int) -> None:
    from evolver.rounds.start import RoundSettings, Wanted, generate

    settings = RoundSettings(workers=workers, shard_units=max(10, units // 20), probe_every=PROBE_EVERY)
    await generate(Wanted(capsule, "train", out, units, "ray", settings), lambda *told: None, lambda line: None)


def bills_of(out: Path) -> Path:
    """What the provider of units that play nothing counts, apart from the round."""
    return out.with_name(f"{out.name}-bills")


# --- those who disturb it -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """A round that is to be played: `argv` drives it in `out`. A worker is killed every so many seconds (0: none), and
    the driver so many times, at equal distances."""

    out: Path
    units: int
    argv: list[str]
    kill_every_s: float = 0.0
    driver_kills: int = 0

    @property
    def share(self) -> float:
        """Of the units that are done, 0..1."""
        if not (self.out / BOOK).exists() or not Manifest.of(self.out).is_open:
            return 0.0
        book = Book.read(self.out / BOOK)
        try:
            return book.committed() / self.units
        finally:
            book.close()

    @property
    def seen_path(self) -> Path:
        return self.out.with_name(f"{self.out.name}.json")


@dataclass
class Seen:
    """What was seen of a round from outside: MiB of the driver's memory at each look, and the most files in its folder.
    `seconds` are those in which a driver was there."""

    memory: list[float] = field(default_factory=list)
    files: int = 0
    worker_kills: int = 0
    driver_kills: int = 0
    seconds: float = 0.0
    over: bool = False


SEEN = TypeAdapter(Seen)


class Disturber:
    """Runs the driver again and again until it ends by itself."""

    def __init__(self, wish: Wish) -> None:
        self.wish, self.rng = wish, random.Random(0)
        path = wish.seen_path
        self.seen = SEEN.validate_json(path.read_bytes()) if path.exists() and wish.out.exists() else Seen()
        self.marks = [(n + 1) / (wish.driver_kills + 1) for n in range(wish.driver_kills)]

    def run(self) -> Seen:
        while not self.seen.over:
            process = subprocess.Popen(self.wish.argv, start_new_session=True)
            try:
                self._accompany(process)
            finally:
                end(process)
            self.seen.over = process.returncode == 0
            self._keep()
            if process.returncode not in (0, -signal.SIGKILL):
                sys.exit(f"the driver ended with {process.returncode}: {' '.join(self.wish.argv)}")
        return self.seen

    def _accompany(self, process: subprocess.Popen[bytes]) -> None:
        """Looks at it and kills its workers, until it is over or its own turn has come."""
        driver, now = psutil.Process(process.pid), time.monotonic()
        killed = counted = told = now
        while process.poll() is None:
            time.sleep(LOOK_S)
            before, now = now, time.monotonic()
            self.seen.seconds += now - before
            share = self.wish.share
            with suppress(psutil.Error):
                if share > 0 and (held := driver.memory_info().rss):  # none once it is dead
                    self.seen.memory.append(round(held / (1 << 20), 1))
                if self.wish.kill_every_s and now - killed > self.wish.kill_every_s and (alive := workers_of(driver)):
                    killed = now
                    self.rng.choice(alive).kill()
                    self.seen.worker_kills += 1
            if now - counted > COUNT_S:
                counted = now
                self.seen.files = max(self.seen.files, count_files(self.wish.out))
            if now - told > TELL_S:
                told = now
                self._keep()
                self._tell(share)
            if self.seen.driver_kills < len(self.marks) and share >= self.marks[self.seen.driver_kills]:
                self.seen.driver_kills += 1
                self._tell(share)
                return

    def _tell(self, share: float) -> None:
        seen, done = self.seen, share * self.wish.units
        print(
            f"  {self.wish.out.name}: {done:,.0f} of {self.wish.units:,} units, {done / seen.seconds:,.1f} a second, "
            f"{seen.worker_kills} workers and {seen.driver_kills} drivers killed",
            flush=True,
        )

    def _keep(self) -> None:
        replace(self.wish.seen_path, SEEN.dump_json(self.seen))


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a driver, if it still runs, and waits until what it had started is dead too."""
    family: list[psutil.Process] = []
    with suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    if process.poll() is None:
        process.kill()
    process.wait()
    psutil.wait_procs(family, timeout=60)


def workers_of(driver: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in driver.children(recursive=True):
        with suppress(psutil.Error):
            if child.cmdline()[:1] and "Hired" in child.cmdline()[0]:
                found.append(child)
    return found


def count_files(out: Path) -> int:
    return sum(len(names) for folder, _, names in os.walk(out) if not {"blobs", "library"} & set(Path(folder).parts))


# --- what must hold -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """Of a closed round: `in_rows` is what its rows cost (nano-dollars), `billed` the calls that the provider counted,
    None where the provider is a part of the round."""

    root: str
    rows: int
    distinct: int
    kept: Cost
    paid: Cost
    in_rows: int
    infra: int
    shards: int
    most_files: int  # while as many shards are open as may be
    billed: int | None

    @classmethod
    def of(cls, out: Path, lease_units: int) -> Result:
        closed = check_round(out)
        assert closed is not None, "the round is not closed"
        units: set[str] = set()
        rows = in_rows = infra = 0
        manifest = Manifest.of(out)
        shards = manifest.shards
        most = AHEAD * manifest.opened.shard_units // lease_units * LEASE_FILES + OTHER_FILES
        for shard in shards:
            table = pq.read_table(out / "shards" / shard.file, columns=["unit", "nusd", "reason"])
            units.update(table["unit"].to_pylist())
            rows += table.num_rows
            in_rows += sum(n or 0 for n in table["nusd"].to_pylist())
            infra += sum(reason == "infra" for reason in table["reason"].to_pylist())
        book = Book.read(out / BOOK)
        kept, paid = book.cost("kept"), book.cost()
        book.close()
        bills = bills_of(out)
        billed = sum(int(n) for p in bills.iterdir() for n in p.read_text().split()) if bills.is_dir() else None
        return cls(closed.root, rows, len(units), kept, paid, in_rows, infra, len(shards), most, billed)


def unlike(one: Path, other: Path) -> list[str]:
    """Task and beginning of the id of each unit that says something else in one round than in the other."""
    said: list[dict[str, tuple[str, ...]]] = []
    for out in (one, other):
        columns = ["unit", "task_id", "verdict", "reason", "content_sha256"]
        tables = [pq.read_table(out / "shards" / shard.file, columns=columns) for shard in Manifest.of(out).shards]
        said.append(
            {unit: tuple(rest) for table in tables for unit, *rest in zip(*table.to_pydict().values(), strict=True)}
        )
    return [f"{rest[0]} ({unit[:12]})" for unit, rest in said[0].items() if said[1].get(unit) != rest]


def faults(units: int, result: Result, seen: Seen) -> list[str]:
    steady = seen.memory[len(seen.memory) // 4 :] or [0.0]
    growth = steady[-1] / max(steady[0], 1.0) - 1 if seen.driver_kills == 0 else 0.0
    paid = result.paid
    checks = {
        f"{result.rows} rows of {result.distinct} units, {units} planned": (result.rows, result.distinct)
        == (units, units),
        f"rows cost {result.in_rows} n$, the book kept {result.kept.nusd}": result.in_rows == result.kept.nusd,
        f"memory grew by {growth:.0%}": growth <= MEMORY_GROWTH,
        f"{seen.files} files, {result.most_files} at most": seen.files <= result.most_files,
        f"{result.billed} calls billed, {paid.calls} booked, {paid.unknown} of them as unknown": result.billed is None
        or paid.calls - paid.unknown <= result.billed <= paid.calls,
    }
    return [what for what, holds in checks.items() if not holds]


def told(name: str, result: Result, seen: Seen) -> str:
    memory = f"{min(seen.memory, default=0):.0f}-{max(seen.memory, default=0):.0f} MiB"
    billed = "" if result.billed is None else f", the provider counted {result.billed:,}"
    return (
        f"{name}: {result.rows:,} rows of {result.distinct:,} distinct units in {seen.seconds:.0f} s "
        f"({result.rows / seen.seconds:,.1f} a second), {seen.worker_kills} workers and {seen.driver_kills} drivers "
        f"killed, driver {memory}, at most {seen.files} files, {result.shards} shards, {result.infra} infra, "
        f"kept ${result.kept.nusd / NANO:.6f} of ${result.paid.nusd / NANO:.6f} paid for {result.paid.calls:,} calls "
        f"({result.paid.unknown:,} unknown){billed}, root {result.root[:16]}"
    )


Argv = Callable[[Path], list[str]]


def compared(name: str, size: tuple[int, int], argv: Argv, folder: Path, options: argparse.Namespace) -> bool:
    """A round of so many units, so many a lease, twice: killed all the time, and left alone."""
    units, lease_units = size
    roots, short = set(), []
    for way, kills in (("killed", (options.kill_every, options.driver_kills)), ("calm", (0.0, 0))):
        out = folder / f"{name}-{units}-{way}"
        seen = Disturber(Wish(out, units, argv(out), *kills)).run()
        result = Result.of(out, lease_units)
        print(told(out.name, result, seen), flush=True)
        short += [f"{way}: {fault}" for fault in faults(units, result, seen)]
        roots.add(result.root)
    if len(roots) != 1:
        other = unlike(*(folder / f"{name}-{units}-{way}" for way in ("killed", "calm")))
        short.append(f"the roots differ: {len(other)} units, {', '.join(other[:10])}")
    print(f"{name}: {'goal met' if not short else 'short of goal: ' + '; '.join(short)}", flush=True)
    return not short


def noop(options: argparse.Namespace, folder: Path) -> bool:
    def argv(out: Path) -> list[str]:
        return [*ME, "--drive", str(out), "--units", str(options.units), "--pause", str(options.pause)]

    return compared("noop", (options.units, LEASE_UNITS), argv, folder, options)


def real(options: argparse.Namespace, folder: Path) -> bool:
    from evolver.sandboxes import open_backend
    from tests.evolver.round_capsule import made_capsule

    capsule = folder / "capsule"
    if not capsule.exists():
        made_capsule(capsule, backend=open_backend(spares=0).name)

    def argv(out: Path) -> list[str]:
        n, workers = str(options.tasks), str(options.workers)
        return [*ME, "--drive", str(out), "--capsule", str(capsule), "--tasks", n, "--workers", workers]

    return compared("real", (options.tasks, 1), argv, folder, options)


ME = [sys.executable, str(Path(__file__).resolve())]
HALVES = {"noop": noop, "real": real}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(HALVES), help="one of the two halves")
    parser.add_argument("--tasks", type=int, default=TASKS, help="real units")
    parser.add_argument("--units", type=int, default=UNITS, help="units that play nothing")
    parser.add_argument("--workers", type=int, default=REAL_WORKERS, help=f"of real units (default {REAL_WORKERS})")
    parser.add_argument("--kill-every", type=float, default=KILL_EVERY_S, help="seconds between killed workers")
    parser.add_argument("--driver-kills", type=int, default=DRIVER_KILLS)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a lease of no-op units lasts at least")
    parser.add_argument("--keep", type=Path, default=FOLDER, help=f"where the rounds lie (default {FOLDER})")
    parser.add_argument("--drive", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--capsule", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive is not None and options.capsule is not None:
        asyncio.run(drive_real(options.drive, options.capsule, options.tasks, options.workers))
        return 0
    if options.drive is not None:
        asyncio.run(drive_noop(options.drive, options.units, options.pause))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the driver ends with it
    options.keep.mkdir(parents=True, exist_ok=True)
    halves = [half for name, half in HALVES.items() if options.only in (None, name)]
    met = [half(options, options.keep.resolve()) for half in halves]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
