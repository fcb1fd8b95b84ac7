"""Rollouts → one conversation a model call: what the model was shown, and the reply that is to be learned.

A turn that stands in the history of a later call is context there, so that each reply is learned once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from evolver.context import request_for, request_sha256
from evolver.errors import UsageError
from evolver.records import Completion, Image, Message, Rollout, Scorecard, Text, ToolCall
from harnesses.harness import Harness
from training.filter import FilterLedger, to_learn

IMAGE = "<image>"
SPELLED = "<image\u200b>"  # text that spells the tag: a trainer would look for a picture


class Called(BaseModel):
    """A tool call; `arguments` is a JSON object as text, so that no table aligns the arguments of different tools."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    arguments: str


class Speech(BaseModel):
    """One message. `content` has one `<image>` for each frame of `images`; `loss` says whether it is learned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str
    content: str
    images: tuple[str, ...] = ()
    calls: tuple[Called, ...] = ()
    call_id: str | None = None
    loss: bool = False


class Conversation(BaseModel):
    """One model call. `tools` is a JSON list of function definitions as text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollout_id: str
    turn: int
    tools: str
    messages: tuple[Speech, ...]

    @property
    def images(self) -> tuple[str, ...]:
        return tuple(frame for speech in self.messages for frame in speech.images)


def conversations_of(
    harness: Harness,
    instructions: Mapping[str, str],
    scored: Sequence[tuple[Rollout, Scorecard]],
    sealed: frozenset[str] = frozenset(),
    ledger: FilterLedger | None = None,
) -> list[Conversation]:
    """The learnable calls of the rollouts that training takes (training.filter), each once: no slips, no broken or
    cut-off replies. What is left out is put down in `ledger`.

    Raises UsageError when a request can't be rebuilt from the log.
    """
    made: dict[tuple[str, tuple[Speech, ...]], Conversation] = {}
    ledger = ledger or FilterLedger()
    for rollout, instruction in to_learn(scored, instructions, sealed, ledger):
        for index, turn in enumerate(rollout.turns):
            reply = turn.completion
            if turn.slip is not None or reply.invalid is not None or reply.finish_reason == "length":
                ledger.leave_out("broken_turn" if turn.slip is None else "slip_turn", rollout.id, index)
                continue
            messages, tools = request_for(
                harness, instruction, rollout.first, rollout.turns[:index], rollout.image_rule
            )
            if request_sha256(messages, tools) != turn.request_sha256:
                raise UsageError(
                    f"rollout {rollout.id}, turn {index}: the request rebuilt from the log is not the one that was "
                    "sent; it was recorded under another harness, task or version"
                )
            functions = json.dumps([{"type": "function", "function": tool.model_dump()} for tool in tools])
            said = (*map(_speech, messages), _reply(reply))
            if (functions, said) in made:
                ledger.leave_out("duplicate", rollout.id, index)
            else:
                one = Conversation(rollout_id=rollout.id, turn=index, tools=functions, messages=said)
                made[functions, said] = one
    return list(made.values())


def _speech(message: Message) -> Speech:
    parts = [_escaped(part.text) if isinstance(part, Text) else IMAGE for part in message.parts]
    return Speech(
        role=message.role,
        content="\n".join(parts),
        images=tuple(part.frame_id for part in message.parts if isinstance(part, Image)),
        calls=tuple(map(_called, message.calls)),
        call_id=message.call_id,
    )


def _reply(reply: Completion) -> Speech:
    text = f"<think>\n{reply.reasoning}\n</think>\n\n{reply.text}" if reply.reasoning else reply.text
    return Speech(role="assistant", content=_escaped(text), calls=tuple(map(_called, reply.calls)), loss=True)


def _called(call: ToolCall) -> Called:
    return Called(id=call.id, name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False))


def _escaped(text: str) -> str:
    return text.replace(IMAGE, SPELLED)
