"""Attention of flat batches: rows stand one after the other in one sequence, and each sees itself alone.

The parts of a model that treat each token by itself then compute no padding. torch's own attention is called row by
row here; flash-attn takes the same boundaries (`cu_seq_lens_q`) in one call and needs nothing of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

BY_ROW = "sdpa_by_row"


def use_attention(model: PreTrainedModel, kind: Literal["sdpa", "flash_attention_2"]) -> None:
    """Sets what the layers of the language model attend with; the part that sees pictures keeps torch's own."""
    from transformers import AttentionInterface

    AttentionInterface.register(BY_ROW, by_row)
    chosen = BY_ROW if kind == "sdpa" else kind
    sees = hasattr(model.config, "vision_config")
    model.set_attn_implementation({"text_config": chosen, "vision_config": "sdpa"} if sees else chosen)


def by_row(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """Queries (1, heads, tokens, dim), keys and values (1, kv heads, tokens, dim) → (1, tokens, heads, dim), causal.

    `cu_seq_lens_q` says where rows begin and where the last one ends; without it the whole sequence is one row.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    bounds = options.pop("cu_seq_lens_q", None)
    options["is_causal"] = True
    if bounds is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    lengths = bounds.diff().tolist()
    parts = [
        sdpa_attention_forward(module, *row, None, **options)[0]
        for row in zip(*(states.split(lengths, dim=2) for states in (query, key, value)), strict=True)
    ]
    return torch.cat(parts, dim=1), None
