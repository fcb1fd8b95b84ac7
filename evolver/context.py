"""Pure: (harness, instruction, log of turns) → the exact messages and tools of the next model call.

The recipe's context (arXiv 2610.40747): the newest screenshots stay, older turns fold into their one-line summaries,
everything fits the window. Training rows are rebuilt with this same function, so a student sees the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import JsonValue

from evolver.records import Completion, Image, ImageRule, Message, Observed, Part, Text, ToolCall, ToolSpec, Turn
from evolver.tokens import count_message, count_tools
from evolver.tools import tool_specs
from harnesses.harness import Harness

SUMMARY_CHARS = 160
FIRST_CUT, LAST_CUT = 8_000, 200  # characters that a long text keeps where nothing more can be folded
MOST_SCALE = 4.0
STEPS, SCREEN, REMOVED = "Steps so far:\n", "Screen:\n", "[earlier screen removed]"


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
    return _digest(messages, _lines(tools))


def _lines(pieces: Sequence[Message] | Sequence[ToolSpec]) -> bytes:
    return "".join(f"{piece.model_dump_json()}\n" for piece in pieces).encode()


def _digest(messages: Sequence[Message], tools: bytes) -> str:
    return hashlib.sha256(_lines(messages) + tools).hexdigest()


def request_for(
    harness: Harness, instruction: str, first: Observed, turns: Sequence[Turn], rule: ImageRule = "qwen2"
) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]]:
    """Messages and tools of the call that follows `turns`, with images counted by `rule`; see `Context.messages`."""
    context = Context(harness, instruction, first, rule)
    return context.messages(turns)[0], context.tools


class Context:
    """The requests of one rollout, one after the other. It remembers what it counted: a turn never changes."""

    def __init__(self, harness: Harness, instruction: str, first: Observed, rule: ImageRule) -> None:
        self.tools = tool_specs(harness)
        self._tool_lines = _lines(self.tools)
        self._scaffold = harness.scaffold
        self._system = Message(role="system", parts=(Text(text=harness.prompt.system.strip()),))
        self._task = harness.prompt.task.replace("{instruction}", instruction).strip()
        self._first = first
        self._rule = rule
        self._fixed = count_tools(self.tools) + count_message(self._system, rule)
        self._counted: dict[tuple[int, bool, int | None], tuple[tuple[Message, ...], int]] = {}

    def messages(self, turns: Sequence[Turn]) -> tuple[tuple[Message, ...], int]:
        """Messages of the call that follows `turns`, and what they and the tools are estimated at in tokens.

        Folds more turns, then shows the last screen alone and shortens long texts, until the request fits the window
        less the reply; the task and the last observation always stay. Where an endpoint counted an earlier request
        higher than the estimate, the window is taken to be that much smaller.
        """
        scaffold = self._scaffold
        room = max(scaffold.window_tokens - scaffold.sampling.max_tokens, 512) / _scale(turns)
        kept = len(turns) if scaffold.history == "full" else min(len(turns), scaffold.turns_kept)
        shown = max(1, scaffold.screenshots_kept)
        messages, tokens = self._built(turns, kept, shown, None)
        while tokens > room and kept > 1:
            kept -= 1
            messages, tokens = self._built(turns, kept, shown, None)
        limit = FIRST_CUT
        while tokens > room and limit >= LAST_CUT:
            messages, tokens = self._built(turns, kept, 1, limit)
            limit //= 2
        return messages, tokens

    def sha256(self, messages: Sequence[Message]) -> str:
        """`request_sha256` of these messages with the harness's tools."""
        return _digest(messages, self._tool_lines)

    def _built(
        self, turns: Sequence[Turn], kept: int, shown: int, limit: int | None
    ) -> tuple[tuple[Message, ...], int]:
        folded, recent = turns[: len(turns) - kept], turns[len(turns) - kept :]
        visible = self._newest_observations(turns, shown)
        task = self._task
        if folded and self._scaffold.history != "none":
            task += f"\n\n{STEPS}" + _cut("\n".join(f"{t.index + 1}. {t.summary}" for t in folded), limit)
        opening: list[Part] = [Text(text=task)]
        seen, at = (folded[-1].observed, folded[-1].index) if folded else (self._first, -1)
        opening += _observation(seen, at in visible, limit)
        user = Message(role="user", parts=tuple(opening))
        messages, tokens = [self._system, user], self._fixed + count_message(user, self._rule)
        for turn in recent:
            more, counted = self._of_turn(turn, turn.index in visible, limit)
            messages += more
            tokens += counted
        return tuple(messages), tokens

    def _newest_observations(self, turns: Sequence[Turn], shown: int) -> frozenset[int]:
        """Indexes of the observations that stay (-1 is the first look): the newest `shown`."""
        seen = [-1] if self._first.image or self._first.text else []
        seen += [t.index for t in turns if t.observed.image or t.observed.text]
        return frozenset(seen[-shown:])

    def _of_turn(self, turn: Turn, visible: bool, limit: int | None) -> tuple[tuple[Message, ...], int]:
        key = (turn.index, visible, limit)
        if key not in self._counted:
            messages = tuple(_turn_messages(turn, visible, limit))
            self._counted[key] = messages, sum(count_message(m, self._rule) for m in messages)
        return self._counted[key]


