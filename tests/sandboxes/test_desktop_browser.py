"""The browser: it starts without a question, and what the mouse does to a page is what the page sees."""

from __future__ import annotations

import asyncio
import time

import pytest

from evolver.protocols import Act, Sandbox
from tests.sandboxes.desk import at, browse, colour, element, said

pytestmark = [pytest.mark.desktop, pytest.mark.asyncio(loop_scope="session")]


async def test_s13_stale_locks_of_a_profile_do_not_block_a_start(desk: Sandbox) -> None:
    for holder in ("elsewhere-17", "$(uname -n)-99999", "$(uname -n)-1"):
        await desk.exec(
            "mkdir -p .config/chromium && cd .config/chromium && rm -f Singleton* && ln -s 7 SingletonCookie && "
            f"ln -s {holder} SingletonLock && ln -s /tmp/none/SingletonSocket SingletonSocket",
            timeout_s=5,
        )
        await browse(desk, "<h1>hello</h1>")
        await desk.exec("pkill -9 -f '[c]hromium'; sleep 0.3", timeout_s=5)


async def test_s14_the_browser_starts_without_questions_as_the_agent_with_no_shared_memory(desk: Sandbox) -> None:
    await desk.exec("head -c 1G /dev/zero > /dev/shm/fill", timeout_s=20)
    await browse(desk, "<body style='background: rgb(10, 200, 30)'><canvas width=1500 height=800></canvas>")
    frame = await desk.screenshot(settle_s=5)
    assert colour(frame.png, 960, 700) == (10, 200, 30)
    assert await desk.windows() == ["the page - Chromium"]
    owners = (await desk.exec("ps -C chromium -o user= | sort -u", timeout_s=5)).output.split()
    assert owners in (["user"], ["1000"])
    names = {e.name for e in await desk.elements()}
    assert "the page" in names and not names & {"Restore pages?", "Set as default", "Sign in to Chromium"}


async def test_s21_a_screenshot_shows_what_a_click_changed_later_and_says_whether_it_settled(desk: Sandbox) -> None:
    change = "setTimeout(() => document.body.style.background = 'rgb(255, 0, 0)', 400)"
    await browse(desk, f"<body style='background: #fff'><button onclick=\"{change}\">Go</button>")
    await desk.act(at("left_click", await element(desk, "Go")))
    frame = await desk.screenshot(settle_s=5)
    assert frame.settled and colour(frame.png, 960, 800) == (255, 0, 0)
    moving = "<div id=d>x</div><script>setInterval(() => d.textContent = Math.random(), 30)</script>"
    await browse(desk, moving, still=False)
    started = time.monotonic()
    assert not (await desk.screenshot(settle_s=1)).settled
    assert time.monotonic() - started < 2


EVENTS = """<body style='margin: 0'>
<p id=words style='font: 40px monospace; position: absolute; left: 100px; top: 100px; margin: 0'>one two three. four</p>
<div id=wide style='position: absolute; left: 100px; top: 300px; width: 600px; height: 200px; overflow: scroll'>
<div style='width: 3000px; height: 3000px; background: linear-gradient(45deg, red, blue)'></div></div>
<script>
for (const kind of ["dblclick", "contextmenu", "auxclick"])
  document.addEventListener(kind, event => { event.preventDefault(); say(kind, event.button); });
document.addEventListener("selectionchange", () => say("selected", document.getSelection().toString()));
wide.addEventListener("scroll", () => say("scrolled", [wide.scrollLeft > 0, wide.scrollTop > 0]));
</script>"""


async def test_s22_the_browser_recognises_double_and_triple_clicks_drags_and_both_wheels(desk: Sandbox) -> None:
    await browse(desk, EVENTS)
    words = await element(desk, "one two three. four")
    y = words.y + words.height // 2

    async def page_said(name: str, value: object) -> None:
        for _ in range(60):
            if (heard := await said(desk, name)) == value:
                return
            await asyncio.sleep(0.05)
        assert heard == value, name

    await desk.act(Act("double_click", x=words.x + 5 * 24, y=y))
    await page_said("dblclick", 0)
    await page_said("selected", "two")
    await desk.act(Act("triple_click", x=words.x + 5 * 24, y=y))
    await page_said("selected", "one two three. four\n")
    await desk.act(Act("left_click", x=words.x, y=y + 100))  # a drag that starts on selected text would move it
    await desk.act(Act("left_click_drag", x=words.x + 8 * 24, y=y, to_x=words.x + 13 * 24, to_y=y))
    await page_said("selected", "three")
    await desk.act(Act("right_click", x=words.x, y=y))
    await page_said("contextmenu", 2)
    await desk.act(Act("middle_click", x=words.x, y=y))
    await page_said("auxclick", 1)
    middle = words.y + 300
    await desk.act(Act("hscroll", x=words.x + 300, y=middle, amount=3))
    await page_said("scrolled", [True, False])
    await desk.act(Act("scroll", x=words.x + 300, y=middle, amount=3))
    await page_said("scrolled", [True, True])
