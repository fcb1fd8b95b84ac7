"""One task that was solved once and failed once, side by side: the first turn in which the two attempts differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from evolver.evidence.material import Material, failed
from evolver.evidence.sheet import Column, Sheet, middle
from evolver.evidence.transcripts import told
from evolver.records import Rollout, Scorecard, Turn

MOST = 12
How = Literal["other calls", "same calls, other results", "one ended", "no difference seen"]


@dataclass(frozen=True)
class Pair:
    """`turn` counts from 0: all before it was the same in both, calls and results alike (screens are not compared)."""

    failed: Scorecard
    solved: Scorecard
    turn: int
    how: How


def pairs(seen: Material) -> list[Pair]:
    """One pair a task, the longest common way first. Both are the parent's where it solved the task at least once;
    else the other attempt is that of the harness that solved it."""
    lost, won = defaultdict(list), defaultdict(list)
    for cards in seen.cards.values():
        for card in cards:
            if card.success:
                won[card.key.task_id].append(card)
    for card in seen.own:
        if card.success is False:
            lost[card.key.task_id].append(card)
    found = []
    for task, losers in sorted(lost.items()):
        own = [card for card in won[task] if card.key.harness_id == seen.parent.id]
        made = [_pair(seen, bad, good) for bad in losers for good in own or won[task]]
        if made:
            found.append(max(made, key=lambda pair: (pair.turn, pair.failed.rollout_id)))
    return sorted(
        found, key=lambda pair: (pair.solved.key.harness_id != seen.parent.id, -pair.turn, pair.failed.key.task_id)
    )


def pair_sheet(seen: Material, found: Sequence[Pair]) -> Sheet:
    """The pairs in short; `pair_text` shows the turn."""
    columns = (
        Column("task", "task"), Column("failed", "failed"), Column("solved", "solved"), Column("by", "solved by"),
        Column("turn", "differ from turn", "count"), Column("how", "how"), Column("criteria", "criteria failed"),
    )  # fmt: skip
    rows = [
        (
            p.failed.key.task_id, p.failed.rollout_id, p.solved.rollout_id, seen.name(p.solved.key.harness_id),
            p.turn, p.how, failed(p.failed),
        )
        for p in found
    ]  # fmt: skip
    text = (
        "One failed and one solved attempt at the same task. Where both are the parent's, chance alone parted them at "
        "this turn: an edit that makes the second way the rule is worth its tokens."
    )
    return Sheet("pairs", "Pass and fail on one task", text, columns, rows)


def pair_text(seen: Material, pair: Pair, longest: int) -> str:
    """The turn in which the attempts part, both ways, in at most about `longest` characters."""
    bad, good = seen.rollout(pair.failed), seen.rollout(pair.solved)
    same = [turn.summary for turn in bad.turns[: pair.turn]]
    head = f"### {pair.failed.key.task_id}: {pair.how} at turn {pair.turn}\n"
    before = f"Before it, the same in both: {middle('; '.join(same), 300)}\n" if same else "They part at once.\n"
    ways = [
        f"{word} ({rollout.id}, {seen.name(rollout.key.harness_id)}):\n\n{_at(rollout, pair.turn, longest // 2)}"
        for word, rollout in (("failed", bad), ("solved", good))
    ]
    return "\n".join([head, before, *ways])


def _at(rollout: Rollout, turn: int, longest: int) -> str:
    if turn >= len(rollout.turns):
        return f"(had ended: {rollout.stop_reason})\n"
    return told(rollout.turns[turn], longest)


def _pair(seen: Material, bad: Scorecard, good: Scorecard) -> Pair:
    return Pair(bad, good, *divergence(seen.rollout(bad).turns, seen.rollout(good).turns))


def divergence(a: Sequence[Turn], b: Sequence[Turn]) -> tuple[int, How]:
    """The first turn (from 0) in which two attempts differ, and how; screens are not compared."""
    for number, (one, other) in enumerate(zip(a, b, strict=False)):
        if _calls(one) != _calls(other):
            return number, "other calls"
        if [r.text for r in one.results] != [r.text for r in other.results]:
            return number, "same calls, other results"
    return min(len(a), len(b)), "one ended" if len(a) != len(b) else "no difference seen"


def _calls(turn: Turn) -> list[tuple[str, dict[str, JsonValue]]]:
    return [(call.name, call.arguments) for call in turn.completion.calls]
