"""Coordinates and arguments: what reaches the screen, and what is refused as the model's own mistake."""

from __future__ import annotations

import math

import pytest

from evolver.errors import BadAction
from evolver.protocols import Element
from evolver.tools import render_marks, to_pixels, to_thousandths
from evolver.tools.computer_use import to_act
from harnesses.harness import GUI_ACTIONS, Tool

SCREEN = (1920, 1080)
TOOL = Tool(name="computer_use", kind="computer_use", description="", actions=GUI_ACTIONS)


@pytest.mark.parametrize(
    ("point", "pixel"),
    [
        ([0, 0], (0, 0)),
        ([999, 999], (1919, 1079)),
        ([0, 999], (0, 1079)),
        ([500, 500], (960, 540)),
        ([999, 0], (1919, 0)),
    ],
)
def test_s19_corners_and_centre_land_on_their_pixels(point: list[int], pixel: tuple[int, int]) -> None:
    assert to_pixels(point, SCREEN) == pixel
    assert abs(to_thousandths(*pixel, SCREEN)[0] - point[0]) <= 1


@pytest.mark.parametrize(
    "point",
    [[1000, 5], [-1, 5], [10**9, 5], [math.nan, 5], ["500", 5], [5], [1, 2, 3], None, "5,5", [True, 5], [5.5, 5], {}],
)
def test_s19_anything_else_is_a_tool_error_and_no_click(point: object) -> None:
    with pytest.raises(BadAction, match=r"0\.\.999"):
        to_act({"action": "left_click", "coordinate": point}, TOOL, SCREEN)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "fly"},
        {},
        {"action": "key"},
        {"action": "type", "text": ""},
        {"action": "wait", "seconds": 1e9},
        {"action": "wait", "seconds": math.nan},
        {"action": "scroll", "coordinate": [5, 5], "amount": 0},
        {"action": "scroll", "coordinate": [5, 5], "amount": True},
        {"action": "left_click_drag", "coordinate": [5, 5]},
        {"action": "triple_click", "coordinate": [5, 5]},
    ],
)
def test_unusable_arguments_are_tool_errors(arguments: dict[str, object]) -> None:
    with pytest.raises(BadAction):
        to_act(arguments, TOOL, SCREEN)  # type: ignore[arg-type]


def test_marks_are_bounded_and_say_what_was_left_out() -> None:
    elements = [Element("push button", f"Button {i}", 10, 10 * i, 50, 8, actionable=True) for i in range(100)]
    text = render_marks(elements, SCREEN, 400)
    assert len(text) < 420
    assert text.splitlines()[-1].endswith("more")
