"""The filtering proxy of a sandbox with an allow-list: judges every connection on the host and dials for it.

The sandbox has no network at all. Its proxy port (inside/relay.py) hands each connection over the sandbox's own pipe to
`Egress`, which reads the request, compares the host's name with the list, resolves it here, and connects only to public
addresses: port 80 for one HTTP request whose Host is that name, port 443 for TLS whose greeting names it in the clear.
What travels inside the TLS connection is not looked into: where a server answers there for names that it was not
greeted with (domain fronting, an encrypted greeting), an allowed name on it opens the way to those as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from evolver.errors import SandboxLost
from evolver.records import Connection
from evolver.sandboxes.mux import CHUNK, BrokenProtocol, Mux, Stream

HTTP, TLS = 80, 443
HEAD_LIMIT, HEAD_S, DIAL_S, IDLE_S, START_S = 32 << 10, 30.0, 15.0, 120.0, 30.0
BYTES = 1 << 30  # that one sandbox may send and receive in all
CONNECTIONS = 32  # at once
LOOK_UPS, RESOLVERS = 2, 32  # at once: of one sandbox, of all
LOG_LIMIT = 2_000  # connections that are written down; the rest is counted
UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that is given out; `is_global` knows only exceptions
SIX_TO_FOUR = ipaddress.ip_network("2002::/16")  # carries an IPv4 address, which could be one of the host's own network
LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
NAME = re.compile(rf"({LABEL}\.)*(?=[a-z]){LABEL}")  # what ends in a number is an address
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*")
LENGTH = re.compile(r"[ \t]*([0-9]{1,18})[ \t]*")
DROPPED = re.compile(r"(host|connection|keep-alive|proxy-[a-z-]+)\s*:", re.IGNORECASE)

Resolve = Callable[[str, int], Awaitable[Sequence[tuple[str, int]]]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def look_up(host: str, port: int) -> list[tuple[str, int]]:
    """(address, port) pairs by this machine's resolver."""
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolvers(), ask)
    return [(str(entry[4][0]), port) for entry in found]


@functools.cache
def _resolvers() -> ThreadPoolExecutor:
    """Threads of their own: names that take for ever to resolve hold up no other work of this process."""
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")


def is_public(address: str) -> bool:
    """Whether it belongs to nobody's own network or machine."""
    ip = ipaddress.ip_address(address)
    public = ip.is_global and not ip.is_multicast
    return public and (ip.version == 4 or (ip in UNICAST and ip not in SIX_TO_FOUR))


@dataclass(frozen=True)
class Outside:
    """How names become addresses, and which addresses may be dialled."""

    resolve: Resolve = look_up
    permits: Callable[[str], bool] = is_public


INTERNET = Outside()


