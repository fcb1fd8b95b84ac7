"""What only a browser shows: the first deep link after a start, a click on the tree, the way back from a replay."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.dashboards.server import dashboard

websockets = pytest.importorskip("websockets", reason="websockets is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATIENCE_S = 40.0
_BOX = "document.querySelector({})?.getBoundingClientRect()"


class Tab:
    """One tab, driven through the browser's debugging protocol."""

    def __init__(self, connection: websockets.ClientConnection) -> None:
        self._connection = connection
        self._calls = 0

    async def call(self, method: str, **arguments: object) -> dict[str, dict[str, object]]:
        self._calls += 1
        await self._connection.send(json.dumps({"id": self._calls, "method": method, "params": arguments}))
        while True:
            answer = json.loads(await self._connection.recv())
            if answer.get("id") == self._calls:
                return dict(answer["result"])

    async def value(self, expression: str) -> object:
        return (await self.call("Runtime.evaluate", expression=expression, returnByValue=True))["result"].get("value")

    async def until(self, expression: str) -> object:
        """Waits until a JavaScript expression is true, and returns its value."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := await self.value(expression)):
            shown = await self.value("document.body.innerText")
            assert time.monotonic() < deadline, f"never true: {expression}; the page says: {str(shown)[:600]}"
            await asyncio.sleep(0.2)
        return found

    async def click(self, selector: str) -> None:
        """A real click in the middle of the first element that fits."""
        box = f"(e => e && [e.x + e.width / 2, e.y + e.height / 2])({_BOX.format(json.dumps(selector))})"
        x, y = await self.until(box)  # type: ignore[misc]
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            await asyncio.sleep(0.2)


@contextmanager
def browser(profile: Path) -> Iterator[str]:
    """A headless browser; yields the address at which its one tab is driven."""
    program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--window-size=1440,1300",
    )
    run = (program, *flags, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank")
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        file, deadline = profile / "DevToolsActivePort", time.monotonic() + PATIENCE_S
        while not (file.exists() and file.read_text().strip()):
            assert time.monotonic() < deadline, "the browser did not start"
            time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{file.read_text().split()[0]}/json") as answer:
            page = next(target for target in json.load(answer) if target["type"] == "page")
        yield page["webSocketDebuggerUrl"]
    finally:
        process.terminate()
        process.wait(20)


def says(text: str) -> str:
    return f"document.body.innerText.includes({json.dumps(text)})"


async def test_deep_link_click_and_way_back(whole_run: Path, tmp_path: Path) -> None:
    with dashboard(str(whole_run)) as server, browser(tmp_path / "profile") as address:
        async with websockets.connect(address, max_size=2**26) as connection:
            page = Tab(connection)
            # The very first request of a new server is a deep link, and it opens inside the frame.
            await page.call("Page.navigate", url=f"{server.url}/lineage?h=wide")
            await page.until(says("wide should need fewer turns"))
            await page.until(says("slip rate 0.05"))
            # A click on a mark of the tree opens that candidate and lands in the address.
            await page.until(
                "document.querySelectorAll('.js-plotly-plot .scatterlayer .trace .points path').length > 4"
            )
            await page.click(".js-plotly-plot .scatterlayer .trace:nth-last-child(3) .points path")
            await page.until("new URLSearchParams(location.search).get('h') === 'beta2'")
            await page.until(says("beta2 should need fewer turns"))
            # U15: the list page and its filter survive a look at a replay.
            await page.call("Page.navigate", url=f"{server.url}/rollouts?r_outcome=solved&r_page=2")
            await page.until(says("page 2 of 2"))
            await page.call("Page.navigate", url=f"{server.url}/replay?r=r-0000000000000010&step=2")
            await page.until(says("compute the total"))
            await page.value("history.back()")
            await page.until(says("page 2 of 2"))
            assert await page.value("new URLSearchParams(location.search).get('r_outcome')") == "solved"
