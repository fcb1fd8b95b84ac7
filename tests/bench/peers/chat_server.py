"""A chat-completions endpoint that takes LATENCY seconds over every answer: `chat_server.py LATENCY`, prints its port.

It asks for one shell command in each of the first CALLS - 1 replies and ends with the last one. Standard library alone,
little CPU: what is measured is who calls it.
"""

from __future__ import annotations

import asyncio
import json
import sys

CALLS = 5


def _answer(message: dict[str, object], finish: str) -> bytes:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "noop",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920},
    }
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def _call(number: int, name: str, arguments: dict[str, str]) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": "Look around.", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}


STEPS = [_answer(_call(n, "bash", {"command": "ls -la"}), "tool_calls") for n in range(CALLS - 1)]
TERMINATE = _answer(_call(CALLS, "computer_use", {"action": "terminate", "status": "success"}), "tool_calls")
DONE = _answer({"content": "Everything is done."}, "stop")


def reply_to(body: bytes) -> bytes:
    said = body.count(b'"assistant"')
    if said < CALLS - 1:
        return STEPS[said]
    return TERMINATE if b'"computer_use"' in body else DONE


class Chat(asyncio.Protocol):
    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        if len(body) >= length:
            self._got = b""
            asyncio.get_running_loop().call_later(self._latency_s, self._out.write, reply_to(body))


async def main() -> None:
    latency_s = float(sys.argv[1])
    server = await asyncio.get_running_loop().create_server(lambda: Chat(latency_s), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
