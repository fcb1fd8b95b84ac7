"""The declared estimate of tokens."""

from __future__ import annotations

import pytest

from evolver.records import Image, ImageRule, Message, Text, ToolCall, ToolSpec
from evolver.tokens import count_image, count_message, count_request, count_text, image_rule_for


def test_text_is_a_quarter_of_its_bytes_rounded_up() -> None:
    assert [count_text(t) for t in ("", "a", "abcd", "abcde", "ü" * 4, "你好")] == [0, 1, 1, 2, 2, 2]


def test_a_lone_surrogate_is_counted_not_raised() -> None:
    assert count_text("\ud800") == 1


@pytest.mark.parametrize(
    ("rule", "tokens"),
    [("qwen2", 69 * 39), ("qwen3", 60 * 34), ("openai_tiles", 85 + 6 * 170), ("openai_patches", 3_779)],
)
def test_s34_an_image_counts_by_the_rule_of_its_models_family(rule: ImageRule, tokens: int) -> None:
    assert count_image(1920, 1080, rule) == tokens
    shot = Message(role="user", parts=(Image(frame_id="f", width=1920, height=1080),))
    assert count_request((shot,), (), rule) == tokens + 4


def test_s34_small_and_large_images() -> None:
    assert count_image(28, 28) == 1 and count_image(29, 28) == 2
    assert count_image(1024, 1024, "openai_tiles") == 765 and count_image(2048, 4096, "openai_tiles") == 1_105
    assert count_image(512, 512, "openai_tiles") == 85 + 170
    assert count_image(320, 320, "openai_patches") == 246


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2"),
        ("qwen3.6-27b", "qwen3"),
        ("gpt-4o-2024-11-20", "openai_tiles"),
        ("gpt-5.4-mini", "openai_patches"),
        ("gpt-5.4", "openai_tiles"),
        ("someone/a-model", "qwen2"),
    ],
)
def test_the_rule_is_told_by_the_models_name_or_given(model: str, rule: ImageRule) -> None:
    assert image_rule_for(model) == rule and image_rule_for(model, "qwen3") == "qwen3"


def test_a_request_is_its_messages_with_calls_and_its_tools() -> None:
    shot = Message(role="user", parts=(Text(text="abcd"), Image(frame_id="f", width=56, height=28)))
    call = Message(role="assistant", calls=(ToolCall(id="c", name="bash", arguments={"command": "ls"}),))
    tool = ToolSpec(name="bash", description="d", parameters={})
    assert count_message(shot) == 4 + 1 + 2
    assert count_message(call) == 4 + 12
    assert count_request((shot, call), (tool,)) == 7 + 16 + count_text(tool.model_dump_json())
