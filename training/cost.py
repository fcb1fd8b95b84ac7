"""What a training stage costs in floating-point operations: from the shape of the model and the lengths of its rows."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.recipe import Recipe
from training.rows import Row
from training.weights import ADAPTER, is_vision


@dataclass(frozen=True)
class Shape:
    """What the cost of a dense decoder depends on.

    `body` are the weights of its layers, `head` those of one table of the vocabulary, `adapter` those of an adapter
    (None: there is none, and the layers above `frozen_layers` are trained). `vision` are the weights that see pictures;
    each occurrence of the id `picture_id` stands for `patches` patches.
    """

    layers: int
    hidden: int
    body: int
    head: int
    frozen_layers: int = 0
    train_head: bool = False
    adapter: int | None = None
    vision: int = 0
    train_vision: bool = False
    picture_id: int = -1
    patches: int = 4


def shape_of(checkpoint: Path, recipe: Recipe) -> Shape:
    """Reads `config.json` and the headers of `model.safetensors` and, where there is one, of the adapter."""
    config = json.loads((checkpoint / "config.json").read_text())
    text = config.get("text_config", config)
    sizes = _sizes(checkpoint / "model.safetensors")
    head = text["vocab_size"] * text["hidden_size"]
    tables = sum(size for name, size in sizes.items() if name.endswith(("embed_tokens.weight", "lm_head.weight")))
    vision = sum(size for name, size in sizes.items() if is_vision(name))
    adapter = None
    if recipe.lora is not None:
        adapter = sum(_sizes(checkpoint / ADAPTER / "adapter_model.safetensors").values())
    return Shape(
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        body=sum(sizes.values()) - tables - vision,
        head=head,
        frozen_layers=recipe.frozen_layers,
        train_head=adapter is None and not recipe.freeze_embeddings and not recipe.frozen_layers,
        adapter=adapter,
        vision=vision,
        train_vision=recipe.train_vision,
        picture_id=config.get("image_token_id", -1),
        patches=config.get("vision_config", {}).get("spatial_merge_size", 2) ** 2,
    )


def training_flop(rows: Sequence[Row], shape: Shape, epochs: int) -> float:
    """Floating-point operations of a stage: 2 a weight and token forward, 2 for the gradient of what came in, 2 for
    that of the weight.

    Frozen layers at the bottom need no gradient, the weights below an adapter none of their own. Attention adds
    4 x hidden x (tokens it looks at) a layer and token forward, causal, within the row, however rows are packed. The
    head counts for learned tokens alone (arXiv 2203.15556, appendix F, with these savings). What checkpointing computes
    twice counts once.
    """
    through = (shape.layers - shape.frozen_layers) / shape.layers
    body = shape.body * (1 + through * (2 if shape.adapter is None else 1)) + 3 * (shape.adapter or 0)
    head = shape.head * (3 if shape.train_head else 2)
    vision = shape.vision * shape.patches * (3 if shape.train_vision else 1)
    total = 0.0
    for row in rows:
        n = len(row.ids)
        attention = 2.0 * shape.layers * shape.hidden * n * (n + 1) * (1 + 2 * through)
        total += 2.0 * (body * n + head * sum(row.loss) + vision * row.ids.count(shape.picture_id)) + attention
    return epochs * total


def _sizes(safetensors: Path) -> Mapping[str, int]:
    """Name → numbers of each tensor in the file; tied ones are in it once."""
    with safetensors.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return {name: math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
