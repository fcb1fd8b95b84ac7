"""The allow-list of an environment, on both back ends: what the agent reaches, and that nothing else is reachable."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from evolver.protocols import Sandbox
from evolver.records import Connection, Rollout, RolloutKey
from evolver.rollout import Job, run_rollout
from evolver.sandboxes import open_backend
from evolver.sandboxes.backend import Kind
from evolver.sandboxes.egress import Outside
from evolver.testing import ScriptedModel, reply
from harnesses.harness import Environment
from harnesses.tree import read_tree, seed_path
from tests.evolver.cards import a_task

BIG = b"0123456789abcdef" * 65_536 * 3
NET = Environment(image="terminal", network="allowlist", allowlist=("shop.test", "*.wild.test", "local.test"))


async def _page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, EOFError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = BIG if head.split()[1] == "/big" else b"hello from outside\n"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
    writer.close()


def _certificate(folder: Path) -> ssl.SSLContext:
    pem = folder / "server.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "2", "-subj", "/CN=shop.test", "-keyout", str(pem), "-out", str(folder / "cert")]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", pem)
    return context


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    """Servers of this test behind every name but one, which leads to where the sandbox's own machine is."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    plain = await asyncio.start_server(_page, "127.0.0.1", 0)
    secret = await asyncio.start_server(_page, "127.0.0.1", 0, ssl=_certificate(tmp_path))
    ports = {80: plain.sockets[0].getsockname()[1], 443: secret.sockets[0].getsockname()[1]}

    async def resolve(host: str, asked: int) -> list[tuple[str, int]]:
        return [("127.0.0.2" if host == "local.test" else "127.0.0.1", ports[asked])]

    async with plain, secret:
        yield Outside(resolve, permits=lambda address: address == "127.0.0.1")


@pytest.fixture
async def box(kind: Kind, outside: Outside) -> AsyncIterator[Sandbox]:
    backend = open_backend(kind, spares=0, outside=outside)
    yield await backend.open(NET, run_id="test-net", ttl_s=120)
    await backend.aclose()


FETCH = """
import sys, urllib.request, urllib.error
try:
    data = urllib.request.urlopen(sys.argv[1], timeout=20).read()
    print(len(data), data[:18].decode())
except Exception as error:
    print(type(error).__name__, error, getattr(error, "read", bytes)().decode())
"""
TUNNEL = """
import socket, ssl, sys
via = socket.create_connection(("127.0.0.1", 3128), timeout=20)
via.sendall(f"CONNECT {sys.argv[1]}:443 HTTP/1.1\\r\\n\\r\\n".encode())
said = via.recv(4096).decode().splitlines()[0]
if " 200 " not in said:
    sys.exit(said)
try:
    inner = ssl._create_unverified_context().wrap_socket(via, server_hostname=sys.argv[2])
    inner.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    print(inner.makefile().read().splitlines()[-1])
except Exception as error:
    print(type(error).__name__, error)
"""


async def fetch(box: Sandbox, url: str) -> str:
    return (await box.exec(f"python3 -c '{FETCH}' {url}", timeout_s=40)).output.strip()


async def tunnel(box: Sandbox, host: str, greets: str = "") -> str:
    return (await box.exec(f"python3 -c '{TUNNEL}' {host} {greets or host}", timeout_s=40)).output.strip()


async def logged(box: Sandbox, count: int) -> Sequence[Connection]:
    """The log, once it has so many entries: each is written when its connection has ended."""
    for _ in range(500):
        if len(box.connections) >= count:
            break
        await asyncio.sleep(0.01)
    return box.connections


async def test_an_allowed_host_is_reached_and_the_log_says_so(box: Sandbox) -> None:
    assert await fetch(box, "http://shop.test/") == "19 hello from outside"
    assert await fetch(box, "http://a.wild.test/big") == f"{len(BIG)} 0123456789abcdef01"
    assert await tunnel(box, "shop.test") == "hello from outside"
    assert (await box.exec("curl -sk https://shop.test/", timeout_s=20)).output == "hello from outside\n"
    seen = [(c.host, c.port, c.refused, c.received >= 18) for c in await logged(box, 4)]
    assert seen == [("shop.test", 80, "", True), ("a.wild.test", 80, "", True), ("shop.test", 443, "", True),
                    ("shop.test", 443, "", True)]  # fmt: skip


