"""The seams: six Protocols, each with one folder of implementations (one vendor, one file)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from pydantic import JsonValue

from devset.task import Criterion, Task
from evolver.chat import PLAIN, Body, Dialect, Wire, body_for
from evolver.records import Candidate, Completion, Connection, Message, Record, Rollout, Score, ToolSpec, Usage
from harnesses.harness import Environment, Sampling

Item = TypeVar("Item")
Result = TypeVar("Result")
UNKNOWN_USAGE = Usage(input_tokens=None, output_tokens=None, counted_by="provider")


# --- Model -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One model call. `frames` maps the frame ids that occur in `messages` to their PNG bytes; `protocol` says whether
    tools travel as native tool calls or as `<tool_call>` text.

    A model adds to `spoiled` each try that may be billed although no reply came of it, whatever becomes of the call.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    sampling: Sampling
    seed: int
    frames: Mapping[str, bytes] = field(default_factory=dict)
    protocol: Wire = "native_tools"
    dialect: Dialect = PLAIN
    spoiled: list[Usage] = field(default_factory=list, compare=False)

    @cached_property
    def body(self) -> Body:
        """The call as a chat-completions body, all but the model's name, with images by name (evolver.chat)."""
        return body_for(self.messages, self.tools, self.sampling, self.seed, self.protocol, self.dialect)


@runtime_checkable
class Model(Protocol):
    """`id` names the model in every record; `declared` is what reports print for it (a simulation says so here)."""

    id: str
    declared: str

    async def complete(self, request: Request) -> Completion: ...


@runtime_checkable
class Held(Protocol):
    """What a model that holds more than memory has beside: `close` ends its threads after the replies in progress."""

    def close(self) -> None: ...


@runtime_checkable
class Privileged(Protocol):
    """A model that may see the task and the live screen (the demonstrator): bound anew for each rollout."""

    id: str
    declared: str

    def bind(self, task: Task, sandbox: Sandbox, rollout_key: str, *, max_calls: int) -> Model: ...


# --- Sandbox ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """Outcome of a command. `exit_code` is None when it was killed at its timeout; output is UTF-8, cut head + tail."""

    exit_code: int | None
    output: str
    timed_out: bool = False
    truncated_chars: int = 0
    notice: str = ""


@dataclass(frozen=True)
class Frame:
    """A screenshot; `png` is never empty. `settled` says that the screen stopped changing before the cap."""

    png: bytes
    width: int
    height: int
    settled: bool


@dataclass(frozen=True)
class Element:
    """One visible element of the screen: accessible role and name, extents in pixels of the screen."""

    role: str
    name: str
    x: int
    y: int
    width: int
    height: int
    depth: int = 0
    text: str = ""
    focused: bool = False
    actionable: bool = False
    window: str = ""


@dataclass(frozen=True)
class Act:
    """One GUI action in pixels. `kind` is one of harnesses.harness.GUI_ACTIONS or OPT_IN_ACTIONS, without terminate.

    What can't be typed within `timeout_s` is a BadAction: not begun where that is foreseen, not gone on with otherwise.
    """

    kind: str
    x: int | None = None
    y: int | None = None
    to_x: int | None = None
    to_y: int | None = None
    text: str = ""
    keys: str = ""
    amount: int = 0
    seconds: float = 0.0
    timeout_s: float = 30.0


class Sandbox(Protocol):
    """One disposable machine, for one rollout. Every method may raise `SandboxLost`; `act` also `BadAction`.

    The agent's home is /home/user. `exec` runs a fresh `bash -c` as the agent's user; `bash` runs in the one
    persistent shell of the rollout. `windows` are titles; `drawn` leaves out windows that show one colour only.
    `freeze` asks every window to close, kills every process of the agent and returns its home as a tar (relative
    paths, no app caches or profiles): what was not saved by then is not there. Nothing but `close` works after it.
    `connections` is what the agent asked of the network so far; empty without an allow-list. `witness` starts one
    program that the agent can see on the screen but neither end, read nor write to, where the back end has users of its
    own (Docker); what it prints, 64 KiB at most, is `.witness` in the frozen home, where nothing of the agent's has
    that name.
    """

    id: str
    image_digest: str
    screen: tuple[int, int] | None

    @property
    def connections(self) -> Sequence[Connection]: ...
    async def exec(self, command: str, *, timeout_s: float, env: Mapping[str, str] | None = None) -> Ran: ...
    async def bash(self, command: str, *, timeout_s: float) -> Ran: ...
    async def read(self, path: str) -> bytes: ...
    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None: ...
    async def spawn(self, command: str) -> None: ...
    async def witness(self, command: str, files: Mapping[str, bytes]) -> None: ...
    async def windows(self, *, drawn: bool = False) -> list[str]: ...
    async def screenshot(self, *, settle_s: float = 0.0) -> Frame: ...
    async def act(self, action: Act) -> None: ...
    async def elements(self) -> list[Element]: ...
    async def freeze(self) -> bytes: ...
    async def close(self) -> None: ...


