"""Lets a value flow from one skill into a slot of another: in the checks, the oracles and the wrong solutions alike.

The terminal oracle then reads the value where the first skill left it, so that without the first it can't succeed;
everything else says the value outright, as a person would who has seen it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from pydantic import JsonValue

from devset.families.skill import Binding, Check, Family, Post, SlotValue, fields_of
from devset.forge.ports import INPUTS, OUTPUTS
from devset.task import TerminalStep


class DoesNotFit(ValueError):
    """The value can't take the slot's place: what stands there occurs nowhere, or elsewhere too."""


def output_of(family: Family, made: Binding) -> tuple[str, str]:
    """What the skill leaves behind, and the shell command that reads it."""
    port = OUTPUTS[family.name]
    read = port.read.format(path="~/" + port.path.format(**made.slots))
    # A number may have been saved as 417 or as 417.0.
    return port.value.format(**made.slots), f'printf %.0f "$({read})"' if port.kind == "number" else read


def fed(family: Family, made: Binding, slot: str, source: tuple[Family, Binding], rng: Random) -> Binding:
    """The binding with what `source` leaves behind in `slot`, and a wording that says so."""
    value, reader = output_of(*source)
    old, wordings = made.slots[slot], INPUTS[family.name, slot].wordings
    said = {name for wording in made.wordings for name in fields_of(wording)}
    if any(fields_of(wording) != (said - {slot}) | {"value"} for wording in wordings):
        raise DoesNotFit(f"{family.name}: the wordings for slot {slot!r} don't say all that the family's own say")
    new: SlotValue = int(value) if isinstance(old, int) else value
    word = whole(str(old))
    if any(word.search(data.decode("utf-8", "ignore")) for data in made.files.values()):
        raise DoesNotFit(f"{family.name}: what stands in slot {slot!r} is in a given file too")
    swap = Swap(word, old, new)
    phrase = OUTPUTS[source[0].name].phrase.format(**source[1].slots)
    wording = rng.choice(wordings).replace("{value}", phrase)
    steps = made.terminal
    return replace(
        made,
        slots={**made.slots, slot: new},
        wordings=(wording,),
        post=tuple(swap.post(post) for post in made.post),
        mutants={swap.text(name): swap.text(script) for name, script in made.mutants.items()},
        equivalents={swap.text(name): swap.text(script) for name, script in made.equivalents.items()},
        terminal=None if steps is None else _reading(steps, swap, reader),
        gui=None
        if made.gui is None
        else tuple(
            s.model_copy(
                update={"text": swap.text(s.text or "") or None, "summary": swap.text(s.summary or "") or None}
            )
            for s in made.gui
        ),
    )


def whole(word: str) -> re.Pattern[str]:
    """Finds the word where no letter and no digit stands beside it."""
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


class Swap:
    """Puts `new` where `old` stands: as a whole word in text, as a value in the slots of checks."""

    def __init__(self, word: re.Pattern[str], old: SlotValue, new: SlotValue) -> None:
        self.word, self.old, self.new = word, old, new

    def text(self, text: str) -> str:
        return self.word.sub(lambda _: str(self.new), text)

    def value(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, Sequence):
            return [self.value(inner) for inner in value]
        if not isinstance(value, bool) and value == self.old and isinstance(self.new, int):
            return self.new
        return value

    def post(self, post: Post) -> Post:
        checks = tuple(Check(c.name, {name: self.value(v) for name, v in c.slots.items()}) for c in post.checks)
        return Post(post.criterion, self.text(post.description), checks)


def _reading(steps: tuple[TerminalStep, ...], swap: Swap, reader: str) -> tuple[TerminalStep, ...]:
    made = tuple(
        TerminalStep(summary=swap.text(s.summary), command=spliced(s.command, swap.word, reader)) for s in steps
    )
    if all(one.command == other.command for one, other in zip(made, steps, strict=True)):
        raise DoesNotFit(f"the oracle never says {swap.old!r}")
    return made


def spliced(command: str, word: re.Pattern[str], reader: str) -> str:
    """The shell command with the output of `reader` in place of every `word`, whatever quotes that stands in."""
    out, quote, at = [], "", 0
    while at < len(command):
        if found := word.match(command, at):
            out.append({"'": f"'\"$({reader})\"'", '"': f"$({reader})"}.get(quote, f'"$({reader})"'))
            at = found.end()
            continue
        char = command[at]
        width = 2 if char == "\\" and quote != "'" else 1
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        out.append(command[at : at + width])
        at += width
    return "".join(out)
