"""From our records to chat-completions JSON: what an endpoint is sent, and what is kept of it.

A body names its images by content (`frame:<sha256>`), so that it is small and is kept as it is; the bytes sent are
the same body with each name replaced by the picture as a data URL.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from evolver.calls import call_text, result_text, tools_text
from evolver.records import Image, Message, Part, Text, ToolCall, ToolSpec
from harnesses.harness import Sampling

FRAME = "frame:"
JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)  # many times as fast as the json module
Body = dict[str, JsonValue]
Wire = Literal["native_tools", "xml"]  # tools as native tool calls, or as `<tool_call>` text


class Dialect(BaseModel):
    """How an endpoint wants its requests worded: its name for the most tokens of a reply, and what is not to be sent.

    Nearly all take the default. OpenAI's reasoning models take `limit` "max_completion_tokens" and no "temperature" or
    "top_p": a harness can't choose those for them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    leave_out: tuple[Literal["temperature", "top_p", "seed"], ...] = ()


PLAIN = Dialect()


def body_for(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    sampling: Sampling,
    seed: int,
    protocol: Wire,
    dialect: Dialect = PLAIN,
) -> Body:
    """One call as the body of a chat-completions request, all but the model's name."""
    xml = protocol == "xml"
    settings: Body = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        dialect.limit: sampling.max_tokens,
        "seed": seed,
    }
    body = {name: value for name, value in settings.items() if name not in dialect.leave_out}
    body["messages"] = _messages(messages, tools, xml)
    if tools and not xml:
        body["tools"] = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
            for t in tools
        ]
    return body


def bytes_of(body: Body, frame: Callable[[str], bytes]) -> bytes:
    """The bytes that are sent for a body. `frame` gives the PNG of a frame id."""
    messages = body["messages"]
    whole = {**body, "messages": [_with_pictures(m, frame) for m in messages] if isinstance(messages, list) else []}
    return JSON.dump_json(whole)


def _with_pictures(message: JsonValue, frame: Callable[[str], bytes]) -> JsonValue:
    if not isinstance(message, dict) or not isinstance(parts := message.get("content"), list):
        return message
    return {**message, "content": [_picture(p, frame) for p in parts]}


def _picture(part: JsonValue, frame: Callable[[str], bytes]) -> JsonValue:
    holder = part.get("image_url") if isinstance(part, dict) else None
    url = holder.get("url") if isinstance(holder, dict) else None
    if not isinstance(part, dict) or not isinstance(url, str):
        return part
    encoded = base64.b64encode(frame(url.removeprefix(FRAME))).decode()
    return {**part, "image_url": {"url": f"data:image/png;base64,{encoded}"}}


def _messages(messages: Sequence[Message], tools: Sequence[ToolSpec], xml: bool) -> list[JsonValue]:
    """Images of tool results follow in a user message: tool messages carry text only."""
    sent: list[JsonValue] = []
    images: list[Part] = []
    for position, message in enumerate(messages):
        if message.role == "tool":
            images += [p for p in message.parts if isinstance(p, Image)]
            sent.append(_result(message, xml))
            following = messages[position + 1 : position + 2]
            if images and not (following and following[0].role == "tool"):
                sent.append({"role": "user", "content": _content(tuple(images))})
                images = []
        elif message.role == "assistant":
            sent.append(_reply(message, xml))
        else:
            parts = message.parts
            if xml and message.role == "system" and tools:
                parts = (*parts, Text(text=tools_text(tools)))
            sent.append({"role": message.role, "content": _content(parts)})
    return sent


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


def _content(parts: tuple[Part, ...]) -> JsonValue:
    """Plain text where there is no image (every server takes that), else a list of parts."""
    if all(isinstance(p, Text) for p in parts):
        return "\n\n".join(p.text for p in parts if isinstance(p, Text))
    return [
        {"type": "text", "text": p.text}
        if isinstance(p, Text)
        else {"type": "image_url", "image_url": {"url": f"{FRAME}{p.frame_id}"}}
        for p in parts
    ]
