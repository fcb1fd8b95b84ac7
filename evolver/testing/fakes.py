"""Shipped fakes, one per seam, named as such: tests pass them in where the real thing would go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from devset.task import Criterion, Task
from evolver.controls import blank_png, home_tar
from evolver.errors import SandboxLost
from evolver.protocols import (
    Act,
    Element,
    Frame,
    Ran,
    Request,
)
from evolver.records import Completion, Connection, Rollout, Score, ToolCall, Usage
from evolver.score import score_of
from harnesses.harness import Environment

HOME = "/home/user"
WITNESSED = ".witness"
FAKE_DIGEST = "sha256:fake"
FREE = Usage(input_tokens=1, output_tokens=1, counted_by="estimate")
Item = TypeVar("Item")
Result = TypeVar("Result")


def reply(text: str = "", *calls: tuple[str, dict[str, object]], invalid: str | None = None) -> Completion:
    """A completion from (tool name, arguments) pairs; call ids are call_0, call_1, ..."""
    made = tuple(
        ToolCall.model_validate({"id": f"call_{i}", "name": name, "arguments": arguments})
        for i, (name, arguments) in enumerate(calls)
    )
    return Completion(
        text=text, calls=made, finish_reason="tool_calls" if made else "stop", invalid=invalid, usage=FREE
    )


# --- models ------------------------------------------------------------------------------------------------------


class ScriptedModel:
    """Gives the listed replies in order, then the last one again; keeps every request."""

    def __init__(self, replies: Sequence[Completion], *, model_id: str = "scripted") -> None:
        self.id = model_id
        self.declared = f"{model_id} (scripted fake)"
        self.requests: list[Request] = []
        self._replies = tuple(replies)

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        return self._replies[min(len(self.requests), len(self._replies)) - 1]


class FailingModel:
    """Raises the given error on every call."""

    id = "failing"
    declared = "failing (fake)"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        raise self.error


# --- sandbox -----------------------------------------------------------------------------------------------------

Answer = Ran | Callable[["FakeSandbox"], Ran]


class FakeSandbox:
    """Files in memory, scripted answers to commands, a blank screen with the given windows and elements.

    `answers` maps a command to its outcome, `otherwise` answers every other one (it exits with 127). `on_act` may
    change windows and elements.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None, screen: tuple[int, int] | None = None) -> None:
        self.id = "fake-sandbox"
        self.image_digest = FAKE_DIGEST
        self.screen = screen
        self.connections: tuple[Connection, ...] = ()
        self.files: dict[str, bytes] = {}
        self.modes: dict[str, int] = {}
        self.witnessed: bytes | None = None
        self.answers: dict[str, Answer] = dict(answers or {})
        self.otherwise: Callable[[FakeSandbox, str], Ran] = lambda sandbox, command: Ran(
            127, f"not scripted: {command}"
        )
        self.open_windows: list[str] = []
        self.shown: list[Element] = []
        self.on_act: Callable[[FakeSandbox, Act], None] = lambda sandbox, action: None
        self.commands: list[str] = []
        self.acts: list[Act] = []
        self.frozen = False
        self.closed = False

    def _alive(self) -> None:
        if self.frozen or self.closed:
            raise SandboxLost(f"{self.id} is {'closed' if self.closed else 'frozen'}")

    def _run(self, command: str) -> Ran:
        self._alive()
        self.commands.append(command)
        if command not in self.answers:
            return self.otherwise(self, command)
        answer = self.answers[command]
        return answer if isinstance(answer, Ran) else answer(self)

    async def exec(self, command: str, *, timeout_s: float, env: Mapping[str, str] | None = None) -> Ran:
        return self._run(command)

    async def bash(self, command: str, *, timeout_s: float) -> Ran:
        return self._run(command)

    async def read(self, path: str) -> bytes:
        self._alive()
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._alive()
        self.files[path] = data
        self.modes[path] = mode

    async def spawn(self, command: str) -> None:
        self._run(command)

    async def witness(self, command: str, files: Mapping[str, bytes]) -> None:
        self.witnessed = self._run(command).output.encode()

    async def windows(self, *, drawn: bool = False) -> list[str]:
        self._alive()
        return list(self.open_windows)

    async def screenshot(self, *, settle_s: float = 0.0) -> Frame:
        self._alive()
        width, height = self.screen or (0, 0)
        if not self.screen:
            raise SandboxLost("this sandbox has no screen")
        return Frame(png=blank_png(width, height), width=width, height=height, settled=True)

    async def act(self, action: Act) -> None:
        self._alive()
        self.acts.append(action)
        self.on_act(self, action)

    async def elements(self) -> list[Element]:
        self._alive()
        return list(self.shown)

    async def freeze(self) -> bytes:
        self._alive()
        self.frozen = True
        home = {p.removeprefix(f"{HOME}/"): d for p, d in self.files.items() if p.startswith(f"{HOME}/")}
        said = {} if self.witnessed is None else {WITNESSED: self.witnessed}
        return home_tar({p: d for p, d in home.items() if p != WITNESSED} | said)

    async def close(self) -> None:
        self.closed = True


class FakeSandboxes:
    """Hands out the sandboxes that `make` makes, and keeps them."""

    name: Literal["docker", "local"] = "local"

    def __init__(self, make: Callable[[], FakeSandbox] = FakeSandbox) -> None:
        self.opened: list[FakeSandbox] = []
        self._make = make

    async def prepare(self, environment: Environment) -> str:
        return FAKE_DIGEST

    async def open(self, environment: Environment, *, run_id: str, ttl_s: float, rollout_id: str = "") -> FakeSandbox:
        self.opened.append(self._make())
        return self.opened[-1]

    async def aclose(self) -> None:
        for sandbox in self.opened:
            await sandbox.close()


class FakeGrader:
    """Gives every criterion the value listed for it (None where it is not listed)."""

    name = "program"

    def __init__(self, values: Mapping[str, float | None]) -> None:
        self.values = dict(values)
        self.graded: list[bytes] = []

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        self.graded.append(state)
        return [score_of(c, self.values.get(c.id), "fake", self.name) for c in criteria]

    async def aclose(self) -> None:
        return None
