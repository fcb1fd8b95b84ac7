"""What a round will play: every (task, replica) as a unit whose id is its content, in one order, fixed beforehand.

The order is that of the ids, which mixes tasks evenly. The plan is a parquet file; its sha256 opens the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evolver.disk import sync
from evolver.errors import UsageError
from evolver.protocols import Planned

SCHEMA = 1  # of a row; another one makes other units
STAGE = "play"
CHUNK = 50_000
COLUMNS = pa.schema(
    [
        ("position", pa.int64()),
        ("unit", pa.string()),
        ("task", pa.int32()),
        ("task_id", pa.string()),
        ("task_hash", pa.string()),
        ("replica", pa.int32()),
    ]
)


class TaskRef(NamedTuple):
    """A task of a round, by id and by the hash of all that defines it."""

    id: str
    hash: str


def unit_id(capsule_id: str, task_hash: str, replica: int, stage: str = STAGE) -> bytes:
    """The 32 bytes that a unit is known by: what is played, not where it stands in any list."""
    return hashlib.sha256(f"{capsule_id}|{task_hash}|{replica}|{stage}|{SCHEMA}".encode()).digest()


def planned(capsule_id: str, tasks: Sequence[TaskRef], n: int) -> Iterator[list[Planned]]:
    """`n` units in the order of the plan, in chunks: every task once, then every task again as the next replica.

    Tasks count by hash: their order, and doubles among them, change no id. Takes 40 bytes a unit of memory.
    """
    if n < 1:
        raise UsageError(f"a round plays at least one unit, got --n {n}")
    distinct = {task.hash: number for number, task in reversed(list(enumerate(tasks)))}
    if not distinct:
        raise UsageError("a round needs tasks: this set has none")
    order = sorted(distinct)
    raw = b"".join(unit_id(capsule_id, order[i % len(order)], i // len(order)) for i in range(n))
    keys = np.frombuffer(raw, dtype=">u8").reshape(n, 4)
    ranks = np.lexsort((keys[:, 3], keys[:, 2], keys[:, 1], keys[:, 0]))
    for start in range(0, n, CHUNK):
        yield [
            Planned(start + at, raw[32 * i : 32 * i + 32].hex(), distinct[order[i % len(order)]], i // len(order))
            for at, i in enumerate(map(int, ranks[start : start + CHUNK]))
        ]


def write_plan(path: Path, tasks: Sequence[TaskRef], chunks: Iterator[list[Planned]]) -> Iterator[list[Planned]]:
    """Passes the chunks on while it writes them; the file is whole and on the disk once the last one is taken."""
    part = path.with_name(f".{path.name}.part")
    with pq.ParquetWriter(part, COLUMNS, compression="zstd") as writer:
        for chunk in chunks:
            writer.write_table(
                pa.table(
                    [
                        [unit.position for unit in chunk],
                        [unit.id for unit in chunk],
                        [unit.task for unit in chunk],
                        [tasks[unit.task].id for unit in chunk],
                        [tasks[unit.task].hash for unit in chunk],
                        [unit.replica for unit in chunk],
                    ],
                    schema=COLUMNS,
                )
            )
            yield chunk
    sync((part,))
    part.replace(path)
    sync((path.parent,))


def sha256_of(path: Path) -> str:
    """Of a file's bytes, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
