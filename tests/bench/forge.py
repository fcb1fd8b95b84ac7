"""A forged set of 10,000 tasks: time, memory, mix, duplicates, and a sample through the whole gate.

Goals: all of them distinct and out of 40 skills at least, the share of one app as asked to 0.1 points, less than 1 %
that another detector (devset.overlap, on a part of them) finds alike or in dev, `select` or test, 10 minutes, 1 GB; of
the sample at most 5 % refused. `python tests/bench/forge.py --n 1000 --sample 20 --out DIR` is a small one; with the
same DIR it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from devset.directory import read_task_dir
from devset.forge.duplicates import twins
from devset.forge.sets import Forge, Row, forge_of, remade, write_set
from devset.forge.settings import SINGLE, Settings
from devset.overlap import items_of, overlaps
from devset.splits import load_split
from devset.task import SPLITS, Task
from evolver.commands.admission import opened_bench
from evolver.composed import Proof, prove
from evolver.forged import sample_of, sampled, verdicts

COMPARED = 1_500
MOST_S, MOST_MB, MOST_ALIKE, MOST_REFUSED, FEWEST_SKILLS = 600, 1_000, 0.01, 0.05, 40


def alike(rows: list[Row], out: Path, held: list[Task]) -> float:
    """The share of some of the tasks that another one of them, or one that is held out, is like."""
    some = Random(0).sample(rows, min(COMPARED, len(rows)))
    items = items_of(read_task_dir(out / row.id) for row in some)
    pairs = [*overlaps(items, items), *overlaps(items, items_of(held))]
    return len({pair.a for pair in pairs if pair.a != pair.b}) / len(some)


async def proven(rows: list[Row], forge: Forge, out: Path, workers: int) -> list[Proof]:
    made = [remade(row, forge.families) for row in rows]
    async with opened_bench("auto", workers) as bench:
        return [proof async for proof in prove(made, bench, out / "proofs.jsonl")]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--n", type=int, default=10_000)
    asked.add_argument("--sample", type=int, default=100)
    asked.add_argument("--workers", type=int, default=2)
    asked.add_argument("--out", type=Path, default=None)
    given = asked.parse_args()
    out = given.out or Path(tempfile.mkdtemp()) / "forged"
    held = [task for split in SPLITS[1:] for task in load_split(split, unsealed=True)]
    began = time.monotonic()
    forge = forge_of(Settings(seed=1), held)
    rows = list(write_set(forge, given.n, out))
    seconds, megabytes = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    single = sum(row.lane == "single" for row in rows) / len(rows)
    skills = len({skill for row in rows for skill in row.skills})
    double = len({one for ids in twins(rows).values() for one in ids}) / len(rows)
    other = alike(rows, out, held)
    began = time.monotonic()
    proofs = asyncio.run(proven(sample_of(rows, given.sample), forge, out, given.workers))
    found = sampled(rows, proofs, verdicts(rows, proofs))
    goals = {
        f"{len(rows):,} of {given.n:,} tasks, {len({row.hash for row in rows}):,} distinct": len(rows) == given.n,
        f"{skills} skills": skills >= FEWEST_SKILLS,
        f"{single:.2%} of one app": abs(single - SINGLE) <= 0.001,
        f"{double:.2%} duplicates, {other:.2%} by another detector": max(double, other) < MOST_ALIKE,
        f"{seconds:.0f} s": seconds <= MOST_S,
        f"{megabytes:.0f} MB": megabytes <= MOST_MB,
        f"{found.line()} in {time.monotonic() - began:.0f} s": (found.refused.point or 0) <= MOST_REFUSED,
    }
    for said, met in goals.items():
        print(f"forge: {said} {'goal met' if met else 'SHORT OF GOAL'}")
    cover = forge.sampler.coverage()
    print(
        f"forge: {cover.paths:,} canonical paths, effective number {cover.effective:,}, {cover.pairs:,} pairs of skills"
    )
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
