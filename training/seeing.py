"""Decoding of a checkpoint that sees, by transformers: one cache a slot, so replies advance one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from training.checkpoints import load_model
from training.decoder import Slot
from training.vision import open_vision

if TYPE_CHECKING:
    import torch
    from transformers import Cache


@dataclass
class SeeingSlot(Slot):
    """`position` is that of the next token: a picture takes fewer positions than ids."""

    cache: Cache | None = field(default=None, repr=False)
    position: int = 0


class SeeingDecoder:
    """The decoder's seam (training.decoder) for a vision-language base; a slot's cache ends with its reply."""

    def __init__(self, checkpoint: Path, *, dtype: str, slots: int, device: str = "cpu") -> None:
        self._model = load_model(checkpoint, dtype).to(device).eval()
        self._vision = open_vision(checkpoint)
        assert self._vision is not None, checkpoint
        self._free = [SeeingSlot(index) for index in range(slots)]

    def begin(self, ids: list[int], pngs: Sequence[bytes] = ()) -> tuple[SeeingSlot, torch.Tensor]:
        """Takes a free slot for a prompt and its pictures; returns it and the logits of the next token."""
        import torch
        from transformers import DynamicCache

        slot = self._free.pop(0)
        slot.cache = DynamicCache(config=self._model.config.get_text_config())
        inputs = self._vision.inputs([ids], pngs, self._model.model.get_rope_index)
        slot.position = int(inputs["position_ids"].max()) + 1
        logits = self._forward(torch.tensor([ids]), slot, inputs)
        slot.ids, slot.active = list(ids), True
        return slot, logits

    def step(self, slots: Sequence[SeeingSlot], tokens: Sequence[int]) -> torch.Tensor:
        """Feeds one token to each of the active slots; returns the logits (slots, vocabulary) of the next ones."""
        import torch

        found = []
        for slot, token in zip(slots, tokens, strict=True):
            here = {"position_ids": torch.full((3, 1, 1), slot.position)}
            found.append(self._forward(torch.tensor([[token]]), slot, here))
            slot.ids.append(token)
            slot.position += 1
        return torch.stack(found)

    def end(self, slot: SeeingSlot) -> None:
        slot.active, slot.cache = False, None
        self._free.append(slot)

    def _forward(self, ids: torch.Tensor, slot: SeeingSlot, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        import torch

        device = self._model.device
        with torch.inference_mode():
            given = {name: tensor.to(device) for name, tensor in {"input_ids": ids, **inputs}.items()}
            logits: torch.Tensor = self._model(**given, cache=slot.cache, use_cache=True, logits_to_keep=1).logits
        return logits[0, -1].float().cpu()
