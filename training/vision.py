"""Pictures of a vision-language base (Qwen2-VL, Qwen2.5-VL, Qwen3-VL): their ids in a text, pixels and positions.

A picture stands in the ids where it stands in the conversation, between two ids of its own, once for each feature that
the model makes of it. So rows, packs and windows count it by their length, and nothing is expanded afterwards.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evolver.errors import UsageError

if TYPE_CHECKING:
    import torch

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
PROCESSOR = "preprocessor_config.json"
Rope = Callable[..., "tuple[torch.Tensor, torch.Tensor]"]  # a model's get_rope_index


class Vision:
    """The checkpoint's own rule of how a picture is resized and cut into patches. `start`, `picture`, `end` are ids."""

    def __init__(self, checkpoint: Path, config: dict[str, object]) -> None:
        from transformers import AutoImageProcessor
        from transformers.utils.logging import disable_progress_bar

        if not (checkpoint / PROCESSOR).is_file():
            raise UsageError(
                f"{checkpoint}: a vision-language model needs {PROCESSOR}, which says how it is shown pictures"
            )
        disable_progress_bar()
        self._processor = AutoImageProcessor.from_pretrained(str(checkpoint), backend="pil", local_files_only=True)
        self.start, self.picture, self.end = (
            int(str(config[f"{name}_token_id"])) for name in ("vision_start", "image", "vision_end")
        )
        self._patches = self._processor.merge_size**2  # patches of one feature

    def ids(self, width: int, height: int) -> list[int]:
        """The ids of a picture of so many pixels."""
        features = self._processor.get_number_of_image_patches(height, width, {}) // self._patches
        return [self.start, *[self.picture] * features, self.end]

    def pixels(self, pngs: Sequence[bytes]) -> dict[str, torch.Tensor]:
        """`pixel_values` (patches, numbers of a patch) and `image_grid_thw` (pictures, 3) of all pictures, in order."""
        from PIL import Image

        if not pngs:
            return {}
        shown = self._processor([Image.open(io.BytesIO(png)) for png in pngs], return_tensors="pt")
        return {name: shown[name] for name in ("pixel_values", "image_grid_thw")}

    def inputs(self, rows: Sequence[Sequence[int]], pngs: Sequence[bytes], rope: Rope) -> dict[str, torch.Tensor]:
        """Pixels of the pictures in `rows`, which stand one after the other, and `position_ids` (3, 1, tokens).

        Each row begins at position 0. Raises UsageError when pictures and ids do not belong to each other.
        """
        import torch

        made = self.pixels(pngs)
        grids = made.get("image_grid_thw", torch.zeros(0, 3, dtype=torch.long))
        features = int(grids.prod(-1).sum()) // self._patches
        marks = sum(list(row).count(self.picture) for row in rows)
        if features != marks or len(pngs) != sum(list(row).count(self.start) for row in rows):
            raise UsageError(f"{len(pngs)} pictures have {features} features, the text has places for {marks}")
        positions, used = [], 0
        for row in rows:
            ids = torch.tensor([list(row)])
            first, used = used, used + int((ids == self.start).sum())
            kinds = (ids == self.picture).int()
            own = grids[first:used] if used > first else None
            positions.append(rope(ids, mm_token_type_ids=kinds, image_grid_thw=own)[0])
        return made | {"position_ids": torch.cat(positions, dim=-1)}


def open_vision(checkpoint: Path) -> Vision | None:
    """How a checkpoint is shown pictures; None for a text model. UsageError for a family that is not known here."""
    config = json.loads((checkpoint / "config.json").read_text()) if (checkpoint / "config.json").is_file() else {}
    if "vision_config" not in config:
        return None
    if config["model_type"] not in FAMILIES:
        raise UsageError(f"{checkpoint}: a base that sees must be one of {FAMILIES}; this is {config['model_type']!r}")
    return Vision(checkpoint, config)
