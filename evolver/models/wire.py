"""From chat-completions JSON to our records: a reply's first choice and its usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from evolver.calls import parse_object, parse_reply, split_reasoning
from evolver.protocols import Request
from evolver.records import Completion, ToolCall, Usage

Finish = Literal["stop", "tool_calls", "length", "other"]
NOTHING = "reasoning used it all and no answer came"


def completion_from(answer: Mapping[str, JsonValue], request: Request) -> Completion | None:
    """The reply's first choice as a Completion; None when there is none (an error that came with status 200)."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return None
    said, finish = _said(message.get("content")), _finish(choice.get("finish_reason"))
    if request.protocol == "xml":
        parsed = parse_reply(said)
        thought, text, calls, invalid = parsed.reasoning, parsed.text, parsed.calls, parsed.invalid
    else:
        thought, text = split_reasoning(said)
        calls, invalid = _calls(message.get("tool_calls"), request)
        if invalid is None and not text.strip() and not calls:
            invalid = "the reply is empty: neither text nor a tool call"
    if finish == "length":
        # A reply that was cut is never run, not even the calls that look whole.
        used = "the reply is not complete" if text or message.get("tool_calls") or "<tool_call>" in said else NOTHING
        invalid = f"cut at max_tokens: {used}"
    given = message.get("reasoning_content") or message.get("reasoning")
    reasoning = _whole(given) if isinstance(given, str) else thought
    return Completion(
        text=text,
        reasoning=reasoning,
        calls=() if invalid else calls,
        finish_reason=finish,
        invalid=invalid,
        usage=usage_from(answer.get("usage")),
    )


def _said(content: JsonValue) -> str:
    """The text of a reply; some servers send it as a list of parts."""
    if isinstance(content, list):
        return _whole(
            "".join(str(p.get("text", "")) for p in content if isinstance(p, dict) and p.get("type") == "text")
        )
    return _whole(content) if isinstance(content, str) else ""


def _whole(text: str) -> str:
    """Half characters, which JSON can carry and UTF-8 can't, become question marks."""
    return text.encode("utf-8", "replace").decode()


def _finish(reason: JsonValue) -> Finish:
    known: dict[str, Finish] = {"stop": "stop", "tool_calls": "tool_calls", "length": "length"}
    return known.get(reason, "other") if isinstance(reason, str) else "other"


def _calls(raw: JsonValue, request: Request) -> tuple[tuple[ToolCall, ...], str | None]:
    """Native tool calls with ids that differ; the second value says why they can't be used."""
    no_arguments = {t.name for t in request.tools if not t.parameters.get("properties")}
    calls: list[ToolCall] = []
    for number, call in enumerate(raw if isinstance(raw, list) else []):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(name, str) or not name:
            return (), f"tool call {number + 1} has no function name"
        text = function.get("arguments")
        if text in ("", None) and name in no_arguments:
            text = "{}"
        try:
            # Some servers send the object itself.
            arguments = parse_object(text if isinstance(text, str) else json.dumps(text))
        except ValueError as error:
            shown = _whole(str(text))[:200]
            return (), f"the arguments of tool call {number + 1} ({_whole(name)}) are not JSON ({error}): {shown!r}"
        given = call.get("id")
        taken = {c.id for c in calls}
        own = given if isinstance(given, str) and given and given not in taken else f"call_{number}"
        own = own if own not in taken else f"call_{number}_again"
        calls.append(ToolCall(id=_whole(own), name=_whole(name), arguments=arguments))
    return tuple(calls), None


def usage_from(raw: JsonValue) -> Usage:
    """Tokens as the provider counted them. What is missing, null or zero is unknown (None), never 0."""
    usage = raw if isinstance(raw, dict) else {}
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens")) or None,
        output_tokens=_count(usage.get("completion_tokens")) or None,
        cached_tokens=_count(_detail(usage, "prompt_tokens_details", "cached_tokens")),
        reasoning_tokens=_count(_detail(usage, "completion_tokens_details", "reasoning_tokens")),
        counted_by="provider",
    )


def spoiled_usage(answer: Mapping[str, JsonValue]) -> Usage | None:
    """What a reply without a choice may be billed: the tokens that it states, else unknown. None for an error that came
    in place of a reply: it is billed no more than one with a status of its own."""
    usage = usage_from(answer.get("usage"))
    return None if answer.get("error") and usage.total is None else usage


def _detail(usage: Mapping[str, JsonValue], group: str, name: str) -> JsonValue:
    details = usage.get(group)
    return details.get(name) if isinstance(details, dict) else None


def _count(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
