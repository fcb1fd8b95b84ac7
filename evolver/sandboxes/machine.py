"""One sandbox as the rest of the platform sees it: `protocols.Sandbox` over framed messages with the server inside."""

from __future__ import annotations

import asyncio
import io
import json
import struct
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict

from pydantic import JsonValue

from evolver.errors import BadAction, Blame, Blamed, SandboxLost
from evolver.protocols import Act, Element, Frame, Ran
from evolver.records import Connection
from evolver.sandboxes.egress import Egress

FREEZE_LIMIT = 256 << 20
GRACE_S = 20.0  # what the server may take beyond a command's own timeout before the sandbox counts as lost


class StateTooLarge(Blamed):
    """The agent left more in its home than may be graded: its own failure, so it is scored."""

    blame: Blame = "harness"
    kind = "state_too_large"


class StateUnreadable(Blamed):
    """The agent shut its own home, so what it did can't be graded: its own failure, so it is scored."""

    blame: Blame = "harness"
    kind = "state_unreadable"


class Wire:
    """One request at a time over a pair of byte streams. `died` says why the machine ended, if it did."""

    def __init__(
        self,
        receive: Callable[[int], Awaitable[bytes]],
        send: Callable[[bytes], Awaitable[None]],
        died: Callable[[], Awaitable[str]],
    ) -> None:
        self._receive, self._send, self._died = receive, send, died
        self._lock = asyncio.Lock()
        self._broken = ""

    async def ask(
        self, op: str, fields: Mapping[str, object], body: bytes = b"", *, limit_s: float = 60.0
    ) -> tuple[JsonValue, bytes]:
        """(answer, body); raises SandboxLost, BadAction, FileNotFoundError, OSError or StateTooLarge."""
        head = json.dumps({"op": op, **fields}).encode()
        async with self._lock:
            if self._broken:
                raise SandboxLost(self._broken)
            try:
                async with asyncio.timeout(limit_s):
                    await self._send(struct.pack(">II", len(head), len(body)) + head + body)
                    sizes: tuple[int, int] = struct.unpack(">II", await self._receive(8))
                    answer: JsonValue = json.loads(await self._receive(sizes[0]))
                    data = await self._receive(sizes[1]) if sizes[1] else b""
            except TimeoutError:
                self._broken = f"the sandbox did not answer `{op}` within {limit_s:g} s"
                raise SandboxLost(self._broken) from None
            except (OSError, EOFError, ValueError) as error:
                self._broken = f"the sandbox ended during `{op}`: {await self._died() or error or type(error).__name__}"
                raise SandboxLost(self._broken) from error
            except asyncio.CancelledError:
                self._broken = f"`{op}` was cancelled half-way"
                raise
        if isinstance(answer, dict) and "error" in answer:
            _raise(str(answer["error"]), str(answer["message"]))
        return answer, data


def _raise(kind: str, message: str) -> None:
    if kind == "bad_action":
        raise BadAction(message)
    if kind == "missing":
        raise FileNotFoundError(message)
    if kind == "os":
        raise OSError(message)
    if kind == "too_large":
        raise StateTooLarge(message)
    raise SandboxLost(message)


