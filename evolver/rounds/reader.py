"""What a finished or unfinished round has to give: trajectories, found by the manifest alone.

Left out unless asked for: rejected rows, and the rows of suspect shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from evolver.capsules import read_lock
from evolver.capsules.program import sha256
from evolver.errors import UsageError
from evolver.records import Rollout, Scorecard
from evolver.rounds import shards
from evolver.rounds.folder import PLAN
from evolver.rounds.manifest import Closed, Manifest, closing
from evolver.rounds.plan import sha256_of
from evolver.rounds.shards import check_shard

BATCH = 200


@dataclass(frozen=True)
class Trajectory:
    """A played unit, and where it came from: the capsule, the skills its task takes, the worker and its attempt."""

    unit: str
    capsule_id: str
    skills: tuple[str, ...]
    instruction: str
    worker: str
    attempt: str
    rollout: Rollout
    scorecard: Scorecard


def trajectories(round_dir: Path, *, rejected: bool = False, suspect: bool = False) -> Iterator[Trajectory]:
    """In the order of the plan, shard by shard. Rows of units that nobody could play (`infra`) have no trajectory."""
    names = ["unit", "capsule_id", "skills", "instruction", "worker", "attempt", "verdict", "rollout", "scorecard"]
    for path in files(round_dir, suspect=suspect):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH, columns=names):
                for row in batch.to_pylist():
                    if row["rollout"] and (rejected or row["verdict"] == "accepted"):
                        yield _trajectory(row)


def scorecards(round_dir: Path) -> Iterator[Scorecard]:
    """Of every unit that was played, accepted or not, shard by shard."""
    for path in files(round_dir):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH, columns=["scorecard"]):
                yield from (Scorecard.model_validate_json(text) for text in batch.column(0).to_pylist() if text)


def files(round_dir: Path, *, suspect: bool = False) -> list[Path]:
    """The shards that count, each as long as the manifest says. Raises UsageError for one that is not."""
    manifest, found = Manifest.of(round_dir), []
    for shard in manifest.shards:
        if suspect or shard.number not in manifest.suspects:
            path = round_dir / shards.FOLDER / shard.file
            check_shard(path, shard, thorough=False)
            found.append(path)
    return found


def check_round(round_dir: Path) -> Closed | None:
    """Reads every byte of plan and shards, and compares all of it with the manifest; the closing line, None for an open
    round.

    Raises UsageError naming the first that differs. Lines that were cut off at the manifest's end are not missed: they
    leave an open round."""
    manifest, plan = Manifest.of(round_dir), round_dir / PLAN
    if not plan.is_file() or sha256_of(plan) != manifest.opened.plan_sha256:
        raise UsageError(f"{plan} is not the plan that the manifest names; restore it from a copy")
    for number, shard in enumerate(manifest.shards):
        if shard.number != number:
            raise UsageError(f"{manifest.path}: expected shard {number}, found shard {shard.number}")
        check_shard(round_dir / shards.FOLDER / shard.file, shard, thorough=True)
    if manifest.closed is not None:
        _check_closed(manifest, manifest.closed)
    return manifest.closed


def _check_closed(manifest: Manifest, closed: Closed) -> None:
    found = closing(manifest.shards)
    differ = [name for name in ("root", "rows", "accepted") if getattr(closed, name) != getattr(found, name)]
    differ += ["units"] if found.rows != manifest.opened.units else []
    if differ:
        raise UsageError(
            f"{manifest.path}: the closing line does not fit the shards ({', '.join(differ)}); restore it from a copy"
        )


def is_round(path: Path) -> bool:
    return Manifest.of(path).is_open


def taught_in(
    round_dir: Path, harness_id: str, limit: int | None = None
) -> tuple[dict[str, str], list[tuple[Rollout, Scorecard]]]:
    """What a student may learn from: task id → instruction, and the first `limit` accepted rollouts of training tasks
    under a harness, with cards. What asks for what the capsule's run holds out of training is left out."""
    held_out = set(read_lock(round_dir).held_out.values())
    taught = (
        t
        for t in trajectories(round_dir)
        if (t.rollout.key.harness_id, t.rollout.key.split) == (harness_id, "train")
        and sha256(t.instruction.encode()) not in held_out
    )
    found = list(islice(taught, limit))
    instructions = {t.rollout.key.task_id: t.instruction for t in found}
    return instructions, [(t.rollout, t.scorecard) for t in found]


def _trajectory(row: dict[str, str]) -> Trajectory:
    return Trajectory(
        unit=row["unit"],
        capsule_id=row["capsule_id"],
        skills=tuple(row["skills"]),
        instruction=row["instruction"],
        worker=row["worker"],
        attempt=row["attempt"],
        rollout=Rollout.model_validate_json(row["rollout"]),
        scorecard=Scorecard.model_validate_json(row["scorecard"]),
    )