def _scale(turns: Sequence[Turn]) -> float:
    """How many times more tokens than estimated the requests so far had, as the model's own side counted them."""
    counted = [
        turn.completion.usage.input_tokens / turn.request_tokens
        for turn in turns
        if turn.completion.usage.counted_by != "estimate" and turn.completion.usage.input_tokens and turn.request_tokens
    ]
    return min(MOST_SCALE, max([1.0, *counted]))


def _observation(observed: Observed, visible: bool, limit: int | None) -> list[Part]:
    if not (observed.image or observed.text):
        return []
    if not visible:
        return [Text(text=REMOVED)]
    parts: list[Part] = []
    if observed.text:
        parts.append(Text(text=f"{SCREEN}{_cut(observed.text, limit)}"))
    if observed.image:
        parts.append(observed.image)
    return parts


def _turn_messages(turn: Turn, visible: bool, limit: int | None) -> list[Message]:
    reply = turn.completion
    if reply.invalid is not None:
        # The broken call itself is never sent again: some servers refuse whole requests because of it.
        complaint = f"error: that reply could not be used: {reply.invalid}"
        return [_said_nothing(reply.text), Message(role="user", parts=(Text(text=complaint),))]
    if not reply.calls:
        complaint = "No tool was called. Call a tool, or end with `terminate`."
        return [_said_nothing(reply.text), Message(role="user", parts=(Text(text=complaint),))]
    text = (Text(text=_cut(reply.text, limit)),) if reply.text else ()
    calls = reply.calls if limit is None else tuple(_cut_call(call, limit) for call in reply.calls)
    messages = [Message(role="assistant", parts=text, calls=calls)]
    for result in turn.results:
        messages.append(Message(role="tool", parts=(Text(text=_cut(result.text, limit)),), call_id=result.call_id))
    observation = _observation(turn.observed, visible, limit)
    if observation:
        messages.append(Message(role="user", parts=tuple(observation)))
    return messages


def _said_nothing(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text=text.strip()[:400] or "(empty reply)"),))


def _cut_call(call: ToolCall, limit: int) -> ToolCall:
    """The call with its long texts cut (a file that was written through a heredoc may fill a window)."""
    arguments: dict[str, JsonValue] = {
        name: _cut(value, limit) if isinstance(value, str) else value for name, value in call.arguments.items()
    }
    return ToolCall(id=call.id, name=call.name, arguments=arguments)


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def frames_in(messages: Sequence[Message]) -> frozenset[str]:
    """Frame ids that occur in the messages."""
    return frozenset(p.frame_id for m in messages for p in m.parts if isinstance(p, Image))
