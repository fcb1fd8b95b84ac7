"""Reads a run directory for the pages: small logs as records, the long ones through DuckDB; writes nothing.

Every read belongs to a stamp (name, mtime, size of each log), so a page shows one state of the run and a cached answer
is never older than the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue, ValidationError

from dashboards import shelf
from dashboards.database import COLUMNS, cards, database, line
from dashboards.logs import Stamp, Unread, read_log, stamp_of
from dashboards.rounds import MANIFEST
from evolver.config import RunConfig
from evolver.errors import UsageError
from evolver.pairing import Kind, Side
from evolver.population import final_cards
from evolver.records import Ending, Record, Rollout, Scorecard
from evolver.store import LOGS, Store
from harnesses.diff import Diff
from harnesses.harness import Harness

R = TypeVar("R", bound=Record)
Filters = Mapping[str, str | Sequence[str]]
PAGE_ROWS = 50
_UNTIL = """
with spent as (select "at", sum(input_tokens + output_tokens) over (order by "at") as tokens from ledger),
asked as (select t, row_number() over () as n from (select unnest(?::double[]) as t))
select coalesce(max(s.tokens), 0) from asked a asof left join spent s on s."at" <= a.t group by a.n order by a.n
"""

_PLAYED = """
select a.k, count(r.id), coalesce(sum(r.tokens), 0),
       count(r.id) filter (where r.tokens is null and r.outcome != 'not graded')
from (select unnest(?::varchar[]) as k, unnest(?::varchar[]) as h, unnest(?::double[]) as t) a
left join attempts r on r.harness_id = a.h and r.started_at <= a.t and r.purpose in ('race', 'confirm')
group by a.k
"""


@dataclass(frozen=True)
class AttemptRow:
    """One line of the rollout list. None is unknown. `repeats` counts the attempts like it: same purpose, harness,
    model and version of the task."""

    id: str
    purpose: str
    harness_id: str
    model_id: str
    task_id: str
    task_hash: str
    split: str | None
    attempt: int
    seed: int
    repeats: int
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


_COLUMNS = ", ".join(f'"{f.name}"' for f in fields(AttemptRow))


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
class Played:
    """What one candidate's attempts came to: how many, their known tokens, how many graded ones are of unknown size."""

    rollouts: int
    tokens: int
    unknown: int


