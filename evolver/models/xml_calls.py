"""The `xml` protocol: tool specifications and calls as text, for models that were served without native tools.

Calls are `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks, results `<tool_response>` blocks (the
form that Qwen and Hermes models are trained on). Reasoning may come first, in one `<think>` block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from evolver.records import ToolCall, ToolSpec

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class Parsed:
    """What a reply says: text outside of reasoning and calls, the calls, and why they can't be used (or None)."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    invalid: str | None = None


def tools_text(tools: Sequence[ToolSpec]) -> str:
    """The tool specifications as a section of the system message."""
    specs = "\n".join(
        json.dumps({"name": t.name, "description": t.description, "parameters": t.parameters}) for t in tools
    )
    return (
        f"# Tools\n\n<tools>\n{specs}\n</tools>\n\nTo call a tool, write one block for each call, with its arguments "
        'as JSON:\n<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
    )


def call_text(name: str, arguments: dict[str, JsonValue]) -> str:
    """One call as the text that a model writes for it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def result_text(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def split_reasoning(text: str) -> tuple[str, str]:
    """(reasoning, rest) of a reply that may begin with a `<think>` block; one that is not closed is all reasoning."""
    stripped = text.lstrip()
    if not stripped.startswith("<think>"):
        return "", text
    reasoning, closed, rest = stripped.removeprefix("<think>").partition("</think>")
    return reasoning.strip(), rest.strip() if closed else ""


def parse_arguments(text: str) -> dict[str, JsonValue] | None:
    """The arguments object of a call, or None when the text is not one (a cut or malformed call is never `{}`)."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_calls(text: str) -> Parsed:
    """Calls of a reply without its reasoning. One bad block makes the whole reply invalid: none of it is run."""
    calls: list[ToolCall] = []
    for number, block in enumerate(_BLOCK.findall(text)):
        body = parse_arguments(block)
        name = body.get("name") if body else None
        arguments = body.get("arguments") if body else None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return Parsed(_outside(text), invalid=f"tool call {number + 1} is no JSON object with name and arguments")
        calls.append(ToolCall(id=f"call_{number}", name=name, arguments=arguments))
    rest = _BLOCK.sub("", text)
    if "<tool_call>" in rest or "</tool_call>" in rest:
        return Parsed(_outside(text), invalid="a <tool_call> block is not closed or not opened")
    return Parsed(rest.strip(), tuple(calls))


def _outside(text: str) -> str:
    return _BLOCK.sub("", text).partition("<tool_call>")[0].strip()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
