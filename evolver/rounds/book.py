"""The book of a round: who holds which units, which are done, and what all of it cost (SQLite, write-ahead log).

One process, the driver, writes it. A unit is held by one lease at a time; a lease's id is its fence, so what a late
worker brings for units that have passed on is superseded: not kept, but paid for. Money is whole nano-dollars, so that
sums are exact in any order.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from evolver.protocols import Planned, Probe
from evolver.rounds.plan import TaskRef
from evolver.rounds.schema import create, require_format

NANO = 1_000_000_000
PLANNED, HELD, DONE = 0, 1, 2
# Of a lease: with results, without by no fault of its units, without since its worker failed, or died, over them.
End = Literal["done", "lost", "failed", "died"]
SpendKind = Literal["kept", "superseded", "lost", "probe"]


@dataclass(frozen=True)
class Cost:
    """What calls came to; `unknown` counts those whose price or tokens nobody knows (never taken for 0 in silence)."""

    calls: int = 0
    tokens: int = 0
    nusd: int = 0
    unknown: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls, self.tokens + other.tokens, self.nusd + other.nusd, self.unknown + other.unknown
        )


@dataclass(frozen=True)
class Tallied:
    """How many rows came to the same end: verdict, reason and channel; `nusd` is what they cost."""

    verdict: str
    reason: str
    channel: str
    n: int
    successes: int
    nusd: int


@dataclass(frozen=True)
class Settlement:
    """What becomes of a lease: units that are done, units that are to be played again, what was paid for, and how the
    done ones are counted. Units of the lease that are in neither list go back as they were."""

    done: Sequence[str]
    again: Sequence[str]
    spent: dict[SpendKind, Cost]
    tallied: Sequence[Tallied] = ()


@dataclass(frozen=True)
class OpenLease:
    id: int
    units: int
    began: float
    probe: Probe | None


class Book:
    """An open book. `Book.create` starts one, `Book(path)` opens one to write, `Book.read` one to look at."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        where = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rw'}"
        self._db = sqlite3.connect(where, uri=True, isolation_level=None, timeout=30.0, check_same_thread=False)
        if not read_only:
            require_format(self._db, path)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns

    @classmethod
    def create(cls, path: Path) -> Book:
        """An empty book, in place of any other."""
        create(path)
        return cls(path)

    @classmethod
    def read(cls, path: Path) -> Book:
        return cls(path, read_only=True)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing, and on the disk afterwards."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # --- settings and plan

    def get(self, key: str) -> JsonValue:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, value: JsonValue) -> None:
        with self.writing() as db:
            _put(db, key, value)

    def fill(self, tasks: Sequence[TaskRef], chunks: Iterable[Sequence[Planned]]) -> int:
        """Takes the plan in; returns the number of units."""
        n = 0
        with self.writing() as db:
            db.executemany("INSERT INTO tasks VALUES (?, ?, ?)", [(i, t.id, t.hash) for i, t in enumerate(tasks)])
            for chunk in chunks:
                db.executemany(
                    "INSERT INTO units(position, unit, task, replica) VALUES (?, ?, ?, ?)",
                    [(unit.position, bytes.fromhex(unit.id), unit.task, unit.replica) for unit in chunk],
                )
                n += len(chunk)
            _put(db, "planned", n)
        return n

    def tasks(self) -> list[TaskRef]:
        return [TaskRef(*row) for row in self._db.execute("SELECT id, hash FROM tasks ORDER BY number")]

    # --- leases

    def claim(self, most: int, below: int, reserve: int) -> tuple[int, tuple[Planned, ...]] | None:
        """A new lease on the first `most` units that wait and stand before position `below`, with `reserve` nano-
        dollars a unit set aside for it; None when there are none.

        What was never played goes first, then what came back first: no unit that fails keeps the others waiting. Units
        over which workers died go in ever smaller company, until the one that kills them is alone."""
        with self.writing() as db:
            for part in ("lease = 0", "lease > 0"):  # apart, so that the index ends each search where it can
                waits = f"FROM units WHERE state = 0 AND {part} AND position < ?"
                order = "ORDER BY lease, position LIMIT ?"
                first = db.execute(f"SELECT deaths {waits} {order}", (below, 1)).fetchone()
                if first is None:
                    continue
                values = (below, *first, max(1, most >> first[0]))
                rows = db.execute(f"SELECT position, unit, task, replica {waits} AND deaths = ? {order}", values)
                found = _planned(rows)
                return self._hold(db, found, reserve), found
            return None

    def claim_these(self, units: tuple[Planned, ...]) -> int:
        """A new lease on units that wait."""
        with self.writing() as db:
            return self._hold(db, units, 0)

    def _hold(self, db: sqlite3.Connection, units: tuple[Planned, ...], reserve: int) -> int:
        lease = self._begin(db, None, len(units), reserve * len(units))
        held = [(lease, unit.position) for unit in units]
        db.executemany("UPDATE units SET state = 1, lease = ? WHERE position = ? AND state = 0", held)
        return lease

    def claim_probe(self, probe: Probe, reserve: int) -> int:
        with self.writing() as db:
            return self._begin(db, probe, 0, reserve)

    @staticmethod
    def _begin(db: sqlite3.Connection, probe: Probe | None, units: int, reserve: int) -> int:
        made = db.execute(
            "INSERT INTO leases(probe, units, began, reserved) VALUES (?, ?, ?, ?)",
            (probe, units, time.time(), reserve),
        )
        return int(made.lastrowid or 0)

    def open_leases(self) -> list[OpenLease]:
        rows = self._db.execute("SELECT id, units, began, probe FROM leases WHERE state = 'open' ORDER BY id")
        return [OpenLease(*row) for row in rows]

    def held(self, lease: int) -> dict[str, int]:
        """Unit → the tries that failed on our side before, of the units that this lease still holds."""
        rows = self._db.execute("SELECT unit, tries FROM units WHERE lease = ? AND state = 1", (lease,))
        return {unit.hex(): tries for unit, tries in rows}

    def settle(self, lease: int, settlement: Settlement, end: End = "done") -> int:
        """Ends a lease, once, and returns how many units it completed. One that was given up as lost may be settled
        again by what it brings late: no unit is its own any more, and what it cost takes the place of what was booked.

        A failure is a try of a unit that was alone; of several, nobody knows which one it was: they go on in smaller
        company, as after a death.
        """
        with self.writing() as db:
            row = db.execute("SELECT state FROM leases WHERE id = ?", (lease,)).fetchone()
            if row is None or row[0] != "open":
                if row is not None and row[0] != "done" and end == "done":
                    _book(db, lease, {"lost": Cost(), **settlement.spent})
                    db.execute("UPDATE leases SET state = 'done' WHERE id = ?", (lease,))
                return 0
            where = "WHERE lease = ? AND state = 1"
            held = db.execute(f"SELECT count(*) FROM units {where}", (lease,)).fetchone()[0]
            if len(settlement.done) == held:
                done = db.execute(f"UPDATE units SET state = 2 {where}", (lease,)).rowcount
            else:
                one = "UPDATE units SET state = {}, tries = tries + {} WHERE lease = ? AND state = 1 AND unit = ?"
                pairs = [(lease, bytes.fromhex(unit)) for unit in settlement.done]
                done = db.executemany(one.format(DONE, 0), pairs).rowcount if pairs else 0
                pairs = [(lease, bytes.fromhex(unit)) for unit in settlement.again]
                db.executemany(one.format(PLANNED, 1), pairs)
                tries = int(end == "failed" and held == 1)
                deaths = int(end in ("failed", "died")) - tries
                counted = f"state = 0, tries = tries + {tries}, deaths = deaths + {deaths}"
                db.execute(f"UPDATE units SET {counted} {where}", (lease,))
            seq = _count(db, "committed", done)
            db.execute("UPDATE leases SET state = ?, reserved = 0, seq = ? WHERE id = ?", (end, seq, lease))
            _book(db, lease, settlement.spent)
            _tally(db, settlement.tallied)
            return done

    def worn(self, tries: int, deaths: int) -> tuple[Planned, ...]:
        """Units that wait although so many tries of them failed, or so many workers died over them."""
        columns, worn = "SELECT position, unit, task, replica FROM units", "state = 0 AND (tries >= ? OR deaths >= ?)"
        return _planned(self._db.execute(f"{columns} WHERE {worn}", (tries, deaths)))

    def committed(self) -> int:
        return int(self.get("committed") or 0)  # type: ignore[arg-type]

    def waiting(self) -> int:
        """Units that wait for a lease."""
        return int(self._db.execute("SELECT count(*) FROM units WHERE state = 0").fetchone()[0])

    # --- money

    def cost(self, *kinds: SpendKind) -> Cost:
        """What was spent, of some kinds or in all."""
        where = f" WHERE kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        row = self._db.execute(f"SELECT sum(calls), sum(tokens), sum(nusd), sum(unknown) FROM totals{where}", kinds)
        return Cost(*(value or 0 for value in row.fetchone()))

    def reserved(self) -> int:
        """Nano-dollars set aside for open leases."""
        return int(self._db.execute("SELECT sum(reserved) FROM leases WHERE state = 'open'").fetchone()[0] or 0)

    def tally(self) -> list[Tallied]:
        rows = self._db.execute("SELECT verdict, reason, channel, n, successes, nusd FROM tally")
        return [Tallied(*row) for row in rows]

    # --- shards

    def settled_range(self, first: int, stop: int) -> bool:
        """Whether every unit of a stretch of the plan is done."""
        undone = "SELECT 1 FROM units WHERE position >= ? AND position < ? AND state != 2 LIMIT 1"
        return self._db.execute(undone, (first, stop)).fetchone() is None

    def keepers(self, first: int, stop: int) -> list[tuple[str, int]]:
        """(unit, lease that did it) of a stretch of the plan, in its order."""
        rows = self._db.execute(
            "SELECT unit, lease FROM units WHERE position >= ? AND position < ? ORDER BY position", (first, stop)
        )
        return [(unit.hex(), lease) for unit, lease in rows]

    def shards(self) -> list[int]:
        return [number for (number,) in self._db.execute("SELECT number FROM shards ORDER BY number")]

    def seen(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Which of these contents were accepted before, each with the last shard that did."""
        found: dict[bytes, int] = {}
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            marks = ", ".join("?" * len(part))
            found.update(self._db.execute(f"SELECT key, shard FROM seen WHERE key IN ({marks})", part))
        return found

    def shelve(self, number: int, rows: int, keys: Iterable[bytes], moved: Sequence[Tallied]) -> None:
        """Notes that a shard is in the manifest, what it accepted, and rows that it counts otherwise than their workers
        did (negative n: taken away). The same shard again is no change."""
        with self.writing() as db:
            if db.execute("INSERT OR IGNORE INTO shards VALUES (?, ?)", (number, rows)).rowcount == 0:
                return
            # REPLACE: what only a suspect shard had accepted is now this one's.
            db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", ((key, number) for key in keys))
            _tally(db, moved)

    def spent_leases(self, first: int, stop: int, upto: int) -> list[int]:
        """Leases that did units of a stretch of the plan and none of those after it (up to position `upto`)."""
        rows = self._db.execute(
            "SELECT lease FROM units WHERE position >= ? AND position < ? EXCEPT "
            "SELECT lease FROM units WHERE position >= ? AND position < ?",
            (first, stop, stop, upto),
        )
        return [lease for (lease,) in rows]

    # --- instruments

    def look(self, rows: Sequence[tuple[str, str, bool, str]]) -> None:
        """Keeps what a probe found: (probe, name, off, detail) each."""
        with self.writing() as db:
            seq, now = _count(db, "committed", 0), time.time()
            db.executemany(
                "INSERT INTO looks(probe, name, off, detail, seq, at) VALUES (?, ?, ?, ?, ?, ?)",
                [(probe, name, int(off), detail[:400], seq, now) for probe, name, off, detail in rows],
            )

    def looks(self, last: int) -> list[tuple[str, str, bool, str, int, float]]:
        """(probe, name, off, detail, units done then, time) of the last so many looks, newest first."""
        found = "SELECT probe, name, off, detail, seq, at FROM looks ORDER BY number DESC LIMIT ?"
        rows = self._db.execute(found, (last,))
        return [(probe, name, bool(off), detail, seq, at) for probe, name, off, detail, seq, at in rows]

    def suspect(self, after_seq: int, why: str, key: str, value: JsonValue) -> None:
        """Makes suspect what was done since `after_seq` units were, and what will be under leases that are out; keeps a
        setting in the same transaction."""
        with self.writing() as db:
            upto = db.execute("SELECT coalesce(max(id), 0) FROM leases").fetchone()[0]
            db.execute("INSERT INTO suspects VALUES (?, ?, ?)", (after_seq, upto, why))
            _put(db, key, value)

    def suspect_positions(self, first: int, stop: int) -> str | None:
        """Why a stretch of the plan is suspect: some of its units were done after a good look, under leases from before
        the alarm."""
        row = self._db.execute(
            "SELECT why FROM suspects WHERE EXISTS (SELECT 1 FROM leases JOIN units ON units.lease = leases.id "
            "WHERE units.position >= ? AND units.position < ? AND units.state = 2 "
            "AND leases.seq > suspects.after_seq AND leases.id <= suspects.upto_lease) LIMIT 1",
            (first, stop),
        ).fetchone()
        return None if row is None else str(row[0])


def _planned(rows: Iterable[tuple[int, bytes, int, int]]) -> tuple[Planned, ...]:
    return tuple(Planned(position, unit.hex(), task, replica) for position, unit, task, replica in rows)


def _put(db: sqlite3.Connection, key: str, value: JsonValue) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value, allow_nan=False)))


def _count(db: sqlite3.Connection, key: str, more: int) -> int:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    now = int(row[0] if row else 0) + more
    if more:
        _put(db, key, now)
    return now


def _book(db: sqlite3.Connection, lease: int, spent: dict[SpendKind, Cost]) -> None:
    """What a lease cost is known once: what comes later about it takes the place of what was booked before."""
    for kind, cost in spent.items():
        row = db.execute("SELECT calls, tokens, nusd, unknown FROM spend WHERE lease = ? AND kind = ?", (lease, kind))
        before = row.fetchone() or (0, 0, 0, 0)
        now = (cost.calls, cost.tokens, cost.nusd, cost.unknown)
        db.execute("INSERT OR REPLACE INTO spend VALUES (?, ?, ?, ?, ?, ?)", (lease, kind, *now))
        db.execute(
            "INSERT INTO totals VALUES (?, ?, ?, ?, ?) ON CONFLICT(kind) DO UPDATE SET calls = calls + excluded.calls, "
            "tokens = tokens + excluded.tokens, nusd = nusd + excluded.nusd, unknown = unknown + excluded.unknown",
            (kind, *(new - old for new, old in zip(now, before, strict=True))),
        )


def _tally(db: sqlite3.Connection, tallied: Iterable[Tallied]) -> None:
    db.executemany(
        "INSERT INTO tally VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(verdict, reason, channel) DO UPDATE SET "
        "n = n + excluded.n, successes = successes + excluded.successes, nusd = nusd + excluded.nusd",
        [(t.verdict, t.reason, t.channel, t.n, t.successes, t.nusd) for t in tallied],
    )
