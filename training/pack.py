"""Rows → packs: many rows in one sequence of fixed length, each seeing itself alone.

Best fit, longest first, over all rows at once: as TRL's `bfd`, which packs batch by batch of a dataset and whose packs
need flash attention; here a pack brings its own positions and mask, so that it trains on any device.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolver.errors import UsageError
from training.rows import Row

if TYPE_CHECKING:
    import torch

PACK_TOKENS = 32_768


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


@dataclass(frozen=True)
class PackedBatch:
    """One pack as a model takes it: shapes (1, tokens), and (1, 1, tokens, tokens) of the additive mask.

    Positions start at 0 in each row. The first label of a row is never learned: what stands before it is another row.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor


def packed_batch(rows: Sequence[Row]) -> PackedBatch:
    """A token sees itself and what is before it in its own row, and nothing else."""
    import torch

    ids = torch.tensor([[token for row in rows for token in row.ids]])
    positions = torch.tensor([[position for row in rows for position in range(len(row.ids))]])
    owner = torch.tensor([number for number, row in enumerate(rows) for _ in row.ids])
    seen = (owner[:, None] == owner[None, :]).tril()
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
    labels = torch.tensor([[label for row in rows for label in (-100, *row.labels[1:])]])
    return PackedBatch(ids, positions, mask, labels)
