"""Tool calls as text, written and read: the one place that says what a well-formed call is.

Calls are `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks, results `<tool_response>` blocks (the
form that Qwen and Hermes models are trained on). Reasoning may come first, in one `<think>` block. The `xml` protocol,
the arguments of native tool calls and the students' template are all read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from evolver.records import ToolCall, ToolSpec

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class Parsed:
    """What a reply says: reasoning, text outside of reasoning and calls, the calls, and why they can't be used.

    `invalid` is None for a reply that can be used; else there are no calls.
    """

    text: str
    reasoning: str = ""
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


def call_text(name: str, arguments: Mapping[str, JsonValue], *, compact: bool = False) -> str:
    """One call as the text that a model writes for it; `compact` leaves out every space. A `</` in it is escaped."""
    body, gap = {"name": name, "arguments": dict(arguments)}, "" if compact else "\n"
    separators = (",", ":") if compact else None
    written = json.dumps(body, ensure_ascii=False, separators=separators, allow_nan=False).replace("</", "<\\/")
    return f"<tool_call>{gap}{written}{gap}</tool_call>"


def result_text(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def parse_reply(text: str) -> Parsed:
    """A reply taken apart. Anything malformed makes the whole reply invalid: no call of it is ever run."""
    reasoning, rest = split_reasoning(text)
    said = _BLOCK.sub("", rest)
    if "<tool_call>" in said or "</tool_call>" in said:
        outside = said.partition("<tool_call>")[0].strip()
        return Parsed(outside, reasoning, invalid="a <tool_call> block is not closed or not opened")
    said, calls = said.strip(), []
    for number, block in enumerate(_BLOCK.findall(rest)):
        call = _call(number, block)
        if isinstance(call, str):
            return Parsed(said, reasoning, invalid=call)
        calls.append(call)
    if not calls and not said:
        return Parsed("", reasoning, invalid="the reply is empty: neither text nor a tool call")
    return Parsed(said, reasoning, tuple(calls))


def split_reasoning(text: str) -> tuple[str, str]:
    """(reasoning, rest) of a reply that may begin with a `<think>` block; one that is not closed is all reasoning."""
    stripped = text.lstrip()
    if not stripped.startswith("<think>"):
        return "", text
    reasoning, closed, rest = stripped.removeprefix("<think>").partition("</think>")
    return reasoning.strip(), rest.strip() if closed else ""


def parse_object(text: str) -> dict[str, JsonValue]:
    """A JSON object. ValueError for anything else, a doubled key, NaN and half a character included: what a cut or
    malformed call says is never taken for `{}` or guessed at."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    if "\\u" in text:  # the only way to half a character
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _call(number: int, block: str) -> ToolCall | str:
    """The call, or why it is none."""
    try:
        body = parse_object(block)
    except ValueError as error:
        return f"tool call {number + 1} is not JSON: {error}"
    name, arguments = body.get("name"), body.get("arguments")
    if set(body) != {"name", "arguments"} or not isinstance(name, str) or not isinstance(arguments, dict):
        return f"tool call {number + 1} must be an object with exactly `name`, a string, and `arguments`, an object"
    return ToolCall(id=f"call_{number}", name=name, arguments=arguments)


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
