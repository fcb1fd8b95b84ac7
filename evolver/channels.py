"""Which channel a turn used, and the per-app channel table that an author and a report read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from evolver.intervals import success_interval
from evolver.records import Channel, ChannelRow, Rollout, Scorecard, ToolCall, Turn
from evolver.sums import total
from harnesses.harness import Harness


def call_channel(call: ToolCall, harness: Harness) -> Channel:
    """gui or terminal; none for what touches neither (terminate, reading the accessibility tree, an unknown tool)."""
    kind = next((tool.kind for tool in harness.tools if tool.name == call.name), None)
    if kind == "computer_use":
        return "none" if call.arguments.get("action") == "terminate" else "gui"
    return "terminal" if kind in ("bash", "program") else "none"


def channel_of(calls: Sequence[ToolCall], harness: Harness) -> Channel:
    """The channel of one turn, from the kinds of the tools that it called."""
    return union(call_channel(call, harness) for call in calls)


def union(channels: Iterable[Channel]) -> Channel:
    """The channel of a whole: both when its parts used both, none when no part used any."""
    used = set(channels) - {"none"}
    if not used:
        return "none"
    return used.pop() if len(used) == 1 else "both"


def switches(turns: Sequence[Turn]) -> int:
    """How often the channel changed from one acting turn to the next (turns without a channel are passed over)."""
    acting = [turn.channel for turn in turns if turn.channel != "none"]
    return sum(before != after for before, after in pairwise(acting))


def channel_table(
    cards: Sequence[Scorecard], rollouts: Mapping[str, Rollout], harness: Harness, seed: int = 0
) -> tuple[ChannelRow, ...]:
    """One row per app, by name. A rollout over two apps counts in both rows. `rollouts` maps rollout id → rollout.

    `tokens` is None as soon as one rollout's count is unknown; unscored rollouts are left out of the success only.
    """
    by_app: dict[str, list[Scorecard]] = defaultdict(list)
    for card in cards:
        for app in rollouts[card.rollout_id].apps:
            by_app[app].append(card)
    return tuple(_row(app, by_app[app], rollouts, harness, seed) for app in sorted(by_app))


def _row(
    app: str, cards: Sequence[Scorecard], rollouts: Mapping[str, Rollout], harness: Harness, seed: int
) -> ChannelRow:
    runs = [rollouts[card.rollout_id] for card in cards]
    turns = [turn for run in runs for turn in run.turns]
    used = [call_channel(call, harness) for turn in turns for call in turn.completion.calls]
    success: dict[Channel, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for card in cards:
        if card.success is not None:
            success[card.channel][card.key.task_id].append(float(card.success))
    return ChannelRow(
        app=app,
        rollouts=len(cards),
        gui_calls=used.count("gui"),
        terminal_calls=used.count("terminal"),
        none_turns=sum(turn.channel == "none" for turn in turns),
        switches=sum(switches(run.turns) for run in runs),
        tokens=total(card.tokens for card in cards),
        seconds=sum(card.seconds for card in cards),
        success_by_channel={
            channel: success_interval([sum(v) / len(v) for v in success[channel].values()], seed)
            for channel in sorted(success)
        },
    )
