"""The demonstrator: channels, turns, targets on the live screen, and slips at the declared rate."""

from __future__ import annotations

import math
import time
from collections import Counter
from random import Random

import pytest

from devset.task import Criterion, GuiStep, GuiTarget, Oracle, Rubric, Task, TerminalStep
from evolver.config import DemonstratorSpec
from evolver.models import make_model
from evolver.models.demonstrator import FILES, PROCESSES, Demonstrator, find
from evolver.models.slips import off_target, wrong_argument, wrong_character
from evolver.protocols import Act, Element, Model, Privileged, Ran, Request
from evolver.records import Completion, Message, Text, ToolSpec
from evolver.testing import FakeSandbox
from evolver.tokens import count_request
from evolver.tools import tool_specs
from harnesses.harness import Sampling
from harnesses.tree import read_tree, seed_path

SCREEN = (1920, 1080)
SPECS = {seed: tool_specs(read_tree(seed_path(seed))) for seed in ("alpha", "beta1", "beta2")}
ASKED = (Message(role="user", parts=(Text(text="Rename it."),)),)
TERMINAL = (
    TerminalStep(summary="List the files.", command="ls"),
    TerminalStep(summary="Rename the file.", command="mv 'a b.txt' report-7.txt"),
)
SAVE = GuiTarget(name="Save", role="push button")
GUI = (
    GuiStep(action="left_click", summary="Click the text.", target=GuiTarget(name="Text", dx=10, dy=-5)),
    GuiStep(action="key", keys="ctrl+a"),
    GuiStep(action="type", text="Hello 12"),
    GuiStep(action="key", summary="Save.", keys="ctrl+s"),
    GuiStep(action="left_click", target=SAVE, wait_window="Save As"),
    GuiStep(action="wait", seconds=0.5),
)


def task(oracle: Oracle, *, feasible: bool = True) -> Task:
    return Task(
        id="rename-1",
        hash="h",
        family="rename",
        instruction="Rename it.",
        category="os",
        apps=("files",),
        channels=oracle.channels,
        feasible=feasible,
        rubric=Rubric(criteria=(Criterion(id="done", description="done"),)),
        check="",
        oracle=oracle,
    )


def desktop() -> FakeSandbox:
    """A screen with a text area; ctrl+s opens a dialog with a Save button."""
    sandbox = FakeSandbox(screen=SCREEN)
    sandbox.open_windows = ["notes - Mousepad"]
    sandbox.shown = [Element("text", "Text", 100, 200, 800, 400), Element("label", "Save", 5, 5, 10, 10)]

    def react(screen: FakeSandbox, action: Act) -> None:
        if action.keys == "ctrl+s":
            screen.open_windows.append("Save As")
            screen.shown.append(Element("push button", "Save", 1000, 900, 80, 30))

    sandbox.on_act = react
    return sandbox


def request(specs: tuple[ToolSpec, ...]) -> Request:
    return Request(messages=ASKED, tools=specs, sampling=Sampling(), seed=1)


async def play(
    sandbox: FakeSandbox, model: Model, specs: tuple[ToolSpec, ...], turns: int = 20
) -> list[tuple[Completion, str | None]]:
    """Asks until the model ends, and does on the fake screen what its GUI calls say."""
    log: list[tuple[Completion, str | None]] = []
    for _ in range(turns):
        answer = await model.complete(request(specs))
        log.append((answer, getattr(model, "last_slip", None)))
        for call in answer.calls:
            if call.arguments.get("action") not in (None, "terminate"):
                await sandbox.act(Act(kind=str(call.arguments["action"]), keys=str(call.arguments.get("keys", ""))))
        if not answer.calls or any(c.arguments.get("action") == "terminate" for c in answer.calls):
            return log
    raise AssertionError("the demonstrator never ended")


async def demonstrate(
    oracle: Oracle, seed: str, *, slip_rate: float = 0.0, key: str = "r-1", max_calls: int = 15, feasible: bool = True
) -> list[tuple[Completion, str | None]]:
    sandbox = desktop()
    model = Demonstrator(slip_rate, patience_s=0.5).bind(
        task(oracle, feasible=feasible), sandbox, key, max_calls=max_calls
    )
    return await play(sandbox, model, SPECS[seed])


def arguments(log: list[tuple[Completion, str | None]]) -> list[list[dict[str, object]]]:
    return [[dict(c.arguments) for c in answer.calls] for answer, _ in log]


BOTH = Oracle(terminal=TERMINAL, gui=GUI)
SUCCESS = {"action": "terminate", "status": "success"}


