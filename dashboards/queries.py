"""Reads a run directory for the pages: small logs as records, the long ones through DuckDB; writes nothing.

Every read belongs to a stamp (name, mtime, size of each log), so a page shows one state of the run and a cached answer
is never older than the files. A line that can't be read is counted and named on the page, never guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TypeVar

import duckdb
from pydantic import JsonValue, ValidationError

from devset.splits import SEALED
from evolver.audit import Opening
from evolver.config import RunConfig
from evolver.errors import UsageError
from evolver.records import Ending, Record, Rollout
from evolver.store import LOGS, Store
from harnesses.diff import Diff, diff
from harnesses.library import Library, UnknownHarness
from harnesses.tree import HarnessError

R = TypeVar("R", bound=Record)
Stamp = tuple[tuple[str, int, int], ...]
PAGE_ROWS = 50

_KEY = (
    "STRUCT(purpose VARCHAR, harness_id VARCHAR, model_id VARCHAR, task_id VARCHAR, task_hash VARCHAR, "
    '"split" VARCHAR, attempt BIGINT, seed BIGINT)'
)
_ERROR = "STRUCT(kind VARCHAR, blame VARCHAR, message VARCHAR)"
# Only these fields are ever read for a list; turns, results and frames stay in the file until one rollout is opened.
_COLUMNS = {
    "rollouts": {
        "id": "VARCHAR", "key": _KEY, "stop_reason": "VARCHAR", "apps": "VARCHAR[]", "error": _ERROR,
        "started_at": "DOUBLE",
    },
    "scorecards": {
        "rollout_id": "VARCHAR", "success": "BOOLEAN", "rubric": "DOUBLE", "channel": "VARCHAR", "tokens": "BIGINT",
        "cost_usd": "DOUBLE", "seconds": "DOUBLE", "error": _ERROR,
    },
    "ledger": {
        "id": "VARCHAR", "role": "VARCHAR", "calls": "BIGINT", "input_tokens": "BIGINT", "output_tokens": "BIGINT",
        "cost_usd": "DOUBLE", "rollout_id": "VARCHAR", "at": "DOUBLE",
    },
}  # fmt: skip
_TABLES = """
create table attempts as
select r.id, r.key.purpose as purpose, r.key.harness_id as harness_id, r.key.model_id as model_id,
       r.key.task_id as task_id, r.key."split" as "split", r.key.attempt as attempt, r.stop_reason, r.apps,
       case when c.rollout_id is null then 'not graded' when c.success is null then 'unscored'
            when c.success then 'solved' else 'failed' end as outcome,
       coalesce(c.error, r.error).blame as blame, coalesce(c.error, r.error).message as message,
       case when isfinite(c.rubric) then c.rubric end as rubric, c.channel, c.tokens,
       case when isfinite(c.cost_usd) then c.cost_usd end as cost_usd,
       case when isfinite(c.seconds) then c.seconds end as seconds, l.calls as turns,
       case when isfinite(r.started_at) then r.started_at end as started_at,
       row_number() over (order by r.started_at desc nulls last, r.id) as place
from rollouts r left join scorecards c on c.rollout_id = r.id
left join (select rollout_id, max(calls) as calls from ledger where role in ('teacher', 'student') group by all) l
  on l.rollout_id = r.id
