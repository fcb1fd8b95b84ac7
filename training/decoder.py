"""Batched decoding of a Llama-type checkpoint, made for many short agent turns on few CPU cores.

Each request in flight owns one slot of a shared key/value cache. A new request copies the longest prefix that some
slot already holds (rollouts share their system prompt, and a turn extends the turn before) and computes only the
rest; then all active slots advance together, one token a step. `transformers`' own generation spends most of such a
step on copying its cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evolver.errors import UsageError
from training.checkpoints import load_model, require_positions

if TYPE_CHECKING:
    import torch

ARCHITECTURES = ("llama", "qwen2", "qwen3")
MIN_SHARED = 16  # shorter shared prefixes are not worth a copy


@dataclass(frozen=True)
class Layer:
    """Weights of one block, q/k/v and gate/up each joined to one matrix."""

    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    norm_in: torch.Tensor
    norm_post: torch.Tensor


@dataclass
class Slot:
    """One sequence: `ids` are the tokens whose keys and values the cache holds."""

    index: int
    ids: list[int] = field(default_factory=list)
    active: bool = False
    used_at: int = 0


class Decoder:
    """Weights, slots and cache. Not thread-safe: one worker thread calls it."""

    def __init__(self, checkpoint: Path, *, dtype: str, slots: int, max_length: int, device: str = "cpu") -> None:
        import torch

        model = load_model(checkpoint, dtype).to(device)
        config = model.config
        if config.model_type not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise UsageError(f"{checkpoint}: a student must be one of {known}; this is {config.model_type!r}")
        require_positions(checkpoint, max_length)
        self.max_length = max_length
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        with torch.inference_mode():
            inner = model.model
            self.embed, self.norm = inner.embed_tokens.weight, inner.norm.weight
            self.head = model.get_output_embeddings().weight
            self.layers = [_layer(block) for block in inner.layers]
            positions = torch.arange(self.max_length, device=device)[None]
            self.cos, self.sin = (t[0] for t in inner.rotary_emb(self.embed, positions))
        self.slots = [Slot(index) for index in range(slots)]
        self._clock = 0
        self._capacity = 0
        self._keys = self._values = self.embed.new_zeros(0)
        self._grow(min(512, self.max_length))

    def begin(self, ids: list[int], pngs: Sequence[bytes] = ()) -> tuple[Slot, torch.Tensor]:
        """Takes a free slot for a prompt of 1..max_length tokens; returns it and the logits of the next token."""
        import torch

        assert not pngs, "a base that reads text alone was shown pictures"
        self._clock += 1
        shared, source = max(((_shared(s.ids, ids), s) for s in self.slots), key=lambda pair: pair[0])
        free = [s for s in self.slots if not s.active]
        slot = source if shared >= MIN_SHARED and not source.active and shared > len(source.ids) // 2 else None
        slot = slot or min(free, key=lambda s: s.used_at)
        self._grow(len(ids))
        with torch.inference_mode():
            if shared < MIN_SHARED:
                shared = 0
            elif slot is not source:
                self._keys[:, slot.index, :, :shared] = self._keys[:, source.index, :, :shared]
                self._values[:, slot.index, :, :shared] = self._values[:, source.index, :, :shared]
            logits = self._prefill(slot, ids, shared)
        slot.ids, slot.active, slot.used_at = list(ids), True, self._clock
        return slot, logits

    def step(self, slots: list[Slot], tokens: list[int]) -> torch.Tensor:
        """Feeds one token to each of the active slots; returns the logits (slots, vocabulary) of the next ones."""
        import torch

        self._grow(max(len(s.ids) for s in slots) + 1)
        with torch.inference_mode():
            logits = self._decode(slots, tokens)
        for slot, token in zip(slots, tokens, strict=True):
            slot.ids.append(token)
        return logits

    def end(self, slot: Slot) -> None:
        """Frees the slot; what it holds stays for others to share until it is taken again."""
        slot.active = False

    def _grow(self, needed: int) -> None:
        if needed <= self._capacity:
            return
        capacity = min(self.max_length, max(needed, 2 * self._capacity))
        shape = (len(self.layers), len(self.slots), self.kv_heads, capacity, self.head_dim)
        keys, values = self.embed.new_zeros(shape), self.embed.new_zeros(shape)
        if self._capacity:
            keys[:, :, :, : self._capacity] = self._keys
            values[:, :, :, : self._capacity] = self._values
        self._keys, self._values, self._capacity = keys, values, capacity

    def _prefill(self, slot: Slot, ids: list[int], shared: int) -> torch.Tensor:
        import torch
        import torch.nn.functional as F

        shared = min(shared, len(ids) - 1)  # the last token is always computed: its logits are wanted
        fresh, total = len(ids) - shared, len(ids)
        x = F.embedding(self._tensor(ids[shared:]), self.embed)
        cos, sin = self.cos[shared:total, None], self.sin[shared:total, None]
        every = torch.arange(total, device=x.device)
        mask = every[None] <= every[shared:, None]
        group = self.heads // self.kv_heads
        for number, layer in enumerate(self.layers):
            q, k, v = self._project(x, layer, cos, sin)
            self._keys[number, slot.index, :, shared:total] = k.transpose(0, 1)
            self._values[number, slot.index, :, shared:total] = v.transpose(0, 1)
            attended = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None],
                self._keys[number, slot.index, :, :total].repeat_interleave(group, 0)[None],
                self._values[number, slot.index, :, :total].repeat_interleave(group, 0)[None],
                attn_mask=None if shared == 0 else mask,
                is_causal=shared == 0,
            )
            x = self._finish(x, attended[0].transpose(0, 1).reshape(fresh, -1), layer)
        return self._logits(x[-1:])[0]

    def _decode(self, slots: list[Slot], tokens: list[int]) -> torch.Tensor:
        import torch
        import torch.nn.functional as F

        index, position = self._tensor([s.index for s in slots]), self._tensor([len(s.ids) for s in slots])
        total, last = max(len(s.ids) for s in slots) + 1, max(s.index for s in slots) + 1
        # All slots up to the last active one are attended to in place: a view, where a selection would copy the cache.
        seen = torch.ones(last, dtype=torch.long, device=index.device).index_copy_(0, index, position + 1)
        mask = (torch.arange(total, device=index.device)[None] < seen[:, None])[:, None, None]
        x = F.embedding(self._tensor(tokens), self.embed)
        cos, sin = self.cos[position, None], self.sin[position, None]
        group = self.heads // self.kv_heads
        queries = self.embed.new_zeros(last, self.kv_heads, group, self.head_dim)
        for number, layer in enumerate(self.layers):
            q, k, v = self._project(x, layer, cos, sin)
            keys, values = self._keys[number], self._values[number]
            keys[index, :, position] = k
            values[index, :, position] = v
            queries[index] = q.view(-1, self.kv_heads, group, self.head_dim)
            # The heads of a group share keys and mask, so they attend as if they were `group` query positions.
            attended = F.scaled_dot_product_attention(
                queries, keys[:last, :, :total], values[:last, :, :total], attn_mask=mask
            )
            x = self._finish(x, attended[index].reshape(len(slots), -1), layer)
        return self._logits(x)

    def _project(
        self, x: torch.Tensor, layer: Layer, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries (tokens, heads, dim), rotated keys and values (tokens, kv heads, dim)."""
        import torch.nn.functional as F

        joined = F.linear(_rms(x, layer.norm_in, self.eps), layer.qkv, layer.qkv_bias)
        joined = joined.view(len(x), -1, self.head_dim)
        q, k, v = joined.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = _rms(q, layer.q_norm, self.eps), _rms(k, layer.k_norm, self.eps)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def _finish(self, x: torch.Tensor, attended: torch.Tensor, layer: Layer) -> torch.Tensor:
        import torch.nn.functional as F

        x = x + F.linear(attended, layer.out)
        gate, up = F.linear(_rms(x, layer.norm_post, self.eps), layer.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, layer.down)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        import torch.nn.functional as F

        return F.linear(_rms(x, self.norm, self.eps), self.head).float().cpu()

    def _tensor(self, numbers: list[int]) -> torch.Tensor:
        import torch

        return torch.tensor(numbers, device=self.embed.device)


def _layer(block: torch.nn.Module) -> Layer:
    import torch

    attention, mlp = block.self_attn, block.mlp
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    has_bias = parts[0].bias is not None
    return Layer(
        qkv=torch.cat([p.weight for p in parts]),
        qkv_bias=torch.cat([p.bias for p in parts]) if has_bias else None,
        q_norm=getattr(getattr(attention, "q_norm", None), "weight", None),
        k_norm=getattr(getattr(attention, "k_norm", None), "weight", None),
        out=attention.o_proj.weight,
        gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
        norm_in=block.input_layernorm.weight,
        norm_post=block.post_attention_layernorm.weight,
    )


def _rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    import torch.nn.functional as F

    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _shared(a: list[int], b: list[int]) -> int:
    for index, (left, right) in enumerate(zip(a, b)):  # noqa: B905  (the shorter one ends it)
        if left != right:
            return index
    return min(len(a), len(b))
