"""Packs of rows → what a model is given: one flat sequence a batch, without padding, and the pictures in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from training.rows import Row

if TYPE_CHECKING:
    from datasets import Dataset


def dataset_of(packs: Sequence[Sequence[Row]]) -> Dataset:
    """One example a pack: ids and labels of its rows one after the other, and how long each is."""
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "input_ids": [[token for row in pack for token in row.ids] for pack in packs],
            "labels": [[label for row in pack for label in row.labels] for pack in packs],
            "seq_lengths": [[len(row.ids) for row in pack] for pack in packs],
        }
    )
