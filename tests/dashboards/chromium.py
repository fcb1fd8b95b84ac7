"""A real browser on a page, driven through its debugging protocol; it counts what the server sends."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import websockets

PATIENCE_S = 40.0
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Enter": 13, "j": 74, "k": 75}
AT_REST = "document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"
_BOX = "document.querySelector({})?.getBoundingClientRect()"


class Tab:
    """One tab. `received` counts the bytes that came through WebSockets, once `Network.enable` was called."""

    def __init__(self, connection: websockets.ClientConnection) -> None:
        self._connection = connection
        self._calls = 0
        self.received = 0

    async def call(self, method: str, **arguments: object) -> dict[str, dict[str, object]]:
        self._calls += 1
        await self._connection.send(json.dumps({"id": self._calls, "method": method, "params": arguments}))
        while True:
            answer = json.loads(await self._connection.recv())
            if answer.get("method") == "Network.webSocketFrameReceived":
                self.received += len(base64.b64decode(answer["params"]["response"]["payloadData"]))
            if answer.get("id") == self._calls:
                return dict(answer["result"])

    async def value(self, expression: str) -> object:
        return (await self.call("Runtime.evaluate", expression=expression, returnByValue=True))["result"].get("value")

    async def until(self, expression: str) -> object:
        """Waits until a JavaScript expression is true, and returns its value."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := await self.value(expression)):
            if time.monotonic() > deadline:
                shown = await self.value("document.body.innerText")
                raise AssertionError(f"never true: {expression}; the page says: {str(shown)[:600]}")
            await asyncio.sleep(0.05)
        return found

    async def press(self, key: str) -> None:
        """A real key, such as ArrowRight or j."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text
            )

    async def picture(self, path: Path) -> None:
        """What the tab shows, as a PNG file."""
        shot = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(str(shot["data"])))

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
