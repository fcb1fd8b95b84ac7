"""The manifest of a round: the only list of what belongs to it, each line sealed by the hash of the line before it.

The first line names the plan; then shards, suspicions and in the end the root hash of the whole data set. A line that a
crash cut off was never there. A change of any line but the last is found, and so is one that is missing between others;
the last line is sealed by none, and a manifest without it looks like that of a round which was stopped there.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from evolver.disk import on_disk, sync, write_all
from evolver.errors import UsageError
from evolver.records import Finite, Record

FILE = "manifest.jsonl"
FIRST = "0" * 64


class Opened(Record):
    """The round as it was planned. `plan_sha256` is of plan.parquet, `unit_schema` of the ids in it; a shard holds
    `shard_units` units of the plan, in its order. Trajectories longer than `max_turns` or `max_tokens` are rejected
    (None: no limit). `one_off_usd` is what the harness cost to find; None is unknown."""

    kind: Literal["opened"] = "opened"
    prev: str
    capsule_id: str
    capsule: str
    harness_id: str
    model_id: str
    tasks: str
    n_tasks: int
    units: int
    unit_schema: int
    plan_sha256: str
    shard_units: int
    max_turns: int | None = None
    max_tokens: int | None = None
    one_off_usd: Finite | None
    at: Finite


class Shard(Record):
    """One file of rows. `sha256` is of its bytes, `content` of what its rows say (unit by unit, without clocks and
    workers): played again, the same units give the same content, whoever plays them."""

    kind: Literal["shard"] = "shard"
    prev: str
    number: int
    file: str
    rows: int
    accepted: int
    bytes: int
    sha256: str
    content: str


class Suspect(Record):
    """Shards that were made while an instrument was off: left out unless they are asked for."""

    kind: Literal["suspect"] = "suspect"
    prev: str
    shards: tuple[int, ...]
    why: str
    at: Finite


class Closed(Record):
    """Every unit of the plan is in a shard. `root` is the hash over the shards' content, in their order."""

    kind: Literal["closed"] = "closed"
    prev: str
    root: str
    rows: int
    accepted: int
    at: Finite


Line = Annotated[Opened | Shard | Suspect | Closed, Field(discriminator="kind")]
_LINE: TypeAdapter[Opened | Shard | Suspect | Closed] = TypeAdapter(Line)


class Manifest:
    """A manifest as far as it is written. One process appends; a reader takes what is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Opened | Shard | Suspect | Closed] = []
        self._end, self._last = 0, FIRST
        if path.exists():
            self._read()

    @classmethod
    def of(cls, round_dir: Path) -> Manifest:
        return cls(round_dir / FILE)

    @property
    def opened(self) -> Opened:
        if not self.lines or not isinstance(self.lines[0], Opened):
            raise UsageError(f"{self.path}: no round was opened here; `evolver generate` does it")
        return self.lines[0]

    @property
    def is_open(self) -> bool:
        return bool(self.lines)

    @property
    def shards(self) -> list[Shard]:
        return sorted((line for line in self.lines if isinstance(line, Shard)), key=lambda shard: shard.number)

    @property
    def suspects(self) -> dict[int, str]:
        """Shard number → why it is suspect."""
        return {n: line.why for line in self.lines if isinstance(line, Suspect) for n in line.shards}

    @property
    def closed(self) -> Closed | None:
        return next((line for line in self.lines if isinstance(line, Closed)), None)

    def append(self, line: Opened | Shard | Suspect | Closed) -> None:
        """Adds a line, durably, under the seal of those before it (`prev` is set here)."""
        line = line.model_copy(update={"prev": self._last})
        data = line.model_dump_json().encode() + b"\n"
        with on_disk(self.path):
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, self._end)  # what a crash left of a line
                os.lseek(fd, self._end, os.SEEK_SET)
                write_all(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            sync((self.path.parent,))
        self._take(line, data)

    def _read(self) -> None:
        *whole, _ = self.path.read_bytes().split(b"\n")
        for number, data in enumerate(whole, 1):
            try:
                line = _LINE.validate_json(data)
            except ValidationError as error:
                raise UsageError(
                    f"{self.path}:{number} is no line of a manifest ({error.errors()[0]['msg']})"
                ) from None
            if line.prev != self._last:
                raise UsageError(
                    f"{self.path}:{number} does not follow from the line before it: a line was changed or removed; "
                    "restore the manifest from a copy"
                )
            self._take(line, data + b"\n")

    def _take(self, line: Opened | Shard | Suspect | Closed, data: bytes) -> None:
        self.lines.append(line)
        self._last = hashlib.sha256(data).hexdigest()
        self._end += len(data)


def closing(shards: Sequence[Shard]) -> Closed:
    """The line that closes a round of these shards."""
    rows, accepted = sum(shard.rows for shard in shards), sum(shard.accepted for shard in shards)
    return Closed(prev=FIRST, root=root_of(shards), rows=rows, accepted=accepted, at=time.time())


def root_of(shards: Sequence[Shard]) -> str:
    """sha256 over the content of all shards, in their order."""
    listed = json.dumps([[shard.number, shard.content] for shard in sorted(shards, key=lambda s: s.number)])
    return hashlib.sha256(listed.encode()).hexdigest()
