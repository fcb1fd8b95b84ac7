"""The declared estimate of tokens, for windows and for callers that have no tokenizer and no provider to count.

Rule: text is its UTF-8 bytes / 4, rounded up; an image is one token per patch of 28 x 28 pixels; each message costs
4 more for its role and delimiters. Calls and tool specifications are counted as the JSON text that carries them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from evolver.records import Message, Text, ToolCall, ToolSpec

BYTES_PER_TOKEN = 4
PATCH_PX = 28
MESSAGE_TOKENS = 4


def count_text(text: str) -> int:
    """Tokens of a text by the declared rule; 0 for the empty text."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def count_image(width: int, height: int) -> int:
    """Tokens of an image of `width` x `height` pixels."""
    return -(-width // PATCH_PX) * -(-height // PATCH_PX)


def count_calls(calls: Sequence[ToolCall]) -> int:
    return sum(count_text(json.dumps({"name": c.name, "arguments": c.arguments})) for c in calls)


def count_message(message: Message) -> int:
    """Tokens of one message: its parts, its calls and the delimiters around it."""
    parts = sum(count_text(p.text) if isinstance(p, Text) else count_image(p.width, p.height) for p in message.parts)
    return MESSAGE_TOKENS + parts + count_calls(message.calls)


def count_tools(tools: Sequence[ToolSpec]) -> int:
    return sum(count_text(t.model_dump_json()) for t in tools)


def count_request(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
    """Tokens of everything that a model call sends."""
    return sum(count_message(m) for m in messages) + count_tools(tools)