"""


@dataclass(frozen=True)
class AttemptRow:
    """One line of the rollout list. None is unknown."""

    id: str
    purpose: str
    harness_id: str
    model_id: str
    task_id: str
    split: str | None
    attempt: int
    stop_reason: str
    apps: list[str]
    outcome: str
    blame: str | None
    message: str | None
    rubric: float | None
    channel: str | None
    tokens: int | None
    cost_usd: float | None
    seconds: float | None
    turns: int | None
    started_at: float | None
    place: int


@dataclass(frozen=True)
class Spent:
    """What one role has spent: sums of what is known, and how many ledger entries are unknown."""

    role: str
    entries: int
    calls: int
    tokens: int
    unknown_tokens: int
    cost_usd: float
    unknown_cost: int


@dataclass(frozen=True)
class Unread:
    """Lines of one log that no page shows, and why."""

    log: str
    torn: int
    broken: int
    not_finite: int


@dataclass(frozen=True)
class Run:
    """One state of one run directory."""

    path: Path
    run_id: str
    config: RunConfig
    stamp: Stamp

    def all(self, kind: type[R]) -> list[R]:
        """Every readable record of a kind, in the order of writing (not for rollouts and scorecards: see `page`)."""
        return [r for r in _log(self.path, LOGS[kind], self.stamp)[0] if isinstance(r, kind)]

    def unread(self) -> list[Unread]:
        """The logs with lines that can't be read, small and long ones."""
        small = [_log(self.path, name, self.stamp)[1] for name in LOGS.values() if name not in _COLUMNS]
        return [u for u in (*small, *_database(self.path, self.stamp).unread) if u.torn or u.broken or u.not_finite]

    def ending(self) -> Ending | None:
        return next(iter(reversed(self.all(Ending))), None)

    def distinct(self, column: str) -> list[str]:
        """The values that occur in a column of the rollout list (`apps`: in its lists)."""
        if column not in {f.name for f in fields(AttemptRow)}:
            raise ValueError(f"no column {column!r} in the rollout list")
        value = "unnest(apps)" if column == "apps" else f'"{column}"'
        rows = self._query(f"select distinct {value} as v from attempts order by v")
        return [str(row[0]) for row in rows if row[0] is not None]

    def count(self, filters: Mapping[str, str] | None = None) -> int:
        where, values = _where(filters or {})
        return int(str(self._query(f"select count(*) from attempts {where}", values)[0][0]))

    def page(self, number: int, filters: Mapping[str, str] | None = None) -> list[AttemptRow]:
        """Page `number` (from 1) of the rollout list, newest first, `PAGE_ROWS` a page."""
        where, values = _where(filters or {})
        names = ", ".join(f'"{f.name}"' for f in fields(AttemptRow))
        sql = f"select {names} from attempts {where} order by place limit {PAGE_ROWS} offset ?"
        return [AttemptRow(*row) for row in self._query(sql, [*values, PAGE_ROWS * (number - 1)])]

    @property
    def sealed(self) -> int:
        """How many attempts are listed nowhere: those on a sealed split that no person has opened in this run."""
        return _database(self.path, self.stamp).sealed

    def attempt(self, rollout_id: str) -> AttemptRow | None:
        found = self.page(1, {"id": rollout_id})
        return found[0] if found else None

    def rollout(self, rollout_id: str) -> Rollout | None:
        """One rollout whole, with its turns. Raises `UsageError` when its line is no valid rollout."""
        line = _line(self.path, self.stamp, "rollouts", "id", rollout_id)
        try:
            return None if line is None else Rollout.model_validate(line)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise UsageError(f"{self.path / 'rollouts.jsonl'}: rollout {rollout_id}: {problem}") from None

    def card_line(self, rollout_id: str) -> JsonValue:
        """The scorecard of a rollout as it was written; None when it is not graded."""
        return _line(self.path, self.stamp, "scorecards", "rollout_id", rollout_id)

    def spent(self) -> list[Spent]:
        rows = self._query(
            "select role, count(*), sum(calls), coalesce(sum(input_tokens + output_tokens), 0), "
            "count(*) filter (where input_tokens + output_tokens is null), "
            "coalesce(sum(cost_usd) filter (where isfinite(cost_usd)), 0), "
            "count(*) filter (where cost_usd is null or not isfinite(cost_usd)) from ledger group by role order by role"
        )
        return [Spent(str(r[0]), *(int(str(v)) for v in r[1:5]), float(str(r[5])), int(str(r[6]))) for r in rows]

    def tokens_until(self, at: float) -> int:
        """Known tokens of all roles up to a moment (seconds since 1970)."""
        sql = 'select coalesce(sum(input_tokens + output_tokens), 0) from ledger where "at" <= ?'
        return int(str(self._query(sql, [at])[0][0]))

    def library_names(self) -> dict[str, str]:
        """Harness id → name, from the run's library; empty when there is none yet."""
        return _library_names(self.path, self.stamp)

    def difference(self, old: str, new: str) -> Diff | str:
        """What changed between two harnesses, or one line that says why it can't be shown."""
        try:
            with _ONE_READER:
                library = _library(self.path)
                if library is None:
                    return "this run has no harness library"
                return diff(library.get(old), library.get(new))
        except (UnknownHarness, HarnessError) as error:
            return str(error)

    def blob(self, sha256: str) -> bytes:
        """Raises `UsageError` when the bytes are missing or damaged."""
        return Store(self.path, self.run_id, self.config).blob(sha256)

    def _query(self, sql: str, values: list[object] | None = None) -> list[tuple[object, ...]]:
        return _database(self.path, self.stamp).connection.cursor().execute(sql, values or []).fetchall()


def find_runs(root: Path) -> list[Path]:
    """The run directories at or directly under a folder, newest first."""
    if (root / "run.json").is_file():
        return [root]
    found = [p.parent for p in root.glob("*/run.json")] if root.is_dir() else []
    return sorted(found, key=lambda p: (p / "run.json").stat().st_mtime, reverse=True)


def stamp_of(path: Path) -> Stamp:
    """Changes whenever a log or the settings of a run change."""
    files = [f for f in (path / "run.json", *(path / f"{name}.jsonl" for name in LOGS.values())) if f.exists()]
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)


def open_run(path: Path) -> Run:
    """Raises `UsageError` for a directory that is no run, or one of another version."""
    store = Store.open(path)
    return Run(path=path, run_id=store.run_id, config=store.config, stamp=stamp_of(path))


