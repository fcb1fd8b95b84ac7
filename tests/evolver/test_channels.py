"""Which channel a turn used, and what the per-app table makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolver.channels import channel_of, channel_table, switches, union
from evolver.records import Channel, ToolCall
from harnesses.tree import read_tree, seed_path
from tests.evolver.cards import a_card
from tests.evolver.rollouts import a_rollout, a_turn

BETA2 = read_tree(seed_path("beta2"))


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=dict(arguments))


CLICK, LS = call("computer_use", action="left_click"), call("bash", command="ls")
END, TREE, WRONG = call("computer_use", action="terminate"), call("a11y_tree"), call("no_such_tool")


@pytest.mark.parametrize(
    ("calls", "channel"),
    [
        ([], "none"),
        ([CLICK], "gui"),
        ([LS], "terminal"),
        ([LS, CLICK], "both"),
        ([LS, END], "terminal"),
        ([END], "none"),
        ([TREE], "none"),
        ([TREE, CLICK], "gui"),
        ([WRONG], "none"),
    ],
)
def test_the_channel_of_a_turn_comes_from_the_kinds_of_the_tools_it_called(calls: list[ToolCall], channel: str) -> None:
    assert channel_of(calls, BETA2) == channel


def test_a_tool_that_the_harness_lacks_has_no_channel() -> None:
    assert channel_of([LS], read_tree(seed_path("alpha"))) == "none"


@given(st.lists(st.sampled_from(["gui", "terminal", "both", "none"])))
def test_the_channel_of_a_whole_is_the_union_of_its_parts(parts: list[Channel]) -> None:
    used = {"gui", "terminal"} if "both" in parts else set(parts) - {"none"}
    assert union(parts) == {0: "none", 1: next(iter(used), ""), 2: "both"}[len(used)]


def test_switches_pass_over_turns_without_a_channel() -> None:
    turns = [a_turn(c) for c in ("gui", "none", "gui", "terminal", "terminal", "none", "gui")]
    assert switches(turns) == 2
    assert switches([]) == 0


def test_the_table_counts_calls_by_app_and_a_rollout_over_two_apps_in_both() -> None:
    gui = a_rollout(id="g", apps=("calc", "files"), turns=(a_turn("gui", (CLICK, CLICK)), a_turn("none", (END,))))
    shell = a_rollout(id="s", apps=("files",), turns=(a_turn("terminal", (LS,)), a_turn("gui", (CLICK,))))
    cards = [
        a_card("b", 0, True, rollout_id="g", channel="gui", tokens=100),
        a_card("b", 1, False, rollout_id="s", channel="both", tokens=50),
    ]
    calc, files = channel_table(cards, {"g": gui, "s": shell}, BETA2)
    assert (calc.app, calc.rollouts, calc.gui_calls, calc.terminal_calls, calc.tokens) == ("calc", 1, 2, 0, 100)
    assert (files.app, files.rollouts, files.gui_calls, files.terminal_calls, files.tokens) == ("files", 2, 3, 1, 150)
    assert (files.switches, files.none_turns, files.seconds) == (1, 1, 2.0)
    assert {c: i.point for c, i in files.success_by_channel.items()} == {"gui": 1.0, "both": 0.0}


def test_s37_an_unknown_token_count_and_an_unscored_rollout_stay_unknown() -> None:
    rollouts = {name: a_rollout(id=name) for name in ("x", "y")}
    cards = [a_card("b", 0, None, rollout_id="x"), a_card("b", 1, True, rollout_id="y", tokens=None)]
    [row] = channel_table(cards, rollouts, BETA2)
    assert (row.rollouts, row.tokens) == (2, None)
    assert row.success_by_channel["gui"].n == 1
