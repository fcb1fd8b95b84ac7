"""One parser for calls: whatever a reply says, it is run as written or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolver.calls import call_text, parse_object, parse_reply

CALL = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
ARGUMENTS = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=30),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@given(arguments=ARGUMENTS, compact=st.booleans())
def test_what_is_written_is_read_back_exactly_also_when_it_spells_a_tag(
    arguments: dict[str, object], compact: bool
) -> None:
    for given_arguments in (arguments, {**arguments, "text": "</tool_call><tool_call>{} </think>"}):
        back = parse_reply(f"Do it.\n{call_text('bash', given_arguments, compact=compact)}")  # type: ignore[arg-type]
        assert (back.invalid, back.text) == (None, "Do it.")
        assert [(c.name, c.arguments) for c in back.calls] == [("bash", given_arguments)]


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        (f"Look.\n{CALL}", "Look.", 1),
        (f"{CALL}\nThen I will see.", "Then I will see.", 1),
        (f"{CALL}{CALL}", "", 2),
        (f"<think>{CALL} terminate [INFEASIBLE]</think>Wait.", "Wait.", 0),
        ("I would terminate here.", "I would terminate here.", 0),
    ],
)
def test_s32_text_before_between_and_after_calls_and_markers_have_one_outcome(said: str, text: str, calls: int) -> None:
    parsed = parse_reply(said)
    assert (parsed.text, len(parsed.calls), parsed.invalid) == (text, calls, None)


@given(cut=st.integers(1, len(CALL) - 1))
def test_s31_a_call_cut_anywhere_is_never_run(cut: int) -> None:
    parsed = parse_reply(f"Look. {CALL[:cut]}")
    assert parsed.calls == () and (parsed.invalid or "<tool_call>" not in CALL[:cut])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1]",
        '"ls"',
        '{"a": 1',
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        '{"a": "\\ud83d"}',
        "{'a': 1}",
        "[" * 99_999,
    ],
)
def test_s31_what_is_no_object_is_no_empty_object_either(text: str) -> None:
    with pytest.raises(ValueError):
        parse_object(text)
    whole = {"a": "😀", "b": {"c": [1, None]}}
    assert parse_object(json.dumps(whole)) == whole
