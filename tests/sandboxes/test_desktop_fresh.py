"""The screen of a fresh machine: the first picture, what is frozen, and what is said when there is no picture."""

from __future__ import annotations

import io
import tarfile
import time

import openpyxl
import pytest
from PIL import Image

from evolver.controls import blank_png
from evolver.errors import BadAction, SandboxLost
from evolver.protocols import Act, Sandboxes
from evolver.sandboxes.machine import Machine, Wire
from harnesses.harness import Environment
from tests.sandboxes.desk import at, element, sheet, show, window

pytestmark = pytest.mark.desktop


async def test_s11_the_first_picture_shows_a_desktop_that_takes_clicks(backend: Sandboxes) -> None:
    started = time.monotonic()
    box = await backend.open(Environment(image="desktop"), run_id="test", ttl_s=60)
    image = Image.open(io.BytesIO((await box.screenshot()).png)).convert("RGB")
    assert image.getpixel((1400, 800)) == (
        0x2F,
        0x4A,
        0x5E,
    )  # the desktop's own colour, not a bare screen
    await box.act(Act("right_click", x=960, y=540))
    await element(box, "Create New...", limit_s=5)
    assert time.monotonic() - started < 15


async def test_s06_the_agent_cannot_take_the_screen_away_unnoticed(backend: Sandboxes) -> None:
    box = await backend.open(Environment(image="desktop"), run_id="test", ttl_s=60)
    await box.screenshot()
    await box.bash("pkill -9 Xvfb; killall -9 Xvfb python3", timeout_s=5)
    assert (await box.bash("echo alive", timeout_s=5)).output == "alive\n"
    if backend.name == "docker":
        assert (await box.screenshot()).png
    else:  # one user: the screen can be killed, and that is said
        with pytest.raises(SandboxLost, match="X server has ended"):
            await box.screenshot()


async def test_s30_what_counts_is_the_file_on_the_disk_and_never_a_lock_beside_it(backend: Sandboxes) -> None:
    box = await backend.open(Environment(image="desktop"), run_id="test", ttl_s=120)
    await box.write("Desktop/book.xlsx", sheet(["old"]))
    await show(box, "libreoffice --calc Desktop/book.xlsx", "book.xlsx")
    await box.act(Act("type", text="typed, not saved\n"))
    await box.write("/tmp/new.xlsx", sheet(["new"]))
    ran = await box.bash("cp /tmp/new.xlsx Desktop/book.xlsx; ls -A Desktop", timeout_s=10)
    assert ".~lock.book.xlsx#" in ran.output
    with tarfile.open(fileobj=io.BytesIO(await box.freeze())) as tar:
        names = [member.name for member in tar.getmembers() if member.name.startswith("Desktop/")]
        assert names == ["Desktop/book.xlsx"]
        kept = tar.extractfile("Desktop/book.xlsx")
        assert kept and openpyxl.load_workbook(io.BytesIO(kept.read())).active["A1"].value == "new"


async def test_the_desktop_is_there_after_an_icon_was_renamed(backend: Sandboxes) -> None:
    """The file manager dies of a rename through its dialog. On a machine where the desktop has changed before, it no
    longer tells of icons, so this one is new."""
    box = await backend.open(Environment(image="desktop"), run_id="test", ttl_s=120)
    await box.write("/home/user/Desktop/old-name.txt", b"kept")
    await box.act(at("left_click", await element(box, "old-name.txt", limit_s=20)))
    await box.act(Act("key", keys="F2"))
    await window(box, "Rename File")
    await box.screenshot(settle_s=10)
    await box.act(Act("key", keys="ctrl+a"))
    await box.act(Act("type", text="new-name.txt\n"))
    await element(box, "new-name.txt", "icon", limit_s=20)
    assert await box.read("/home/user/Desktop/new-name.txt") == b"kept"


async def test_a_sandbox_without_a_screen_says_so(backend: Sandboxes) -> None:
    box = await backend.open(Environment(image="terminal"), run_id="test", ttl_s=60)
    assert box.screen is None
    for ask in (box.screenshot, box.elements, lambda: box.act(Act("key", keys="a"))):
        with pytest.raises(BadAction, match="no screen"):
            await ask()


async def test_another_screen_size_is_honoured(backend: Sandboxes) -> None:
    box = await backend.open(Environment(image="desktop", screen=(1280, 720)), run_id="test", ttl_s=60)
    frame = await box.screenshot(settle_s=5)
    assert Image.open(io.BytesIO(frame.png)).size == (1280, 720) == (frame.width, frame.height)


def answering(*pictures: bytes) -> tuple[Machine, list[bytes]]:
    """A machine whose captures come out as these pictures, and those that were not asked for yet."""
    left, buffer = list(pictures), bytearray()

    async def send(data: bytes) -> None:
        head, body = b'{"settled": true}', left.pop(0)
        buffer.extend(len(head).to_bytes(4, "big") + len(body).to_bytes(4, "big") + head + body)

    async def receive(size: int) -> bytes:
        data = bytes(buffer[:size])
        del buffer[:size]
        return data

    async def nothing() -> str:
        return ""

    async def end() -> None:
        pass

    return Machine("m", "d", (8, 8), Wire(receive, send, nothing), end), left


async def test_s25_a_failed_capture_is_tried_once_more_and_an_empty_picture_is_never_handed_on() -> None:
    good = blank_png(8, 8)
    machine, _ = answering(b"", good)
    assert (await machine.screenshot()).png == good
    machine, left = answering(b"", b"no picture", good)
    with pytest.raises(SandboxLost, match="no PNG"):
        await machine.screenshot()
    assert left == [good]
