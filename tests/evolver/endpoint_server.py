"""A chat-completions endpoint on 127.0.0.1 for tests: it answers what the test scripted and keeps what it was sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    """One scripted HTTP answer; `body` is sent as it is when it is bytes, else as JSON. A function is asked for the
    answer to the decoded request. `gone`: the connection ends without one."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    gone: bool = False


@dataclass
class Endpoint:
    """Gives the replies in order, then the last one again. `requests` are the decoded bodies, `raw` their bytes."""

    replies: Sequence[Reply]
    url: str = ""
    requests: list[dict] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    running: int = 0
    most_running: int = 0


def chat(message: dict, *, finish: str = "stop", usage: object = None) -> Reply:
    """A reply with one choice."""
    used = {"prompt_tokens": 11, "completion_tokens": 7} if usage is None else usage
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": used}
    return Reply(body=body)


def calls(*pairs: tuple[str, str], content: str | None = None) -> dict:
    """A message with native tool calls: (name, arguments as the text that the model wrote)."""
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": text}}
        for i, (name, text) in enumerate(pairs)
    ]
    return {"content": content, "tool_calls": made}


@contextmanager
def serving(*replies: Reply) -> Iterator[Endpoint]:
    endpoint = Endpoint(replies)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with lock:
                endpoint.requests.append(json.loads(body))
                endpoint.raw.append(body)
                endpoint.headers.append(dict(self.headers))
                endpoint.times.append(time.monotonic())
                endpoint.running += 1
                endpoint.most_running = max(endpoint.most_running, endpoint.running)
                reply = replies[min(len(endpoint.requests), len(replies)) - 1]
                if callable(reply.body):
                    reply = reply.body(endpoint.requests[-1])
            time.sleep(reply.delay_s)
            with lock:
                endpoint.running -= 1
            if reply.gone:
                self.close_connection = True
                return
            data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            try:
                self.send_response(reply.status)
                for name, value in {"content-type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client gave up waiting, which is what some tests are about

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
