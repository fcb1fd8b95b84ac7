"""Rows of a round: one unit each, as it lies in the attempt that a worker wrote and in the shard that keeps it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import pyarrow as pa
from pydantic import JsonValue

from evolver.channels import union
from evolver.protocols import Planned
from evolver.records import Rollout, Scorecard

Reason = Literal[
    "",  # accepted
    "infra",  # nobody could score it, through no fault of the agent: it says nothing about task or model
    "state",  # a check program says no
    "judge",  # the judge says no
    "length",  # more turns or tokens than the round keeps
    "duplicate",  # an accepted row of an earlier shard, or of this one, says the same to the same task
]

ROW = pa.schema(
    [
        ("unit", pa.string()),
        ("capsule_id", pa.string()),
        ("task_id", pa.string()),
        ("task_hash", pa.string()),
        ("replica", pa.int32()),
        ("skills", pa.list_(pa.string())),
        ("instruction", pa.string()),
        ("worker", pa.string()),
        ("attempt", pa.string()),
        ("fence", pa.int64()),
        ("again", pa.string()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("why", pa.string()),
        ("success", pa.bool_()),
        ("rubric", pa.float64()),
        ("channel", pa.string()),
        ("turns_gui", pa.int32()),
        ("turns_terminal", pa.int32()),
        ("calls", pa.int64()),
        ("tokens", pa.int64()),
        ("nusd", pa.int64()),
        ("seconds", pa.float64()),
        ("content_sha256", pa.string()),
        ("sameness", pa.string()),
        ("rollout", pa.large_string()),
        ("scorecard", pa.large_string()),
    ]
)


Again = Literal["", "try", "outage"]  # whether a unit is to be played again; an outage may be no fault of it


@dataclass(frozen=True)
class Limits:
    """The longest trajectory that a round keeps; None is no limit."""

    turns: int | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class Origin:
    """Who made a row: the capsule, the worker and the lease under which it played, and which attempt it was."""

    capsule_id: str
    worker: str
    attempt: str
    fence: int


def row_of(
    unit: Planned, origin: Origin, played: tuple[Rollout, Scorecard], about: Mapping[str, JsonValue], limits: Limits
) -> dict[str, object]:
    """The row of a played unit. `about` has the task's id, hash, skills and instruction, and `nusd`, what it cost."""
    rollout, card = played
    reason, why = reason_of(rollout, card, limits)
    channels = [turn.channel for turn in rollout.turns]
    return {
        "unit": unit.id,
        "replica": unit.replica,
        **about,
        **asdict(origin),
        "again": "",
        "verdict": "rejected" if reason else "accepted",
        "reason": reason,
        "why": why,
        "success": card.success,
        "rubric": card.rubric,
        "channel": union(channels),
        "turns_gui": sum(c in ("gui", "both") for c in channels),
        "turns_terminal": sum(c in ("terminal", "both") for c in channels),
        "calls": len(rollout.turns),
        "tokens": card.tokens,
        "seconds": card.seconds,
        "content_sha256": content_sha256(rollout, card),
        "sameness": sameness(rollout),
        "rollout": rollout.model_dump_json(),
        "scorecard": card.model_dump_json(),
    }


def infra_row(
    unit: Planned, origin: Origin, about: Mapping[str, JsonValue], why: str, again: Again
) -> dict[str, object]:
    """The row of a unit that came to nothing through no fault of the agent."""
    blank: dict[str, object] = dict.fromkeys(ROW.names)
    return {
        **blank,
        "unit": unit.id,
        "replica": unit.replica,
        **about,
        **asdict(origin),
        "again": again,
        "verdict": "rejected",
        "reason": "infra",
        "why": why[:400],
        "channel": "none",
        "turns_gui": 0,
        "turns_terminal": 0,
        "seconds": 0.0,
        "content_sha256": hashlib.sha256(f"infra|{unit.id}".encode()).hexdigest(),
        "sameness": "",
        "rollout": "",
        "scorecard": "",
    }


def reason_of(rollout: Rollout, card: Scorecard, limits: Limits) -> tuple[Reason, str]:
    """Why a trajectory is not kept, with the detail; ("", "") for one that is. Duplicates are found later."""
    if card.success is None:
        why = (
            rollout.error.message if rollout.error else "; ".join(s.explanation for s in card.scores if s.value is None)
        )
        return "infra", why[:400]
    short = [s for s in card.scores if s.required and s.value is not None and s.value < 1]
    if not card.success:
        judged = bool(short) and all(s.grader.startswith("judge:") for s in short)
        why = "; ".join(f"{s.criterion}: {s.explanation}" for s in short) or f"ended by {rollout.stop_reason}"
        return ("judge" if judged else "state"), why[:400]
    if limits.turns is not None and len(rollout.turns) > limits.turns:
        return "length", f"{len(rollout.turns)} turns, {limits.turns} are kept"
    if limits.tokens is not None and (card.tokens is None or card.tokens > limits.tokens):
        return "length", f"{card.tokens} tokens, {limits.tokens} are kept"
    return "", ""


def content_sha256(rollout: Rollout, card: Scorecard) -> str:
    """What was asked, said, done, answered and scored, without clocks, screenshots and who did it: the same for the
    same trajectory whichever worker played it."""
    said: list[JsonValue] = [rollout.key.model_dump(mode="json"), rollout.stop_reason, card.success]
    said += _said(rollout)
    said.append([[s.criterion, s.value] for s in card.scores])
    return _digest(said)


def sameness(rollout: Rollout) -> str:
    """What two trajectories share that a student would learn the same from: the task and what was said and done."""
    return _digest([rollout.key.task_hash, *_said(rollout)])


def _said(rollout: Rollout) -> list[JsonValue]:
    return [
        [
            turn.completion.reasoning,
            turn.completion.text,
            [[call.name, call.arguments] for call in turn.completion.calls],
            [[result.text, result.is_error] for result in turn.results],
            turn.slip,
        ]
        for turn in rollout.turns
    ]


def _digest(value: JsonValue) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def table_of(rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Rows as a table; a missing or unknown column is an error."""
    listed = list(rows)
    columns = [pa.array([row[name] for row in listed], type=field.type) for name, field in _fields()]
    return pa.table(columns, schema=ROW)


def _fields() -> Sequence[tuple[str, pa.Field]]:
    return [(name, ROW.field(name)) for name in ROW.names]
