"""Rows → packs: many rows in one sequence of bounded length, each seeing itself alone (training.attention).

Best fit, longest first, over all rows at once, as TRL's `bfd`, which has no packs of rows with pictures. The tokens of
a picture are ids of its row, so they count as any others and a picture is never cut.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from evolver.errors import UsageError
from training.rows import Row

PACK_TOKENS = 32_768


class Packing(BaseModel):
    """How full the packs of a stage were, as `trained.json` has it: `density` 0..1, `waste` in tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    packs: int
    size: int
    tokens: int
    waste: int
    density: float

    def __str__(self) -> str:
        return f"{self.packs} packs of {self.size:,} tokens, {self.density:.2%} full, {self.waste:,} tokens empty"


@dataclass(frozen=True)
class Packs:
    """`packs` of at most `size` tokens each, which hold every row once, whole."""

    packs: tuple[tuple[Row, ...], ...]
    size: int

    @property
    def tokens(self) -> int:
        return sum(len(row.ids) for pack in self.packs for row in pack)

    @property
    def waste(self) -> int:
        """Tokens of padding, if every pack is filled up to `size`."""
        return len(self.packs) * self.size - self.tokens

    @property
    def density(self) -> float:
        """Share of the packs that is rows, 0..1; 1 for no packs."""
        return self.tokens / (len(self.packs) * self.size) if self.packs else 1.0

    @property
    def report(self) -> Packing:
        return Packing(
            packs=len(self.packs), size=self.size, tokens=self.tokens, waste=self.waste, density=self.density
        )


def pack(rows: Sequence[Row], size: int = PACK_TOKENS) -> Packs:
    """Best-fit-decreasing. Equal rows keep their order, so the same rows give the same packs.

    Raises UsageError for a row that is longer than a pack: it is never cut.
    """
    packs: list[list[Row]] = []
    room: list[tuple[int, int]] = []  # (tokens left, number of the pack), ascending
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        length = len(row.ids)
        if length > size:
            raise UsageError(f"rollout {row.rollout_id} has a row of {length} tokens, more than a pack of {size}")
        at = bisect_left(room, (length, -1))
        left, number = room.pop(at) if at < len(room) else (size, len(packs))
        if number == len(packs):
            packs.append([])
        packs[number].append(row)
        insort(room, (left - length, number))
    return Packs(tuple(map(tuple, packs)), size)
