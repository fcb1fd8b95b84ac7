"""The server: on this machine only, closed to other origins, and gone when it is told to stop."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dashboards import cli
from evolver.errors import UsageError
from tests.dashboards.server import Running, dashboard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(whole_run: Path) -> Iterator[Running]:
    with dashboard(str(whole_run)) as running:
        yield running


def shake_hands(port: int, host: str, origin: str) -> int:
    """The HTTP status that a WebSocket handshake gets."""
    lines = (
        "GET /_stcore/stream HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", f"Origin: {origin}",
        "Sec-WebSocket-Protocol: streamlit", "", "",
    )  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return int(connection.recv(1024).split()[1])


def test_u42_it_listens_on_this_machine_only(server: Running) -> None:
    family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
    listening = [c.laddr for p in family for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert [(a.ip, a.port) for a in listening] == [("127.0.0.1", server.port)]


def test_u42_only_its_own_host_and_origin_may_talk_to_it(server: Running) -> None:
    port = server.port
    for name in ("127.0.0.1", "localhost"):
        assert shake_hands(port, f"{name}:{port}", f"http://{name}:{port}") == 101
    assert shake_hands(port, f"127.0.0.1:{port}", "http://evil.example") == 403
    assert shake_hands(port, "evil.example", "http://evil.example") == 403


def test_it_takes_the_first_free_port(server: Running, whole_run: Path) -> None:
    with dashboard(str(whole_run)) as second:
        assert cli.FIRST_PORT <= server.port < second.port


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_stop_it_ends_with_its_child_and_without_a_traceback(
    whole_run: Path, capfd: pytest.CaptureFixture[str], stop: signal.Signals, code: int
) -> None:
    with dashboard(str(whole_run)) as running:
        family = psutil.Process(running.process.pid).children(recursive=True)
        assert family
        os.killpg(running.process.pid, stop)  # as a terminal does
        assert running.process.wait(20) == code
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive and "Traceback" not in capfd.readouterr().err


def test_a_wrong_folder_and_a_taken_port_are_one_line(tmp_path: Path, server: Running) -> None:
    with pytest.raises(UsageError, match="is no directory"):
        cli.dashboard(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=f"port {server.port} is taken"):
        cli.dashboard(tmp_path, port=server.port)