@dataclass(frozen=True)
class Run:
    """One state of one run directory."""

    path: Path
    run_id: str
    config: RunConfig = field(compare=False)  # changes with the stamp
    stamp: Stamp

    def all(self, kind: type[R]) -> list[R]:
        """Every readable record of a kind, in the order of writing (not for rollouts and scorecards: see `page`)."""
        return [r for r in read_log(self.path, LOGS[kind], self.stamp)[0] if isinstance(r, kind)]

    def unread(self) -> list[Unread]:
        """The logs with lines that can't be read, small and long ones."""
        small = [read_log(self.path, name, self.stamp)[1] for name in LOGS.values() if name not in COLUMNS]
        return [u for u in (*small, *database(self.path, self.stamp).unread) if u.torn or u.broken or u.not_finite]

    def ending(self) -> Ending | None:
        return next(iter(reversed(self.all(Ending))), None)

    def distinct(self, column: str) -> list[str]:
        """The values that occur in a column of the rollout list (`apps`: in its lists)."""
        if column not in {f.name for f in fields(AttemptRow)}:
            raise ValueError(f"no column {column!r} in the rollout list")
        value = "unnest(apps)" if column == "apps" else f'"{column}"'
        rows = self._query(f"select distinct {value} as v from attempts order by v")
        return [str(row[0]) for row in rows if row[0] is not None]

    def count(self, filters: Filters | None = None) -> int:
        where, values = _where(filters or {})
        return int(str(self._query(f"select count(*) from attempts {where}", values)[0][0]))

    def page(self, number: int, filters: Filters | None = None, rows: int = PAGE_ROWS) -> list[AttemptRow]:
        """Page `number` (from 1) of the rollout list, newest first, `rows` a page."""
        where, values = _where(filters or {})
        sql = f"select {_COLUMNS} from attempts {where} order by place limit ? offset ?"
        return [AttemptRow(*row) for row in self._query(sql, [*values, rows, rows * (number - 1)])]

    @property
    def sealed(self) -> int:
        """How many attempts are listed nowhere: those on a sealed split that no person has opened in this run."""
        return database(self.path, self.stamp).sealed

    def attempt(self, rollout_id: str) -> AttemptRow | None:
        found = self.page(1, {"id": rollout_id})
        return found[0] if found else None

    def repeats(self, row: AttemptRow, most: int) -> list[AttemptRow]:
        """The attempts like this one (see `AttemptRow.repeats`), the newest first, at most so many."""
        like = {"harness_id": row.harness_id, "purpose": row.purpose, "model_id": row.model_id}
        return self.page(1, {"task_id": row.task_id, "task_hash": row.task_hash, **like}, most)

    def rivals(self, row: AttemptRow, most: int) -> list[AttemptRow]:
        """Attempts of other harnesses at the same version of the same task: those with its number first, then the
        newest, at most so many."""
        sql = (
            f"select {_COLUMNS} from attempts where task_id = ? and task_hash = ? and harness_id != ? "
            "order by attempt != ?, purpose != ?, place limit ?"
        )
        values: list[object] = [row.task_id, row.task_hash, row.harness_id, row.attempt, row.purpose, most]
        return [AttemptRow(*found) for found in self._query(sql, values)]

    def neighbours(self, row: AttemptRow) -> tuple[str | None, str | None]:
        """The ids of the attempts that began next after this one and next before it."""
        sql = (
            "select (select id from attempts where place < ? order by place desc limit 1), "
            "(select id from attempts where place > ? order by place limit 1)"
        )
        later, earlier = self._query(sql, [row.place, row.place])[0]
        return None if later is None else str(later), None if earlier is None else str(earlier)

    def kinds(self, harness_id: str) -> list[Kind]:
        """What a harness was played for, as (split, purpose, model id); sealed splits left out."""
        sql = 'select distinct "split", purpose, model_id from attempts where harness_id = ? and "split" is not null'
        return sorted((str(s), str(p), str(m)) for s, p, m in self._query(sql, [harness_id]))

    def cards(self, harness_id: str, kind: Kind) -> list[Scorecard]:
        """The scorecards of a harness for one (split, purpose, model id)."""
        return list(cards(self.path, self.stamp, harness_id, kind))

    def task_apps(self) -> dict[str, tuple[str, ...]]:
        """Task id → the apps that its attempts were over."""
        rows = self._query("select task_id, any_value(apps) from attempts group by task_id")
        return {str(task): tuple(apps) for task, apps in rows if isinstance(apps, list)}

    def rollout(self, rollout_id: str) -> Rollout | None:
        """One rollout whole, with its turns. Raises `UsageError` when its line is no valid rollout."""
        found = line(self.path, self.stamp, "rollouts", "id", rollout_id)
        try:
            return None if found is None else Rollout.model_validate(found)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise UsageError(f"{self.path / 'rollouts.jsonl'}: rollout {rollout_id}: {problem}") from None

    def card_line(self, rollout_id: str) -> JsonValue:
        """The scorecard of a rollout as it was written; None when it is not graded."""
        return line(self.path, self.stamp, "scorecards", "rollout_id", rollout_id)

    def spent(self) -> list[Spent]:
        rows = self._query(
            "select role, count(*), sum(calls), coalesce(sum(input_tokens + output_tokens), 0), "
            "count(*) filter (where input_tokens + output_tokens is null), "
            "coalesce(sum(cost_usd) filter (where isfinite(cost_usd)), 0), "
            "count(*) filter (where cost_usd is null or not isfinite(cost_usd)) from ledger group by role order by role"
        )
        return [Spent(str(r[0]), *(int(str(v)) for v in r[1:5]), float(str(r[5])), int(str(r[6]))) for r in rows]

    def tokens_until(self, moments: Sequence[float]) -> list[int]:
        """Known tokens of all roles up to each moment (seconds since 1970)."""
        rows = self._query(_UNTIL, [list(moments)])
        return [int(str(row[0])) for row in rows]

    def played(self, asked: Sequence[tuple[str, str, float]]) -> dict[str, Played]:
        """For (key, harness id, moment): the attempts at dev and select of that harness up to then, by key."""
        rows = self._query(_PLAYED, [list(column) for column in zip(*asked, strict=True)]) if asked else []
        return {str(row[0]): Played(*(int(str(v)) for v in row[1:])) for row in rows}

    def library_names(self) -> dict[str, str]:
        """Harness id → name, from the run's library; empty when there is none yet."""
        return shelf.names(self.path, self.stamp)

    def tags(self) -> dict[str, tuple[str, ...]]:
        """Harness id → its tags."""
        return shelf.tags(self.path, self.stamp)

    def harness(self, harness_id: str) -> Harness | str:
        """A harness from the run's library, or why it can't be shown."""
        return shelf.harness(self.path, harness_id)

    def difference(self, old: str, new: str) -> Diff | str:
        """What changed between two harnesses, or one line that says why it can't be shown."""
        return shelf.difference(self.harness(old), self.harness(new))

    def blob(self, sha256: str) -> bytes:
        """Raises `UsageError` when the bytes are missing or damaged."""
        return Store(self.path, self.run_id, self.config).blob(sha256)

    def _query(self, sql: str, values: list[object] | None = None) -> list[tuple[object, ...]]:
        return database(self.path, self.stamp).connection.cursor().execute(sql, values or []).fetchall()


def side(run: Run, harness_id: str, kind: Kind) -> Side:
    """One arm of a comparison: a harness of a run, played for one (split, purpose, model id)."""
    return Side(run, harness_id, tuple(final_cards(run.cards(harness_id, kind))), run.task_apps())


def find_runs(root: Path) -> list[Path]:
    """The run directories at or directly under a folder, newest first; a generation round, which keeps such settings
    too, is none."""
    here = [root] if (root / "run.json").is_file() else [p.parent for p in root.glob("*/run.json")]
    found = [p for p in here if not (p / MANIFEST).is_file()]
    return sorted(found, key=lambda p: (p / "run.json").stat().st_mtime, reverse=True)


def open_run(path: Path) -> Run:
    """Raises `UsageError` for a directory that is no run, or one of another version."""
    store = Store.open(path)
    return Run(path=path, run_id=store.run_id, config=store.config, stamp=stamp_of(path))


def _where(filters: Filters) -> tuple[str, list[object]]:
    """A list of values means any of them."""
    known = {f.name for f in fields(AttemptRow)}
    parts, values = [], list[object]()
    for column, value in filters.items():
        if column not in known:
            raise ValueError(f"no column {column!r} in the rollout list")
        if isinstance(value, str):
            parts.append("list_contains(apps, ?)" if column == "apps" else f'"{column}" = ?')
            values.append(value)
        else:
            parts.append(f'list_contains(?, "{column}")')
            values.append(list(value))
    return ("where " + " and ".join(parts) if parts else ""), values
