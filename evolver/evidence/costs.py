"""What the parent's attempts cost: tokens by section of the prompt and by channel, calls and success by app."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from evolver.channels import channel_table
from evolver.chat import FRAME, Body
from evolver.context import REMOVED, SCREEN, STEPS
from evolver.evidence.material import Material
from evolver.evidence.sheet import Cell, Column, Sheet
from evolver.records import Rollout, Scorecard
from evolver.sent import bodies
from evolver.sums import total
from evolver.tokens import MESSAGE_TOKENS, count_image, count_text

Part = Literal["system", "task", "tools", "history", "observation text", "images"]
PARTS: tuple[Part, ...] = ("system", "task", "tools", "history", "observation text", "images")
SAMPLED = 60  # attempts whose requests are taken apart: one a task, the newest
TOOLS_HEAD = "# Tools\n\n<tools>\n"  # where the tools begin in a system message of the xml protocol
FROM_A_TOOL = ("<tool_response>\n", "error: that reply", "No tool was called.")


def sections_of(body: Body, frames: Mapping[str, int]) -> Counter[Part]:
    """Tokens of one call by section, estimated as everywhere (evolver.tokens). `frames` maps frame id → its tokens.

    The opening user message is the task, with the summaries of folded turns (history) and the newest screen after it.
    """
    found: Counter[Part] = Counter()
    if "tools" in body:
        found["tools"] += count_text(json.dumps(body["tools"], ensure_ascii=False))
    messages = body.get("messages")
    opened = False
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict):
            continue
        role, content = message.get("role"), message.get("content")
        if role == "system":
            prompt, head, tools = str(content or "").partition(TOOLS_HEAD)
            found["system"] += count_text(prompt) + MESSAGE_TOKENS
            found["tools"] += count_text(head + tools)
        elif role == "user":
            opening, opened = not opened, True
            _add_user(found, content, opening, frames)
        else:
            calls = message.get("tool_calls")
            found["history"] += count_text(str(content or "")) + MESSAGE_TOKENS
            found["history"] += count_text(json.dumps(calls, ensure_ascii=False)) if calls else 0
    return found


def _add_user(found: Counter[Part], content: JsonValue, opening: bool, frames: Mapping[str, int]) -> None:
    found["task" if opening else "history"] += MESSAGE_TOKENS
    for number, part in enumerate(content if isinstance(content, list) else [{"type": "text", "text": content}]):
        if not isinstance(part, dict):
            continue
        holder = part.get("image_url")
        if isinstance(holder, dict):
            found["images"] += frames.get(str(holder.get("url")).removeprefix(FRAME), 0)
            continue
        text = str(part.get("text") or "")
        if opening and number == 0:
            task, shown = _parted(text)
            words, steps, folded = task.partition(f"\n\n{STEPS}")
            found["task"] += count_text(words)
            found["history"] += count_text(steps + folded)
            found["observation text"] += count_text(shown)
        elif text.startswith(FROM_A_TOOL):
            found["history"] += count_text(text)
        else:
            found["observation text"] += count_text(text)


def _parted(text: str) -> tuple[str, str]:
    """The task and the screen's text after it, where one string holds both."""
    for mark in (SCREEN, REMOVED):
        at = text.rfind(f"\n\n{mark}")
        if at >= 0:
            return text[:at], text[at:]
    return text, ""


@dataclass(frozen=True)
class Taken:
    """What the sampled attempts sent: tokens by section, their calls, and their number."""

    parts: Counter[Part]
    calls: int
    attempts: int


def taken_apart(seen: Material) -> Taken:
    """The newest attempt at each task, at most `SAMPLED` of them, request by request."""
    newest: dict[str, Scorecard] = {card.key.task_id: card for card in seen.own}
    total: Counter[Part] = Counter()
    calls = attempts = 0
    for card in list(newest.values())[:SAMPLED]:
        rollout = seen.rollout(card)
        if rollout.requests_sha256 is None:
            continue
        frames = _frames(rollout)
        attempts += 1
        for body in bodies(seen.store.blob(rollout.requests_sha256)):
            total.update(sections_of(body, frames))
            calls += 1
    return Taken(total, calls, attempts)


def _frames(rollout: Rollout) -> dict[str, int]:
    looks = (rollout.first, *(turn.observed for turn in rollout.turns))
    shown = [look.image for look in looks if look.image is not None]
    return {image.frame_id: count_image(image.width, image.height, rollout.image_rule) for image in shown}


