"""Packs of rows → what a model is given: one flat sequence a batch, without padding, and the pictures in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.rows import Row
from training.vision import Rope, Vision, open_vision

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Frame = Callable[[str], bytes]  # frame id → PNG


Example = dict[str, list[int] | list[str]]


def examples_of(packs: Sequence[Sequence[Row]]) -> list[Example]:
    """One example a pack: ids and labels of its rows one after the other, how long each is, and their pictures."""
    return [
        {
            "input_ids": [token for row in pack for token in row.ids],
            "labels": [label for row in pack for label in row.labels],
            "seq_lengths": [len(row.ids) for row in pack],
            "frames": [frame for row in pack for frame in row.frames],
        }
        for pack in packs
    ]


def collator_for(model: PreTrainedModel, checkpoint: Path, frame: Frame) -> Flat:
    """What makes batches for this model, whose checkpoint says whether it sees."""
    vision = open_vision(checkpoint)
    return Flat(vision, frame, None if vision is None else model.model.get_rope_index)


def summed_loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
    """Cross-entropy of a flat batch in nats, summed over its learned tokens, and how many they are.

    Logits (49,152 a token for a small model) are computed where a token is learned, and nowhere else.
    """
    import torch.nn.functional as F

    labels = batch["labels"][0]
    before = (labels[1:] != -100).nonzero().flatten()  # the positions whose next token is learned
    given = {name: value for name, value in batch.items() if name != "labels"}
    logits = model(**given, use_cache=False, logits_to_keep=before).logits[0].float()
    return F.cross_entropy(logits, labels[before + 1], reduction="sum"), len(before)


class Flat:
    """TRL's collator of flat batches; for a base that sees, pixels and three positions a token beside it."""

    def __init__(self, vision: Vision | None, frame: Frame, rope: Rope | None) -> None:
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

        self._text = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)  # pads nothing
        self._vision = vision
        self._frame = frame
        self._rope = rope

    def __call__(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        import torch

        batch: dict[str, torch.Tensor] = self._text(list(examples))
        if self._vision is None or self._rope is None:
            return batch
        lengths = [length for example in examples for length in example["seq_lengths"]]
        rows = [row.tolist() for row in batch["input_ids"][0].split(lengths)]
        pngs = [self._frame(str(frame)) for example in examples for frame in example["frames"]]
        seen = self._vision.inputs(rows, pngs, self._rope)
        # The first of four says where rows begin; time, height and width follow.
        return batch | seen | {"position_ids": torch.cat([batch["position_ids"][None], seen["position_ids"]])}
