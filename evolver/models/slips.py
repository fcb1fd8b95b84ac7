"""The declared, simulated errors of the demonstrator: seeded, really executed, and named in `Turn.slip`."""

from __future__ import annotations

import math
import re
import string
from random import Random

from pydantic import JsonValue

MIN_SHIFT_PX, MAX_SHIFT_PX = 60.0, 120.0
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")
_WORD = re.compile(r"[^\s'\"|&;<>(){}\[\]=,]+")


def wrong_character(text: str, rng: Random) -> str | None:
    """`text` with one digit (or else one letter) changed to another; None when it has neither."""
    places = [i for i, c in enumerate(text) if c.isdecimal()] or [i for i, c in enumerate(text) if c.isalpha()]
    if not places:
        return None
    place = rng.choice(places)
    old = text[place]
    alphabet = string.digits if old.isdecimal() else string.ascii_lowercase
    new = rng.choice([c for c in alphabet if c != old.lower()])
    return text[:place] + (new.upper() if old.isupper() else new) + text[place + 1 :]


def wrong_argument(command: str, rng: Random) -> str | None:
    """`command` with its last word (a heredoc's end mark is none) altered by a character; None without a word."""
    marks = set(_HEREDOC.findall(command))
    words = [m for m in _WORD.finditer(command) if m[0] not in marks and any(c.isalnum() for c in m[0])]
    if not words:
        return None
    last = words[-1]
    altered = wrong_character(last[0], rng)
    return None if altered is None else command[: last.start()] + altered + command[last.end() :]


def off_target(point: tuple[float, float], screen: tuple[int, int], rng: Random) -> tuple[float, float]:
    """A point on the screen that is 60 to 120 pixels away from `point`."""
    x, y = point
    distance = rng.uniform(MIN_SHIFT_PX, MAX_SHIFT_PX)
    start = rng.uniform(0, 2 * math.pi)
    for turn in range(16):  # from a corner, a quarter of the circle still lies on the screen
        angle = start + turn * math.pi / 8
        moved = x + distance * math.cos(angle), y + distance * math.sin(angle)
        if 0 <= moved[0] <= screen[0] - 1 and 0 <= moved[1] <= screen[1] - 1:
            return moved
    return point


def kinds_for(arguments: dict[str, JsonValue]) -> tuple[str, ...]:
    """Which slips a call can have: a value can be wrong, a click off target, and any step can be skipped."""
    if "coordinate" in arguments:
        return ("off_target", "skipped")
    if "command" in arguments or "text" in arguments:
        return ("wrong_value", "skipped")
    return ("skipped",)
