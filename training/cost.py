"""What a training stage costs in floating-point operations: from the shape of the model and the lengths of its rows."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.rows import Row


@dataclass(frozen=True)
class Shape:
    """What the cost of a dense decoder depends on; the lowest `frozen_layers` are not trained."""

    layers: int
    hidden: int
    parameters: int
    vocabulary: int
    frozen_layers: int = 0


def shape_of(checkpoint: Path, frozen_layers: int = 0) -> Shape:
    """Reads `config.json` and the header of `model.safetensors`; tied embeddings count once."""
    config = json.loads((checkpoint / "config.json").read_text())
    with (checkpoint / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    parameters = sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return Shape(config["num_hidden_layers"], config["hidden_size"], parameters, config["vocab_size"], frozen_layers)


def training_flop(rows: Sequence[Row], shape: Shape, epochs: int) -> float:
    """Floating-point operations of a stage: 2 a weight and token forward, 4 backward through what is trained.

    Attention adds 4 x hidden x (tokens it looks at) a layer and token forward, causal, within the row. The head counts
    for learned tokens alone (arXiv 2203.15556, appendix F, with these two savings).
    """
    body = shape.parameters - shape.vocabulary * shape.hidden
    share = (shape.layers - shape.frozen_layers) / shape.layers
    total = 0.0
    for row in rows:
        n, learned = len(row.ids), sum(row.loss)
        forward = 2.0 * body * n + 2.0 * shape.layers * shape.hidden * n * (n + 1)
        head = 2.0 * shape.vocabulary * shape.hidden * learned
        total += forward * (1 + 2 * share) + 3 * head
    return epochs * total
