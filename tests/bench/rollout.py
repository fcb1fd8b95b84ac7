"""What the loop around the model costs, beside a bare client and beside inspect_ai, on two cores.

(a) 128 attempts of five calls at once against an endpoint that takes 500 ms. Goal: 95 % of the calls/s of a bare
    AsyncOpenAI, which sends the same requests and does nothing else; httpx2, which lies under it, is shown beside.
(b) A model that answers at once, with everything written that a run writes (rollout, scorecard, ledger entry and
    requests), durable before it is told. Goal: 1,000 calls/s.

The sandbox does nothing. inspect_ai lives in an environment of its own (`peers` beside this Python's programs).
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from openai import AsyncOpenAI
from pydantic import JsonValue

from devset.task import Criterion, Rubric, Task
from evolver.config import OpenAISpec, RunConfig
from evolver.context import request_for
from evolver.controls import home_tar
from evolver.executors.local import LocalExecutor
from evolver.lab import Attempt, Lab
from evolver.models.openai import OpenAIModel
from evolver.protocols import Model, Ran, Request
from evolver.records import Completion, LedgerEntry, Observed, Rollout, Scorecard
from evolver.store import Store
from evolver.testing import FakeGrader, FakeSandbox, FakeSandboxes, reply
from harnesses.edit import with_changes
from harnesses.harness import Harness
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, seed_path

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
CALLS, TOGETHER, LATENCY_S, ROUNDS = 5, 128, 0.5, 5
AT_ONCE, WORKERS, PEER_SAMPLES = 2_000, 128, 100
GOAL_SHARE, GOAL_CALLS = 0.95, 1_000
EMPTY_HOME = home_tar({})
LOOK = reply("Look around.", ("bash", {"command": "ls -la"}))
DONE = reply("Everything is done.", ("computer_use", {"action": "terminate", "status": "success"}))


class Idle(FakeSandbox):
    """Does nothing, and has no screen."""

    async def bash(self, command: str, *, timeout_s: float) -> Ran:
        return Ran(0, "ok\n")

    async def freeze(self) -> bytes:
        return EMPTY_HOME


class AtOnce:
    """Answers without any delay."""

    id = "at-once"
    declared = "at-once (answers without delay)"

    async def complete(self, request: Request) -> Completion:
        said = sum(message.role == "assistant" for message in request.messages)
        return LOOK if said < CALLS - 1 else DONE


def task(number: int) -> Task:
    criteria = (Criterion(id="done", description="It is done."),)
    return Task(
        id=f"bench-{number}", hash=f"h{number}", family="bench", instruction=f"List the files of folder {number}.",
        category="os", apps=("terminal",), channels=frozenset({"terminal"}), rubric=Rubric(criteria=criteria), check="",
    )  # fmt: skip


def harness() -> Harness:
    """The seed with both channels, whose requests keep every turn, as a bare client's do."""
    return harness_from_files(with_changes(read_tree(seed_path("beta1")), {"scaffold.history": "full"}))


async def evolver_s(model: Model, attempts: int, workers: int, profile: cProfile.Profile | None = None) -> float:
    """Seconds from the first attempt to the last durable scorecard."""
    (ROOT / "runs").mkdir(exist_ok=True)  # on the disk that runs are on, not on a tmpfs
    with tempfile.TemporaryDirectory(dir=ROOT / "runs", prefix=".bench-") as folder:
        store = Store.create(Path(folder) / "run", RunConfig(allow_unpriced=True))
        library = Library(store.path / "library")
        tree = with_changes(read_tree(seed_path("beta1")), {"scaffold.history": "full"})
        harness_id = library.add(tree, name="bench", parents=(), message="bench", branch="main")
        machines = FakeSandboxes(lambda: Idle({}, None))
        lab = Lab(store, library, machines, [FakeGrader({"done": 1.0})], model, LocalExecutor(workers))
        lab.harness(harness_id)
        wanted = [Attempt(harness_id, task(number), "train") for number in range(attempts)]
        if profile is not None:
            profile.enable()
        began = time.perf_counter()
        cards = await lab.score(wanted)
        seconds = time.perf_counter() - began
        if profile is not None:
            profile.disable()
        again = Store.open(store.path)
        assert all(card.success for card in cards) and len(again.all(Scorecard)) == attempts
        assert sum(entry.calls for entry in again.all(LedgerEntry)) == CALLS * attempts
        assert all(r.requests_sha256 and again.blob(r.requests_sha256) for r in again.all(Rollout)[:10])
    return seconds


Ask = Callable[[dict[str, JsonValue]], Awaitable[dict[str, JsonValue]]]