async def test_the_terminal_comes_first_where_the_harness_offers_it() -> None:
    log = await demonstrate(BOTH, "beta1")
    assert arguments(log) == [[{"command": "ls"}], [{"command": "mv 'a b.txt' report-7.txt"}], [SUCCESS]]
    assert [answer.text for answer, _ in log[:2]] == ["List the files.", "Rename the file."]
    assert {c.name for answer, _ in log[:2] for c in answer.calls} == {"bash"}


async def test_gui_turns_start_at_summaries_and_where_the_screen_must_be_read_again() -> None:
    log = await demonstrate(BOTH, "alpha")
    click = [round(510 * 999 / 1919), round(395 * 999 / 1079)]
    save = [round(1040 * 999 / 1919), round(915 * 999 / 1079)]
    assert arguments(log) == [
        [
            {"action": "left_click", "coordinate": click},
            {"action": "key", "keys": "ctrl+a"},
            {"action": "type", "text": "Hello 12"},
        ],
        [{"action": "key", "keys": "ctrl+s"}],
        [{"action": "left_click", "coordinate": save}, {"action": "wait", "seconds": 0.5}],
        [SUCCESS],
    ]
    assert [answer.text for answer, _ in log[:3]] == ["Click the text.", "Save.", "Left click Save."]


async def test_a_turn_has_no_more_calls_than_the_harness_allows() -> None:
    log = await demonstrate(BOTH, "alpha", max_calls=2)
    assert max(len(answer.calls) for answer, _ in log) == 2
    assert sum(len(answer.calls) for answer, _ in log) == len(GUI) + 1


async def test_it_looks_at_the_tree_once_where_the_harness_has_one() -> None:
    log = await demonstrate(BOTH, "beta2")
    names = [c.name for answer, _ in log for c in answer.calls]
    assert names == ["a11y_tree", "bash", "bash", "computer_use"]
    assert arguments(log)[0] == [{}]


async def test_no_channel_that_fits_ends_in_failure_with_a_reason() -> None:
    log = await demonstrate(Oracle(terminal=TERMINAL), "alpha")
    (ending,) = arguments(log)[0]
    assert (ending["action"], ending["status"]) == ("terminate", "failure") and ending["reason"]


async def test_an_action_that_the_tool_does_not_allow_closes_the_gui_channel() -> None:
    drag = GuiStep(action="triple_click", summary="Mark the line.", target=GuiTarget(name="Text"))
    (ending,) = arguments(await demonstrate(Oracle(gui=(drag,)), "alpha"))[0]
    assert ending["status"] == "failure"


async def test_an_infeasible_task_is_given_up_with_a_reason_after_its_oracle() -> None:
    why = "there is no such file"
    log = await demonstrate(Oracle(terminal=TERMINAL[:1], reason=why), "beta1", feasible=False)
    assert arguments(log)[0] == [{"command": "ls"}]
    assert arguments(log)[-1][0]["status"] == "failure" and arguments(log)[-1][0]["reason"] == why


async def test_without_a_way_to_terminate_the_end_is_a_reply_without_calls() -> None:
    sandbox = FakeSandbox()
    only_bash = tuple(spec for spec in SPECS["beta1"] if spec.name == "bash")
    model = Demonstrator().bind(task(BOTH), sandbox, "r-1", max_calls=15)
    log = await play(sandbox, model, only_bash)
    assert [len(answer.calls) for answer, _ in log] == [1, 1, 0] and log[-1][0].text


async def test_a_finish_check_gets_a_second_terminate() -> None:
    sandbox = desktop()
    model = Demonstrator().bind(task(Oracle(terminal=())), sandbox, "r-1", max_calls=15)
    for _ in range(2):
        answer = await model.complete(request(SPECS["beta1"]))
        assert [dict(c.arguments) for c in answer.calls] == [SUCCESS]


async def test_what_does_not_appear_is_waited_for_and_then_given_up_by_name() -> None:
    gone = GuiStep(action="left_click", summary="Click it.", target=GuiTarget(name="Nowhere", role="icon"))
    window = GuiStep(action="key", keys="Return", summary="Confirm.", wait_window="Nothing")
    for step, named in ((gone, "icon named 'Nowhere'"), (window, "window titled 'Nothing'")):
        (ending,) = arguments(await demonstrate(Oracle(gui=(step,)), "alpha"))[-1]
        assert ending["status"] == "failure" and named in str(ending["reason"])


async def test_tools_are_found_by_what_they_take_whatever_they_are_called() -> None:
    renamed = tuple(spec.model_copy(update={"name": f"my_{i}"}) for i, spec in enumerate(SPECS["beta2"]))
    sandbox = desktop()
    log = await play(sandbox, Demonstrator().bind(task(BOTH), sandbox, "r-1", max_calls=15), renamed)
    assert len(log) == 4 and all(c.name.startswith("my_") for answer, _ in log for c in answer.calls)


