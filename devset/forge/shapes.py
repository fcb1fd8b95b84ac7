"""The shape of a skill: what its checker asks and its oracles do, with every value left out.

Two skills of one shape are the same skill under two names, however differently they are worded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from devset.families.skill import Binding, Check, Family
from devset.task import GuiStep, Oracle

SEEDS = (10**9 + 1, 10**9 + 2, 10**9 + 3)
_VALUE = re.compile(r"~?(?:/[\w.*-]+)+/?|\d+")  # a path or a number


def checker_shape(checks: Sequence[Check]) -> list[JsonValue]:
    """The atomic checks in an order of their own, each with the names and the types of its slots."""
    found: list[JsonValue] = [[c.name, {name: _type(value) for name, value in sorted(c.slots.items())}] for c in checks]
    return sorted(found, key=json.dumps)


def oracle_shape(oracle: Oracle) -> list[JsonValue]:
    """Commands without paths and numbers; GUI moves without names and text."""
    commands: list[JsonValue] = [_VALUE.sub("_", " ".join(s.command.split())) for s in oracle.terminal or ()]
    return [*commands, *(_move(step) for step in oracle.gui or ())]


def shapes(family: Family) -> frozenset[str]:
    """The shapes of a few of its instances: one, unless it draws what it does."""
    return frozenset(shape_of(family.binding(seed)) for seed in SEEDS)


def shape_of(made: Binding) -> str:
    """The sha256 of the shape of one binding, 16 digits of it."""
    checks = checker_shape([c for post in made.post for c in post.checks])
    text = json.dumps([checks, oracle_shape(Oracle(terminal=made.terminal, gui=made.gui))])
    return hashlib.sha256(_without(text, made).encode()).hexdigest()[:16]


def same_shape(family: Family, others: Mapping[str, Family]) -> str | None:
    """The name of another family of which some instance has the shape of one of this; None where there is none."""
    own = shapes(family)
    return next((name for name, other in others.items() if name != family.name and shapes(other) & own), None)


def _without(text: str, made: Binding) -> str:
    """The text without what fills the slots."""
    values = sorted({str(value) for value in made.slots.values()} - {""}, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, values)), "_", text) if values else text


def _type(value: JsonValue) -> str:
    return type(value).__name__


def _move(step: GuiStep) -> JsonValue:
    target = None if step.target is None else step.target.role
    return [step.action, target, step.keys]
