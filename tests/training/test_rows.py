"""Training rows: what the model saw, the loss on what it wrote, and a reason for everything left out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.context import request_for
from evolver.errors import UsageError
from evolver.records import Rollout
from harnesses.harness import Harness
from tests.training.conversations import END, INSTRUCTION, TASK, USUAL, Said, beta1, card, rollout
from training.filter import as_lines
from training.recipe import Recipe
from training.render import Renderer
from training.rows import Rows, build_rows

pytestmark = pytest.mark.train
HARNESS = beta1()
TURNS = st.lists(
    st.builds(
        Said,
        text=st.text("ab c.\n", min_size=1, max_size=12).filter(str.strip),
        command=st.text("ls ~<>/é'\"", min_size=1, max_size=12),
        result=st.text("x y\n", max_size=12),
        slip=st.sampled_from([None, None, "wrong value"]),
        invalid=st.sampled_from([None, None, None, "not JSON"]),
    ),
    max_size=5,
).map(lambda turns: [*turns, END])


def rows_of(rollouts: list[Rollout], renderer: Renderer, recipe: Recipe, harness: Harness = HARNESS) -> Rows:
    return build_rows(harness, {TASK: INSTRUCTION}, [(r, card(r)) for r in rollouts], renderer, recipe)


def wanted_replies(of: Rollout, renderer: Renderer) -> list[list[int]]:
    """The ids of each learnable turn, by the renderer alone."""
    replies = []
    for index, turn in enumerate(of.turns):
        _, tools = request_for(HARNESS, INSTRUCTION, of.first, of.turns[:index])
        if turn.slip is None and turn.completion.invalid is None:
            replies.append(renderer.reply(turn.completion, tools))
    return replies


@settings(deadline=None, max_examples=40)
@given(turns=TURNS)
def test_t01_t10_t24_each_written_token_is_learned_once_after_exactly_what_was_seen(
    renderer: Renderer, recipe: Recipe, turns: list[Said]
) -> None:
    made = rollout(turns)
    found = rows_of([made], renderer, recipe.model_copy(update={"max_length": 10_000}))
    learned: list[list[int]] = []
    for row in found.rows:
        assert len(row.ids) == len(row.loss) == len(row.labels)
        position = 0
        for index in row.turns:
            messages, tools = request_for(HARNESS, INSTRUCTION, made.first, made.turns[:index])
            prompt = renderer.prompt(messages, tools)  # what serving would send
            reply = renderer.reply(made.turns[index].completion, tools)
            assert list(row.ids[: len(prompt)]) == prompt
            assert not any(row.loss[position : len(prompt)])
            position = len(prompt) + len(reply)
            assert list(row.ids[len(prompt) : position]) == reply and all(row.loss[len(prompt) : position])
            learned.append(reply)
        assert position == len(row.ids)
    assert learned == wanted_replies(made, renderer)
    assert found.trained_tokens == sum(map(len, learned))


def test_consecutive_calls_with_the_same_prefix_are_one_row(renderer: Renderer, recipe: Recipe) -> None:
    (row,) = rows_of([rollout()], renderer, recipe).rows
    assert row.turns == (0, 1, 2)


def test_t18_a_folded_history_starts_a_new_row_and_loses_no_turn(renderer: Renderer, recipe: Recipe) -> None:
    turns = [Said(text=f"Step {n}.", command=f"touch {n}") for n in range(6)]
    made = rollout([*turns, END])
    rows = rows_of([made], renderer, recipe).rows
    assert len(rows) > 1
    assert [index for row in rows for index in row.turns] == list(range(7))
    assert "Steps so far:\n1. Step 0." in renderer.decode(rows[-1].ids)


def test_t07_end_of_turn_is_under_the_loss(renderer: Renderer, recipe: Recipe) -> None:
    (row,) = rows_of([rollout()], renderer, recipe).rows
    ends = [row.loss[i] for i, token in enumerate(row.ids) if token == renderer.end]
    assert ends.count(True) == 3 and row.loss[-1] and row.ids[-1] == renderer.end


def test_t24_a_slip_is_context_and_never_learned(renderer: Renderer, recipe: Recipe) -> None:
    slip = Said(text="Oops.", command="mv a.txt c.txt", slip="wrong_value")
    found = rows_of([rollout([slip, *USUAL])], renderer, recipe)
    (row,) = found.rows
    assert found.dropped == {"slip_turn": 1} and row.turns == (1, 2, 3)
    learned = renderer.decode([t for t, counted in zip(row.ids, row.loss, strict=True) if counted])
    assert "Oops." in renderer.decode(row.ids) and "Oops." not in learned


def test_t19_unscored_and_failed_rollouts_are_left_out_apart(renderer: Renderer, recipe: Recipe) -> None:
    made = [rollout([Said(text=f"Way {n}."), END], name=f"r-{n}") for n in range(4)]
    scored = list(zip(made, [card(made[0]), card(made[1], None), card(made[2], False), card(made[3])], strict=True))
    found = build_rows(HARNESS, {TASK: INSTRUCTION}, scored, renderer, recipe)
    assert found.dropped == {"failed": 1, "unscored": 1}
    assert [row.rollout_id for row in found.rows] == ["r-0", "r-3"] and found.rollouts == 2


def test_duplicates_are_learned_once_and_counted(renderer: Renderer, recipe: Recipe) -> None:
    found = rows_of([rollout(name="r-0"), rollout(name="r-1")], renderer, recipe)
    assert len(found.rows) == 1 and found.dropped == {"duplicate": 1}


def test_t03_an_overlength_row_stops_or_is_counted_and_is_never_cut(renderer: Renderer, recipe: Recipe) -> None:
    long = rollout([Said(result="word " * 300), END], name="r-1")
    short = recipe.model_copy(update={"max_length": 300})
    with pytest.raises(UsageError, match=r"r-1 makes a row of \d+ tokens, max_length = 300"):
        rows_of([rollout(), long], renderer, short)
    found = rows_of([rollout(), long], renderer, short.model_copy(update={"overlength": "drop"}))
    assert found.dropped == {"overlength": 1}
    assert all(row.ids[-1] == renderer.end for row in found.rows)


def test_t04_a_forked_row_ends_with_a_whole_turn_and_what_is_lost_is_listed(renderer: Renderer, recipe: Recipe) -> None:
    long = rollout([Said(text="Short."), Said(text="Long.", result="word " * 300), END], name="r-1")
    (whole,) = rows_of([long], renderer, recipe.model_copy(update={"max_length": 10_000})).rows
    fork = recipe.model_copy(update={"overlength": "fork", "max_length": len(whole.ids) - 1})
    found = rows_of([long], renderer, fork)
    (row,) = found.rows
    assert row.turns == (0, 1) and row.ids == whole.ids[: len(row.ids)] and row.loss == whole.loss[: len(row.ids)]
    assert row.ids[-1] == renderer.end and row.loss[-1]
    assert [(e.reason, e.turn, e.tokens) for e in found.left_out] == [("overlength_turn", 2, len(whole.ids))]
    none = rows_of([long], renderer, fork.model_copy(update={"max_length": 40}))
    assert none.rows == () and none.dropped == {"overlength_turn": 3}
    assert rows_of([long], renderer, fork.model_copy(update={"max_length": len(whole.ids)})).rows == (whole,)


def test_every_left_out_piece_has_its_reason_and_a_test_task_is_a_leak(renderer: Renderer, recipe: Recipe) -> None:
    slip = rollout([Said(text="Oops.", slip="wrong_value"), *USUAL], name="r-0")
    scored = [(slip, card(slip)), (rollout(name="r-1"), card(rollout(name="r-1"), False))]
    found = build_rows(HARNESS, {TASK: INSTRUCTION}, scored, renderer, recipe)
    assert [json.loads(line) for line in as_lines(found.left_out).splitlines()] == [
        {"reason": "slip_turn", "rollout_id": "r-0", "turn": 0, "tokens": None},
        {"reason": "failed", "rollout_id": "r-1", "turn": None, "tokens": None},
    ]
    sealed = build_rows(HARNESS, {TASK: INSTRUCTION}, scored, renderer, recipe, frozenset({INSTRUCTION}))
    assert sealed.rows == () and sealed.dropped == {"failed": 1, "leak": 1}


def test_a_request_that_cannot_be_rebuilt_stops(renderer: Renderer, recipe: Recipe) -> None:
    prompt = HARNESS.prompt.model_copy(update={"system": "Another prompt."})
    other = HARNESS.model_copy(update={"prompt": prompt})
    with pytest.raises(UsageError, match="not the one that was sent"):
        rows_of([rollout()], renderer, recipe, other)


def test_the_data_hash_follows_ids_and_loss(renderer: Renderer, recipe: Recipe) -> None:
    plain = rows_of([rollout()], renderer, recipe)
    slip = rows_of(
        [rollout([Said(text="Look around.", command="ls ~/Desktop", result="a.txt", slip="x"), *USUAL[1:]])],
        renderer,
        recipe,
    )
    assert plain.sha256 == rows_of([rollout()], renderer, recipe).sha256 != slip.sha256
