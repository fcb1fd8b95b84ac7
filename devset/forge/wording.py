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


def joined(parts: Sequence[tuple[str, str]], follows: Sequence[bool], rng: Random) -> str:
    """`parts` are wordings, as templates and filled in; `follows` says of each whether it must come after one that is
    said before it."""
    texts = [text for _, text in parts]
    if rng.random() < 0.25 and len(parts) in _OPENINGS:
        numbered = [f"{number}. {text}" for number, text in enumerate(texts, 1)]
        order = "\nDo them in this order." if any(follows) else ""
        return "\n".join([rng.choice(_OPENINGS[len(parts)]), *numbered]) + order
    said, links = texts[0], {True: rng.sample(_NEXT, len(_NEXT)), False: rng.sample(_BESIDE, len(_BESIDE))}
    for index, ((template, text), after) in enumerate(zip(parts[1:], follows[1:], strict=True)):
        if template.split(maxsplit=1)[0].strip(",") in _STATES or not template[0].isupper():
            said += f"\n\nWhen that is done: {text}" if after else f"\n\n{text}"
        else:
            said += f" {links[after][index % len(_NEXT)]} {text[0].lower()}{text[1:]}"
    return said