def prompt_cost(seen: Material) -> Sheet:
    """Input tokens by section of the prompt, the dearest first, and what the replies cost beside them."""
    found = taken_apart(seen)
    total = sum(found.parts.values())
    rows: list[tuple[Cell, ...]] = [
        (part, found.parts[part] / found.attempts, found.parts[part] / found.calls, found.parts[part] / total)
        for part in sorted(PARTS, key=lambda part: -found.parts[part])
        if found.calls and total
    ]
    replies = [turn.completion.usage.output_tokens for card in seen.own for turn in seen.rollout(card).turns]
    known = [tokens for tokens in replies if tokens is not None]
    if rows and known and len(known) == len(replies):
        rows.append(("(replies, not part of it)", sum(known) / len(seen.own), sum(known) / len(known), ""))
    columns = (
        Column("section", "section"), Column("per_task", "tokens/attempt", "count"),
        Column("per_call", "tokens/call", "count"), Column("share", "of the input", "percent"),
    )  # fmt: skip
    text = (
        f"From the exact requests of {found.attempts} attempts ({found.calls} calls), estimated: text is bytes / 4, "
        "images by the model's rule. Every call sends system, task and tools anew; history is folded summaries, "
        "replies and results."
    )
    return Sheet("prompt_cost", "Cost by prompt section", text, columns, rows)


def channel_cost(seen: Material) -> Sheet:
    """Turns, tokens, seconds and errors by the channel that a turn used."""
    turns: Counter[str] = Counter()
    tokens: dict[str, list[int | None]] = defaultdict(list)
    seconds: dict[str, float] = defaultdict(float)
    errors: Counter[str] = Counter()
    for card in seen.own:
        for turn in seen.rollout(card).turns:
            turns[turn.channel] += 1
            tokens[turn.channel].append(turn.completion.usage.total)
            seconds[turn.channel] += turn.model_s + turn.tools_s
            errors[turn.channel] += any(result.is_error for result in turn.results)
    all_turns = turns.total()
    rows = [
        (
            channel, n, n / all_turns, total(tokens[channel]),
            seconds[channel] / n, errors[channel], errors[channel] / n,
        )
        for channel, n in turns.most_common()
    ]  # fmt: skip
    columns = (
        Column("channel", "channel"), Column("turns", "turns", "count"), Column("share", "of all turns", "percent"),
        Column("tokens", "tokens", "count"), Column("seconds", "s/turn", "number"),
        Column("errors", "turns with an error", "count"), Column("error_rate", "of its turns", "percent"),
    )  # fmt: skip
    text = "The channel of a turn follows from the tools it called; none = it only talked, looked or ended."
    return Sheet("channel_cost", "Cost by channel", text, columns, rows)


def app_channels(seen: Material) -> Sheet:
    """One row an app: what was called there, what it took, how often each channel worked."""
    rows = []
    for row in channel_table(seen.own, seen.rollouts, seen.parent, seen.store.config.seed):
        calls = row.gui_calls + row.terminal_calls
        worked = row.success_by_channel
        rows.append((
            row.app, row.rollouts, row.gui_calls, row.terminal_calls, row.gui_calls / calls if calls else None,
            row.switches, row.tokens, row.seconds / row.rollouts,
            worked.get("gui"), worked.get("terminal"), worked.get("both"), worked.get("none"),
        ))  # fmt: skip
    columns = (
        Column("app", "app"), Column("attempts", "attempts", "count"), Column("gui_calls", "GUI calls", "count"),
        Column("terminal_calls", "terminal calls", "count"), Column("gui_share", "GUI share", "percent"),
        Column("switches", "switches", "count"), Column("tokens", "tokens", "count"),
        Column("seconds", "s/attempt", "count"), Column("success_gui", "success by GUI alone", "percent"),
        Column("success_terminal", "terminal alone", "percent"), Column("success_both", "both", "percent"),
        Column("success_none", "neither", "percent"),
    )  # fmt: skip
    text = "An attempt over two apps counts in both rows. Success by what the whole attempt used, over tasks."
    return Sheet("apps", "Channels per app", text, columns, rows)


def gui_shares(seen: Material, harness_id: str) -> dict[str, float]:
    """App → share of GUI turns among the turns that acted (one that used both counts half), 0..1."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for card in seen.cards.get(harness_id, []):
        rollout = seen.rollout(card)
        for app in rollout.apps:
            used[app].update(turn.channel for turn in rollout.turns if turn.channel != "none")
    return {app: (n["gui"] + n["both"] / 2) / n.total() for app, n in used.items() if n.total()}
