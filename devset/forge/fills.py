"""What a slot of a skill directory may hold: a random draw, or what follows from other slots. A closed list, no
code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Annotated, Literal, cast

from pydantic import Field, model_validator

from devset.families import draw
from devset.families.skill import SlotType, SlotValue
from devset.task import Strict

Draw = Literal[
    "stem", "stems", "code", "codes", "person", "people", "item", "items", "city", "cities", "sentence", "sentences",
    "number", "numbers", "choice",
]  # fmt: skip
How = Literal[
    "sum", "largest", "smallest", "length", "first", "last", "sorted", "reversed", "unique", "upper", "lower", "nth",
    "index_of_largest", "rows", "with", "without", "replaced", "joined", "head", "tail",
]  # fmt: skip
Lines = tuple[str, ...]
LONGEST = 10_000  # characters of a value: slots made of slots could grow without end


class SlotSpec(Strict):
    """One slot: drawn (`draw`), or computed (`how`, from the slots named in `of`). `nonce` marks a secret: it is never
    said in the instruction, and of the given files only `shown_in` (a path) may hold it; empty: no file does."""

    type: SlotType
    nonce: bool = False
    shown_in: str = ""
    draw: Draw | None = None
    count: Annotated[int, Field(ge=1, le=40)] = 5
    low: int = 2
    high: int = 99
    options: tuple[str, ...] = ()
    how: How | None = None
    of: tuple[str, ...] = ()
    number: int = 0
    text: str = ""

    @model_validator(mode="after")
    def _is_drawn_or_computed(self) -> SlotSpec:
        if (self.draw is None) == (self.how is None):
            raise ValueError("must have either `draw` or `how`")
        if self.draw == "choice" and not self.options:
            raise ValueError("draw = 'choice' needs `options`")
        if self.how is not None and len(self.of) != _TAKES.get(self.how, 1):
            raise ValueError(f"how = {self.how!r} takes {_TAKES.get(self.how, 1)} slots in `of`, got {len(self.of)}")
        if self.low > self.high:
            raise ValueError(f"low = {self.low} must not be above high = {self.high}")
        return self


_TAKES: Mapping[How, int] = {"rows": 2, "nth": 2, "with": 2, "without": 2, "replaced": 3}


def filled(specs: Mapping[str, SlotSpec], rng: Random) -> dict[str, SlotValue]:
    """Every slot with its value, in the order in which they are listed. Raises ValueError, which names the slot, where
    one names another that is not before it, or that is of another kind than it takes, or where one is too long."""
    made: dict[str, SlotValue] = {}
    for name, spec in specs.items():
        if lacking := [other for other in spec.of if other not in made]:
            raise ValueError(f"slot {name!r}: `of` names {lacking[0]!r}, which is not listed before it")
        try:
            made[name] = _drawn(spec, rng) if spec.draw is not None else _computed(spec, [made[n] for n in spec.of])
            if (length := sum(map(len, _lines(made[name])))) > LONGEST:
                raise ValueError(f"it has {length:,} characters, more than {LONGEST:,}")
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(f"slot {name!r}: {spec.draw or spec.how} can't be made: {error}") from error
    return made


def _drawn(spec: SlotSpec, rng: Random) -> SlotValue:
    n = spec.count
    draws: dict[Draw, Callable[[], SlotValue]] = {
        "stem": lambda: draw.stem(rng),
        "stems": lambda: tuple(draw.stems(rng, n)),
        "code": lambda: draw.code(rng),
        "codes": lambda: tuple(draw.code(rng) for _ in range(n)),
        "person": lambda: draw.people(rng, 1)[0],
        "people": lambda: tuple(draw.people(rng, n)),
        "item": lambda: draw.items(rng, 1)[0],
        "items": lambda: tuple(draw.items(rng, n)),
        "city": lambda: draw.cities(rng, 1)[0],
        "cities": lambda: tuple(draw.cities(rng, n)),
        "sentence": lambda: draw.sentence(rng),
        "sentences": lambda: tuple(draw.sentences(rng, n)),
        "number": lambda: rng.randint(spec.low, spec.high),
        "numbers": lambda: tuple(rng.randint(spec.low, spec.high) for _ in range(n)),
        "choice": lambda: rng.choice(spec.options),
    }
    return draws[cast("Draw", spec.draw)]()


def _computed(spec: SlotSpec, given: Sequence[SlotValue]) -> SlotValue:
    """`given` are the values of the slots in `of`."""
    first, second = given[0], given[1] if len(given) > 1 else ""
    ways: dict[How, Callable[[], SlotValue]] = {
        "sum": lambda: sum(_numbers(first)),
        "largest": lambda: max(_numbers(first)),
        "smallest": lambda: min(_numbers(first)),
        "length": lambda: len(_lines(first)),
        "first": lambda: _lines(first)[0],
        "last": lambda: _lines(first)[-1],
        "sorted": lambda: tuple(sorted(_lines(first))),
        "reversed": lambda: tuple(reversed(_lines(first))),
        "unique": lambda: tuple(dict.fromkeys(_lines(first))),
        "upper": lambda: _each(first, str.upper),
        "lower": lambda: _each(first, str.lower),
        "nth": lambda: _lines(first)[int(cast("int", second))],
        "index_of_largest": lambda: _numbers(first).index(max(_numbers(first))),
        "rows": lambda: tuple(f"{a}{spec.text or ','}{b}" for a, b in zip(_lines(first), _lines(second), strict=True)),
        "with": lambda: tuple(line for line in _lines(first) if str(second) in line),
        "without": lambda: tuple(line for line in _lines(first) if str(second) not in line),
        "replaced": lambda: _each(first, lambda line: line.replace(str(second), str(given[2]))),
        "joined": lambda: (spec.text or ", ").join(_lines(first)),
        "head": lambda: _lines(first)[: spec.number],
        "tail": lambda: _lines(first)[-spec.number :],
    }
    return ways[cast("How", spec.how)]()


def _lines(value: SlotValue) -> Lines:
    return tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)


def _numbers(value: SlotValue) -> list[int]:
    if not isinstance(value, tuple) or not all(isinstance(one, int) for one in value):
        raise TypeError(f"expected numbers, got {value!r:.60}")
    return [int(one) for one in value]


def _each(value: SlotValue, change: Callable[[str], str]) -> SlotValue:
    return tuple(map(change, _lines(value))) if isinstance(value, tuple) else change(str(value))
