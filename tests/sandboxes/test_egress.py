"""The filtering proxy on its own: the relay runs here as a plain process, the hosts are servers of this test."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from evolver.records import Connection
from evolver.sandboxes import rootfs
from evolver.sandboxes.egress import BYTES, CONNECTIONS, LOG_LIMIT, Egress, Greeting, Outside, Refused, is_public, parse
from evolver.sandboxes.local import Link
from evolver.sandboxes.mux import DATA, Stream

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ALLOWED = ("shop.test", "*.wild.test")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def proxy(outside: Outside, traffic: int = BYTES) -> AsyncIterator[tuple[Egress, int]]:
    """(the judge, the port at which the relay listens)"""
    port, (here, there) = free_port(), socket.socketpair()
    relay = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(rootfs.inside_layer() / "relay.py"), str(port), stdin=there, stdout=there
    )
    there.close()
    egress = Egress(ALLOWED, outside, traffic)
    await egress.start(Link(*await asyncio.open_connection(sock=here)))
    try:
        yield egress, port
    finally:
        await egress.aclose()
        assert await asyncio.wait_for(relay.wait(), 10) == 0  # it ends with its host


@asynccontextmanager
async def server(handle: Handler) -> AsyncIterator[Outside]:
    """A host that every name leads to."""
    running = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = running.sockets[0].getsockname()[1]

    async def resolve(host: str, _: int) -> list[tuple[str, int]]:
        return [("127.0.0.1", port)]

    async with running:
        yield Outside(resolve, permits=lambda address: True)


async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the request that it got."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + head)
    await writer.drain()
    writer.close()


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def logged(egress: Egress, count: int) -> list[Connection]:
    for _ in range(500):
        if len(egress.connections) >= count:
            break
        await asyncio.sleep(0.01)
    return egress.connections


async def test_an_allowed_host_gets_the_request_without_the_proxy_s_words() -> None:
    request = b"GET http://shop.test/a?b=c HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: x\r\nX-Own: 1\r\n\r\n"
    request += b"GET /second HTTP/1.1\r\nHost: evil.test\r\n\r\n"  # never passed on
    async with server(page) as outside, proxy(outside) as (egress, port):
        answer = await ask(port, request)
        assert answer.endswith(b"GET /a?b=c HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\nX-Own: 1\r\n\r\n")
        (seen,) = await logged(egress, 1)
    assert (seen.host, seen.port, seen.refused, seen.address) == ("shop.test", 80, "", "127.0.0.1")
    assert seen.sent > 0 and seen.received == len(answer)


def hello(name: str | None) -> bytes:
    """What a TLS client says first."""
    context, said = ssl.create_default_context(), ssl.MemoryBIO()
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=name).do_handshake()
    return said.read()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def tunnel(port: int, host: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    yield reader, writer
    writer.close()


async def test_a_tunnel_carries_bytes_both_ways_unchanged() -> None:
    blob = hello("a.wild.test") + bytes(range(256)) * 8_000  # more than a window
    async with server(echo) as outside, proxy(outside) as (egress, port):
        async with tunnel(port, "a.wild.test") as (reader, writer):
            writer.write(blob)
            assert await asyncio.wait_for(reader.readexactly(len(blob)), 10) == blob
        (seen,) = await logged(egress, 1)
    assert (seen.host, seen.sent, seen.received, seen.refused) == ("a.wild.test", len(blob), len(blob), "")


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello("evil.test"), "greets 'evil.test'"),
        (hello("shop.test.evil.test"), "greets 'shop.test.evil.test'"),
        (hello(None), "no TLS greeting"),
        (b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "no TLS greeting"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no TLS greeting"),
        (b"\x16\x03\x01\x40\x00" + bytes(70_000), "no TLS greeting"),
    ],
)
async def test_a_tunnel_to_an_allowed_host_carries_nothing_for_another(first: bytes, reason: str) -> None:
    async with server(echo) as outside, proxy(outside) as (egress, port):
        async with tunnel(port, "shop.test") as (reader, writer):
            writer.write(first)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
        (seen,) = await logged(egress, 1)
    assert reason in seen.refused and seen.sent == 0


async def test_a_greeting_is_read_as_it_comes() -> None:
    blob = hello("shop.test")
    async with server(echo) as outside, proxy(outside) as (_, port), tunnel(port, "shop.test") as (reader, writer):
        for at in range(len(blob)):
            writer.write(blob[at : at + 1])
            await asyncio.sleep(0)
        assert await asyncio.wait_for(reader.readexactly(len(blob)), 10) == blob
    greeting = Greeting()
    names = [greeting.add(blob[at : at + 1]) for at in range(len(blob))]
    assert names[-1] == "shop.test" and not any(names[:-1])
    freed = weakref.ref(greeting)
    del greeting
    gc.collect()
    assert freed() is None


async def test_a_client_that_goes_gives_its_place_back_and_one_that_only_ends_gets_its_answer() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await go.wait()
        writer.write(b"late")
        writer.close()

    async with server(slow) as outside, proxy(outside) as (egress, port):
        for last in (True, False):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET http://shop.test/ HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(asked.wait(), 10)
            asked.clear()
            if last:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                assert len(await logged(egress, 1)) == 1
            else:
                writer.write_eof()
                await asyncio.sleep(0.1)
                go.set()
                assert await asyncio.wait_for(reader.read(), 10) == b"late"
                writer.close()


async def test_a_sandbox_looks_up_two_names_at_a_time_those_it_gave_up_included() -> None:
    running, most, free = 0, 0, asyncio.Event()

    async def resolve(host: str, port: int) -> list[tuple[str, int]]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await free.wait()
        running -= 1
        return []

    async def send(number: int, kind: bytes, data: bytes) -> None:
        return None

    egress, serving = Egress(ALLOWED, Outside(resolve)), []
    for number in range(4):
        stream = Stream(number, send)
        stream.take(DATA, b"GET http://shop.test/ HTTP/1.1\r\n\r\n")
        serving.append(asyncio.create_task(egress.serve(stream)))
    await asyncio.sleep(0.05)
    assert running == 2
    serving[0].cancel()
    serving[1].cancel()
    await asyncio.sleep(0.05)
    assert [task.done() for task in serving] == [True, True, False, False] and most == 2
    free.set()
    await asyncio.wait_for(asyncio.gather(*serving[2:]), 10)
    assert running == 0 and most == 2


async def test_a_body_goes_along_and_no_byte_more() -> None:
    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(await reader.readexactly(5))
        await asyncio.sleep(0.2)
        writer.write(b"|" + bytes(reader._buffer))  # type: ignore[attr-defined]
        await writer.drain()
        writer.close()

    async with server(whole) as outside, proxy(outside) as (_, port):
        asked = b"POST http://shop.test/ HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345GET / HTTP/1.1\r\n\r\n"
        assert await ask(port, asked) == b"12345|"


@pytest.mark.parametrize(
    ("request_line", "reason"),
    [
        ("GET http://other.test/ HTTP/1.1", "other.test is not on the allow-list of this sandbox (shop.test"),
        ("CONNECT wild.test:443 HTTP/1.1", "not on the allow-list"),
        ("CONNECT notwild.test:443 HTTP/1.1", "not on the allow-list"),
        ("CONNECT shop.test.other.test:443 HTTP/1.1", "not on the allow-list"),
        ("CONNECT shop.test:22 HTTP/1.1", "port 22 is not allowed"),
        ("CONNECT shop.test:80 HTTP/1.1", "port 80 is not allowed"),
        ("GET http://shop.test:8080/ HTTP/1.1", "port 8080 is not allowed"),
        ("POST http://shop.test/ HTTP/1.1\r\nTransfer-Encoding: chunked", "one Content-Length"),
        (f"POST http://shop.test/ HTTP/1.1\r\nContent-Length: {'1' * 5_000}", "at most 18 digits"),
        ("POST http://shop.test/ HTTP/1.1\r\nContent-Length: 1\x85", "one Content-Length"),
        ("POST http://shop.test/ HTTP/1.1\r\nContent-Length: \xa01", "one Content-Length"),
        ("POST http://shop.test/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", "more than one"),
        ("GET http://shop.test/ HTTP/1.1\r\nX: a\nHost: evil.test", "this is a proxy"),
        ("GET http://shop.test/ HTTP/1.1\r\nHost : evil.test", "this is a proxy"),
        ("CONNECT 127.0.0.1:443 HTTP/1.1", "only names of hosts"),
        ("CONNECT [::1]:443 HTTP/1.1", "only names of hosts"),
        ("GET http://2130706433/ HTTP/1.1", "only names of hosts"),
        ("GET http://0x7f.1/ HTTP/1.1", "only names of hosts"),
        ("GET http://shop.test@other.test/ HTTP/1.1", "ask for http://HOST/"),
        ("GET file:///etc/passwd HTTP/1.1", "ask for http://HOST/"),
        ("GET / HTTP/1.1", "ask for http://HOST/"),
        ("CONNECT shop.test:99999 HTTP/1.1", "no valid address"),
        ("hello", "this is a proxy"),
    ],
)
async def test_whatever_else_is_asked_for_is_refused_with_its_reason(request_line: str, reason: str) -> None:
    async with server(page) as outside, proxy(outside) as (egress, port):
        answer = await ask(port, f"{request_line}\r\nHost: shop.test\r\n\r\n".encode("latin-1"))
        assert answer.startswith(b"HTTP/1.1 4") and reason in answer.partition(b"\r\n")[0].decode()
        (seen,) = await logged(egress, 1)
    assert reason in seen.refused and not seen.address and not seen.sent


async def test_a_name_that_leads_to_this_machine_is_refused_although_it_is_on_the_list() -> None:
    async def resolve(host: str, port: int) -> list[tuple[str, int]]:
        return [("127.0.0.1", port), ("10.0.0.1", port), ("169.254.169.254", port)]

    async with proxy(Outside(resolve)) as (egress, port):
        answer = await ask(port, b"GET http://shop.test/ HTTP/1.1\r\n\r\n")
        assert b"403 shop.test is 127.0.0.1, which is not a public address" in answer
        assert (await logged(egress, 1))[0].address == ""


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.17.0.1", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("::", False),
        ("::127.0.0.1", False),
        ("::93.184.216.34", False),
        ("fe80::1", False),
        ("fec0::1", False),
        ("ff0e::1", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_only_public_addresses_are_dialled(address: str, public: bool) -> None:
    assert is_public(address) is public


async def test_a_host_that_is_not_there_is_said_so() -> None:
    async def resolve(host: str, _: int) -> list[tuple[str, int]]:
        return [("127.0.0.1", free_port())]

    async with proxy(Outside(resolve, permits=lambda address: True)) as (egress, port):
        assert b"502 shop.test can't be reached" in await ask(port, b"GET http://shop.test/ HTTP/1.1\r\n\r\n")
        assert "can't be reached" in (await logged(egress, 1))[0].refused


async def test_a_reader_that_does_not_read_holds_up_nobody_else() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * (20 << 20) if b"/big" in head else b"small")
        await writer.drain()
        writer.close()

    async with server(flood) as outside, proxy(outside) as (egress, port):
        _, idle = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        idle.write(b"GET http://shop.test/big HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.3)
        assert await ask(port, b"GET http://shop.test/small HTTP/1.1\r\n\r\n") == b"small"
        idle.close()
        big = next(seen for seen in await logged(egress, 2) if seen.received > 5)
    assert big.received < 20 << 20


async def test_connections_and_the_log_are_bounded() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with server(wait) as outside, proxy(outside) as (egress, port):
        writers = []
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"CONNECT shop.test:443 HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writers.append(writer)
        assert b"503 more than 32" in await ask(port, b"CONNECT shop.test:443 HTTP/1.1\r\n\r\n")
        for writer in writers:
            writer.close()
        assert len(await logged(egress, CONNECTIONS + 1)) == CONNECTIONS + 1
        egress.connections.extend(egress.connections[:1] * (LOG_LIMIT - len(egress.connections)))
        await ask(port, b"GET http://other.test/ HTTP/1.1\r\n\r\n")
        await ask(port, b"GET http://other.test/ HTTP/1.1\r\n\r\n")
        assert len(egress.connections) == LOG_LIMIT + 1 and egress.connections[-1].refused.endswith("written down: 2")


@pytest.mark.parametrize(
    "head", [b"GET http://shop.test/ HTTP/1.1\r\nA: 1\r\n folded", b"", b"\x00\xff", b"G\xc3 x HTTP/1.1"]
)
def test_a_head_that_is_not_plain_http_is_refused(head: bytes) -> None:
    with pytest.raises(Refused):
        parse(head)


async def test_the_traffic_of_a_sandbox_is_bounded() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()

    async with server(endless) as outside, proxy(outside, traffic=1 << 20) as (egress, port):
        assert len(await ask(port, b"GET http://shop.test/ HTTP/1.1\r\n\r\n")) <= 1 << 20
        assert b"has used up its 1 MiB" in await ask(port, b"CONNECT shop.test:443 HTTP/1.1\r\n\r\n")
        assert [bool(seen.refused) for seen in await logged(egress, 2)] == [False, True]
