"""The manifest that an author leaves beside its tree: what it changed, why, and what it foretells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, ValidationError

from evolver.authors.gate import Refused
from evolver.calls import parse_object
from evolver.chat import JSON
from evolver.records import Flip, Manifest
from harnesses.explain import explain
from harnesses.harness import Strict

MOST_TOLD = 10
Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


class Foretold(Strict):
    task_id: str
    probability: Chance


class Edit(Strict):
    """One edit; an empty list says that no task is expected to move, a missing one is an error."""

    what: Annotated[str, Field(min_length=1, max_length=300)]
    predicted_flips: tuple[Foretold, ...]
    predicted_regressions: tuple[Foretold, ...]


class Claims(Strict):
    """manifest.json. Every field must be there; units are those of records.Manifest."""

    why: Annotated[str, Field(min_length=1, max_length=2_000)]
    edits: Annotated[tuple[Edit, ...], Field(min_length=1, max_length=20)]
    expected_token_change: Annotated[float, Field(ge=-1, le=10, allow_inf_nan=False)]
    expected_channel_change: dict[str, Share]


@dataclass(frozen=True)
class Known:
    """What may be spoken of: the ids of dev's tasks, and their apps."""

    tasks: frozenset[str]
    apps: frozenset[str]


def read_manifest(data: bytes | None, known: Known) -> Manifest:
    """Raises Refused, with the field, what was expected and what came."""
    if data is None:
        raise Refused(["manifest.json: missing; expected it in /home/user"])
    try:
        held = JSON.dump_json(parse_object(data.decode()))
        claims = Claims.model_validate_json(held, strict=True)
    except ValidationError as error:
        raise Refused([f"manifest.json: {line}" for line in explain(Claims, error)][:MOST_TOLD]) from error
    except ValueError as error:  # not UTF-8, or not JSON
        raise Refused([f"manifest.json: expected one JSON object: {error}"]) from error
    faults = list(_faults(claims, known))[:MOST_TOLD]
    if faults:
        raise Refused(faults)
    return Manifest(
        why=claims.why,
        edits=tuple(edit.what for edit in claims.edits),
        predicted_flips=tuple(_flip(one, edit) for edit in claims.edits for one in edit.predicted_flips),
        predicted_regressions=tuple(_flip(one, edit) for edit in claims.edits for one in edit.predicted_regressions),
        expected_token_change=claims.expected_token_change,
        expected_channel_change=claims.expected_channel_change,
    )


def _flip(one: Foretold, edit: Edit) -> Flip:
    return Flip(task_id=one.task_id, probability=one.probability, edit=edit.what)


def _faults(claims: Claims, known: Known) -> Iterator[str]:
    named = [
        (f"edits.{n}.{field}.{m}.task_id", one.task_id)
        for n, edit in enumerate(claims.edits)
        for field in ("predicted_flips", "predicted_regressions")
        for m, one in enumerate(getattr(edit, field))
    ]
    times = Counter(task for _, task in named)
    for place, task in named:
        if task not in known.tasks:
            yield f"manifest.json: {place}: expected a task of dev, got {task[:80]!r}"
        elif times[task] > 1:
            yield f"manifest.json: {place}: expected each task once in all, got {task!r} {times[task]} times"
    for app in claims.expected_channel_change:
        if app not in known.apps:
            apps = ", ".join(sorted(known.apps))
            yield f"manifest.json: expected_channel_change: expected apps of dev ({apps}), got {app[:40]!r}"
