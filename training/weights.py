"""Which weights a recipe trains, and what becomes of them: freezing, an adapter, its merge, and a canary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evolver.errors import UsageError
from training.checkpoints import load_model
from training.recipe import Recipe

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig
    from transformers import PreTrainedModel

ADAPTER = "adapter"
CANARY_TOKENS = 64  # positions whose logits are compared


def freeze(model: PreTrainedModel, recipe: Recipe) -> None:
    """Freezes the lower layers; below the lowest trained weight nothing is kept for a backward pass."""
    layers = model.get_decoder().layers
    if recipe.frozen_layers >= len(layers):
        raise UsageError(f"frozen_layers = {recipe.frozen_layers}, but {recipe.base} has {len(layers)} layers")
    if recipe.frozen_layers or recipe.freeze_embeddings:
        model.get_input_embeddings().requires_grad_(False)
        model.get_output_embeddings().requires_grad_(False)
    for layer in layers[: recipe.frozen_layers]:
        layer.requires_grad_(False)
    if not recipe.train_vision:
        for name, weight in model.named_parameters():
            if is_vision(name):
                weight.requires_grad_(False)


def is_vision(name: str) -> bool:
    """Whether a weight of this name belongs to the part that sees pictures."""
    return re.search(r"(^|\.)(visual|vision_tower|vision_model)\.", name) is not None


def adapter_of(model: PreTrainedModel, recipe: Recipe) -> LoraConfig | None:
    """The adapter on every matrix of the layers that are not frozen; None when the weights themselves are trained."""
    if recipe.lora is None:
        return None
    import torch
    from peft import LoraConfig

    above = {id(module) for layer in model.get_decoder().layers[recipe.frozen_layers :] for module in layer.modules()}
    targets = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and (id(module) in above or (recipe.train_vision and is_vision(name)))
    ]
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=recipe.lora.rank,
        lora_alpha=recipe.lora.alpha,
        lora_dropout=recipe.lora.dropout,
        target_modules=targets,
    )


def save(model: torch.nn.Module, recipe: Recipe, out: Path) -> None:
    """Leaves the weights in `out`, in the recipe's dtype, as any checkpoint of the base's kind.

    An adapter is merged in float32, whatever the dtype, and is kept beside them in `out/adapter`.
    """
    import torch

    out.mkdir(parents=True, exist_ok=True)
    if recipe.lora is not None:
        model.save_pretrained(out / ADAPTER)
        model = model.to("cpu", torch.float32).merge_and_unload()
    model.to("cpu", getattr(torch, recipe.dtype)).save_pretrained(out)


def logit_shift(base: Path, out: Path, recipe: Recipe, ids: Sequence[int]) -> float:
    """The largest change of a logit that training made, at the last positions of a text of these ids.

    Raises UsageError when nothing changed: what would be served is the base model.
    """
    before = _logits(base, recipe, ids)
    shift = float((_logits(out, recipe, ids) - before).abs().max())
    if shift == 0:
        raise UsageError(
            f"{out}: the trained weights compute what the base computes, to the last bit: take more steps or less "
            "warmup, a higher learning_rate, or dtype float32, mixed or lora (bfloat16 weights round small steps away)"
        )
    return shift


def _logits(checkpoint: Path, recipe: Recipe, ids: Sequence[int]) -> torch.Tensor:
    import torch

    model = load_model(checkpoint, recipe.dtype).to(recipe.device).eval()
    with torch.inference_mode():
        text = torch.tensor([list(ids)], device=recipe.device)
        found: torch.Tensor = model(text, logits_to_keep=min(CANARY_TOKENS, len(ids))).logits.float().cpu()
    return found