def test_find_takes_the_index_th_match_that_is_really_visible() -> None:
    shown = [
        Element("icon", "a", 0, 0, 0, 0),
        Element("icon", "a", 1, 0, 9, 9),
        Element("label", "a", 2, 0, 9, 9),
        Element("icon", "a", 3, 0, 9, 9),
    ]
    assert find(GuiTarget(name="a", role="icon"), shown) == shown[1]
    assert find(GuiTarget(name="a", role="icon", index=1), shown) == shown[3]
    assert find(GuiTarget(name="a", index=-1), shown) == shown[3]
    assert find(GuiTarget(name="a", role="icon", index=2), shown) is None
    assert find(GuiTarget(name="A"), shown) is None


# --- slips -------------------------------------------------------------------------------------------------------


async def slips(oracle: Oracle, seed: str, rate: float, rollouts: int) -> list[list[tuple[Completion, str | None]]]:
    return [await demonstrate(oracle, seed, slip_rate=rate, key=f"r-{n}") for n in range(rollouts)]


async def test_slips_come_at_the_declared_rate_and_never_in_looks_or_endings() -> None:
    terminal = Oracle(terminal=TERMINAL * 5)
    logs = await slips(terminal, "beta2", 0.2, 100)
    named = [slip for log in logs for _, turn_slips in log if turn_slips for slip in turn_slips.split("; ")]
    assert 0.16 < len(named) / 1000 < 0.24
    assert all(log[0][1] is None and arguments(log)[0] == [{}] for log in logs)
    assert all(arguments(log)[-1] == [SUCCESS] for log in logs)
    assert set(Counter(slip.split(":")[0] for slip in named)) == {"wrong_value", "skipped"}


async def test_the_same_rollout_slips_the_same_way_and_another_one_differently() -> None:
    first, again = [await demonstrate(BOTH, "beta1", slip_rate=0.5, key="r-1") for _ in range(2)]
    assert first == again
    assert len({str(log) for log in await slips(BOTH, "beta1", 0.5, 12)}) > 1


async def test_every_slip_is_really_executed_and_named() -> None:
    clean = {str(a) for turn in arguments(await demonstrate(BOTH, "beta1")) for a in turn}
    for log in await slips(BOTH, "beta1", 0.6, 30):
        made = {str(a) for turn in arguments(log) for a in turn}
        named = [s for _, turn_slips in log if turn_slips for s in turn_slips.split("; ")]
        wrong = sum(s.startswith("wrong_value") for s in named)
        assert len(made - clean) == wrong  # each wrong value differs from the oracle's
        assert len(clean - made) == len(named)  # and whatever slipped is missing in its right form


async def test_a_skipped_only_call_joins_the_next_turn_instead_of_ending_the_attempt() -> None:
    for log in await slips(BOTH, "beta1", 1.0, 20):
        assert all(answer.calls for answer, _ in log)
        assert arguments(log)[-1] == [SUCCESS]


async def test_a_slip_shortens_the_patience_of_its_own_turn_already() -> None:
    opens_nothing = Oracle(gui=(GUI[0], GuiStep(action="key", keys="ctrl+s", wait_window="Never")))
    for seed in range(30):
        sandbox = desktop()
        model = Demonstrator(1.0, patience_s=5.0).bind(task(opens_nothing), sandbox, f"r-{seed}", max_calls=15)
        started = time.monotonic()
        log = await play(sandbox, model, SPECS["alpha"])
        if (log[0][1] or "").startswith("skipped"):
            assert time.monotonic() - started < 4
            return
    raise AssertionError("no call was skipped")


async def test_clicks_slip_by_60_to_120_pixels() -> None:
    click = Oracle(gui=(GUI[0],))
    right = arguments(await demonstrate(click, "alpha"))[0][0]["coordinate"]
    distances = []
    for log in await slips(click, "alpha", 1.0, 30):
        if (log[0][1] or "").startswith("off_target"):
            wrong = arguments(log)[0][0]["coordinate"]
            distances.append(math.hypot((wrong[0] - right[0]) * 1919 / 999, (wrong[1] - right[1]) * 1079 / 999))
    assert len(distances) > 5 and all(58 < d < 122 for d in distances)


def test_off_target_stays_on_the_screen_even_in_a_corner() -> None:
    rng = Random(0)
    for corner in ((0, 0), (1919, 0), (0, 1079), (1919, 1079)):
        for _ in range(200):
            x, y = off_target(corner, SCREEN, rng)
            assert 0 <= x <= 1919 and 0 <= y <= 1079
            assert 60 <= math.hypot(x - corner[0], y - corner[1]) <= 120


