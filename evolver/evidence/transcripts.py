"""An attempt as Markdown, within a bound: the task as it was sent, then turn by turn what was said, called and seen."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from evolver.evidence.material import Material, error_kind, said
from evolver.evidence.sheet import middle, size
from evolver.records import Rollout, Scorecard, Turn

TASK_CHARS, TURN_CHARS = 2_000, 1_600


def transcript(seen: Material, card: Scorecard, limit: int) -> str:
    """At most `limit` bytes; where turns do not fit, those in the middle are left out."""
    rollout = seen.rollout(card)
    head = "\n".join([*_head(seen, card, rollout), "", "Task, as it was sent:", "", fenced(_task(seen, rollout)), ""])
    turns = [f"## Turn {turn.index} ({turn.channel})\n\n{told(turn, TURN_CHARS)}" for turn in rollout.turns]
    room = limit - size(head) - 60
    first, last = 0, len(turns)
    while first < last:  # from both ends alternately: how it began and how it ended say most
        take = first if first <= len(turns) - last else last - 1
        room -= size(turns[take]) + 1
        if room < 0:
            break
        first, last = (first + 1, last) if take == first else (first, last - 1)
    left = [f"\n({last - first} turns left out)\n"] if last > first else []
    return "\n".join([head, *turns[:first], *left, *turns[last:]])


def told(turn: Turn, longest: int) -> str:
    """One turn in about `longest` characters: the reply, each call with its result, and what the screen said."""
    reply = turn.completion
    results = {result.call_id: result for result in turn.results}
    each = max(80, longest // (2 + 2 * len(reply.calls)))
    parts = [fenced(middle(reply.text or reply.reasoning, each))] if reply.text or reply.reasoning else []
    if reply.invalid is not None:
        parts.append(f"not usable: {middle(' '.join(reply.invalid.split()), 200)}\n")
    for call in reply.calls:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        parts.append(f"call `{call.name}`:\n\n{fenced(middle(arguments, each))}")
        if (result := results.get(call.id)) is not None:
            parts.append(f"{'error' if result.is_error else 'result'}:\n\n{fenced(middle(result.text, each))}")
    if turn.observed.text:
        parts.append(f"screen, as text:\n\n{fenced(middle(turn.observed.text, each))}")
    elif turn.observed.image is not None:
        parts.append("(a screenshot)\n")
    return "\n".join(parts)


def fenced(text: str) -> str:
    """A block that the text can't end: its fence is longer than any row of backticks in it."""
    longest = max((len(row) for row in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}\n"


def _task(seen: Material, rollout: Rollout) -> str:
    return middle(seen.task_text(rollout), TASK_CHARS) or "(no request was kept)"


def _head(seen: Material, card: Scorecard, rollout: Rollout) -> Sequence[str]:
    outcome = {True: "solved", False: "failed", None: "unscored"}[card.success]
    tokens = "unknown" if card.tokens is None else f"{card.tokens:,}"
    lines = [
        f"# {rollout.id}: {outcome}",
        "",
        f"- task {card.key.task_id}, attempt {card.key.attempt}, under {seen.name(card.key.harness_id)}",
        f"- apps {', '.join(rollout.apps)}; {len(rollout.turns)} turns, {tokens} tokens, {card.seconds:.0f} s",
        f"- ended by {rollout.stop_reason}; last error: {error_kind(rollout)}",
    ]
    for score in card.scores:
        value = "unscored" if score.value is None else f"{score.value:g}"
        words = said(score)
        lines.append(
            f"- criterion {score.criterion}: {value}{' (required)' * score.required}{': ' * bool(words)}{words}"
        )
    return lines
