"""Between our records and the chat-completions JSON: messages and tools out, a reply's choice and usage in."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from evolver.errors import Blamed
from evolver.models.xml_calls import call_text, parse_arguments, parse_calls, result_text, split_reasoning, tools_text
from evolver.protocols import Request
from evolver.records import Completion, Image, Message, Part, Text, ToolCall, Usage

Finish = Literal["stop", "tool_calls", "length", "other"]


def messages_for(request: Request) -> list[JsonValue]:
    """The request's messages. Images of tool results follow in a user message: tool messages carry text only."""
    xml = request.protocol == "xml"
    sent: list[JsonValue] = []
    images: list[Part] = []
    for position, message in enumerate(request.messages):
        if message.role == "tool":
            images += [p for p in message.parts if isinstance(p, Image)]
            sent.append(_result(message, xml))
            following = request.messages[position + 1 : position + 2]
            if images and not (following and following[0].role == "tool"):
                sent.append({"role": "user", "content": _content(tuple(images), request)})
                images = []
        elif message.role == "assistant":
            sent.append(_reply(message, xml))
        else:
            parts = message.parts
            if xml and message.role == "system" and request.tools:
                parts = (*parts, Text(text=tools_text(request.tools)))
            sent.append({"role": message.role, "content": _content(parts, request)})
    return sent


def tools_for(request: Request) -> list[JsonValue]:
    return [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in request.tools
    ]


def _text(message: Message) -> str:
    return "\n\n".join(p.text for p in message.parts if isinstance(p, Text))


def _result(message: Message, xml: bool) -> JsonValue:
    if xml:
        return {"role": "user", "content": result_text(_text(message))}
    return {"role": "tool", "tool_call_id": message.call_id, "content": _text(message)}


def _reply(message: Message, xml: bool) -> JsonValue:
    text = _text(message)
    if xml:
        blocks = [call_text(c.name, c.arguments) for c in message.calls]
        return {"role": "assistant", "content": "\n".join([*([text] if text else []), *blocks])}
    if not message.calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": [_call(c) for c in message.calls]}


def _call(call: ToolCall) -> JsonValue:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _content(parts: tuple[Part, ...], request: Request) -> JsonValue:
    """Plain text where there is no image (every server takes that), else a list of parts with data URLs."""
    if all(isinstance(p, Text) for p in parts):
        return "\n\n".join(p.text for p in parts if isinstance(p, Text))
    return [_part(p, request) for p in parts]


def _part(part: Part, request: Request) -> JsonValue:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    png = request.frames.get(part.frame_id, b"")
    if not png:
        raise Blamed(f"frame {part.frame_id[:12]} is named in the messages, but its bytes are not in the request")
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


# --- replies -----------------------------------------------------------------------------------------------------


def completion_from(answer: Mapping[str, JsonValue], request: Request) -> Completion | None:
    """The reply's first choice as a Completion; None when there is none (an error that came with status 200)."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return None
    thought, text = split_reasoning(_said(message.get("content")))
    given = message.get("reasoning_content") or message.get("reasoning")
    reasoning = given if isinstance(given, str) else thought
    finish = _finish(choice.get("finish_reason"))
    if request.protocol == "xml":
        parsed = parse_calls(text)
        text, calls, invalid = parsed.text, parsed.calls, parsed.invalid
    else:
        calls, invalid = _calls(message.get("tool_calls"), request)
    invalid = _cut_or_empty(finish, text, calls, invalid)
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
        return "".join(str(p.get("text", "")) for p in content if isinstance(p, dict) and p.get("type") == "text")
    return content if isinstance(content, str) else ""


def _finish(reason: JsonValue) -> Finish:
    known: dict[str, Finish] = {"stop": "stop", "tool_calls": "tool_calls", "length": "length"}
    return known.get(reason, "other") if isinstance(reason, str) else "other"


def _cut_or_empty(finish: Finish, text: str, calls: tuple[ToolCall, ...], invalid: str | None) -> str | None:
    """A reply that was cut is never run, not even the calls that look whole; an empty one has its own reason."""
    if finish == "length":
        empty = not text and not calls and invalid is None
        used = "reasoning used it all and no answer came" if empty else "the reply is not complete"
        return f"cut at max_tokens: {used}"
    if invalid is None and not text.strip() and not calls:
        return "the reply is empty: neither text nor a tool call"
    return invalid


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
        arguments = parse_arguments(text) if isinstance(text, str) else text
        if text in ("", None) and name in no_arguments:
            arguments = {}
        if not isinstance(arguments, dict):
            return (), f"the arguments of tool call {number + 1} ({name}) are not a JSON object: {str(text)[:200]!r}"
        given = call.get("id")
        taken = {c.id for c in calls}
        own = given if isinstance(given, str) and given and given not in taken else f"call_{number}"
        calls.append(ToolCall(id=own if own not in taken else f"call_{number}_again", name=name, arguments=arguments))
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


def _detail(usage: Mapping[str, JsonValue], group: str, name: str) -> JsonValue:
    details = usage.get(group)
    return details.get(name) if isinstance(details, dict) else None


def _count(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
