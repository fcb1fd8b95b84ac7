"""Keeps keys out of records: text is cleaned where it enters an attempt, so that nothing behind it ever holds one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

from pydantic import JsonValue

from evolver.records import Record

MASK = "[key]"
SHORTEST = 8  # characters; shorter values ("none", "test") are no keys and stand in ordinary text
R = TypeVar("R", bound=Record)


def keys_in(names: Iterable[str]) -> tuple[str, ...]:
    """The values of these environment variables that can be keys, longest first (one may be part of another)."""
    values = {os.environ.get(name, "").strip() for name in names}
    return tuple(sorted((v for v in values if len(v) >= SHORTEST), key=len, reverse=True))


def redacted(text: str, keys: Iterable[str]) -> str:
    for key in keys:
        text = text.replace(key, MASK)
    return text


def redacted_record(record: R, keys: Iterable[str]) -> R:
    """The record with the keys masked in every text of it, names in tool arguments included; itself if it has none."""
    keys = tuple(keys)
    if not keys:
        return record
    plain = record.model_dump(mode="json")
    clean = _masked(plain, keys)
    return record if clean == plain else type(record).model_validate(clean)


def _masked(value: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    if isinstance(value, str):
        return redacted(value, keys)
    if isinstance(value, list):
        return [_masked(v, keys) for v in value]
    if isinstance(value, dict):
        return {redacted(name, keys): _masked(v, keys) for name, v in value.items()}
    return value
