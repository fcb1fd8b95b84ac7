"""Whatever is in the records: tables, turns and pages fit their bounds, and checks give no answer away."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.chat import body_for
from evolver.evidence.costs import PARTS, sections_of
from evolver.evidence.material import _SAID, said, text_of
from evolver.evidence.sheet import Cell, Column, Sheet, as_json, cut, middle, size
from evolver.evidence.transcripts import fenced, told
from evolver.records import Image, Interval, Message, Score, Text, ToolCall, ToolSpec
from evolver.tokens import count_text
from harnesses.harness import Sampling
from tests.evolver.made_run import turns

TEXT = st.text(max_size=300)
CELL = st.one_of(
    TEXT, st.integers(-5, 10**9), st.floats(-10, 10), st.none(), st.lists(TEXT, max_size=4).map(tuple),
    st.floats(0, 1).map(lambda x: Interval(point=x, low=x, high=x, n=3, method="made up")),
)  # fmt: skip
FORMS = st.sampled_from(["text", "count", "percent", "pp", "number", "dollars"])


@st.composite
def sheets(draw: st.DrawFn) -> Sheet:
    forms = draw(st.lists(FORMS, min_size=1, max_size=4))
    columns = tuple(Column(f"key{n}", f"title {n}", form) for n, form in enumerate(forms))
    row = st.tuples(
        *[CELL if form == "text" else CELL.filter(lambda c: not isinstance(c, str | tuple)) for form in forms]
    )
    rows: list[tuple[Cell, ...]] = draw(st.lists(row, max_size=12))
    return Sheet("key", "A title", draw(st.text(max_size=80)), columns, rows)


@given(sheets(), st.integers(600, 4_000))
@settings(max_examples=60, deadline=None)
def test_a_table_fits_its_bound_and_counts_what_is_left_out(sheet: Sheet, limit: int) -> None:
    shown = sheet.markdown(limit)
    assert size(shown) <= limit
    plain = sheet.plain(limit)
    assert size(as_json(plain)) <= limit and json.loads(as_json(plain)) == plain
    held, left = plain["rows"], plain["left_out"]
    assert isinstance(held, list) and isinstance(left, int) and len(held) + left == len(sheet.rows)


@given(st.text(max_size=3_000), st.integers(40, 2_000))
@settings(max_examples=60, deadline=None)
def test_texts_are_cut_within_their_bounds(text: str, limit: int) -> None:
    assert size(cut(text, limit)) <= limit
    if size(text) <= limit:
        assert cut(text, limit) == text
    assert len(middle(text, limit)) <= limit + 60


@given(st.text(alphabet="`~a\n ", max_size=200))
def test_no_text_ends_the_block_that_it_stands_in(text: str) -> None:
    first, *_, last = fenced(text).rstrip("\n").split("\n")
    inside = fenced(text).split("\n")[1:-2]
    assert first == f"{last}text" and not [line for line in inside if re.match(rf"\s*{last}", line)]


@given(
    st.lists(st.tuples(st.text(max_size=4_000), st.text(max_size=4_000)), min_size=1, max_size=2),
    st.integers(300, 2_000),
)
@settings(max_examples=40, deadline=None)
def test_a_turn_is_told_in_about_as_many_characters_as_asked(words: list[tuple[str, str]], longest: int) -> None:
    for turn in turns(words):
        assert len(told(turn, longest)) <= 6 * longest + 600  # escapes of control characters in arguments take six


@given(st.text(max_size=200) | st.sampled_from(["X is 'a b', expected 'the row is gone'", "holds [a], expected [row]"]))
def test_what_a_check_said_is_told_in_plain_words_alone(explanation: str) -> None:
    score = Score(criterion="c", weight=1, required=True, value=0.0, explanation=explanation, grader="program")
    assert set(said(score).split()) <= _SAID | {"…"}
    assert said(score.model_copy(update={"grader": "judge m v1"})) == "", "a judge's words are not told at all"


def test_words_after_the_answer_s_begin_are_not_told() -> None:
    def told_of(explanation: str) -> str:
        return said(score.model_copy(update={"explanation": explanation}))

    score = Score(criterion="c", weight=1, required=True, value=0.0, explanation="", grader="program")
    assert told_of("Documents/a.txt is missing") == "… is missing"
    assert told_of("X has 3 line(s) ['the row is gone'], expected ['a row']") == "… has … line …"
    assert told_of("X holds 7, expected the other number") == "… holds … expected"


# --- cost by section of the prompt ------------------------------------------------------------------------------------

TOOL = ToolSpec(name="bash", description="a shell " * 20, parameters={"type": "object"})
CALL = ToolCall(id="1", name="bash", arguments={"command": "ls -la"})
PICTURE = Image(frame_id="f" * 64, width=280, height=280)


def sent(protocol: str, *, picture: bool) -> dict[str, int]:
    messages = (
        Message(role="system", parts=(Text(text="You are an agent. " * 10),)),
        Message(
            role="user",
            parts=(
                Text(text="Sort the file.\n\nSteps so far:\n1. looked\n2. opened"), Text(text="Screen:\n[button] OK"),
                *((PICTURE,) if picture else ()),
            ),
        ),
        Message(role="assistant", parts=(Text(text="I list."),), calls=(CALL,)),
        Message(role="tool", parts=(Text(text="a.txt b.txt " * 5),), call_id="1"),
        Message(role="user", parts=(Text(text="[earlier screen removed]"),)),
    )  # fmt: skip
    body = body_for(messages, (TOOL,), Sampling(), 0, protocol)  # type: ignore[arg-type]
    found = sections_of(body, {PICTURE.frame_id: 100})
    texts = [text_of(m["content"]) for m in body["messages"]]  # type: ignore[union-attr, index, call-overload]
    carried = [json.dumps(m["tool_calls"]) for m in body["messages"] if "tool_calls" in m]  # type: ignore[union-attr]
    carried += [json.dumps(body["tools"])] if "tools" in body else []
    whole = sum(count_text(text) for text in [*texts, *carried]) + 4 * len(texts) + 100 * picture
    assert abs(sum(found.values()) - whole) <= 6, "each part is rounded up on its own; nothing is lost or counted twice"
    return {part: found[part] for part in PARTS}


def test_a_request_is_taken_apart_into_what_its_parts_cost() -> None:
    for protocol in ("native_tools", "xml"):
        plain, seen = sent(protocol, picture=False), sent(protocol, picture=True)
        assert plain["images"] == 0 and seen["images"] == 100
        for part in ("system", "tools", "history"):
            assert plain[part] == seen[part] > 0, part
        assert 49 <= plain["system"] <= 50 and 4 < plain["task"] <= 4 + 4 + 1
        assert 10 <= plain["observation text"] <= 16, "the screen's text, and the note on one that is gone"
        assert plain["tools"] >= 40 and plain["history"] >= 25
