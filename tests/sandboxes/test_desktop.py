"""The screen: what is on it, what the mouse and the keyboard do to real applications, and what pictures promise."""

from __future__ import annotations

import asyncio
import io
import time

import pytest
from PIL import Image

from evolver.errors import BadAction, SandboxLost
from evolver.protocols import Act, Element, Sandbox, Sandboxes
from harnesses.harness import Environment

pytestmark = pytest.mark.desktop


async def element(box: Sandbox, name: str, role: str | None = None, limit_s: float = 10) -> Element:
    deadline = time.monotonic() + limit_s
    while True:
        found = [e for e in await box.elements() if e.name == name and role in (None, e.role)]
        if found or time.monotonic() > deadline:
            assert found, f"no element {name!r} on the screen"
            return found[0]
        await asyncio.sleep(0.2)


async def window(box: Sandbox, text: str, limit_s: float = 30) -> str:
    deadline = time.monotonic() + limit_s
    while not (found := [title for title in await box.windows() if text in title]):
        assert time.monotonic() < deadline, f"no window {text!r}, only {await box.windows()}"
        await asyncio.sleep(0.1)
    return found[0]


def at(kind: str, target: Element) -> Act:
    return Act(kind, x=target.x + target.width // 2, y=target.y + target.height // 2)


async def open_by_icon(box: Sandbox, name: str) -> None:
    icon = await element(box, name, "icon")
    assert icon.actionable
    await box.act(at("double_click", icon))
    await window(box, name)
    assert (await box.screenshot(settle_s=15)).settled


TYPED = "àÄß你好🙂 <>\"'`\\^~/_ -0.07 --flag\n\tthe end"


async def test_s15_s22_a_double_click_opens_a_new_file_and_typing_is_byte_exact(desktop: Sandbox) -> None:
    await desktop.screenshot(settle_s=5)
    await desktop.write("Desktop/notes.txt", b"")  # after the desktop is up: its icon must appear
    await element(desktop, "notes.txt", "icon", limit_s=4)
    await open_by_icon(desktop, "notes.txt")
    await desktop.act(Act("type", text=TYPED))
    await desktop.act(Act("key", keys="ctrl+s"))
    await desktop.screenshot(settle_s=3)
    assert (await desktop.read("Desktop/notes.txt")).decode().rstrip("\n") == TYPED


async def test_s16_punctuation_is_never_substituted(desktop: Sandbox) -> None:
    await desktop.write("Desktop/a.txt", b"")
    await open_by_icon(desktop, "a.txt")
    await desktop.act(Act("type", text="/_:" * 200))
    await desktop.act(Act("key", keys="ctrl+s"))
    await desktop.screenshot(settle_s=3)
    assert (await desktop.read("Desktop/a.txt")).decode().rstrip("\n") == "/_:" * 200


async def test_s12_calc_opens_maximised_without_a_dialog_and_cells_are_where_they_are_said_to_be(
    desktop: Sandbox,
) -> None:
    code = "import openpyxl; w = openpyxl.Workbook(); w.active.append(['name', 7]); w.save('Desktop/book.xlsx')"
    ran = await desktop.exec(f'python3 -c "{code}"', timeout_s=20, env={"PYTHONPATH": "/opt/evolver/site"})
    assert ran.exit_code == 0, ran.output
    await open_by_icon(desktop, "book.xlsx")
    assert await desktop.windows() == ["book.xlsx - LibreOffice Calc"]
    found = await desktop.elements()
    assert next(e.text for e in found if e.name == "B1") == "7"
    frame = next(e for e in found if e.depth == 0)
    assert (frame.width, frame.height) == (1920, 1080)
    assert not any(e.role == "icon" for e in found)  # the desktop is hidden behind it
    await desktop.act(at("left_click", await element(desktop, "B2")))
    await desktop.act(Act("type", text="42\n"))
    await desktop.screenshot(settle_s=5)
    assert (await element(desktop, "B2")).text == "42"
    await desktop.act(Act("key", keys="ctrl+s"))
    await desktop.screenshot(settle_s=5)
    assert await desktop.windows() == ["book.xlsx - LibreOffice Calc"]  # no question about the format
    code = "import openpyxl; print(openpyxl.load_workbook('Desktop/book.xlsx').active['B2'].value)"
    ran = await desktop.exec(f'python3 -c "{code}"', timeout_s=20, env={"PYTHONPATH": "/opt/evolver/site"})
    assert ran.output == "42\n"


POINTER = "from Xlib import display; p = display.Display().screen().root.query_pointer(); print(p.root_x, p.root_y)"


async def test_s19_clicks_land_on_the_pixel_and_never_off_the_screen(desktop: Sandbox) -> None:
    async def pointer() -> list[str]:
        return (await desktop.exec(f'python3 -c "{POINTER}"', timeout_s=5)).output.split()

    for x, y in ((0, 0), (1919, 1079), (960, 0), (0, 540), (1919, 540), (960, 1079)):
        await desktop.act(Act("mouse_move", x=x, y=y))
        assert await pointer() == [str(x), str(y)]
    for x, y in ((1920, 5), (-1, 5), (5, 1080), (10**9, 5)):
        with pytest.raises(BadAction, match="not on the 1920x1080 screen"):
            await desktop.act(Act("left_click", x=x, y=y))
        assert await pointer() == ["960", "1079"]
    with pytest.raises(BadAction, match="needs x and y"):
        await desktop.act(Act("mouse_move"))


async def test_s23_s24_keys_have_their_usual_names_and_nothing_stays_pressed(desktop: Sandbox) -> None:
    for keys in (
        "ctrl+comma",
        "ctrl+,",
        "PrintScreen",
        "super",
        "Page_Down",
        "pagedown",
        "Enter",
        "Return",
        "KP_Enter",
    ):
        await desktop.act(Act("key", keys=keys))
    await desktop.act(Act("key", keys="Escape"))
    for keys in ("ctrl+nosuchkey", "", "hyperspace"):
        with pytest.raises(BadAction):
            await desktop.act(Act("key", keys=keys))
    with pytest.raises(BadAction):
        await desktop.act(Act("left_click_drag", x=5, y=5, to_x=5_000, to_y=5))
    with pytest.raises(BadAction):
        await desktop.act(Act("type", text="abc\x07"))
    code = (
        "from Xlib import display; d = display.Display(); "
        "print(sum(bin(b).count('1') for b in d.query_keymap()), d.screen().root.query_pointer().mask)"
    )
    assert (await desktop.exec(f'python3 -c "{code}"', timeout_s=10)).output == "0 0\n"


RESTLESS = (
    "import itertools, time; from Xlib import display; d = display.Display(); "
    "[(d.screen().root.warp_pointer(x, x), d.sync(), time.sleep(0.05)) for x in itertools.cycle((10, 900))]"
)


async def test_s25_a_picture_is_whole_and_says_whether_the_screen_stood_still(desktop: Sandbox) -> None:
    frame = await desktop.screenshot(settle_s=5)
    image = Image.open(io.BytesIO(frame.png))
    image.load()
    assert image.size == (frame.width, frame.height) == (1920, 1080) and frame.settled
    assert len(image.getcolors(1 << 24) or ()) > 1
    await desktop.bash(f'python3 -c "{RESTLESS}" &', timeout_s=5)
    assert not (await desktop.screenshot(settle_s=1)).settled


WATCH = """
from Xlib import X, display
d = display.Display()
w = d.screen().root.create_window(0, 0, 400, 400, 0, 24, event_mask=X.ButtonPressMask, override_redirect=1)
w.map(); d.sync(); print("ready", flush=True)
for _ in range(6): print(d.next_event().detail, flush=True)
"""


async def test_s22_each_mouse_action_arrives_as_the_buttons_it_means(desktop: Sandbox) -> None:
    await desktop.screenshot(settle_s=5)
    await desktop.write("/tmp/watch.py", WATCH.encode())
    await desktop.bash(
        "python3 /tmp/watch.py > /tmp/seen & while ! grep -q ready /tmp/seen; do sleep 0.05; done", timeout_s=20
    )
    for kind, amount in (
        ("scroll", 1),
        ("scroll", -1),
        ("hscroll", 1),
        ("hscroll", -1),
        ("right_click", 0),
        ("middle_click", 0),
    ):
        await desktop.act(Act(kind, x=50, y=50, amount=amount))
    await asyncio.sleep(0.3)
    assert (await desktop.read("/tmp/seen")).decode().split()[1:] == ["5", "4", "7", "6", "3", "2"]  # down is positive


async def test_s06_the_agent_cannot_take_the_screen_away_unnoticed(desktop: Sandbox) -> None:
    await desktop.screenshot(settle_s=5)
    await desktop.bash("pkill -9 Xvfb; killall -9 Xvfb python3", timeout_s=5)
    assert (await desktop.bash("echo alive", timeout_s=5)).output == "alive\n"
    if ":" in desktop.image_digest and desktop.image_digest.startswith("sha256"):
        assert (await desktop.screenshot()).png
    else:  # one user: the screen can be killed, and that is said
        with pytest.raises(SandboxLost, match="X server has ended"):
            await desktop.screenshot()


async def test_s29_an_application_started_from_bash_shows_and_does_not_block(desktop: Sandbox) -> None:
    started = time.monotonic()
    assert (await desktop.bash("mousepad &", timeout_s=10)).timed_out is False
    assert time.monotonic() - started < 5
    await window(desktop, "Mousepad")
    await desktop.act(Act("key", keys="alt+F4"))
    deadline = time.monotonic() + 10
    while left := await desktop.windows():
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.1)


async def test_a_sandbox_without_a_screen_says_so(backend: Sandboxes) -> None:
    box = await backend.open(Environment(image="terminal"), run_id="test", ttl_s=60)
    assert box.screen is None
    for asked in (box.screenshot(), box.act(Act("key", keys="a")), box.elements()):
        with pytest.raises(BadAction, match="no screen"):
            await asked


async def test_another_screen_size_is_honoured(backend: Sandboxes) -> None:
    box = await backend.open(Environment(image="desktop", screen=(1280, 720)), run_id="test", ttl_s=60)
    frame = await box.screenshot(settle_s=5)
    assert Image.open(io.BytesIO(frame.png)).size == (1280, 720) == (frame.width, frame.height)
