"""What workers leave on the disk: one file of rows a lease, whole or not there, and beside it a journal of paid calls.

attempts/<lease>.parquet    written to a temporary name, synced, renamed
attempts/<lease>.calls      one line a billed call, written when it is answered; gone once the lease is settled
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evolver.disk import on_disk, sync
from evolver.rounds.book import Cost
from evolver.rounds.rows import ROW

FOLDER = "attempts"
ROWS, CALLS = ".parquet", ".calls"
SMALL = ["unit", "fence", "again", "verdict", "reason", "success", "channel", "calls", "tokens", "nusd"]


@dataclass(frozen=True)
class Attempts:
    """The folder of a round's attempts."""

    folder: Path

    @classmethod
    def of(cls, round_dir: Path) -> Attempts:
        return cls(round_dir / FOLDER)

    def write(self, lease: int, table: pa.Table) -> None:
        """Makes the rows of a lease durable, all at once. A second file for the same lease takes the place of the
        first: both were played under one lease by one worker."""
        path = self._path(lease, ROWS)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with on_disk(path):
            try:
                pq.write_table(table, part, compression="zstd")
                sync((part,))
                part.replace(path)
                sync((self.folder,))
            finally:
                part.unlink(missing_ok=True)

    def has(self, lease: int) -> bool:
        """Whether a lease has left rows that can be read to their end; a broken file is removed."""
        path = self._path(lease, ROWS)
        if not path.exists():
            return False
        try:
            with pq.ParquetFile(path) as file:
                whole = bool(file.schema_arrow.equals(ROW))
        except (pa.ArrowInvalid, OSError):
            whole = False
        if not whole:
            path.unlink(missing_ok=True)
        return whole

    def summary(self, lease: int) -> pa.Table:
        """The small columns of a lease's rows."""
        return pq.read_table(self._path(lease, ROWS), columns=SMALL, partitioning=None)

    def rows(self, lease: int) -> pa.Table:
        return pq.read_table(self._path(lease, ROWS), partitioning=None)

    def leases(self) -> list[int]:
        """Every lease that has left rows or a journal."""
        return sorted({int(path.stem) for path in self.folder.iterdir() if path.suffix in (ROWS, CALLS)} - {0})

    def drop(self, lease: int) -> None:
        for suffix in (ROWS, CALLS):
            self._path(lease, suffix).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes the unfinished files of workers that are dead; nobody else may be at work."""
        for path in self.folder.glob(".*"):
            path.unlink(missing_ok=True)

    def journal(self, lease: int) -> Journal:
        return Journal(self._path(lease, CALLS))

    def spent(self, lease: int) -> Cost:
        """What the journal of a lease says was paid for; a call that was asked and never answered is unknown."""
        total, asked = Cost(), 0
        for line in self._lines(lease):
            if "asked" in line:
                asked += line["asked"]
                continue
            asked -= line.get("of", 0)
            total += Cost(line["calls"], line["tokens"], line["nusd"], line["unknown"])
        return total + Cost(calls=max(0, asked), unknown=max(0, asked))

    def _lines(self, lease: int) -> Iterator[dict[str, int]]:
        try:
            text = self._path(lease, CALLS).read_text()
        except FileNotFoundError:
            return
        for line in text.split("\n")[:-1]:
            yield json.loads(line)

    def _path(self, lease: int, suffix: str) -> Path:
        return self.folder / f"{lease:09d}{suffix}"


class Journal:
    """Notes each call of a lease as it is asked and as it is answered, so that a killed worker's are still paid for.

    A line is one write to an open file: it survives the death of the process, not that of the machine."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def asked(self, calls: int = 1) -> None:
        self._note({"asked": calls})

    def answered(self, cost: Cost, of: int = 1) -> None:
        """`of` is how many of the calls had been noted as asked."""
        self._note({"calls": cost.calls, "tokens": cost.tokens, "nusd": cost.nusd, "unknown": cost.unknown, "of": of})

    def close(self) -> None:
        os.close(self._fd)

    def _note(self, line: dict[str, int]) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")