class Sandboxes(Protocol):
    """A back end: hands out sandboxes for an environment, keeps warm spares, leaves nothing behind.

    `rollout_id` names the machine for whoever looks at the ones that run.
    """

    name: Literal["docker", "local"]

    async def prepare(self, environment: Environment) -> str: ...  # builds what is missing, returns the image digest
    async def open(self, environment: Environment, *, run_id: str, ttl_s: float, rollout_id: str = "") -> Sandbox: ...
    async def aclose(self) -> None: ...


# --- Author, Grader, Executor, Observer -------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What an author may know: the parent, and bounded views of the run (never a `select` or `test` task).

    `summary` is Markdown; `files` is what lies under /evidence (relative path → bytes).
    """

    parent_harness: str
    generation: int
    summary: str
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class Proposal:
    """A candidate together with the tree that it proposes (path → bytes)."""

    candidate: Candidate
    tree: Mapping[str, bytes]


class Author(Protocol):
    name: str

    async def propose(self, evidence: Evidence) -> Proposal | None: ...  # None: nothing more to propose


class Grader(Protocol):
    """Grades criteria of its own kind on a frozen state. A value of None is 'unscored', and re-run; one that can be
    had later without a re-run is asked for by raising NotReady."""

    name: str

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]: ...
    async def aclose(self) -> None: ...


class Executor(Protocol):
    """Runs `fn` over items, at most `workers` at once; yields results as they come. A failed item raises."""

    def map(self, fn: Callable[[Item], Awaitable[Result]], items: Sequence[Item]) -> AsyncIterator[Result]: ...


class Planned(NamedTuple):
    """One unit of a round's plan: its place in it, its id (64 hex digits), the number of its task, its replica."""

    position: int
    id: str
    task: int
    replica: int


Probe = Literal["endpoint", "environment", "judge"]


@dataclass(frozen=True)
class Lease:
    """Units that one worker may play until `deadline_s` after it began, or a probe of the round's instruments. `id` is
    the fence: it grows, and of two leases on one unit only the later may commit."""

    id: int
    units: tuple[Planned, ...] = ()
    probe: Probe | None = None
    deadline_s: float = 3_600.0


@dataclass(frozen=True)
class Finding:
    """One look of a probe. `off` says that it was not as at the round's start; `at_once` that one such look is enough
    for an alarm. It counts on the chart `chart`, or on that of its probe."""

    probe: Probe
    name: str
    off: bool
    detail: str = ""
    at_once: bool = False
    chart: str = ""


@dataclass(frozen=True)
class Report:
    """What a worker says at the end of a lease; the results themselves lie on the disk. `throttled` counts calls that
    the endpoint turned away, `asked_s` is for how long from now on it asked to be left alone."""

    lease_id: int
    worker: str
    throttled: int = 0
    asked_s: float = 0.0
    findings: tuple[Finding, ...] = ()


class Worker(Protocol):
    """Plays leases one at a time, in a process of its own or in this one."""

    async def work(self, lease: Lease) -> Report: ...
    async def aclose(self) -> None: ...


class WorkerSpec(Protocol):
    """How to make a worker, as plain data that travels to another machine. `open` raises UsageError when what it would
    play with is not what the round was planned for."""

    async def open(self, name: str) -> Worker: ...


@dataclass(frozen=True)
class Finished:
    """A lease that its worker saw to its end."""

    lease: Lease
    report: Report


@dataclass(frozen=True)
class Lost:
    """A lease that was not: the worker died (`died`), was ended, or failed."""

    lease: Lease
    worker: str
    why: str
    died: bool


class Crew(Protocol):
    """Workers that are handed leases. Retries nothing by itself; a worker that dies is replaced where one can be had,
    and until then there is one less."""

    @property
    def free(self) -> int: ...  # workers that wait for a lease
    @property
    def alive(self) -> int: ...  # workers that are there, or on their way
    def submit(self, lease: Lease) -> None: ...  # only when one is free
    def end(self, lease_id: int) -> None: ...  # of a worker that overstays; its lease comes back as lost
    async def next(self, timeout_s: float) -> Finished | Lost | None: ...  # None: nothing came; raises what `open` did
    async def aclose(self) -> None: ...


class Observer(Protocol):
    """Is told of every record after it is durable. Best effort: whatever it raises is reported, never fatal."""

    def on_record(self, record: Record) -> None: ...
    def progress(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None: ...
    def close(self) -> None: ...