class Machine:
    """`protocols.Sandbox` for both back ends; `end` ends the machine and is called once."""

    def __init__(
        self,
        id: str,
        image_digest: str,
        screen: tuple[int, int] | None,
        wire: Wire,
        end: Callable[[], Awaitable[None]],
        egress: Egress | None = None,
    ) -> None:
        self.id, self.image_digest, self.screen = id, image_digest, screen
        self._wire, self._end, self._closed, self._frozen = wire, end, False, False
        self._egress = egress

    @property
    def connections(self) -> Sequence[Connection]:
        return self._egress.connections if self._egress else ()

    async def _ask(
        self, op: str, fields: Mapping[str, object], body: bytes = b"", *, limit_s: float = 60.0
    ) -> tuple[JsonValue, bytes]:
        if self._closed or self._frozen:
            raise SandboxLost(f"sandbox {self.id} is {'closed' if self._closed else 'frozen'}")
        return await self._wire.ask(op, fields, body, limit_s=limit_s)

    async def hello(self, ttl_s: float) -> None:
        """Waits for the server and starts the time-to-live anew."""
        await self._ask("adopt", {"ttl_s": ttl_s})

    async def exec(self, command: str, *, timeout_s: float, env: Mapping[str, str] | None = None) -> Ran:
        fields = {"command": command, "timeout_s": timeout_s, "env": dict(env or {})}
        return _ran((await self._ask("exec", fields, limit_s=timeout_s + GRACE_S))[0])

    async def bash(self, command: str, *, timeout_s: float) -> Ran:
        fields = {"command": command, "timeout_s": timeout_s}
        return _ran((await self._ask("bash", fields, limit_s=timeout_s + GRACE_S))[0])

    async def read(self, path: str) -> bytes:
        """Raises FileNotFoundError, or OSError for what is not a readable regular file of at most 64 MiB."""
        return (await self._ask("read", {"path": _absolute(path)}))[1]

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes as the agent's user, folders included; a relative path starts in /home/user."""
        await self._ask("write", {"path": _absolute(path), "mode": mode}, data)

    async def spawn(self, command: str) -> None:
        await self._ask("spawn", {"command": command})

    async def witness(self, command: str, files: Mapping[str, bytes]) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path, data in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        await self._ask("witness", {"command": command}, packed.getvalue())

    async def windows(self, *, drawn: bool = False) -> list[str]:
        answer, _ = await self._ask("windows", {"drawn": drawn})
        titles = answer.get("windows") if isinstance(answer, dict) else None
        return [str(title) for title in titles] if isinstance(titles, list) else []

    async def screenshot(self, *, settle_s: float = 0.0) -> Frame:
        """A capture that fails is tried once more; then the sandbox counts as lost."""
        try:
            return await self._capture(settle_s)
        except SandboxLost:
            return await self._capture(settle_s)

    async def _capture(self, settle_s: float) -> Frame:
        answer, png = await self._ask("shot", {"settle_s": settle_s}, limit_s=settle_s + 60)
        if not isinstance(answer, dict) or self.screen is None or not png.startswith(b"\x89PNG"):
            raise SandboxLost("the screenshot is no PNG")
        return Frame(png, *self.screen, settled=bool(answer["settled"]))

    async def act(self, action: Act) -> None:
        await self._ask("act", {"action": asdict(action)}, limit_s=action.timeout_s + max(action.seconds, 0) + 60)

    async def elements(self) -> list[Element]:
        _, data = await self._ask("elements", {})
        try:
            return [Element(**fields) for fields in json.loads(data)]
        except (TypeError, ValueError) as error:
            raise SandboxLost(f"the accessibility tree is not readable: {error}") from error

    async def freeze(self) -> bytes:
        """Raises StateTooLarge when the agent's home holds more than 256 MiB, StateUnreadable when it is shut."""
        try:
            data = (await self._ask("freeze", {"limit": FREEZE_LIMIT}, limit_s=60))[1]
        except OSError as error:
            raise StateUnreadable(f"the agent's home can't be read: {error}") from error
        self._frozen = True
        return data

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                if self._egress:
                    await self._egress.aclose()
            finally:
                await self._end()


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/home/user/{path}"


def _ran(answer: JsonValue) -> Ran:
    if not isinstance(answer, dict):
        raise SandboxLost("the sandbox answered nonsense")
    code, cut = answer["exit_code"], answer["truncated_chars"]
    return Ran(
        exit_code=code if isinstance(code, int) else None,
        output=str(answer["output"]),
        timed_out=bool(answer["timed_out"]),
        truncated_chars=cut if isinstance(cut, int) else 0,
        notice=str(answer["notice"]),
    )
