"""The screen: what is on it, what the mouse and the keyboard do to real applications, and what pictures promise."""

from __future__ import annotations

import asyncio
import io
import time

import openpyxl
import pytest
from PIL import Image

from evolver import records
from evolver.errors import BadAction
from evolver.protocols import Act, Sandbox
from evolver.tools import call_tool
from harnesses.tree import read_tree, seed_path
from tests.sandboxes.desk import at, element, sheet, show, window

pytestmark = [pytest.mark.desktop, pytest.mark.asyncio(loop_scope="session")]


async def pointer(box: Sandbox) -> tuple[int, ...]:
    """Where the mouse is, and how many keys and buttons are down."""
    code = (
        "from Xlib import display; d = display.Display(); p = d.screen().root.query_pointer(); "
        "print(p.root_x, p.root_y, sum(bin(b).count('1') for b in d.query_keymap()), p.mask)"
    )
    ran = await box.exec(f'python3 -c "{code}"', timeout_s=10)
    return tuple(map(int, ran.output.split()))


async def test_s12_calc_opens_maximised_without_a_dialog_and_cells_are_where_they_are_said_to_be(desk: Sandbox) -> None:
    await desk.write("Desktop/book.xlsx", sheet(["name", 7]))
    icon = await element(desk, "book.xlsx", "icon")
    assert icon.actionable
    await desk.act(at("double_click", icon))
    await window(desk, "book.xlsx")
    assert (await desk.screenshot(settle_s=15)).settled
    assert await desk.windows() == ["book.xlsx - LibreOffice Calc"]
    found = await desk.elements()
    assert next(e.text for e in found if e.name == "B1") == "7"
    frame = next(e for e in found if e.depth == 0)
    assert (frame.width, frame.height) == (1920, 1080)
    assert not any(e.role == "icon" for e in found)  # the desktop is hidden behind it
    await desk.act(at("left_click", await element(desk, "B2")))
    await desk.act(Act("type", text="42\n"))
    await desk.screenshot(settle_s=5)
    assert (await element(desk, "B2")).text == "42"
    await desk.act(Act("key", keys="ctrl+s"))
    await desk.screenshot(settle_s=5)
    assert await desk.windows() == ["book.xlsx - LibreOffice Calc"]  # no question about the format
    assert openpyxl.load_workbook(io.BytesIO(await desk.read("Desktop/book.xlsx"))).active["B2"].value == 42


async def test_s19_clicks_land_on_the_pixel_and_never_off_the_screen(desk: Sandbox) -> None:
    for x, y in ((0, 0), (1919, 1079), (960, 0), (0, 540), (1919, 540), (960, 1079)):
        await desk.act(Act("mouse_move", x=x, y=y))
        assert (await pointer(desk))[:2] == (x, y)
    for x, y in ((1920, 5), (-1, 5), (5, 1080), (10**9, 5)):
        with pytest.raises(BadAction, match="not on the 1920x1080 screen"):
            await desk.act(Act("left_click", x=x, y=y))
        assert (await pointer(desk))[:2] == (960, 1079)
    with pytest.raises(BadAction, match="needs x and y"):
        await desk.act(Act("mouse_move"))


def call(arguments: dict[str, object]) -> records.ToolCall:
    return records.ToolCall.model_validate({"id": "c", "name": "computer_use", "arguments": arguments})


async def test_s20_coordinates_are_read_against_the_frame_that_the_model_saw(desk: Sandbox) -> None:
    harness = read_tree(seed_path("alpha"))
    seen = records.Image(frame_id="f" * 64, width=1920, height=1080)
    await desk.screenshot()  # another capture by the platform, and a zoomed one by the agent
    zoomed = (
        "r = display.Display().screen().root; print(len(r.get_image(500, 500, 64, 36, X.ZPixmap, 0xFFFFFFFF).data))"
    )
    ran = await desk.exec(f"python3 -c 'from Xlib import X, display; {zoomed}'", timeout_s=10)
    assert ran.output == f"{64 * 36 * 4}\n"
    for point, pixel in (([250, 750], (480, 810)), ([999, 0], (1919, 0)), ([333, 333], (640, 360))):
        outcome = await call_tool(call({"action": "mouse_move", "coordinate": point}), harness, desk, seen)
        assert (outcome.result.is_error, outcome.result.frame_id) == (False, "f" * 64)
        assert (await pointer(desk))[:2] == pixel
    small = records.Image(frame_id="e" * 64, width=960, height=540)
    await call_tool(call({"action": "mouse_move", "coordinate": [999, 999]}), harness, desk, small)
    assert (await pointer(desk))[:2] == (959, 539)
    for point in ([1000, 5], [-1, 5], ["500", 5], [5], [float("nan"), 5], {"x": 5, "y": 5}):
        outcome = await call_tool(call({"action": "left_click", "coordinate": point}), harness, desk, seen)
        assert outcome.result.is_error and (await pointer(desk))[:2] == (959, 539)