def test_wrong_values_differ_in_one_character_and_leave_an_end_mark_alone() -> None:
    rng = Random(0)
    for text in ("Total 42", "häuser", "X"):
        wrong = wrong_character(text, rng)
        assert wrong is not None and len(wrong) == len(text)
        assert sum(a != b for a, b in zip(text, wrong, strict=True)) == 1
    assert wrong_character("!?", rng) is None
    assert wrong_argument("mv a.txt b7.txt", rng) in {f"mv a.txt b{d}.txt" for d in "012345689"}
    heredoc = "cat > x.txt <<'EOF'\nvalue 5\nEOF"
    wrong = wrong_argument(heredoc, rng)
    assert wrong is not None and wrong.startswith("cat > x.txt <<'EOF'\nvalue ") and wrong.endswith("\nEOF")
    assert wrong != heredoc
    assert wrong_argument("| ;", rng) is None


# --- a save that takes its time -----------------------------------------------------------------------------------

SAVED = Oracle(gui=(*GUI[:3], GuiStep(action="key", summary="Save.", keys="ctrl+s"), GuiStep(action="wait", seconds=2)))


async def saved(listings: list[str], patience_s: float) -> tuple[float, int]:
    """Seconds that the demonstrator takes while the files are listed so, the last for ever; how often it looked."""
    sandbox = desktop()
    sandbox.answers[FILES] = lambda sandbox: Ran(0, listings[min(sandbox.commands.count(FILES), len(listings)) - 1])
    started = time.monotonic()
    log = await play(
        sandbox, Demonstrator(patience_s=patience_s).bind(task(SAVED), sandbox, "r-1", max_calls=15), SPECS["alpha"]
    )
    assert arguments(log)[-1] == [SUCCESS]
    return time.monotonic() - started, sandbox.commands.count(FILES)


async def test_it_ends_once_the_file_is_written_and_stands_still_however_late_that_is() -> None:
    _, looks = await saved(["old", "old", "old", "half", "new"], patience_s=25)
    assert looks == 6  # the last two say the same


async def test_a_save_that_never_comes_is_not_waited_for_for_ever() -> None:
    took, looks = await saved(["old"], patience_s=0.5)
    assert looks > 1 and 0.5 < took < 5


async def closed(windows: list[list[str]], programs: list[str], patience_s: float) -> tuple[float, int]:
    """Closes a window and clicks; `windows` and `programs` are what is there at each look. Returns the seconds until
    the click, and how often the programs were looked at."""
    sandbox, shown, looks = FakeSandbox(screen=SCREEN), list(windows), list(programs)
    sandbox.shown = [Element("push button", "Save", 0, 0, 10, 10)]
    sandbox.answers[PROCESSES] = lambda _: Ran(0, looks.pop(0) if len(looks) > 1 else looks[0])

    async def seen(*, drawn: bool = False) -> list[str]:
        return shown.pop(0) if len(shown) > 1 else shown[0]

    sandbox.windows = seen  # type: ignore[method-assign]
    steps = (
        GuiStep(action="key", keys="ctrl+q", summary="Close it."),
        GuiStep(action="left_click", target=SAVE, summary="Click."),
    )
    started = time.monotonic()
    bound = Demonstrator(patience_s=patience_s).bind(task(Oracle(gui=steps)), sandbox, "r-1", max_calls=15)
    log = await play(sandbox, bound, SPECS["alpha"])
    assert arguments(log)[-1] == [SUCCESS]
    return time.monotonic() - started, sandbox.commands.count(PROCESSES)


async def test_a_window_that_is_to_close_is_waited_for_until_its_program_rests() -> None:
    one, none = ["Book.xlsx"], list[str]()
    _, looks = await closed([one, one, none], ["office", "office", "office", "desktop"], patience_s=25)
    assert looks == 3  # there it is gone, and nothing has changed since the look before
    _, looks = await closed([one, none], ["office", "ending", "desktop"], patience_s=25)
    assert looks == 4
    took, looks = await closed([one], ["office"], patience_s=0.5)  # a question holds it open: that is no reason to hang
    assert looks > 1 and 0.5 < took < 5


# --- what it says about itself -----------------------------------------------------------------------------------


def test_it_declares_what_it_is() -> None:
    made = make_model(DemonstratorSpec(slip_rate=0.05))
    assert isinstance(made, Privileged)
    assert (made.id, made.declared) == ("demonstrator", "demonstrator (scripted, slip rate 0.05)")
    with pytest.raises(ValueError, match="slip rate"):
        Demonstrator(1.5)


async def test_its_tokens_are_estimated_by_the_declared_rule() -> None:
    answer, _ = (await demonstrate(BOTH, "beta1"))[0]
    assert answer.usage.counted_by == "estimate"
    assert answer.usage.input_tokens == count_request(ASKED, SPECS["beta1"])
    assert answer.usage.output_tokens == 4 + 12  # 15 bytes of text, 48 of the call's JSON