# --- small logs --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _log(path: Path, name: str, stamp: Stamp) -> tuple[list[Record], Unread]:
    kind = next(k for k, log in LOGS.items() if log == name)
    file = path / f"{name}.jsonl"
    if not file.exists():
        return [], Unread(name, 0, 0, 0)
    *whole, rest = file.read_bytes().split(b"\n")
    records: list[Record] = []
    broken = not_finite = 0
    for line in whole:
        try:
            value, odd = _loads(line)
            records.append(kind.model_validate(value))
            not_finite += odd
        except (ValueError, RecursionError):
            broken += 1
    return records, Unread(name, int(bool(rest)), broken, not_finite)


def _loads(text: str | bytes) -> tuple[JsonValue, int]:
    """JSON in which NaN and infinite numbers (which no Store writes) become None, and how many those were."""
    odd = 0

    def number(text: str) -> float | None:
        nonlocal odd
        value = float(text)
        odd += not math.isfinite(value)
        return value if math.isfinite(value) else None

    return json.loads(text, parse_constant=number, parse_float=number), odd


# --- long logs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Database:
    connection: duckdb.DuckDBPyConnection
    unread: tuple[Unread, ...]
    sealed: int


@lru_cache(maxsize=4)
def _database(path: Path, stamp: Stamp) -> _Database:
    connection = duckdb.connect(config={"threads": 2})
    unread = []
    for name, columns in _COLUMNS.items():
        file = path / f"{name}.jsonl"
        typed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        connection.execute(f"create table {name} ({typed})")
        if not file.exists() or file.stat().st_size == 0:
            continue
        chosen = "{" + ", ".join(f"'{column}': '{kind}'" for column, kind in columns.items()) + "}"
        source = f"read_json({_quoted(file)}, format='newline_delimited', ignore_errors=true, columns={chosen})"
        connection.execute(f"insert into {name} select * from {source}")  # a line that is no JSON comes as all NULL
        identity = next(iter(columns))
        lost = connection.execute(f"select count(*) from {name} where {identity} is null").fetchone()
        connection.execute(f"delete from {name} where {identity} is null")
        torn = int(not _ends_with_newline(file))
        unread.append(Unread(name, torn, max(0, (lost[0] if lost else 0) - torn), 0))
    connection.execute(_TABLES)
    opened = {one.split for one in _log(path, LOGS[Opening], stamp)[0] if isinstance(one, Opening) and one.flagged}
    sealed = [split for split in SEALED if split not in opened]
    hidden = connection.execute('delete from attempts where list_contains(?, "split")', [sealed]).fetchone()
    return _Database(connection, tuple(unread), hidden[0] if hidden else 0)


@lru_cache(maxsize=16)
def _line(path: Path, stamp: Stamp, name: str, key: str, value: str) -> JsonValue:
    """The whole line of one record of a long log, read once however many of its turns are looked at."""
    file = path / f"{name}.jsonl"
    if not file.exists() or file.stat().st_size == 0:
        return None
    objects = f"read_json_objects({_quoted(file)}, format='newline_delimited', ignore_errors=true)"
    sql = f"select json from {objects} where json->>'$.{key}' = ? limit 1"
    found = _database(path, stamp).connection.cursor().execute(sql, [value]).fetchone()
    return None if found is None else _loads(found[0])[0]


def _ends_with_newline(file: Path) -> bool:
    with file.open("rb") as opened:
        opened.seek(-1, 2)
        return opened.read(1) == b"\n"


def _quoted(file: Path) -> str:
    return "'" + str(file).replace("'", "''") + "'"


def _where(filters: Mapping[str, str]) -> tuple[str, list[object]]:
    known = {f.name for f in fields(AttemptRow)}
    parts, values = [], list[object]()
    for column, value in filters.items():
        if column not in known:
            raise ValueError(f"no column {column!r} in the rollout list")
        parts.append("list_contains(apps, ?)" if column == "apps" else f'"{column}" = ?')
        values.append(value)
    return ("where " + " and ".join(parts) if parts else ""), values


# --- harness library ---------------------------------------------------------------------------------------------


_ONE_READER = Lock()  # a Library is for one thread, and every open page is a thread


@lru_cache(maxsize=4)
def _opened_library(path: Path) -> Library:
    return Library(path)


def _library(path: Path) -> Library | None:
    at = path / "library"
    return _opened_library(at) if (at / "HEAD").is_file() else None  # opening an empty folder would make one


@lru_cache(maxsize=8)
def _library_names(path: Path, stamp: Stamp) -> dict[str, str]:
    try:
        with _ONE_READER:
            library = _library(path)
            return {} if library is None else {tree: name for name, tree in reversed(library.names().items())}
    except HarnessError:
        return {}
