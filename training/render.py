"""The student's chat template: one versioned rendering that training, evaluation and serving share.

A conversation becomes token ids segment by segment, so it is known exactly which ids are context and which ones the
model wrote. Special tokens come from here alone: text that spells one is encoded as plain characters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from evolver.calls import call_text, parse_reply
from evolver.errors import UsageError
from evolver.records import Completion, Image, Message, Part, Text, ToolCall, ToolSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from training.vision import Vision

TEMPLATE = "evolver-chat-1"
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
OBSERVED = "Screen:\n"  # how evolver.context opens what it shows of the screen in words
BRIEF_SYSTEM = "You work on a computer by calling tools."


class RenderOptions(BaseModel):
    """What the student sees of its harness; the same in training and serving, and part of the template's hash.

    `system`: "brief" replaces the system prompt by one fixed line and names only required arguments. `reasoning`:
    "drop" leaves the teacher's reasoning out of what the student learns to write. `result_chars` cuts the middle of
    longer tool results and observations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: Literal["full", "brief"] = "full"
    reasoning: Literal["keep", "drop"] = "drop"
    result_chars: Annotated[int, Field(ge=40)] | None = None


class Renderer:
    """Turns messages into ids and replies into text. `end`, `pad`, `start` are three different token ids.

    With `vision` pictures stand as ids of their own where the conversation has them, else as a line with their size.
    """

    def __init__(self, tokenizer: Tokenizer, options: RenderOptions, vision: Vision | None = None) -> None:
        ids = {token: tokenizer.token_to_id(token) for token in (START, END, PAD)}
        if None in ids.values() or len(set(ids.values())) < 3:
            raise UsageError(f"the tokenizer must have three different tokens {START}, {END}, {PAD}; it has {ids}")
        self.tokenizer = tokenizer
        self.tokenizer.encode_special_tokens = True  # text that spells a special token stays text
        self.options = options
        self.vision = vision
        self.start, self.end, self.pad = ids[START], ids[END], ids[PAD]

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """The ids of everything before the reply, ending with the header of the reply."""
        ids: list[int] = []
        if not messages or messages[0].role != "system":
            messages = (Message(role="system"), *messages)
        for index, message in enumerate(messages):
            if message.role == "assistant":
                body = self._encode(reply_text(_text(message), message.calls, tools)) + [self.end]
            else:
                body = self._body(message, tools if index == 0 else ()) + [self.end]
            ids += self._header(message.role) + body + self._encode("\n")
        return ids + self._header("assistant")

    def frames(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The pictures that `prompt` has ids for, in order; none for a base that reads text alone."""
        parts = [part for message in messages if message.role != "assistant" for part in message.parts]
        return tuple(part.frame_id for part in parts if isinstance(part, Image)) if self.vision is not None else ()

    def pictures_in(self, ids: Sequence[int]) -> int:
        """How many pictures begin in these ids."""
        return 0 if self.vision is None else list(ids).count(self.vision.start)

    def reply(self, completion: Completion, tools: Sequence[ToolSpec]) -> list[int]:
        """The ids that the model is to write, end of turn included. ValueError when they would not read back."""
        if completion.invalid is not None or completion.finish_reason == "length":
            raise ValueError("a broken reply is not a target")
        text = reply_text(completion.text, completion.calls, tools)
        if self.options.reasoning == "keep" and completion.reasoning:
            text = f"<think>{completion.reasoning}</think>\n{text}"
        back = parse_reply(text)
        if back.invalid or [(c.name, c.arguments) for c in back.calls] != [
            (c.name, c.arguments) for c in completion.calls
        ]:
            raise ValueError(f"does not read back: {back.invalid or 'other calls'}")
        return self._encode(text) + [self.end]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    @property
    def sha256(self) -> str:
        """Hash of the template as used: its version, options, and the ids of a fixed conversation."""
        ids = self.prompt(_PROBE, _PROBE_TOOLS) + self.reply(_PROBE_REPLY, _PROBE_TOOLS)
        return hashlib.sha256(f"{TEMPLATE} {self.options.model_dump_json()} {ids}".encode()).hexdigest()

    def _header(self, role: str) -> list[int]:
        return [self.start] + self._encode(f"{role}\n")

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _body(self, message: Message, tools: Sequence[ToolSpec]) -> list[int]:
        if message.role == "system":
            brief = self.options.system == "brief"
            text = BRIEF_SYSTEM if brief else _text(message)
            shown = "\n".join([text, "Tools:", *(signature(tool, brief) for tool in tools)]) if tools else text
            return self._encode(shown)
        ids: list[int] = []
        text = ""
        for index, part in enumerate(message.parts):
            text += "\n" if index else ""
            if isinstance(part, Image) and self.vision is not None:
                ids += [*self._encode(text), *self.vision.ids(part.width, part.height)]
                text = ""
            else:
                text += self._cut(message, _shown(part))
        return ids + self._encode(text)

    def _cut(self, message: Message, shown: str) -> str:
        limit = self.options.result_chars
        return _cut(shown, limit) if message.role == "tool" or shown.startswith(OBSERVED) else shown


def signature(tool: ToolSpec, brief: bool) -> str:
    """`name(required, optional?)`, in brief `name(required, ...)`: all that a student is told of a tool."""
    listed = tool.parameters.get("required")
    required = listed if isinstance(listed, list) else []
    names = [str(n) if n in required else f"{n}?" for n in _properties(tool) if n in required or not brief]
    if brief and len(names) < len(_properties(tool)):
        names.append("...")
    return f"{tool.name}({', '.join(names)})"


def reply_text(text: str, calls: Sequence[ToolCall], tools: Sequence[ToolSpec]) -> str:
    """Summary line(s), then one `<tool_call>` block a call; arguments in the order of the tool's schema."""
    order = {tool.name: list(_properties(tool)) for tool in tools}
    blocks = []
    for call in calls:
        names = [n for n in order.get(call.name, []) if n in call.arguments]
        names += sorted(set(call.arguments) - set(names))
        blocks.append(call_text(call.name, {n: call.arguments[n] for n in names}, compact=True))
    return "\n".join([*([text] if text else []), *blocks])


def open_renderer(checkpoint: Path, options: RenderOptions) -> Renderer:
    """The renderer of a checkpoint directory: its tokenizer, and its pictures where it sees."""
    from training.vision import open_vision

    return Renderer(load_tokenizer(checkpoint), options, open_vision(checkpoint))


def load_tokenizer(checkpoint: Path) -> Tokenizer:
    """The `tokenizer.json` of a checkpoint directory."""
    from tokenizers import Tokenizer

    path = checkpoint / "tokenizer.json"
    if not path.is_file():
        raise UsageError(f"{checkpoint}: expected a model directory with tokenizer.json")
    loaded: Tokenizer = Tokenizer.from_file(str(path))
    return loaded


def _text(message: Message) -> str:
    return "\n".join(map(_shown, message.parts))


def _shown(part: Part) -> str:
    return part.text if isinstance(part, Text) else f"[screen {part.width}x{part.height}]"


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n[{len(text) - limit} characters cut]\n{text[len(text) - (limit - limit // 2) :]}"


def _properties(tool: ToolSpec) -> dict[str, JsonValue]:
    found = tool.parameters.get("properties")
    return found if isinstance(found, dict) else {}


_PROBE_TOOLS = (
    ToolSpec(
        name="bash",
        description="Runs a command.",
        parameters={"type": "object", "properties": {"command": {}, "timeout": {}}, "required": ["command"]},
    ),
)
_PROBE_CALL = ToolCall(id="call_0", name="bash", arguments={"command": "ls </tool_call>"})
_PROBE = (
    Message(role="system", parts=(Text(text="A system prompt."),)),
    Message(role="user", parts=(Text(text="A task."), Image(frame_id="0", width=2, height=1))),
    Message(role="assistant", parts=(Text(text="Look."),), calls=(_PROBE_CALL,)),
    Message(role="tool", parts=(Text(text="x" * 100_000),), call_id="call_0"),
)
_PROBE_REPLY = Completion(
    text="Look again.",
    reasoning="Why not.",
    calls=(_PROBE_CALL,),
    finish_reason="tool_calls",
    usage={"input_tokens": None, "output_tokens": None, "counted_by": "tokenizer"},
)
