"""Packs of rows → what a model is given: one flat sequence a batch, without padding, and the pictures in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from training.rows import Row
from training.vision import Rope, Vision

if TYPE_CHECKING:
    import torch
    from datasets import Dataset

Frame = Callable[[str], bytes]  # frame id → PNG


def dataset_of(packs: Sequence[Sequence[Row]]) -> Dataset:
    """One example a pack: ids and labels of its rows one after the other, how long each is, and their pictures."""
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "input_ids": [[token for row in pack for token in row.ids] for pack in packs],
            "labels": [[label for row in pack for label in row.labels] for pack in packs],
            "seq_lengths": [[len(row.ids) for row in pack] for pack in packs],
            "frames": [[frame for row in pack for frame in row.frames] for pack in packs],
        }
    )


class Flat:
    """TRL's collator of flat batches; for a base that sees, pixels and three positions a token beside it."""

    def __init__(self, pad: int, vision: Vision | None, frame: Frame, rope: Rope | None) -> None:
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

        self._text = DataCollatorForLanguageModeling(pad_token_id=pad, padding_free=True)
        self._vision = vision
        self._frame = frame
        self._rope = rope

    def __call__(self, examples: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
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
