"""What the tests of the screen do over and over: wait for windows and elements, aim, open a page, read back."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable

import openpyxl
from PIL import Image
from pydantic import JsonValue

from evolver.protocols import Act, Element, Sandbox

# Answers GET with files of /home/user/web and keeps the newest thing that a page has sent in /tmp/said.
SERVER = """
import http.server, os
class Pages(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *rest):
        super().__init__(*rest, directory="/home/user/web")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("/tmp/said.new", "wb") as file:
            file.write(body)
        os.replace("/tmp/said.new", "/tmp/said")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *rest):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Pages).serve_forever()
"""
SAY = """
const said = {};
let sent = Promise.resolve();  // one after the other: the newest arrives last
function say(name, value) {
  said[name] = value;
  const body = JSON.stringify(said);
  sent = sent.then(() => fetch("/", {method: "POST", body})).catch(() => {});
}
"""


async def until(holds: Callable[[], Awaitable[bool]], what: str, limit_s: float = 10) -> None:
    deadline = time.monotonic() + limit_s
    while not await holds():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)


async def window(box: Sandbox, text: str, limit_s: float = 30) -> str:
    deadline = time.monotonic() + limit_s
    while not (found := [title for title in await box.windows() if text in title]):
        assert time.monotonic() < deadline, f"no window {text!r}, only {await box.windows()}"
        await asyncio.sleep(0.1)
    return found[0]


async def element(box: Sandbox, name: str, role: str | None = None, limit_s: float = 10) -> Element:
    deadline = time.monotonic() + limit_s
    while True:
        found = [e for e in await box.elements() if e.name == name and role in (None, e.role)]
        if found or time.monotonic() > deadline:
            assert found, f"no element {name!r} on the screen"
            return found[0]
        await asyncio.sleep(0.2)


def at(kind: str, target: Element) -> Act:
    return Act(kind, x=target.x + target.width // 2, y=target.y + target.height // 2)


async def show(box: Sandbox, command: str, title: str, still: bool = True) -> None:
    """Starts an application and waits until it is drawn."""
    await box.spawn(command)
    await window(box, title)
    assert (await box.screenshot(settle_s=15 if still else 2)).settled == still


async def browse(box: Sandbox, body: str, still: bool = True) -> None:
    """Shows a page in the browser; its script may `say(name, value)`."""
    await box.exec("rm -f /tmp/said", timeout_s=5)
    page = f"<!doctype html><meta charset=utf-8><title>the page</title><script>{SAY}</script>{body}"
    await box.write("web/page.html", page.encode())
    await box.write("/tmp/pages.py", SERVER.encode())
    await box.spawn("python3 /tmp/pages.py")
    await box.exec("while ! : 2>/dev/null 3<>/dev/tcp/127.0.0.1/8000; do sleep 0.05; done", timeout_s=10)
    await show(box, "chromium http://127.0.0.1:8000/page.html", "the page - Chromium", still)


async def said(box: Sandbox, name: str) -> JsonValue:
    """What the page said last under that name; None if nothing."""
    try:
        heard: dict[str, JsonValue] = json.loads(await box.read("/tmp/said"))
    except FileNotFoundError:
        return None
    return heard.get(name)


def colour(png: bytes, x: int, y: int) -> tuple[int, int, int]:
    pixel = Image.open(io.BytesIO(png)).convert("RGB").getpixel((x, y))
    assert isinstance(pixel, tuple)
    return pixel[0], pixel[1], pixel[2]


def sheet(*rows: list[object]) -> bytes:
    book, packed = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(packed)
    return packed.getvalue()


async def tidy(box: Sandbox) -> None:
    """Ends all applications, so that the next test finds an empty desktop."""
    ended = "pkill -9 -f '[s]office|[m]ousepad|[c]hromium|[p]ages.py|[w]atch.py|[x]clip'"
    await box.exec(f"{ended}; rm -rf Desktop/* web *.* .config/chromium /tmp/said /dev/shm/fill", timeout_s=10)

    async def empty() -> bool:
        return not await box.windows()

    await until(empty, "windows stay open")
