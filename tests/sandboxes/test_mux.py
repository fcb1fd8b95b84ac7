"""The streams of one connection, and what owns it: a hostile other side, and endings half-way."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from evolver.sandboxes.egress import Egress, Outside
from evolver.sandboxes.local import Link
from evolver.sandboxes.machine import Machine, Wire
from evolver.sandboxes.mux import DATA, HEAD, OPEN, WINDOW, BrokenProtocol, Mux, Stream


async def test_what_breaks_the_protocol_ends_the_way_out() -> None:
    async def serve(stream: Stream) -> None:
        await asyncio.sleep(60)

    chunk = b"x" * (64 << 10)
    flood = HEAD.pack(1, OPEN, 0) + (HEAD.pack(1, DATA, len(chunk)) + chunk) * (WINDOW // len(chunk) + 1)
    for frames in (b"\xff" * 9, HEAD.pack(1, DATA, 1 << 31), HEAD.pack(1, OPEN, 0) * 2, flood):
        reader = asyncio.StreamReader()
        reader.feed_data(frames)
        reader.feed_eof()
        with pytest.raises(BrokenProtocol):
            await Mux(reader.readexactly, _nowhere, serve).run()


async def test_closing_waits_for_no_sandbox_that_has_stopped_reading() -> None:
    async def flood(stream: Stream) -> None:
        while True:
            await stream.write(b"x" * WINDOW)

    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)
    link = Link(reader, writer)
    there.sendall(b"\n" + b"".join(HEAD.pack(number, OPEN, 0) for number in range(40)))
    running = asyncio.create_task(_after(link, Mux(link.receive, link.send, flood)))
    await asyncio.sleep(0.2)  # by now every stream waits for the pipe
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(running, 5)
    link.close()
    there.close()


async def _after(link: Link, mux: Mux) -> None:
    await link.receive(1)
    await mux.run()


async def _nowhere(data: bytes) -> None:
    return None


async def test_a_machine_ends_and_its_way_out_is_shut_although_closing_is_cancelled() -> None:
    ended, link = [], StubbornLink()
    egress = Egress(("shop.test",), Outside())
    await egress.start(link)

    async def end() -> None:
        ended.append(True)

    machine = Machine("m", "d", None, Wire(link.receive, link.send, _nothing), end, egress)
    closing = asyncio.create_task(machine.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert ended and link.closed


class StubbornLink:
    """Answers once, and does not stop waiting when it is told to for the first time."""

    def __init__(self) -> None:
        self.closed, self._asked = False, 0

    async def receive(self, size: int) -> bytes:
        self._asked += 1
        if self._asked > 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(60)
        return b"\n"

    async def send(self, data: bytes) -> None:
        return None

    def close(self) -> None:
        self.closed = True


async def _nothing() -> str:
    return ""
