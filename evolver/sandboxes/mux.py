"""Many byte streams over one connection: how a sandbox's connections reach the host without a network.

The same file runs on both sides (`rootfs.inside_layer` copies it), so it imports the standard library alone. A frame is
a stream's number, a kind, a length and that many bytes. Each stream may have `WINDOW` bytes on their way that the other
side has not read yet, so that one slow reader neither holds up the others nor fills anybody's memory.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable

HEAD = struct.Struct(">IcI")
COUNT = struct.Struct(">I")
WINDOW, CHUNK = 256 << 10, 64 << 10
OPEN, DATA, READ, END, RESET = b"O", b"D", b"R", b"E", b"X"
LONGEST = {OPEN: 0, DATA: CHUNK, READ: COUNT.size, END: 0, RESET: 0}
STREAMS = 64  # at once; one more is reset

Receive = Callable[[int], Awaitable[bytes]]
Send = Callable[[bytes], Awaitable[None]]


class BrokenProtocol(Exception):
    """The other side sent what the protocol forbids; the connection is of no more use."""


class Stream:
    """One of them: `read` gives what came (b"" after the end), `write` waits while too much is unread.

    Both raise ConnectionResetError once the other side has given the stream up.
    """

    def __init__(self, number: int, send: Callable[[int, bytes, bytes], Awaitable[None]]) -> None:
        self._number, self._send = number, send
        self._came, self._room = bytearray(), WINDOW
        self._ended = self._gone = False
        self._changed = asyncio.Event()

    async def read(self) -> bytes:
        await self._until(lambda: bool(self._came) or self._ended or self._gone)
        if self._gone and not (self._came or self._ended):
            raise ConnectionResetError("the other side has closed the stream")
        data = bytes(self._came)
        self._came.clear()
        if data and not (self._ended or self._gone):
            await self._send(self._number, READ, COUNT.pack(len(data)))
        return data

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            await self._until(lambda: self._room > 0 or self._gone)
            if self._gone:
                raise ConnectionResetError("the other side has closed the stream")
            part = bytes(rest[: min(self._room, CHUNK)])
            self._room -= len(part)
            rest = rest[len(part) :]
            await self._send(self._number, DATA, part)

    async def end(self) -> None:
        """Says that nothing more will be written."""
        if not self._gone:
            await self._send(self._number, END, b"")

    async def given_up(self) -> None:
        """Waits until the other side gives the stream up (an end alone does not), then raises ConnectionResetError."""
        await self._until(lambda: self._gone)
        raise ConnectionResetError("the other side has closed the stream")

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed.clear()
            await self._changed.wait()

    def take(self, kind: bytes, data: bytes) -> None:
        """A frame of this stream came."""
        if kind == DATA:
            self._came += data
            if len(self._came) > WINDOW:
                raise BrokenProtocol("more bytes than the window allows")
        elif kind == READ:
            self._room = min(self._room + int.from_bytes(data, "big"), WINDOW)
        elif kind == END:
            self._ended = True
        else:
            self._gone = True
        self._changed.set()


class Mux:
    """Both ends of the connection make one. `serve` is given each stream that the other side opens."""

    def __init__(self, receive: Receive, send: Send, serve: Callable[[Stream], Awaitable[None]] | None = None) -> None:
        self._receive, self._transmit, self._serve = receive, send, serve
        self._streams: dict[int, Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._over = False

    async def carry(self, use: Callable[[Stream], Awaitable[None]]) -> None:
        """Opens a stream, lets `use` have it, and closes it."""
        number = next(self._numbers)
        stream = self._add(number)
        await self._send(number, OPEN, b"")
        await self._use(number, stream, use)

    async def run(self) -> None:
        """Reads frames until the connection ends; raises what ends it (EOFError, OSError, BrokenProtocol)."""
        try:
            while True:
                number, kind, length = HEAD.unpack(await self._receive(HEAD.size))
                if length > LONGEST.get(kind, -1):
                    raise BrokenProtocol(f"a frame {kind!r} of {length} bytes")
                data = await self._receive(length) if length else b""
                if kind == OPEN:
                    await self._opened(number)
                elif number in self._streams:  # else it was closed here while the frame was on its way
                    self._streams[number].take(kind, data)
        finally:
            self._over = True
            for stream in self._streams.values():
                stream.take(RESET, b"")
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _opened(self, number: int) -> None:
        if self._serve is None or number in self._streams:
            raise BrokenProtocol("a stream that may not be opened")
        if len(self._streams) >= STREAMS:
            await self._send(number, RESET, b"")
            return
        task = asyncio.create_task(self._use(number, self._add(number), self._serve))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _add(self, number: int) -> Stream:
        self._streams[number] = Stream(number, self._send)
        return self._streams[number]

    async def _use(self, number: int, stream: Stream, use: Callable[[Stream], Awaitable[None]]) -> None:
        try:
            await use(stream)
        finally:
            del self._streams[number]
            await self._send(number, RESET, b"")

    async def _send(self, number: int, kind: bytes, data: bytes) -> None:
        if not self._over:  # what has ended may not read any more: nobody waits for it
            await self._transmit(HEAD.pack(number, kind, len(data)) + data)


async def join(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies both ways until both have ended, or one fails."""

    async def out() -> None:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def back() -> None:
        while data := await reader.read(CHUNK):
            await stream.write(data)
        await stream.end()

    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(out())
            both.create_task(back())
    except* OSError:
        pass  # one side has gone: so does the other
    finally:
        writer.close()
