"""Rollouts → training rows: exactly what the model saw, with the loss on exactly what it wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evolver.context import request_for, request_sha256
from evolver.errors import UsageError
from evolver.records import Rollout, Scorecard, Turn
from harnesses.harness import Harness
from training.filter import FilterLedger, LeftOut, counted, to_learn
from training.recipe import Recipe
from training.render import Renderer


@dataclass(frozen=True)
class Row:
    """One sequence of token ids. `loss` marks the ids that a model wrote; `turns` are the indexes they come from.

    `frames` are the pictures in it, in order, for a base that sees. `annotated` are those of the turns whose reasoning
    another model than the teacher wrote.
    """

    ids: tuple[int, ...]
    loss: tuple[bool, ...]
    rollout_id: str
    turns: tuple[int, ...]
    frames: tuple[str, ...] = ()
    annotated: tuple[int, ...] = ()

    @property
    def labels(self) -> list[int]:
        return [token if counted else -100 for token, counted in zip(self.ids, self.loss, strict=True)]


@dataclass(frozen=True)
class Rows:
    """All rows of one student, and why what is missing is missing."""

    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...] = ()
    rollouts: int = 0

    @property
    def dropped(self) -> dict[str, int]:
        """Reason → rollouts, rows or turns."""
        return counted(self.left_out)

    @property
    def trained_tokens(self) -> int:
        """Ids under the loss, each counted once."""
        return sum(sum(row.loss) for row in self.rows)

    @property
    def tokens(self) -> int:
        return sum(len(row.ids) for row in self.rows)

    @property
    def sha256(self) -> str:
        """Hash of ids, loss and pictures of all rows, in order."""
        body = [
            [list(row.ids), [int(counted) for counted in row.loss], *([row.frames] if row.frames else [])]
            for row in self.rows
        ]
        return hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()


def build_rows(
    harness: Harness,
    instructions: Mapping[str, str],
    scored: Sequence[tuple[Rollout, Scorecard]],
    renderer: Renderer,
    recipe: Recipe,
    sealed: frozenset[str] = frozenset(),
) -> Rows:
    """Rows of the successful rollouts under `harness`, in the order given.

    `instructions` maps task ids to what the agent was asked; `sealed` are instructions that nothing may be learned
    from. Left out and counted (training.filter): unscored and failed rollouts, and those of sealed instructions; turns
    with a declared slip (they stay as context), broken replies, replies that don't read back; duplicates. A row longer
    than `recipe.max_length` raises UsageError unless the recipe says `drop`, or `fork`: then it ends before the first
    turn that does not fit.
    """
    rows: list[Row] = []
    ledger = FilterLedger()
    seen: set[tuple[tuple[int, ...], tuple[str, ...]]] = set()
    used = 0
    for rollout, instruction in to_learn(scored, instructions, sealed, ledger):
        used += 1
        for whole in _rows_of(rollout, harness, instruction, renderer, ledger):
            row = _forked(whole, recipe.max_length, renderer, ledger) if recipe.overlength == "fork" else whole
            if row is None:
                continue
            if (row.ids, row.frames) in seen:
                ledger.leave_out("duplicate", rollout.id, tokens=len(row.ids))
            elif len(row.ids) > recipe.max_length:
                if recipe.overlength == "error":
                    raise UsageError(
                        f"rollout {rollout.id} makes a row of {len(row.ids)} tokens, max_length = {recipe.max_length}: "
                        "raise it, shorten what the student sees (render), or set overlength: drop or fork"
                    )
                ledger.leave_out("overlength", rollout.id, tokens=len(row.ids))
            else:
                seen.add((row.ids, row.frames))
                rows.append(row)
    return Rows(rows=tuple(rows), left_out=tuple(ledger.entries), rollouts=used)


def _forked(row: Row, limit: int, renderer: Renderer, ledger: FilterLedger) -> Row | None:
    """The row up to the last turn that fits, whole turns alone; None when not even the first one does."""
    follows = (*row.loss[1:], False)
    ends = [i for i, (learned, next_too) in enumerate(zip(row.loss, follows, strict=True), 1) if learned > next_too]
    fitting = [end for end in ends if end <= limit]
    for turn, end in list(zip(row.turns, ends, strict=True))[len(fitting) :]:
        ledger.leave_out("overlength_turn", row.rollout_id, turn, end)
    if not fitting:
        return None
    end = fitting[-1]
    frames = row.frames[: renderer.pictures_in(row.ids[:end])]
    return Row(row.ids[:end], row.loss[:end], row.rollout_id, row.turns[: len(fitting)], frames)


def _rows_of(
    rollout: Rollout, harness: Harness, instruction: str, renderer: Renderer, ledger: FilterLedger
) -> Iterator[Row]:
    """One row a model call; a call whose prompt begins with the whole row before continues that row."""
    open_row: Row | None = None
    for index, turn in enumerate(rollout.turns):
        prompt, reply = _call(rollout, index, harness, instruction, renderer, ledger)
        if reply is None:
            continue
        if open_row is not None and prompt.continues(open_row):
            open_row = _extended(open_row, prompt, reply, turn)
            continue
        if open_row is not None:
            yield open_row
        open_row = _extended(Row(ids=(), loss=(), rollout_id=rollout.id, turns=()), prompt, reply, turn)
    if open_row is not None:
        yield open_row


@dataclass(frozen=True)
class _Prompt:
    """What a call was shown: ids, and the pictures in them."""

    ids: Sequence[int]
    frames: tuple[str, ...]

    def continues(self, row: Row) -> bool:
        """Whether it begins with the whole row; two pictures of one size have the same ids."""
        return tuple(self.ids[: len(row.ids)]) == row.ids and self.frames[: len(row.frames)] == row.frames


def _extended(row: Row, prompt: _Prompt, reply: Sequence[int], turn: Turn) -> Row:
    context = prompt.ids[len(row.ids) :]
    return Row(
        ids=(*row.ids, *context, *reply),
        loss=(*row.loss, *(False for _ in context), *(True for _ in reply)),
        rollout_id=row.rollout_id,
        turns=(*row.turns, turn.index),
        frames=prompt.frames,
    )


def _call(
    rollout: Rollout, index: int, harness: Harness, instruction: str, renderer: Renderer, ledger: FilterLedger
) -> tuple[_Prompt, list[int] | None]:
    """The call's prompt and the ids to learn; None when this turn is not learned from."""
    turn = rollout.turns[index]
    messages, tools = request_for(harness, instruction, rollout.first, rollout.turns[:index], rollout.image_rule)
    if request_sha256(messages, tools) != turn.request_sha256:
        raise UsageError(
            f"rollout {rollout.id}, turn {index}: the request rebuilt from the log is not the one that was sent; "
            "it was recorded under another harness, task or version"
        )
    prompt = _Prompt(renderer.prompt(messages, tools), renderer.frames(messages))
    if turn.slip is not None:
        ledger.leave_out("slip_turn", rollout.id, index)
        return prompt, None
    try:
        return prompt, renderer.reply(turn.completion, tools)
    except ValueError:
        ledger.leave_out("broken_turn", rollout.id, index)
        return prompt, None
