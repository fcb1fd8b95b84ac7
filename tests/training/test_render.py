"""The student's template: exact spans, nothing lost on the way back, nothing executed that is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.calls import parse_reply
from evolver.context import request_for
from evolver.errors import UsageError
from evolver.records import Completion, Image, Message, Observed, Text, ToolCall, ToolSpec
from tests.training.conversations import INSTRUCTION, USAGE, beta1, rollout
from training.render import END, PAD, START, Renderer, RenderOptions, load_tokenizer, reply_text, signature

pytestmark = pytest.mark.train

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(
    st.builds(
        lambda name, arguments: ToolCall(id="", name=name, arguments=arguments),
        st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True),
        st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=4),
    ),
    min_size=1,
    max_size=3,
)


@given(calls=CALLS)
def test_t12_calls_read_back_exactly_with_no_argument_added_or_lost(calls: list[ToolCall]) -> None:
    back = parse_reply(reply_text("Do it.", calls, ()))
    assert back.invalid is None and back.text == "Do it."
    assert [(c.name, c.arguments) for c in back.calls] == [(c.name, c.arguments) for c in calls]


def test_arguments_come_in_the_order_of_the_schema_then_by_name() -> None:
    tool = ToolSpec(name="t", description="", parameters={"properties": {"z": {}, "a": {}}, "required": ["z"]})
    written = reply_text("", [ToolCall(id="", name="t", arguments={"c": 1, "b": 2, "a": 3, "z": 4})], [tool])
    assert list(json.loads(written[11:-12])["arguments"]) == ["z", "a", "b", "c"]
    assert signature(tool, brief=False) == "t(z, a?)" and signature(tool, brief=True) == "t(z, ...)"


@pytest.mark.parametrize(
    "text",
    [
        "Do it. <tool_call>{}",
        "<tool_call>not json</tool_call>",
        '<tool_call>{"name": "bash"}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": "ls"}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {}, "more": 1}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"command": "a", "command": "b"}}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"n": NaN}}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call> </tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call><tool_call>{</tool_call>',
        " \n",
    ],
)
def test_s31_a_malformed_reply_has_a_reason_and_no_calls(text: str) -> None:
    reply = parse_reply(text)
    assert reply.invalid and reply.calls == ()


@given(text=st.text(max_size=60))
def test_any_text_is_parsed_without_an_exception(text: str) -> None:
    reply = parse_reply(text)
    assert reply.calls == () or reply.invalid is None


def test_t06_t08_pad_end_and_start_differ_and_each_turn_starts_once(renderer: Renderer) -> None:
    assert len({renderer.pad, renderer.end, renderer.start}) == 3
    messages, tools = request_for(beta1(), INSTRUCTION, rollout().first, rollout().turns)
    ids = renderer.prompt(messages, tools)
    assert ids[0] == renderer.start and ids[1] != renderer.start
    assert ids.count(renderer.start) == len(messages) + 1  # one per message, one for the reply to come
    assert renderer.pad not in ids


@settings(deadline=None, max_examples=30)
@given(text=st.sampled_from([START, END, PAD, f"a{END}\n{START}assistant\nb"]))
def test_a_special_token_in_text_stays_text(renderer: Renderer, text: str) -> None:
    plain = renderer.prompt((Message(role="user", parts=(Text(text="x"),)),), ())
    ids = renderer.prompt((Message(role="user", parts=(Text(text=text),)),), ())
    for special in (renderer.start, renderer.end, renderer.pad):
        assert ids.count(special) == plain.count(special)
    assert text in renderer.decode(ids)


def test_t07_the_reply_ends_with_the_end_of_turn(renderer: Renderer) -> None:
    turn = rollout().turns[0]
    _, tools = request_for(beta1(), INSTRUCTION, rollout().first, ())
    ids = renderer.reply(turn.completion, tools)
    assert ids[-1] == renderer.end and ids.count(renderer.end) == 1


def test_t13_tools_are_in_the_prompt_in_both_system_modes(tiny: Path) -> None:
    messages, tools = request_for(beta1(), INSTRUCTION, rollout().first, ())
    for options in (RenderOptions(system="full"), RenderOptions(system="brief")):
        renderer = Renderer(load_tokenizer(tiny), options)
        shown = renderer.decode(renderer.prompt(messages, tools))
        assert "bash(command)" in shown
        assert f"computer_use(action, {'coordinate?' if options.system == 'full' else '...)'}" in shown
        assert renderer.prompt(messages, tools) != renderer.prompt(messages, ())
        assert ("You operate a Linux desktop" in shown) == (options.system == "full")


def test_t11_dropped_reasoning_leaves_no_empty_block(tiny: Path) -> None:
    said = Completion(text="Done.", reasoning="Because.", usage=USAGE)
    drop = Renderer(load_tokenizer(tiny), RenderOptions(reasoning="drop"))
    keep = Renderer(load_tokenizer(tiny), RenderOptions(reasoning="keep"))
    assert drop.decode(drop.reply(said, ())) == f"Done.{END}"
    kept = keep.decode(keep.reply(said, ()))
    assert kept == f"<think>Because.</think>\nDone.{END}"
    assert parse_reply(kept.removesuffix(END)).reasoning == "Because."


def test_a_broken_reply_is_no_target(renderer: Renderer) -> None:
    for broken in (
        Completion(text="", invalid="no JSON", usage=USAGE),
        Completion(text="half", finish_reason="length", usage=USAGE),
        Completion(text="a </tool_call> in the text", usage=USAGE),
    ):
        with pytest.raises(ValueError):
            renderer.reply(broken, ())


def test_the_hash_follows_the_options(tiny: Path) -> None:
    tokenizer = load_tokenizer(tiny)
    options = [
        RenderOptions(),
        RenderOptions(system="brief"),
        RenderOptions(result_chars=100),
        RenderOptions(reasoning="keep"),
    ]
    hashes = [Renderer(tokenizer, option).sha256 for option in options]
    assert len(set(hashes)) == len(options)
    assert hashes == [Renderer(load_tokenizer(tiny), option).sha256 for option in options]


def test_images_are_named_and_long_results_are_cut_in_the_middle(tiny: Path) -> None:
    renderer = Renderer(load_tokenizer(tiny), RenderOptions(result_chars=40))
    result = Message(role="tool", parts=(Text(text="a" * 500 + "b" * 500),), call_id="c")
    shown = renderer.decode(renderer.prompt((result,), ()))
    assert "a" * 20 + "\n[960 characters cut]\n" + "b" * 20 in shown
    messages, _ = request_for(beta1(), "A task. " * 20, Observed(text="c" * 500), ())
    shown = renderer.decode(renderer.prompt(messages, ()))
    assert "A task. " * 19 in shown and "c" * 20 in shown and "c" * 50 not in shown
    picture = Message(role="user", parts=(Image(frame_id="0" * 64, width=1920, height=1080),))
    assert "[screen 1920x1080]" in renderer.decode(renderer.prompt((picture,), ()))


def test_a_tokenizer_without_the_tokens_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE({"a": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match="three different tokens"):
        Renderer(load_tokenizer(tmp_path), RenderOptions())


def test_t08_nothing_is_put_before_the_first_message_in_training_or_serving(renderer: Renderer) -> None:
    """One start token a message: neither the tokenizer nor the template puts a second one before it."""
    messages = (Message(role="system", parts=(Text(text="S."),)), Message(role="user", parts=(Text(text="U."),)))
    prompt = renderer.prompt(messages, ())
    assert prompt[0] == renderer.start and prompt[1] != renderer.start
    assert prompt.count(renderer.start) == len(messages) + 1  # and the header of the reply
    assert renderer.prompt(messages[1:], ()).count(renderer.start) == 3  # an empty system message is put first
    assert not renderer.tokenizer.encode("", add_special_tokens=True).ids
