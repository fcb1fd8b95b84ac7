"""The context is a pure function of the log: what stays, what folds, what always fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.context import frames_in, request_for, request_sha256
from evolver.records import Completion, Image, ImageRule, Observed, Text, ToolCall, ToolResult, Turn, Usage
from evolver.tokens import count_request
from harnesses.harness import Harness
from harnesses.tree import read_tree

SEEDS = Path("harnesses/seeds")
USAGE = Usage(input_tokens=1, output_tokens=1, counted_by="estimate")


def harness(seed: str, **scaffold: object) -> Harness:
    base = read_tree(SEEDS / seed)
    return base.model_copy(update={"scaffold": base.scaffold.model_copy(update=scaffold)})


def turn(index: int, *, result: str = "ok", frame: bool = True, invalid: str | None = None) -> Turn:
    call = ToolCall(id=f"c{index}", name="bash", arguments={"command": f"echo {index}"})
    image = Image(frame_id=f"frame-{index}", width=1920, height=1080) if frame else None
    return Turn(
        index=index,
        request_sha256="",
        completion=Completion(text=f"Say {index}", calls=() if invalid else (call,), invalid=invalid, usage=USAGE),
        summary=f"Say {index}",
        results=() if invalid else (ToolResult(call_id=call.id, text=result),),
        observed=Observed(image=image),
        channel="terminal",
        model_s=0,
        tools_s=0,
    )


def words(messages: object) -> str:
    return "\n".join(p.text for m in messages for p in m.parts if isinstance(p, Text))  # type: ignore[attr-defined]


@pytest.mark.parametrize("turns", [0, 1, 3, 4, 17])
@pytest.mark.parametrize("history", ["one_line", "full", "none"])
def test_s33_never_more_images_than_the_harness_keeps_and_no_orphaned_result(turns: int, history: str) -> None:
    first = Observed(image=Image(frame_id="first", width=1920, height=1080))
    messages, _ = request_for(harness("beta1", history=history), "Do it.", first, [turn(i) for i in range(turns)])
    images = [p for m in messages for p in m.parts if isinstance(p, Image)]
    assert len(images) == min(3, turns + 1)
    assert f"frame-{turns - 1}" in frames_in(messages) or turns == 0
    asked = {c.id for m in messages for c in m.calls}
    assert {m.call_id for m in messages if m.role == "tool"} == asked


def test_older_turns_fold_into_their_summaries() -> None:
    messages, _ = request_for(harness("beta1"), "Do it.", Observed(), [turn(i, frame=False) for i in range(6)])
    opening = words(messages[:2])
    assert "Do it." in opening and "1. Say 0" in opening and "3. Say 2" in opening and "4. Say 3" not in opening
    assert len([m for m in messages if m.role == "assistant"]) == 3


@pytest.mark.parametrize("size", [10, 10_000, 400_000])
def test_s34_the_request_always_fits_and_keeps_task_and_last_observation(size: int) -> None:
    small = harness("beta1", window_tokens=8_192)
    log = [turn(i, result="x" * size) for i in range(9)]
    messages, tools = request_for(small, "Keep this sentence.", Observed(), log)
    assert count_request(messages, tools) <= 8_192 - small.scaffold.sampling.max_tokens
    assert "Keep this sentence." in words(messages)
    assert "frame-8" in frames_in(messages)


SIZES = st.sampled_from([0, 10, 400, 9_000, 60_000])


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.tuples(SIZES, SIZES, st.booleans()), min_size=1, max_size=30),
    history=st.sampled_from(["one_line", "full", "none"]),
    window=st.sampled_from([8_192, 32_768]),
    rule=st.sampled_from(["qwen2", "qwen3", "openai_tiles", "openai_patches"]),
)
def test_s34_whatever_was_called_and_shown_the_request_fits_by_the_models_rule(
    sizes: list[tuple[int, int, bool]], history: str, window: int, rule: ImageRule
) -> None:
    one = harness("beta1", history=history, window_tokens=window)
    log = []
    for index, (result, command, frame) in enumerate(sizes):
        made = turn(index, result="x" * result, frame=frame)
        call = made.completion.calls[0].model_copy(update={"arguments": {"command": "y" * command}})
        completion = made.completion.model_copy(update={"calls": (call,)})
        log.append(made.model_copy(update={"completion": completion, "summary": "z" * 160}))
    messages, tools = request_for(one, "Keep this sentence.", Observed(), log, rule)
    assert count_request(messages, tools, rule) <= window - one.scaffold.sampling.max_tokens
    assert "Keep this sentence." in words(messages)
    if sizes[-1][2]:
        assert f"frame-{len(sizes) - 1}" in frames_in(messages)
    assert sizes[-1][0] == 0 or any(m.role == "tool" and "x" in words([m]) for m in messages[-2:])


def test_s34_where_the_endpoint_counts_more_than_the_estimate_more_is_folded() -> None:
    small = harness("beta1", window_tokens=8_192)
    log = [turn(i, frame=False, result="x" * 3_000) for i in range(5)]
    usual, tools = request_for(small, "Do it.", Observed(), log)
    counted = Usage(input_tokens=3_000, output_tokens=1, counted_by="provider")
    first = log[0].completion.model_copy(update={"usage": counted})
    log[0] = log[0].model_copy(update={"completion": first, "request_tokens": 1_000})
    less, _ = request_for(small, "Do it.", Observed(), log)
    room = 8_192 - small.scaffold.sampling.max_tokens
    assert count_request(less, tools) * 3 <= room < count_request(usual, tools) * 3


def test_s31_a_broken_call_is_told_about_but_never_sent_again() -> None:
    messages, _ = request_for(harness("beta1"), "Do it.", Observed(), [turn(0, frame=False, invalid="bad JSON")])
    assert not any(m.calls for m in messages)
    assert "bad JSON" in words(messages)


def test_equal_logs_give_equal_requests_and_a_change_anywhere_changes_the_hash() -> None:
    log = [turn(i) for i in range(4)]
    one = request_sha256(*request_for(harness("beta1"), "Do it.", Observed(), log))
    assert one == request_sha256(*request_for(harness("beta1"), "Do it.", Observed(), list(log)))
    assert one != request_sha256(*request_for(harness("beta1"), "Do it!", Observed(), log))
    assert one != request_sha256(*request_for(harness("beta2"), "Do it.", Observed(), log))