async def test_s23_keys_have_their_usual_names_and_others_are_errors(desk: Sandbox) -> None:
    usual = "ctrl+comma ctrl+, PrintScreen super Page_Down pagedown Enter Return KP_Enter F5"
    for keys in usual.split():
        await desk.act(Act("key", keys=keys))
    await desk.act(Act("key", keys="Escape"))
    for keys in ("ctrl+nosuchkey", "", "hyperspace"):
        with pytest.raises(BadAction):
            await desk.act(Act("key", keys=keys))


async def hold(box: Sandbox, *keycodes: int, button: int) -> None:
    """Keys and a button that a program of the agent presses and does not let go."""
    down = "".join(f"xtest.fake_input(d, X.KeyPress, {code}); " for code in keycodes)
    code = f"from Xlib import X, display; from Xlib.ext import xtest; d = display.Display(); {down}"
    ran = await box.exec(f"python3 -c '{code}xtest.fake_input(d, X.ButtonPress, {button}); d.sync()'", timeout_s=10)
    assert ran.exit_code == 0, ran.output


async def test_s24_keys_and_buttons_are_up_after_a_step_however_it_ends(desk: Sandbox) -> None:
    await desk.write("plain.txt", b"")
    await show(desk, "mousepad plain.txt", "plain.txt")
    await hold(desk, 37, 50, button=1)  # ctrl and shift
    assert (await pointer(desk))[2:] != (0, 0)
    await desk.act(Act("type", text="abc"))  # with ctrl down, it would be three shortcuts
    assert (await pointer(desk))[2:] == (0, 0)
    for wrong in (
        Act("left_click_drag", x=5, y=5, to_x=5_000, to_y=5),
        Act("key", keys="ctrl+shift+nosuchkey"),
        Act("left_click", x=5, y=5, keys="ctrl+0x"),
    ):
        await hold(desk, 64, button=3)  # alt
        with pytest.raises(BadAction):
            await desk.act(wrong)
        assert (await pointer(desk))[2:] == (0, 0)
    await desk.act(Act("key", keys="Escape"))
    await desk.act(Act("key", keys="ctrl+s"))
    await desk.screenshot(settle_s=5)
    assert (await desk.read("plain.txt")).rstrip() == b"abc"


WATCH = """
from Xlib import X, display
d = display.Display()
w = d.screen().root.create_window(0, 0, 400, 400, 0, 24, event_mask=X.ButtonPressMask, override_redirect=1)
w.map(); d.sync(); print("ready", flush=True)
for _ in range(6): print(d.next_event().detail, flush=True)
"""


async def test_s22_each_mouse_action_arrives_as_the_buttons_it_means(desk: Sandbox) -> None:
    await desk.write("/tmp/watch.py", WATCH.encode())
    await desk.bash(
        "python3 /tmp/watch.py > /tmp/seen & while ! grep -q ready /tmp/seen; do sleep 0.05; done", timeout_s=20
    )
    wheels = (("scroll", 1), ("scroll", -1), ("hscroll", 1), ("hscroll", -1))
    for kind, amount in (*wheels, ("right_click", 0), ("middle_click", 0)):
        await desk.act(Act(kind, x=50, y=50, amount=amount))
    await asyncio.sleep(0.3)
    assert (await desk.read("/tmp/seen")).decode().split()[1:] == ["5", "4", "7", "6", "3", "2"]  # down is positive


async def test_s22_an_editor_recognises_double_and_triple_clicks_and_drags(desk: Sandbox) -> None:
    await desk.write("a.txt", b"alpha beta\ngamma delta\nthird line\n" + b"long " * 200)
    await show(desk, "mousepad a.txt", "a.txt")
    text = next(e for e in await desk.elements() if e.text.startswith("alpha"))
    x, y, line = text.x + 12, text.y + 8, 17
    await desk.act(Act("double_click", x=x, y=y))
    await desk.act(Act("type", text="A"))
    await desk.act(Act("triple_click", x=x, y=y + line))
    await desk.act(Act("type", text="B"))
    await desk.act(Act("left_click_drag", x=text.x + 2, y=y + 2 * line, to_x=text.x + 400, to_y=y + 2 * line))
    await desk.act(Act("type", text="C"))
    await desk.act(Act("key", keys="ctrl+s"))
    await desk.screenshot(settle_s=5)
    assert (await desk.read("a.txt")).startswith(b"A beta\nB\nC\nlong long")
    before = (await desk.screenshot(settle_s=3)).png
    await desk.act(Act("hscroll", x=x + 100, y=y + 100, amount=5))
    assert (await desk.screenshot(settle_s=3)).png != before


