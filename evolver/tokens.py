"""The declared estimate of tokens, for windows and for callers that have no tokenizer and no provider to count.

Rule: text is its UTF-8 bytes / 4, rounded up; an image by the rule of the model's family; each message costs 4 more
for its role and delimiters. Calls and tool specifications are counted as the JSON text that carries them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import ceil
from typing import Literal

from evolver.records import ImageRule, Message, Text, ToolCall, ToolSpec

BYTES_PER_TOKEN = 4
MESSAGE_TOKENS = 4
MAX_PATCHES = 1_536
PATCH_FACTOR = 2.46  # the dearest of OpenAI's small models, so that the estimate is never too low
TILE_BASE, TILE = 85, 170
# Beginnings of model names (without what stands before the last "/"), most specific first.
_FAMILIES: tuple[tuple[str, ImageRule], ...] = (
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gpt-4.1-mini", "openai_patches"),
    ("gpt-4.1-nano", "openai_patches"),
    ("gpt-5-mini", "openai_patches"),
    ("gpt-5-nano", "openai_patches"),
    ("gpt-5.4-mini", "openai_patches"),
    ("o4-mini", "openai_patches"),
    ("gpt-4", "openai_tiles"),
    ("gpt-5", "openai_tiles"),
    ("o1", "openai_tiles"),
    ("o3", "openai_tiles"),
)


def image_rule_for(model: str, given: ImageRule | Literal["auto"] = "auto") -> ImageRule:
    """The rule that is `given`, or that of the family that a model's name tells; of an unknown one, the dearest patch
    rule (a request that is thought too long folds one turn too many, one thought too short is refused)."""
    if given != "auto":
        return given
    name = model.rpartition("/")[2].lower()
    return next((rule for beginning, rule in _FAMILIES if name.startswith(beginning)), "qwen2")


def count_text(text: str) -> int:
    """Tokens of a text by the declared rule; 0 for the empty text."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def count_image(width: int, height: int, rule: ImageRule = "qwen2") -> int:
    """Tokens of an image of `width` x `height` pixels.

    qwen2, qwen3: one per 28 x 28 (Qwen2-VL, Qwen2.5-VL) or 32 x 32 pixels (Qwen3-VL, Qwen3.5), as their processors'
    patch_size x merge_size. openai_tiles: shrunk into 2048 x 2048, then to a short side of 768; 170 per 512-pixel tile
    and 85 more (gpt-4o, gpt-4.1, gpt-5). openai_patches: 32-pixel patches, at most 1,536 of them, 2.46 tokens each.
    """
    if rule == "qwen2":
        return _patches(width, height, 28)
    if rule == "qwen3":
        return _patches(width, height, 32)
    if rule == "openai_patches":
        return ceil(min(MAX_PATCHES, _patches(width, height, 32)) * PATCH_FACTOR)
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return TILE_BASE + TILE * ceil(width * scale / 512) * ceil(height * scale / 512)


def _patches(width: int, height: int, pixels: int) -> int:
    return -(-width // pixels) * -(-height // pixels)


def count_calls(calls: Sequence[ToolCall]) -> int:
    return sum(count_text(json.dumps({"name": c.name, "arguments": c.arguments})) for c in calls)


def count_message(message: Message, rule: ImageRule = "qwen2") -> int:
    """Tokens of one message: its parts, its calls and the delimiters around it."""
    parts = sum(
        count_text(p.text) if isinstance(p, Text) else count_image(p.width, p.height, rule) for p in message.parts
    )
    return MESSAGE_TOKENS + parts + count_calls(message.calls)


def count_tools(tools: Sequence[ToolSpec]) -> int:
    return sum(count_text(t.model_dump_json()) for t in tools)


def count_request(messages: Sequence[Message], tools: Sequence[ToolSpec], rule: ImageRule = "qwen2") -> int:
    """Tokens of everything that a model call sends."""
    return sum(count_message(m, rule) for m in messages) + count_tools(tools)
