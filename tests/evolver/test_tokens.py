"""The declared estimate of tokens."""

from __future__ import annotations

from evolver.records import Image, Message, Text, ToolCall, ToolSpec
from evolver.tokens import count_image, count_message, count_request, count_text


def test_text_is_a_quarter_of_its_bytes_rounded_up() -> None:
    assert [count_text(t) for t in ("", "a", "abcd", "abcde", "ü" * 4, "你好")] == [0, 1, 1, 2, 2, 2]


def test_a_lone_surrogate_is_counted_not_raised() -> None:
    assert count_text("\ud800") == 1


def test_s34_an_image_counts_by_its_patches() -> None:
    assert count_image(1920, 1080) == 69 * 39
    assert count_image(28, 28) == 1 and count_image(29, 28) == 2


def test_a_request_is_its_messages_with_calls_and_its_tools() -> None:
    shot = Message(role="user", parts=(Text(text="abcd"), Image(frame_id="f", width=56, height=28)))
    call = Message(role="assistant", calls=(ToolCall(id="c", name="bash", arguments={"command": "ls"}),))
    tool = ToolSpec(name="bash", description="d", parameters={})
    assert count_message(shot) == 4 + 1 + 2
    assert count_message(call) == 4 + 12
    assert count_request((shot, call), (tool,)) == 7 + 16 + count_text(tool.model_dump_json())
