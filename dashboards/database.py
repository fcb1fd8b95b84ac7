"""The long logs of one state of a run in DuckDB, in memory; only the columns that a list shows are read."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

import duckdb
from pydantic import JsonValue, ValidationError

from dashboards.logs import Stamp, Unread, loads, read_log
from devset.splits import SEALED
from evolver.audit import Opening
from evolver.records import Scorecard
from evolver.store import LOGS

_KEY = (
    "STRUCT(purpose VARCHAR, harness_id VARCHAR, model_id VARCHAR, task_id VARCHAR, task_hash VARCHAR, "
    '"split" VARCHAR, attempt BIGINT, seed BIGINT)'
)
_ERROR = "STRUCT(kind VARCHAR, blame VARCHAR, message VARCHAR)"
# Only these fields are ever read for a list; turns, results and frames stay in the file until one rollout is opened.
COLUMNS = {
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
       r.key.task_id as task_id, r.key.task_hash as task_hash, r.key."split" as "split", r.key.attempt as attempt,
       r.key.seed as seed, r.stop_reason, r.apps,
       count(*) over (
         partition by r.key.purpose, r.key.harness_id, r.key.model_id, r.key.task_id, r.key.task_hash
       ) as repeats,
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


_ONE_READER = Lock()


@dataclass(frozen=True)
class Database:
    connection: duckdb.DuckDBPyConnection
    unread: tuple[Unread, ...]
    sealed: int
    hidden: frozenset[str]  # the splits of those that are sealed


def database(path: Path, stamp: Stamp) -> Database:
    """The long logs of one state of a run; whoever asks for it while it is being read waits for it."""
    with _ONE_READER:
        return _read(path, stamp)


@lru_cache(maxsize=4)
def _read(path: Path, stamp: Stamp) -> Database:
    connection = duckdb.connect(config={"threads": 2})
    unread = []
    for name, columns in COLUMNS.items():
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
    opened = {one.split for one in read_log(path, LOGS[Opening], stamp)[0] if isinstance(one, Opening) and one.flagged}
    sealed = [split for split in SEALED if split not in opened]
    hidden = connection.execute('delete from attempts where list_contains(?, "split")', [sealed]).fetchone()
    return Database(connection, tuple(unread), hidden[0] if hidden else 0, frozenset(sealed))


@lru_cache(maxsize=16)
def line(path: Path, stamp: Stamp, name: str, key: str, value: str) -> JsonValue:
    """The whole line of one record of a long log, read once however many of its turns are looked at."""
    return next((found for found in _lines(path / f"{name}.jsonl", value) if found.get(key) == value), None)


@lru_cache(maxsize=64)
def cards(path: Path, stamp: Stamp, harness_id: str, kind: tuple[str, str, str]) -> tuple[Scorecard, ...]:
    """The readable scorecards of a harness for one (split, purpose, model id) that is not sealed, as written."""
    if kind[0] in database(path, stamp).hidden:
        return ()
    found = []
    for value in _lines(path / "scorecards.jsonl", harness_id):
        try:
            card = Scorecard.model_validate(value)
        except ValidationError:
            continue  # a line of another shape is no score
        if (card.key.harness_id, (card.key.split, card.key.purpose, card.key.model_id)) == (harness_id, kind):
            found.append(card)
    return tuple(found)


def _lines(file: Path, text: str) -> Iterator[dict[str, JsonValue]]:
    """The whole lines of a log in which a JSON string occurs, found without parsing the others."""
    if not file.exists() or file.stat().st_size == 0:
        return
    wanted = json.dumps(text, ensure_ascii=False).encode()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as log:
        at = log.find(wanted)
        while at >= 0:
            end = log.find(b"\n", at)
            if end < 0:
                return  # torn
            try:
                value, _ = loads(log[log.rfind(b"\n", 0, at) + 1 : end])
            except (ValueError, RecursionError):
                value = None  # counted among the unread lines
            if isinstance(value, dict):
                yield value
            at = log.find(wanted, end)


def _ends_with_newline(file: Path) -> bool:
    with file.open("rb") as opened:
        opened.seek(-1, 2)
        return opened.read(1) == b"\n"


def _quoted(file: Path) -> str:
    return "'" + str(file).replace("'", "''") + "'"
