"""Compaction: what workers left of a stretch of the plan becomes one parquet shard, and the manifest says so.

Shards are made in the order of the plan, each of a fixed stretch of it, so that the same plan and the same results give
the same shards in whatever order they came. A crash anywhere leaves a shard that is listed, or none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evolver.disk import on_disk, sync
from evolver.errors import UsageError
from evolver.rounds.attempts import Attempts
from evolver.rounds.book import Book, Tallied
from evolver.rounds.manifest import FIRST, Manifest, Shard
from evolver.rounds.plan import sha256_of
from evolver.rounds.rows import ROW

FOLDER = "shards"
AHEAD = 4  # shards that may be open at a time


class Compactor:
    """The single writer of a round's shards."""

    def __init__(self, round_dir: Path, book: Book, manifest: Manifest, attempts: Attempts) -> None:
        self.folder = round_dir / FOLDER
        self._book, self._manifest, self._attempts = book, manifest, attempts
        self._size, self._units = manifest.opened.shard_units, manifest.opened.units

    @property
    def total(self) -> int:
        """How many shards the round has in the end."""
        return -(-self._units // self._size)

    @property
    def next(self) -> int:
        """The number of the first shard that is not made yet."""
        return len(self._manifest.shards)

    def bounds(self, number: int) -> tuple[int, int]:
        """First position and the one after the last of a shard."""
        return number * self._size, min((number + 1) * self._size, self._units)

    def frontier(self, number: int) -> int:
        """The position that nobody may play beyond while shard `number` is open, so that few attempts lie about."""
        return min((number + AHEAD) * self._size, self._units)

    def recover(self) -> None:
        """After a crash: files that the manifest does not list are no shards; shards that it lists are whole, and known
        to the book. Raises UsageError for a listed one that is not."""
        listed = {shard.file for shard in self._manifest.shards}
        for path in self.folder.iterdir():
            if path.name not in listed:
                path.unlink()
        known = set(self._book.shards())
        for shard in self._manifest.shards:
            check_shard(self.folder / shard.file, shard, thorough=shard.number not in known)
            if shard.number not in known:
                self._shelve(shard, pq.read_table(self.folder / shard.file, partitioning=None))

    def suspect(self, number: int) -> str | None:
        """Why a shard that is made is suspect, if it is."""
        return self._book.suspect_positions(*self.bounds(number))

    def compact(self) -> list[Shard]:
        """Makes every shard that can be made now, and lets go of the attempts that are in shards as a whole."""
        made = []
        while self.next < self.total and self._book.settled_range(*self.bounds(self.next)):
            made.append(self._make(self.next))
        return made

    def _make(self, number: int) -> Shard:
        table = self._judged(self._gathered(number))
        part = self.folder / f".part-{number:05d}"
        with on_disk(part):
            pq.write_table(table, part, compression="zstd", row_group_size=5_000)
            sync((part,))
            sha256 = sha256_of(part)
            path = self.folder / f"part-{number:05d}-{sha256[:12]}.parquet"
            shard = Shard(
                prev=FIRST,
                number=number,
                file=path.name,
                rows=table.num_rows,
                accepted=_accepted(table),
                bytes=part.stat().st_size,
                sha256=sha256,
                content=content_of(table),
            )
            check_shard(part, shard, thorough=False)
            part.replace(path)
            sync((self.folder,))
        self._manifest.append(shard)
        self._shelve(shard, table)
        return shard

    def _gathered(self, number: int) -> pa.Table:
        """The rows that count, in the order of the plan: of each unit, that of the lease that did it."""
        keepers = self._book.keepers(*self.bounds(number))
        wanted = dict(keepers)
        kept = []
        for lease in sorted(set(wanted.values())):
            rows = self._attempts.rows(lease)
            mine = [wanted.get(unit) == lease for unit in rows["unit"].to_pylist()]
            kept.append(rows.filter(pa.array(mine)))
        table = pa.concat_tables(kept).sort_by("unit")
        if table["unit"].to_pylist() != [unit for unit, _ in keepers]:
            raise UsageError(
                f"shard {number}: the attempts do not hold exactly the units of the plan "
                f"({table.num_rows} rows for {len(keepers)} units); {self._attempts.folder} was changed from outside"
            )
        return table

    def _judged(self, table: pa.Table) -> pa.Table:
        """Rejects what says the same as an accepted row before it, in this shard or an earlier one that is not
        suspect."""
        keys, verdicts = table["sameness"].to_pylist(), table["verdict"].to_pylist()
        open_ = [bool(key) and verdict == "accepted" for key, verdict in zip(keys, verdicts, strict=True)]
        if not any(open_):
            return table
        before = self._book.seen([bytes.fromhex(k) for k, o in zip(keys, open_, strict=True) if o])
        left_out = {number for number in set(before.values()) if self.suspect(number)}
        seen = {key for key, number in before.items() if number not in left_out}
        twice = []
        for key, is_open in zip(keys, open_, strict=True):
            raw = bytes.fromhex(key) if is_open else b""
            twice.append(is_open and raw in seen)
            if is_open:
                seen.add(raw)
        if not any(twice):
            return table
        mask = pa.array(twice)
        for column, value in (
            ("verdict", "rejected"),
            ("reason", "duplicate"),
            ("why", "says the same as another row"),
        ):
            at = table.column_names.index(column)
            table = table.set_column(at, ROW.field(column), pc.if_else(mask, value, table[column]))
        return table

    def _shelve(self, shard: Shard, table: pa.Table) -> None:
        first, stop = self.bounds(shard.number)
        accepted = table.filter(pc.equal(table["verdict"], "accepted"))
        keys = [bytes.fromhex(key) for key in accepted["sameness"].to_pylist() if key]
        self._book.shelve(shard.number, shard.rows, keys, _moved(table))
        for lease in self._book.spent_leases(first, stop, self.frontier(shard.number + 1)):
            self._attempts.drop(lease)


def _moved(table: pa.Table) -> list[Tallied]:
    """The rows that were taken for accepted when they came and are duplicates, counted anew."""
    moved = []
    twice = table.filter(pc.equal(table["reason"], "duplicate"))
    for channel, success, nusd in zip(
        *(twice[name].to_pylist() for name in ("channel", "success", "nusd")), strict=True
    ):
        solved, cost = int(success is True), nusd or 0
        moved.append(Tallied("accepted", "", channel, -1, -solved, -cost))
        moved.append(Tallied("rejected", "duplicate", channel, 1, solved, cost))
    return moved


def content_of(table: pa.Table) -> str:
    """sha256 over (unit, verdict, reason, what it says) of every row, in order."""
    digest = hashlib.sha256()
    columns = (table[name].to_pylist() for name in ("unit", "verdict", "reason", "content_sha256"))
    for row in zip(*columns, strict=True):
        digest.update("|".join(row).encode() + b"\n")
    return digest.hexdigest()


def _accepted(table: pa.Table) -> int:
    return pc.sum(pc.equal(table["verdict"], "accepted")).as_py() or 0


def check_shard(path: Path, shard: Shard, *, thorough: bool) -> None:
    """Raises UsageError unless the file is there, as long as it was and readable to its footer; `thorough` reads all of
    it and compares bytes, content and what it accepts."""
    try:
        size = path.stat().st_size
        with pq.ParquetFile(path) as file:
            rows, whole = file.metadata.num_rows, file.schema_arrow.equals(ROW)
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"shard {shard.number} ({path}) can't be read: {error}; restore it from a copy") from None
    if (size, rows, whole) != (shard.bytes, shard.rows, True):
        raise UsageError(
            f"shard {shard.number} ({path}) is not what the manifest says: {size} bytes and {rows} rows, expected "
            f"{shard.bytes} and {shard.rows}; restore it from a copy"
        )
    if not thorough:
        return
    table = _columns(path)
    if (sha256_of(path), content_of(table), _accepted(table)) != (shard.sha256, shard.content, shard.accepted):
        raise UsageError(
            f"shard {shard.number} ({path}) has other bytes than the manifest says; restore it from a copy"
        )


def _columns(path: Path, names: Sequence[str] = ("unit", "verdict", "reason", "content_sha256")) -> pa.Table:
    return pq.read_table(path, columns=list(names), partitioning=None)
