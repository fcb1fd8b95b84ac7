"""Pure: (harness, instruction, log of turns) → the exact messages and tools of the next model call.

The recipe's context (arXiv 2610.40747): the newest screenshots stay, older turns fold into their one-line summaries,
everything fits the window. Training rows are rebuilt with this same function, so a student sees the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from evolver.records import Completion, Image, Message, Observed, Part, Text, ToolSpec, Turn
from evolver.tokens import count_request
from evolver.tools import tool_specs
from harnesses.harness import Harness

SUMMARY_CHARS = 160
MIN_RESULT_CHARS = 200


def summary_of(completion: Completion) -> str:
    """The one-line action summary of a reply: its first line of text, else its calls in short."""
    for line in completion.text.splitlines():
        if line.strip():
            return line.strip()[:SUMMARY_CHARS]
    if completion.invalid:
        return "unusable reply"
    calls = ", ".join(
        f"{c.name} {c.arguments.get('action') or c.arguments.get('command') or ''}".strip() for c in completion.calls
    )
    return (calls or "no action")[:SUMMARY_CHARS]


def request_sha256(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    body = [m.model_dump(mode="json") for m in messages], [t.model_dump(mode="json") for t in tools]
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def request_for(
    harness: Harness, instruction: str, first: Observed, turns: Sequence[Turn]
) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]]:
    """Messages and tools of the call that follows `turns`. Folds more turns, then shortens tool output, until the
    request fits the window less the reply; the task and the last observation always stay."""
    scaffold = harness.scaffold
    tools = tool_specs(harness)
    room = max(scaffold.window_tokens - scaffold.sampling.max_tokens, 512)
    kept = len(turns) if scaffold.history == "full" else min(len(turns), scaffold.turns_kept)
    while True:
        messages = _messages(harness, instruction, first, turns, kept, None)
        if count_request(messages, tools) <= room or kept <= 1:
            break
        kept -= 1
    limit = 8_000
    while count_request(messages, tools) > room and limit >= MIN_RESULT_CHARS:
        messages = _messages(harness, instruction, first, turns, kept, limit)
        limit //= 2
    return messages, tools


def _messages(
    harness: Harness, instruction: str, first: Observed, turns: Sequence[Turn], kept: int, result_chars: int | None
) -> tuple[Message, ...]:
    folded, recent = turns[: len(turns) - kept], turns[len(turns) - kept :]
    visible = _newest_observations(harness, first, turns)
    task = harness.prompt.task.replace("{instruction}", instruction).strip()
    if folded and harness.scaffold.history != "none":
        task += "\n\nSteps so far:\n" + "\n".join(f"{t.index + 1}. {t.summary}" for t in folded)
    opening: list[Part] = [Text(text=task)]
    opening += _observation(folded[-1].observed if folded else first, (folded[-1].index if folded else -1) in visible)
    messages = [
        Message(role="system", parts=(Text(text=harness.prompt.system.strip()),)),
        Message(role="user", parts=tuple(opening)),
    ]
    for turn in recent:
        messages += _turn_messages(turn, turn.index in visible, result_chars)
    return tuple(messages)


def _newest_observations(harness: Harness, first: Observed, turns: Sequence[Turn]) -> frozenset[int]:
    """Indexes of the observations that stay (-1 is the first look): the newest `screenshots_kept`, at least one."""
    seen = [-1] if first.image or first.text else []
    seen += [t.index for t in turns if t.observed.image or t.observed.text]
    return frozenset(seen[-max(1, harness.scaffold.screenshots_kept) :])


def _observation(observed: Observed, visible: bool) -> list[Part]:
    if not (observed.image or observed.text):
        return []
    if not visible:
        return [Text(text="[earlier screen removed]")]
    parts: list[Part] = []
    if observed.text:
        parts.append(Text(text=f"Screen:\n{observed.text}"))
    if observed.image:
        parts.append(observed.image)
    return parts


def _turn_messages(turn: Turn, visible: bool, result_chars: int | None) -> list[Message]:
    reply = turn.completion
    text = (Text(text=reply.text),) if reply.text else ()
    if reply.invalid is not None:
        # The broken call itself is never sent again: some servers refuse whole requests because of it.
        complaint = f"That reply could not be used: {reply.invalid}"
        return [_said_nothing(reply.text), Message(role="user", parts=(Text(text=complaint),))]
    if not reply.calls:
        complaint = "No tool was called. Call a tool, or end with `terminate`."
        return [_said_nothing(reply.text), Message(role="user", parts=(Text(text=complaint),))]
    messages = [Message(role="assistant", parts=text, calls=reply.calls)]
    for result in turn.results:
        messages.append(
            Message(role="tool", parts=(Text(text=_cut(result.text, result_chars)),), call_id=result.call_id)
        )
    observation = _observation(turn.observed, visible)
    if observation:
        messages.append(Message(role="user", parts=tuple(observation)))
    return messages


def _said_nothing(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text=text.strip()[:400] or "(empty reply)"),))


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def frames_in(messages: Sequence[Message]) -> frozenset[str]:
    """Frame ids that occur in the messages."""
    return frozenset(p.frame_id for m in messages for p in m.parts if isinstance(p, Image))
