"""The ledger of what an arm's students do not learn, and why: one entry a rollout, row or turn that is left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from evolver.records import Rollout, Scorecard

Reason = Literal[
    "failed",  # rollout: the graders say no
    "unscored",  # rollout: nobody could grade it, through no fault of the agent
    "leak",  # rollout: its task asks for what a test task asks for
    "duplicate",  # row: learned already (exports: a call that is a row already)
    "overlength",  # row: longer than max_length
    "overlength_turn",  # turn: does not fit the row that it continues (overlength: fork)
    "slip_turn",  # turn: a declared slip; it stays as context, outside the loss
    "broken_turn",  # turn: broken, or it would not read back
]


@dataclass(frozen=True)
class LeftOut:
    """`turn` is None for a whole rollout or row; `tokens` None where it was never rendered."""

    reason: Reason
    rollout_id: str
    turn: int | None = None
    tokens: int | None = None


class FilterLedger:
    """Collects entries in the order in which they are decided."""

    def __init__(self) -> None:
        self.entries: list[LeftOut] = []

    def leave_out(self, reason: Reason, rollout_id: str, turn: int | None = None, tokens: int | None = None) -> None:
        self.entries.append(LeftOut(reason, rollout_id, turn, tokens))


def to_learn(
    scored: Sequence[tuple[Rollout, Scorecard]],
    instructions: Mapping[str, str],
    sealed: frozenset[str],
    ledger: FilterLedger,
) -> Iterator[tuple[Rollout, str]]:
    """The successful rollouts, each with what its agent was asked, but those that were asked what is `sealed`."""
    for rollout, card in scored:
        instruction = instructions[rollout.key.task_id]
        if card.success is not True:
            ledger.leave_out("unscored" if card.success is None else "failed", rollout.id)
        elif instruction in sealed:
            ledger.leave_out("leak", rollout.id)
        else:
            yield rollout, instruction


def counted(entries: tuple[LeftOut, ...]) -> dict[str, int]:
    """Reason → how many rollouts, rows or turns."""
    return dict(sorted(Counter(entry.reason for entry in entries).items()))


def as_words(counts: Mapping[str, int]) -> str:
    """As in `4 failed, 2 duplicate`."""
    return ", ".join(f"{n} {reason}" for reason, n in counts.items()) or "nothing"


def as_lines(entries: tuple[LeftOut, ...]) -> str:
    """One JSON object a line."""
    return "".join(f"{json.dumps(asdict(entry))}\n" for entry in entries)