class Link(Protocol):
    """The relay's connection: bytes in, bytes out."""

    async def receive(self, size: int) -> bytes: ...
    async def send(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Egress:
    """What one sandbox may reach. `connections` is the log; its last entry counts those beyond its limit."""

    def __init__(self, allowed: Sequence[str], outside: Outside, traffic: int = BYTES) -> None:
        self._allowed, self._outside, self._traffic = tuple(allowed), outside, traffic
        self._spent, self._open, self._left_out = 0, 0, 0
        self._look_ups = asyncio.Semaphore(LOOK_UPS)
        self._task: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self.connections: list[Connection] = []

    async def start(self, link: Link) -> None:
        """Serves the relay at the other end, and owns the link; raises SandboxLost when it does not answer."""
        self._link = link
        try:
            async with asyncio.timeout(START_S):
                await link.send(b"\n")
                await link.receive(1)
        except (OSError, EOFError, TimeoutError) as error:
            raise SandboxLost(f"the proxy inside the sandbox did not start: {error or type(error).__name__}") from error
        self._task = asyncio.create_task(self._run(Mux(link.receive, link.send, self.serve)))

    async def _run(self, mux: Mux) -> None:
        try:
            await mux.run()
        except (OSError, EOFError, BrokenProtocol):
            return  # the sandbox has ended or lost its relay: nothing gets out any more

    async def aclose(self) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        finally:
            if self._link is not None:
                self._link.close()

    async def serve(self, stream: Stream) -> None:
        """One connection of the agent's, from its request to its end."""
        asked, began = Asked("", 0), time.time()
        refused, address = "", ""
        count = _Count()
        self._open += 1
        try:
            async with asyncio.timeout(HEAD_S):
                head, rest = await _head(stream)
            asked = parse(head)
            self._check(asked)
            upstream, address = await self._dial(asked)
            try:
                if asked.port == TLS:
                    await stream.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    async with asyncio.timeout(HEAD_S):
                        rest = await _greeting(stream, rest, asked.host)
                await self._copy(stream, upstream, asked, rest, count)
            finally:
                upstream[1].close()
        except Refused as error:
            refused = error.reason
            if not address:
                await _tell(stream, error)
        except TimeoutError:
            refused = "" if address else f"no request within {HEAD_S:g} s"
        except OSError as error:
            refused = "" if address else f"the connection ended: {error}"
        finally:
            self._open -= 1
            self._note(
                Connection(
                    at=began,
                    host=asked.host,
                    port=asked.port,
                    refused=refused,
                    address=address,
                    sent=count.sent,
                    received=count.received,
                )
            )

    def _note(self, connection: Connection) -> None:
        if len(self.connections) < LOG_LIMIT:
            self.connections.append(connection)
            return
        self._left_out += 1
        rest = f"connections beyond {LOG_LIMIT} are not written down: {self._left_out}"
        self.connections[LOG_LIMIT:] = [Connection(at=connection.at, host="", port=0, refused=rest)]

    def _check(self, asked: Asked) -> None:
        host = asked.host
        if not any(host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in self._allowed):
            raise Refused(403, f"{host} is not on the allow-list of this sandbox ({', '.join(self._allowed)[:300]})")
        if self._open > CONNECTIONS:
            raise Refused(503, f"more than {CONNECTIONS} connections at once")
        if self._spent >= self._traffic:
            raise Refused(403, f"this sandbox has used up its {self._traffic >> 20} MiB of traffic")

    async def _dial(self, asked: Asked) -> tuple[Streams, str]:
        """Connects to the very addresses that were checked: a name is resolved once."""
        try:
            async with asyncio.timeout(DIAL_S):
                found = await self._resolve(asked)
                fit = [place for place in found if self._outside.permits(place[0])]
                if found and not fit:
                    raise Refused(403, f"{asked.host} is {found[0][0]}, which is not a public address")
                reason = "it has no address"
                for address, port in fit:
                    try:
                        return await asyncio.open_connection(address, port, limit=CHUNK), address
                    except OSError as error:
                        reason = str(error)
        except TimeoutError:
            reason = f"no answer within {DIAL_S:g} s"
        except OSError as error:
            reason = str(error)
        raise Refused(502, f"{asked.host} can't be reached: {reason}")

    async def _resolve(self, asked: Asked) -> Sequence[tuple[str, int]]:
        await self._look_ups.acquire()
        asking = asyncio.ensure_future(self._outside.resolve(asked.host, asked.port))
        asking.add_done_callback(lambda _: self._look_ups.release())
        return await asyncio.shield(asking)  # one that is given up keeps its thread, so it counts until it ends

    async def _copy(self, stream: Stream, upstream: Streams, asked: Asked, rest: bytes, count: _Count) -> None:
        """Both ways until both have ended or one fails, nothing moves for `IDLE_S`, or the traffic is used up.

        A client that has sent everything may still wait for its answer, until it gives the stream up.
        """
        reader, writer = upstream
        clock = asyncio.get_running_loop().time

        def moved(size: int) -> None:
            idle.reschedule(clock() + IDLE_S)
            self._spent += size
            if self._spent > self._traffic:
                raise ConnectionAbortedError("the sandbox's traffic is used up")

        async def out() -> None:
            data, left = rest, asked.body
            if asked.request:
                moved(len(asked.request))
                count.sent += len(asked.request)
                writer.write(asked.request)
            while left is None or left > 0:
                data = (data or await stream.read())[:left]
                if not data:
                    break
                moved(len(data))
                count.sent += len(data)
                left = None if left is None else left - len(data)
                writer.write(data)
                await writer.drain()
                data = b""
            if left is None:
                writer.write_eof()

        async def back() -> None:
            while data := await reader.read(CHUNK):
                moved(len(data))
                count.received += len(data)
                await stream.write(data)
            await stream.end()

        try:
            async with asyncio.timeout(IDLE_S) as idle, asyncio.TaskGroup() as tasks:
                answer = tasks.create_task(back())
                await out()
                given_up = tasks.create_task(stream.given_up())
                answer.add_done_callback(lambda _: given_up.cancel())
        except* OSError:
            pass  # one side has gone, so does the other; a TimeoutError is one of these


class Refused(Exception):
    """What the agent's client is told: an HTTP status and its reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason


@dataclass
class _Count:
    sent: int = 0
    received: int = 0


@dataclass(frozen=True)
class Asked:
    """`request` is what goes to the host before `body` bytes of what the client still sends; a tunnel has no request,
    and None for a body without end."""

    host: str
    port: int
    request: bytes = b""
    body: int | None = None


async def _head(stream: Stream) -> tuple[bytes, bytes]:
    """(the request's head without its empty line, what came after it)"""
    came = b""
    while b"\r\n\r\n" not in came:
        data = await stream.read()
        came += data
        if not data or len(came) > HEAD_LIMIT:
            raise Refused(400, "no whole request came" if not data else f"a head of more than {HEAD_LIMIT} bytes")
    head, _, rest = came.partition(b"\r\n\r\n")
    return head, rest


def parse(head: bytes) -> Asked:
    """Reads a proxy request's head: `CONNECT host:port`, or a method with an absolute http:// address.

    Raises Refused for anything else, an address in numbers included.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    words = re.fullmatch(r"([A-Z]+) ([!-~]+) HTTP/1\.[01]", first)
    if words is None or not all(HEADER.fullmatch(line) for line in lines):
        raise Refused(400, "this is a proxy for HTTP/1.1")
    method, target = words.groups()
    try:
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = (url.hostname or "").rstrip("."), url.port or (TLS if method == "CONNECT" else HTTP)
    except ValueError:
        raise Refused(400, f"no valid address: {target[:200]}") from None
    if url.username is not None or (method != "CONNECT" and url.scheme != "http"):
        raise Refused(400, f"ask for http://HOST/ or CONNECT HOST:443, not {target[:200]}")
    if not NAME.fullmatch(host):
        raise Refused(403, f"only names of hosts are allowed, not {host[:200]!r}")
    if port != (TLS if method == "CONNECT" else HTTP):
        raise Refused(403, f"port {port} is not allowed: ask for http://HOST/ or CONNECT HOST:443")
    if method == "CONNECT":
        return Asked(host, port)
    sizes = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
    if any(line.lower().startswith("transfer-encoding:") for line in lines) or not all(map(LENGTH.fullmatch, sizes)):
        raise Refused(411, "send a body with one Content-Length of at most 18 digits")
    if len(sizes) > 1:
        raise Refused(400, "more than one Content-Length")
    place = f"{url.path or '/'}{'?' + url.query if url.query else ''}"
    kept = [line for line in lines if not DROPPED.match(line)]
    request = "\r\n".join([f"{method} {place} HTTP/1.1", f"Host: {host}", "Connection: close", *kept, "", ""])
    return Asked(host, port, request.encode("latin-1"), int(sizes[0]) if sizes else 0)


async def _greeting(stream: Stream, came: bytes, host: str) -> bytes:
    """What the client sent up to the end of its TLS greeting, which must name that host."""
    greeting, whole = Greeting(), bytearray(came)
    while (name := greeting.add(came)) is None and len(whole) <= HEAD_LIMIT:
        came = await stream.read()
        if not came:
            break
        whole += came
    if name != host:
        raise Refused(403, f"the connection to {host} greets {name[:200]!r}" if name else "no TLS greeting with a name")
    return bytes(whole)


class Greeting:
    """A TLS client's first bytes, read as they come."""

    def __init__(self) -> None:
        self._came, found = ssl.MemoryBIO(), list[str]()

        def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int:
            found.append((name or "").lower())
            return ssl.ALERT_DESCRIPTION_CLOSE_NOTIFY  # the name is all that is wanted of this handshake

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = note  # not a method: a context that leads back to its connection is never freed
        self._found, self._hello = found, context.wrap_bio(self._came, ssl.MemoryBIO(), server_side=True)

    def add(self, data: bytes) -> str | None:
        """The host that they name (SNI); None if more is needed, empty if there is none."""
        self._came.write(data)
        try:
            self._hello.do_handshake()
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError:
            pass  # it ends here in any case
        return self._found[0] if self._found else ""


async def _tell(stream: Stream, error: Refused) -> None:
    body = f"{error.reason}\n".encode()
    head = f"HTTP/1.1 {error.status} {error.reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    with contextlib.suppress(OSError):
        await stream.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await stream.end()
