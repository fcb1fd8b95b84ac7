"""What is played to know what a result is worth: agents that do nothing, homes and screens with nothing on them."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from evolver.offered import offered
from evolver.protocols import Request
from evolver.records import Completion, ToolCall, Usage

FREE = Usage(input_tokens=1, output_tokens=1, counted_by="estimate")


class NoopModel:
    """Ends at once and claims success: what is left is the untouched state (the always-done control)."""

    id = "noop"
    declared = "noop (ends at once)"

    async def complete(self, request: Request) -> Completion:
        return _ending(request, "success")


class AlwaysFailModel:
    """Ends at once and says that the task can't be done (the always-fail control)."""

    id = "always-fail"
    declared = "always-fail (gives up at once)"

    async def complete(self, request: Request) -> Completion:
        return _ending(request, "failure")


def _ending(request: Request, status: Literal["success", "failure"]) -> Completion:
    tools = offered(request.tools)
    text = "Nothing to do." if status == "success" else "This can't be done."
    if not (tools.gui and tools.can_terminate):
        return Completion(text=text, finish_reason="stop", usage=FREE)
    reason: dict[str, JsonValue] = {} if status == "success" else {"reason": "gives up at once"}
    call = ToolCall(id="call_0", name=tools.gui, arguments={"action": "terminate", "status": status, **reason})
    return Completion(text=text, calls=(call,), finish_reason="tool_calls", usage=FREE)


def home_tar(files: Mapping[str, bytes]) -> bytes:
    """Files (relative path → bytes) as a tar, as a home is frozen."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def blank_png(width: int, height: int) -> bytes:
    """A black greyscale PNG of that size, a few hundred bytes long."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