async def test_s22_a_sheet_recognises_double_clicks_drags_and_both_wheels(desk: Sandbox) -> None:
    await desk.write("b.xlsx", sheet(["one two", 2], [3, 4]))
    await show(desk, "libreoffice --calc b.xlsx", "b.xlsx")
    await desk.act(at("double_click", await element(desk, "A1")))  # into the cell, rather than over it
    await desk.act(Act("key", keys="End"))
    await desk.act(Act("type", text=" more\n"))
    start, end = at("", await element(desk, "B1")), at("", await element(desk, "B2"))
    await desk.act(Act("left_click_drag", x=start.x, y=start.y, to_x=end.x, to_y=end.y))
    await desk.act(Act("key", keys="Delete"))
    await desk.act(Act("key", keys="ctrl+s"))
    await desk.screenshot(settle_s=5)
    cells = openpyxl.load_workbook(io.BytesIO(await desk.read("b.xlsx"))).active
    assert [[cell.value for cell in row] for row in cells["A1:B2"]] == [["one two more", None], [3, None]]
    await desk.act(Act("hscroll", x=start.x, y=start.y + 300, amount=2))
    await desk.act(Act("scroll", x=start.x, y=start.y + 300, amount=2))
    await desk.screenshot(settle_s=5)
    assert not any(e.name in ("A1", "A2", "B1") for e in await desk.elements())


async def test_s22_a_word_processor_recognises_double_and_triple_clicks_and_drags(desk: Sandbox) -> None:
    await desk.write("c.txt", b"alpha beta. Gamma delta.\nthird line here\n")
    await show(desk, "libreoffice --writer c.txt", "c.txt")
    first = next(e for e in await desk.elements() if e.text.startswith("alpha"))
    third = next(e for e in await desk.elements() if e.text.startswith("third"))
    x, y = first.x + 85, first.y + first.height // 2  # its box starts at the edge of the page
    await desk.act(Act("double_click", x=x, y=y))
    await desk.act(Act("type", text="A"))
    await desk.act(Act("triple_click", x=x, y=y))  # a sentence
    await desk.act(Act("type", text="B."))
    y = third.y + third.height // 2
    await desk.act(Act("left_click_drag", x=third.x + 77, y=y, to_x=third.x + 500, to_y=y))
    await desk.act(Act("type", text="C"))
    await desk.act(Act("key", keys="ctrl+s"))
    await desk.screenshot(settle_s=5)
    assert (await desk.read("c.txt")).decode("utf-8-sig").splitlines() == ["B. Gamma delta.", "C"]


RESTLESS = (
    "import itertools, time; from Xlib import display; d = display.Display(); "
    "[(d.screen().root.warp_pointer(x, x), d.sync(), time.sleep(0.05)) for x in itertools.cycle((10, 900))]"
)


async def test_s25_a_picture_is_whole_and_says_whether_the_screen_stood_still(desk: Sandbox) -> None:
    frame = await desk.screenshot(settle_s=5)
    image = Image.open(io.BytesIO(frame.png))
    image.load()
    assert image.size == (frame.width, frame.height) == (1920, 1080) and frame.settled
    assert len(image.getcolors(1 << 24) or ()) > 1
    await desk.bash(f'python3 -c "{RESTLESS}" & mover=$!', timeout_s=5)
    assert not (await desk.screenshot(settle_s=1)).settled
    await desk.bash("kill $mover", timeout_s=5)


async def test_s29_an_application_started_from_bash_shows_and_does_not_block(desk: Sandbox) -> None:
    started = time.monotonic()
    assert (await desk.bash("mousepad &", timeout_s=10)).timed_out is False
    assert time.monotonic() - started < 5
    await window(desk, "Mousepad")
    await desk.act(Act("key", keys="alt+F4"))
    deadline = time.monotonic() + 10
    while left := await desk.windows():
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.1)


async def test_icons_stand_in_the_order_of_their_names_however_their_files_came(desk: Sandbox) -> None:
    """By age they would stand as the second changes between two of them, or as a busy file manager hears of them."""
    await desk.write("Desktop/c.txt", b"first")
    await asyncio.sleep(1.1)
    for name in ("d.txt", "a.txt", "b.txt"):
        await desk.write(f"Desktop/{name}", b"later")
    for name in "abcd":
        await element(desk, f"{name}.txt", "icon")
    placed = sorted((e.x, e.y, e.name) for e in await desk.elements() if e.role == "icon" and e.name[1:] == ".txt")
    columns = [round(x / 100) for x, _, _ in placed]
    assert len(set(columns)) == 1 and [name for _, _, name in sorted(placed, key=lambda p: p[1])] == [
        "a.txt", "b.txt", "c.txt", "d.txt",
    ]  # fmt: skip