async def test_another_host_is_refused_with_a_clear_message(box: Sandbox) -> None:
    assert "other.test is not on the allow-list of this sandbox (shop.test" in await fetch(box, "http://other.test/")
    assert "403 other.test is not on the allow-list" in await tunnel(box, "other.test")
    ran = await box.exec("curl -sS https://other.test/", timeout_s=20)
    assert ran.exit_code == 56 and "403" in ran.output
    seen = await logged(box, 3)
    assert all(c.refused and not c.address for c in seen) and len(seen) == 3


async def test_there_is_no_way_around_the_proxy(box: Sandbox) -> None:
    ran = await box.exec("tail -n +3 /proc/net/dev | cut -d: -f1; curl -sS --noproxy '*' http://1.1.1.1/", timeout_s=20)
    assert ran.output.split()[0] == "lo" and ran.exit_code == 7
    assert (await box.exec("curl -sS --noproxy '*' http://shop.test/", timeout_s=20)).exit_code == 6
    assert "unreachable" in (await box.bash("exec 3<>/dev/tcp/1.1.1.1/443", timeout_s=5)).output
    assert "only names of hosts" in await fetch(box, "http://93.184.216.34/")
    assert "only names of hosts" in await tunnel(box, "127.0.0.1")


async def test_what_shares_an_address_with_an_allowed_host_is_out_of_reach(box: Sandbox) -> None:
    assert await tunnel(box, "shop.test", "other.test") != "hello from outside"
    (seen,) = await logged(box, 1)
    assert "greets 'other.test'" in seen.refused and seen.sent == 0


async def test_a_name_that_leads_to_a_private_address_is_refused(box: Sandbox) -> None:
    assert "local.test is 127.0.0.2, which is not a public address" in await fetch(box, "http://local.test/")


async def test_killing_the_relay_lets_nothing_out_and_leaves_control_alive(box: Sandbox) -> None:
    await box.bash("pkill -9 -f relay.py; kill -9 -1", timeout_s=5)
    await asyncio.sleep(0.2)
    assert (await fetch(box, "http://other.test/")).partition(" ")[0] in ("URLError", "HTTPError")
    assert (await box.bash("echo alive", timeout_s=5)).output == "alive\n"


async def test_a_frozen_sandbox_has_no_way_out_left(box: Sandbox) -> None:
    await box.bash("(while :; do curl -s http://shop.test/; sleep 0.05; done) >log 2>&1 &", timeout_s=5)
    await asyncio.sleep(1)
    assert await box.freeze()
    await asyncio.sleep(0.3)
    count = len(box.connections)
    assert count
    await asyncio.sleep(0.7)
    assert len(box.connections) == count


async def test_a_rollout_keeps_what_was_asked_of_the_network(kind: Kind, outside: Outside) -> None:
    harness, task = read_tree(seed_path("beta1")).model_copy(update={"environment": NET}), a_task()
    key = RolloutKey(
        purpose="adhoc", harness_id=harness.id, model_id="scripted", task_id=task.id, task_hash=task.hash,
        split=task.split, attempt=0, seed=0,
    )  # fmt: skip
    ask = reply("Ask.", ("bash", {"command": "curl -s http://shop.test/; curl -s http://other.test/"}))
    done = reply("Done.", ("computer_use", {"action": "terminate", "status": "success"}))
    model = ScriptedModel([ask, done])
    backend = open_backend(kind, spares=0, outside=outside)
    job = Job(key=key, rollout_id="r-net", harness=harness, task=task, model=model, run_id="test-net")
    try:
        rollout, _ = await run_rollout(job, backend, lambda data: f"{len(data)}")
    finally:
        await backend.aclose()
    assert [(seen.host, bool(seen.refused)) for seen in rollout.connections] == [
        ("shop.test", False),
        ("other.test", True),
    ]
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout
