"""The knobs that the structured author may turn: named fields of a harness with the values worth trying."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from evolver.errors import UsageError
from harnesses.harness import Harness

Value = str | int | bool
ON_OFF: tuple[Value, ...] = (True, False)
KNOBS: Mapping[str, tuple[Value, ...]] = {
    "scaffold.max_steps": (8, 15, 30, 50, 100),
    "scaffold.max_calls_per_turn": (1, 3, 5, 10, 15),
    "scaffold.screenshots_kept": (0, 1, 2, 3, 5),
    "scaffold.history": ("one_line", "full", "none"),
    "scaffold.turns_kept": (1, 2, 3, 5, 10),
    "scaffold.observation.image": ON_OFF,
    "scaffold.observation.text": ("none", "marks", "tree"),
    "scaffold.observation.when": ("every_turn", "after_gui"),
    "scaffold.observation.max_chars": (1_000, 2_000, 4_000, 8_000),
    "tools.bash": ON_OFF,
    "tools.a11y_tree": ON_OFF,
    "environment.pip.openpyxl": ON_OFF,
    "environment.pip.python-pptx": ON_OFF,
    "environment.pip.python-docx": ON_OFF,
}
PIP = "environment.pip."


def knobs_of(space: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """The knobs by name; an empty `space` means all. Raises UsageError for an unknown name."""
    for name in space:
        if name not in KNOBS:
            near = difflib.get_close_matches(name, KNOBS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KNOBS)}"
            raise UsageError(f"authors.space: unknown knob {name!r}; {hint}")
    return {name: KNOBS[name] for name in (space or KNOBS)}


def value_of(harness: Harness, knob: str) -> Value:
    """Where a knob stands in `harness`."""
    if knob.startswith(PIP):
        return knob.removeprefix(PIP) in harness.environment.pip
    if knob.startswith("tools."):
        return any(tool.name == knob.removeprefix("tools.") for tool in harness.tools)
    found: object = harness
    for part in knob.split("."):
        found = getattr(found, part)
    if not isinstance(found, str | int):
        raise TypeError(f"knob {knob!r} is neither a number nor a word: {found!r}")
    return found


def as_changes(harness: Harness, settings: Mapping[str, Value]) -> dict[str, JsonValue]:
    """Knob → value as field → value for `harnesses.edit.with_changes`; package toggles join into one list."""
    fields: dict[str, JsonValue] = {knob: value for knob, value in settings.items() if not knob.startswith(PIP)}
    toggles = {knob.removeprefix(PIP): value for knob, value in settings.items() if knob.startswith(PIP)}
    if toggles:
        kept = [package for package in harness.environment.pip if toggles.get(package, True)]
        added = [package for package, wanted in toggles.items() if wanted and package not in kept]
        fields["environment.pip"] = [*kept, *added]
    return fields