async def bare_s(url: str, client: str) -> float:
    """Seconds of the same calls by a client alone: nothing is parsed further, kept or written."""
    if client == "httpx2":
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx2.AsyncClient(limits=limits, timeout=60) as http:

            async def post(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
                answer = await http.post(f"{url}/chat/completions", content=json.dumps(body))
                return answer.json()["choices"][0]["message"]

            return await _timed(post)
    async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as openai:

        async def create(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
            answer = await openai.chat.completions.create(**body)  # type: ignore[call-overload]
            return answer.choices[0].message.model_dump(exclude_none=True)

        return await _timed(create)


async def _timed(ask: Ask) -> float:
    messages, tools = request_for(harness(), task(0).instruction, Observed(), ())
    opening = Request(messages=messages, tools=tools, sampling=harness().scaffold.sampling, seed=0)
    body = {"model": "noop", **opening.body}

    async def one() -> None:
        said = [*body["messages"]]  # type: ignore[misc]
        for _ in range(CALLS):
            message = await ask({**body, "messages": said})
            said.append(message)
            said += [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in message.get("tool_calls", ())]

    await one()  # loads what is loaded late
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(TOGETHER):
            group.create_task(one())
    return time.perf_counter() - began


@contextmanager
def endpoint(latency_s: float) -> Iterator[str]:
    command = (sys.executable, str(PEERS / "chat_server.py"), str(latency_s))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.terminate()


async def with_endpoint(url: str) -> float:
    spec = OpenAISpec(kind="openai", model="noop", base_url=url, concurrency=TOGETHER)
    model = OpenAIModel(spec)
    await evolver_s(model, 1, 1)  # loads what is loaded late
    return await evolver_s(model, TOGETHER, TOGETHER)


def peer_python() -> Path | None:
    """The Python of inspect_ai's environment, made at the first call; None where it can't be installed."""
    place = Path(sys.prefix) / "peers"
    python, wanted = place / "bin" / "python", PEERS / "requirements.txt"
    mark = place / "requirements.txt"
    if not mark.exists() or mark.read_text() != wanted.read_text():
        print(f"installing inspect_ai into {place} ...", file=sys.stderr)
        venv.create(place, with_pip=True, clear=True)
        if subprocess.run((python, "-m", "pip", "install", "-qq", "-r", wanted), check=False).returncode:
            print("inspect_ai can't be installed here: its rates are left out", file=sys.stderr)
            return None
        mark.write_text(wanted.read_text())
    return python


def peer_calls_per_s(python: Path | None, mode: str, samples: int, url: str = "") -> float | None:
    if python is None:
        return None
    env = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "BENCH_API_KEY": "none", "BENCH_BASE_URL": url}
    command = (python, PEERS / "inspect_peer.py", mode, str(samples))
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    return CALLS * samples / float(done.stdout.split()[-1])


def shares() -> str:
    """Which code the processor's time of (b) goes into, of this process' main thread."""
    profile = cProfile.Profile()
    asyncio.run(evolver_s(AtOnce(), 300, WORKERS, profile))
    spent: Counter[str] = Counter()
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        spent[_area(file, name)] += own
    total = sum(spent.values())
    return ", ".join(f"{area} {100 * own / total:.0f} %" for area, own in spent.most_common(6))


def _area(file: str, name: str) -> str:
    for part in ("pydantic", "evolver/store", "evolver/context", "evolver/tokens", "evolver/sent", "evolver", "json"):
        if part in file or part in name:
            return part.replace("evolver/", "")
    waits = ("posix", "fsync", "select", "epoll", "flock", "open")
    if any(word in name for word in waits) or "store" in file:
        return "files and waiting"
    return "asyncio and threads" if "asyncio" in file or "thread" in file or "lock" in name else "the rest of Python"


def rate(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.0f} calls/s"


def main() -> int:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    python = peer_python()
    seconds: dict[str, list[float]] = {}
    with endpoint(LATENCY_S) as url:
        for _ in range(ROUNDS):
            for client in ("AsyncOpenAI", "httpx2"):
                seconds.setdefault(client, []).append(asyncio.run(bare_s(url, client)))
            seconds.setdefault("evolver", []).append(asyncio.run(with_endpoint(url)))
        peer_a = peer_calls_per_s(python, "endpoint", TOGETHER, url)
    rates = {who: CALLS * TOGETHER / min(took) for who, took in seconds.items()}
    ours, bare = rates["evolver"], rates["AsyncOpenAI"]
    cpu, began = time.process_time(), time.perf_counter()
    at_once = CALLS * AT_ONCE / asyncio.run(evolver_s(AtOnce(), AT_ONCE, WORKERS))
    busy = (time.process_time() - cpu) / (time.perf_counter() - began)
    peer_b = peer_calls_per_s(python, "zero", PEER_SAMPLES)
    ideal = TOGETHER / LATENCY_S
    print(f"(a) {TOGETHER} at once, {1000 * LATENCY_S:.0f} ms a call (ideal {ideal:.0f} calls/s), best of {ROUNDS}:")
    told = ", ".join(f"{who} {rate(value)}" for who, value in rates.items())
    print(f"    bare {told}, inspect_ai {rate(peer_a)}")
    print(f"(b) no latency, {AT_ONCE:,} attempts, {WORKERS} at once, all records durable:")
    print(f"    evolver {rate(at_once)} ({at_once / CALLS:,.0f} attempts/s), inspect_ai {rate(peer_b)}")
    print(f"    its limit: one Python thread ({100 * busy:.0f} % of a core in use): {shares()}")
    met = ours / bare >= GOAL_SHARE and at_once >= GOAL_CALLS
    print(
        f"rollout: {100 * ours / bare:.1f} % of a bare AsyncOpenAI (goal {100 * GOAL_SHARE:.0f} %), "
        f"{at_once:,.0f} calls/s without latency (goal {GOAL_CALLS:,}) {'goal met' if met else 'short of goal'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
