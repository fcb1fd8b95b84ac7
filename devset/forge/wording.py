"""Joins what several skills ask for into one instruction, the way a person asks for several things."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

# Said of one task alone, which is no longer true when it is one of several.
ALONE = re.compile(r"everything else|leave the rest|keep the rest|\bany other\b|\bother files\b", re.IGNORECASE)
# First words after which "Then ..." would not be English.
_STATES = {
    "A", "An", "At", "For", "From", "How", "I", "In", "It", "My", "On", "One", "Of", "Our", "Slide", "Some",
    "Somebody", "The", "There", "They", "These", "This", "To", "We", "What", "When", "Where", "Which", "Who", "You",
}  # fmt: skip
_NEXT, _BESIDE = ("Then", "After that,", "When that is done,"), ("Also", "Besides,", "In addition,")
_OPENINGS = {2: ("Two things, please.", "I need two things done."), 3: ("Three things, please.", "Three little jobs.")}


def drawn(wordings: Sequence[str], rng: Random) -> str:
    """One of the wordings, of those that do not forbid everything else where there are such."""
    fitting = [wording for wording in wordings if not ALONE.search(wording)]
    return rng.choice(fitting or list(wordings))


def joined(parts: Sequence[str], follows: Sequence[bool], rng: Random) -> str:
    """`follows` says of each part whether it must come after one that is said before it."""
    if rng.random() < 0.25 and len(parts) in _OPENINGS:
        numbered = [f"{number}. {part}" for number, part in enumerate(parts, 1)]
        order = "\nDo them in this order." if any(follows) else ""
        return "\n".join([rng.choice(_OPENINGS[len(parts)]), *numbered]) + order
    text, links = parts[0], {True: rng.sample(_NEXT, len(_NEXT)), False: rng.sample(_BESIDE, len(_BESIDE))}
    for index, (part, after) in enumerate(zip(parts[1:], follows[1:], strict=True)):
        first = part.split(maxsplit=1)[0]
        if first.strip(",") in _STATES or not first[0].isupper():
            text += f"\n\nWhen that is done: {part}" if after else f"\n\n{part}"
        else:
            text += f" {links[after][index % len(_NEXT)]} {part[0].lower()}{part[1:]}"
    return text
