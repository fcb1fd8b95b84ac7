"""The tables of a round's book, and the format that they are of."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from evolver.errors import UsageError

FORMAT = 1  # kept as `user_version`, which is 0 in a book that names none
SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tasks(number INTEGER PRIMARY KEY, id TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE units(
  position INTEGER PRIMARY KEY, unit BLOB NOT NULL, task INTEGER NOT NULL, replica INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0, lease INTEGER NOT NULL DEFAULT 0,
  tries INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0);
CREATE INDEX todo ON units(lease, position) WHERE state = 0;
CREATE INDEX held ON units(lease) WHERE state = 1;
CREATE TABLE leases(
  id INTEGER PRIMARY KEY AUTOINCREMENT, probe TEXT, units INTEGER NOT NULL, began REAL NOT NULL,
  reserved INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open', seq INTEGER);
CREATE INDEX open_leases ON leases(id) WHERE state = 'open';
CREATE TABLE spend(
  lease INTEGER NOT NULL, kind TEXT NOT NULL, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, nusd INTEGER NOT NULL,
  unknown INTEGER NOT NULL, PRIMARY KEY(lease, kind)) WITHOUT ROWID;
CREATE TABLE totals(
  kind TEXT PRIMARY KEY, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, nusd INTEGER NOT NULL,
  unknown INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tally(
  verdict TEXT NOT NULL, reason TEXT NOT NULL, channel TEXT NOT NULL, n INTEGER NOT NULL, successes INTEGER NOT NULL,
  nusd INTEGER NOT NULL, PRIMARY KEY(verdict, reason, channel)) WITHOUT ROWID;
CREATE TABLE shards(number INTEGER PRIMARY KEY, rows INTEGER NOT NULL);
CREATE TABLE seen(key BLOB PRIMARY KEY, shard INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE suspects(after_seq INTEGER NOT NULL, upto_lease INTEGER NOT NULL, why TEXT NOT NULL);
CREATE TABLE looks(
  number INTEGER PRIMARY KEY, probe TEXT NOT NULL, name TEXT NOT NULL, off INTEGER NOT NULL, detail TEXT NOT NULL,
  seq INTEGER NOT NULL, at REAL NOT NULL);
"""


def create(path: Path) -> None:
    """A book without entries, in place of any other."""
    for old in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        old.unlink(missing_ok=True)
    sqlite3.connect(path).executescript(f"{SCHEMA}PRAGMA user_version = {FORMAT};").connection.close()


def require_format(db: sqlite3.Connection, path: Path) -> None:
    """Raises UsageError for a book that this version would not go on with rightly."""
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found != FORMAT:
        raise UsageError(
            f"{path} is a book of format {found}, and this version writes {FORMAT}: its round can be shown and read, "
            "but not gone on with; go on with the version that began it, or start another round"
        )
