"""One attempt: harness × task × model × sandbox → a `Rollout` and the frozen state it left."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from shlex import quote

from devset.task import Task
from evolver.channels import channel_of
from evolver.chat import PLAIN, Dialect
from evolver.context import Context, frames_in, summary_of
from evolver.errors import Blame, Blamed, RequestRefused, SandboxLost, SetupFailed, UsageError
from evolver.protocols import Model, Privileged, Request, Sandbox, Sandboxes
from evolver.records import (
    Completion,
    Connection,
    Failure,
    Image,
    ImageRule,
    Message,
    Observed,
    Rollout,
    RolloutKey,
    StopReason,
    ToolResult,
    Turn,
    Usage,
)
from evolver.redact import redacted, redacted_record
from evolver.sent import Sent
from evolver.tokens import image_rule_for
from evolver.tools import call_tool, render_marks, render_tree
from evolver.tools.dispatch import HARNESS_DIR
from harnesses.harness import Harness

HOME = "/home/user"
EVIDENCE = "/evidence"  # what an author may read beside the task
HIDDEN = "/tmp/hidden"  # what a task's setup may read; gone before the agent starts
PROGRAMS = "files/"  # the part of a harness tree that runs in the sandbox
WINDOW_WAIT_S = 30.0
WRITERS = ThreadPoolExecutor(32, "blobs")  # they wait for the disk, and disks sync many files in the time of one
FINISH_CHECK = "Look once more whether everything that was asked is done and saved. If so, terminate again."


def always(turns: Sequence[Turn]) -> bool:
    return True


async def never() -> bool:
    return False


@dataclass(frozen=True)
class Job:
    """What to run: everything that decides the outcome of one attempt. Its sandbox ends by itself after `ttl_s`;
    `keys` are masked in everything that a model, a tool or an error says. `evidence` (path → bytes) lies in /evidence,
    to be read. `goes_on` is asked before each call, and ends the attempt (stop reason `cap`) by saying no. `answers` is
    asked when a call is refused: whether the model answers others, and it is this attempt that it refuses."""

    key: RolloutKey
    rollout_id: str
    harness: Harness
    task: Task
    model: Model | Privileged
    run_id: str
    retry_of: str | None = None
    ttl_s: float = 1_800.0
    keys: tuple[str, ...] = ()
    evidence: Mapping[str, bytes] = field(default_factory=dict)
    goes_on: Callable[[Sequence[Turn]], bool] = always
    answers: Callable[[], Awaitable[bool]] = never

    @property
    def image_rule(self) -> ImageRule:
        """How the model counts images: as it says itself, else as its name tells."""
        rule: ImageRule = getattr(self.model, "image_rule", image_rule_for(self.key.model_id))
        return rule

    @property
    def dialect(self) -> Dialect:
        """How requests are worded for the model."""
        dialect: Dialect = getattr(self.model, "dialect", PLAIN)
        return dialect


@dataclass
class Progress:
    """What has happened so far in an attempt; survives a failure half-way."""

    first: Observed = Observed()
    turns: list[Turn] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)
    stop: StopReason = "error"
    image_digest: str = ""
    connections: tuple[Connection, ...] = ()
    state: bytes | None = None
    spoiled: list[Usage] = field(default_factory=list)
    error: Failure | None = None


class Interrupted(asyncio.CancelledError):
    """The attempt was cancelled after calls that are billed: `rollout` is the record of them."""

    def __init__(self, rollout: Rollout) -> None:
        super().__init__(f"{rollout.id} was interrupted")
        self.rollout = rollout


async def run_rollout(job: Job, sandboxes: Sandboxes, put_blob: Callable[[bytes], str]) -> tuple[Rollout, bytes | None]:
    """Runs one attempt to its end. What goes wrong on our side becomes `Rollout.error` and a state of None;
    only wrong input (`UsageError`), a machine that isn't ready and a spent budget leave as exceptions. A refusal is the
    attempt's own (kind `refused`) where the model `answers` others; else it is wrong input (key, address), and half-way
    an outage: the calls before it are billed, so their record must not be lost. For the same reason an attempt that is
    cancelled half-way leaves as `Interrupted`, with its record."""
    started, began = time.time(), time.monotonic()
    progress = Progress()
    try:
        await _attempt(job, sandboxes, put_blob, progress)
    except Blamed as error:
        progress.stop = "error"
        progress.error = _failure(error.kind, error.blame, error, job)
    except UsageError as error:
        refused = isinstance(error, RequestRefused)
        if not progress.turns and not refused:
            raise
        progress.stop = "error"
        progress.error = _failure("refused" if refused else "provider", "provider", error, job)
    except asyncio.CancelledError:
        if not progress.turns and not progress.spoiled:
            raise
        progress.stop, progress.state = "error", None
        progress.error = Failure(kind="interrupted", blame="platform", message="the program was stopped")
    seconds = time.monotonic() - began
    recording = asyncio.get_running_loop().run_in_executor(
        WRITERS, lambda: _record(job, progress, started, seconds, put_blob)
    )
    try:
        rollout = await asyncio.shield(recording)
    except asyncio.CancelledError:
        raise Interrupted(await recording) from None
    if progress.error is not None and progress.error.kind == "interrupted":
        raise Interrupted(rollout)
    return rollout, progress.state


def _record(job: Job, progress: Progress, started: float, seconds: float, put_blob: Callable[[bytes], str]) -> Rollout:
    requests = progress.sent.blob()
    return Rollout(
        id=job.rollout_id,
        key=job.key,
        retry_of=job.retry_of,
        loaded_harness_id=job.harness.id,
        image_digest=progress.image_digest,
        apps=job.task.apps,
        category=job.task.category,
        first=progress.first,
        turns=tuple(progress.turns),
        stop_reason=progress.stop,
        state_sha256=None if progress.state is None else put_blob(progress.state),
        requests_sha256=None if requests is None else put_blob(requests),
        image_rule=job.image_rule,
        connections=progress.connections,
        spoiled=tuple(progress.spoiled),
        error=progress.error,
        started_at=started,
        finished_at=started + seconds,  # a clock that is set meanwhile does not count
    )


def _failure(kind: str, blame: Blame, error: Exception, job: Job) -> Failure:
    return Failure(kind=kind, blame=blame, message=redacted(str(error), job.keys)[:2_000])


async def _attempt(job: Job, sandboxes: Sandboxes, put_blob: Callable[[bytes], str], progress: Progress) -> None:
    sandbox = await sandboxes.open(
        job.harness.environment, run_id=job.run_id, ttl_s=job.ttl_s, rollout_id=job.rollout_id
    )
    try:
        progress.image_digest = sandbox.image_digest
        for path, data in job.evidence.items():
            await sandbox.write(f"{EVIDENCE}/{path}", data, mode=0o444)
        await set_up(sandbox, job.harness, job.task)
        await _hooks(sandbox, job.harness, "start")
        await _turns(job, sandbox, put_blob, progress)
        await _hooks(sandbox, job.harness, "finish")
        progress.state = await sandbox.freeze()
    finally:
        await sandbox.close()
        progress.connections = tuple(sandbox.connections)


async def set_up(sandbox: Sandbox, harness: Harness, task: Task) -> None:
    """Brings the machine to the task's initial state; anything that fails here costs no token (SetupFailed)."""
    try:
        await _place_files(sandbox, harness, task)
    except OSError as error:
        raise SetupFailed(f"task {task.id}: its files can't be written: {error}") from error
    if task.setup.strip():
        ran = await sandbox.exec(
            f"cd {HOME} && {{ {task.setup.strip()}\n}}; code=$?; rm -rf {HIDDEN}; exit $code",
            timeout_s=task.limits.setup_timeout_s,
            env={"HIDDEN": HIDDEN},
        )
        if ran.exit_code != 0:
            raise SetupFailed(f"task {task.id}: setup ended with {ran.exit_code}: {ran.output[-400:]}")
    for app in task.open:
        await sandbox.spawn(app.command)
        await _wait_for_window(sandbox, app.window, task)
    if task.witness is not None:
        await sandbox.witness(task.witness.command, task.witness_files)
        await _wait_for_window(sandbox, task.witness.window, task)


async def _place_files(sandbox: Sandbox, harness: Harness, task: Task) -> None:
    for path, data in task.exec_files.items():
        await sandbox.write(f"{HOME}/{path}", data)
    for path, data in harness.files.items():
        if path.startswith(PROGRAMS):
            await sandbox.write(f"{HARNESS_DIR}/{path}", data, mode=0o755 if path in harness.executable else 0o644)
    if task.setup.strip():
        for path, data in task.hidden_files.items():
            await sandbox.write(f"{HIDDEN}/{path}", data)


async def _wait_for_window(sandbox: Sandbox, title: str, task: Task) -> None:
    """The window is there, the screen stands still, and the window shows something."""
    deadline = time.monotonic() + WINDOW_WAIT_S
    while True:
        if any(title in window for window in await sandbox.windows()):
            await sandbox.screenshot(settle_s=5.0)
            if any(title in window for window in await sandbox.windows(drawn=True)):
                return
        if time.monotonic() > deadline:
            raise SetupFailed(f"task {task.id}: no window titled {title!r} was drawn within {WINDOW_WAIT_S:g} s")
        await asyncio.sleep(0.1)


async def _hooks(sandbox: Sandbox, harness: Harness, at: str) -> None:
    for hook in harness.scaffold.hooks:
        if hook.at == at:
            await sandbox.exec(f"{HARNESS_DIR}/{quote(hook.entry)}", timeout_s=hook.timeout_s)


async def _turns(job: Job, sandbox: Sandbox, put_blob: Callable[[bytes], str], progress: Progress) -> None:
    harness, scaffold = job.harness, job.harness.scaffold
    model = _bound(job, sandbox)
    look = Look(sandbox, harness, put_blob, job.keys)
    if scaffold.observation.when == "every_turn" or "terminal" not in harness.channels:
        progress.first = await look()
    context = Context(harness, job.task.instruction, progress.first, job.image_rule)
    bad_replies, tool_seconds, checked = 0, 0.0, not scaffold.finish_check
    for index in range(scaffold.max_steps):
        if not job.goes_on(progress.turns):
            progress.stop = "cap"
            return
        messages, tokens = context.messages(progress.turns)
        request = Request(
            messages=messages,
            tools=context.tools,
            sampling=scaffold.sampling,
            seed=_seed(job, index),
            frames=look.frames_of(messages),
            protocol=scaffold.protocol,
            dialect=job.dialect,
            spoiled=progress.spoiled,
        )
        progress.sent.add({"model": job.key.model_id, **request.body})
        asked = time.monotonic()
        reply = redacted_record(await _reply(job, model, request), job.keys)
        acted = time.monotonic()
        turn = Turn(
            index=index,
            request_sha256=context.sha256(messages),
            request_tokens=tokens,
            completion=reply,
            summary=summary_of(reply),
            channel=channel_of(reply.calls, harness),
            slip=getattr(model, "last_slip", None),
            model_s=round(acted - asked, 4),
            tools_s=0.0,
        )
        progress.turns.append(turn)  # the reply is billed, whatever becomes of its calls
        results, ended = await _act(reply, job, sandbox, look.seen, checked)
        looks = ended is None and (scaffold.observation.when == "every_turn" or turn.channel in ("gui", "both"))
        observed = await look() if looks else Observed()
        tools_s = time.monotonic() - acted
        done = {"results": results, "observed": observed, "tools_s": round(tools_s, 4)}
        progress.turns[-1] = turn.model_copy(update=done)
        if ended:
            progress.stop = "finished" if ended == "success" else "infeasible"
            return
        checked = checked or any(r.text == FINISH_CHECK for r in results)
        bad_replies = 0 if results else bad_replies + 1
        if bad_replies >= scaffold.max_bad_replies:
            progress.stop = "bad_replies"
            return
        # Only the machine's own time counts: a slow endpoint is not the harness's fault.
        tool_seconds += tools_s
        if tool_seconds > job.task.limits.agent_timeout_s:
            progress.stop = "time_limit"
            return
    progress.stop = "step_limit"


async def _reply(job: Job, model: Model, request: Request) -> Completion:
    try:
        return await model.complete(request)
    except UsageError as error:
        if await job.answers():
            raise RequestRefused(str(error)) from error
        raise


def _bound(job: Job, sandbox: Sandbox) -> Model:
    if isinstance(job.model, Privileged):
        return job.model.bind(job.task, sandbox, job.rollout_id, max_calls=job.harness.scaffold.max_calls_per_turn)
    return job.model


def _seed(job: Job, index: int) -> int:
    text = f"{job.key.seed}/{job.key.harness_id}/{job.key.task_id}/{job.key.purpose}/{job.key.attempt}/{index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


async def _act(
    reply: Completion, job: Job, sandbox: Sandbox, seen: Image | None, checked: bool
) -> tuple[tuple[ToolResult, ...], str | None]:
    """Runs the calls of a reply in order and returns their results and, when it ended the attempt, the status."""
    harness = job.harness
    if reply.invalid is not None:
        return (), None
    if not reply.calls:
        return (), None if harness.tool("computer_use") else "success"
    results: list[ToolResult] = []
    limit = harness.scaffold.max_calls_per_turn
    for position, call in enumerate(reply.calls):
        if position >= limit:
            skipped = f"error: not run, at most {limit} calls a turn"
        elif results and results[-1].is_error:
            skipped = "error: not run, an earlier call of this turn failed"
        else:
            outcome = await call_tool(call, harness, sandbox, seen)
            if outcome.ended and outcome.ended[0] == "success" and not checked:
                results.append(ToolResult(call_id=call.id, text=FINISH_CHECK))
                return tuple(results), None
            results.append(redacted_record(outcome.result, job.keys))
            if outcome.ended:
                return tuple(results), outcome.ended[0]
            continue
        results.append(ToolResult(call_id=call.id, text=skipped, is_error=True))
    return tuple(results), None


class Look:
    """Looks at the screen the way the harness asks for; `frames` maps frame ids to the PNGs that may be sent again, and
    `seen` is the newest screenshot: coordinates are read against it."""

    def __init__(
        self, sandbox: Sandbox, harness: Harness, put_blob: Callable[[bytes], str], keys: tuple[str, ...]
    ) -> None:
        self.frames: dict[str, bytes] = {}
        self.seen: Image | None = None
        self._sandbox = sandbox
        self._wanted = harness.scaffold.observation
        self._kept = max(1, harness.scaffold.screenshots_kept)
        self._put_blob = put_blob
        self._keys = keys

    async def __call__(self) -> Observed:
        sandbox, wanted = self._sandbox, self._wanted
        if sandbox.screen is None or not (wanted.image or wanted.text != "none"):
            return Observed()
        frame = await sandbox.screenshot(settle_s=wanted.settle_s)
        if not frame.png:
            raise SandboxLost("the screen capture is empty")
        image = None
        if wanted.image:
            frame_id = await asyncio.get_running_loop().run_in_executor(WRITERS, self._put_blob, frame.png)
            self.frames.pop(frame_id, None)
            self.frames[frame_id] = frame.png
            if len(self.frames) > self._kept:
                del self.frames[next(iter(self.frames))]
            image = self.seen = Image(frame_id=frame_id, width=frame.width, height=frame.height)
        text = None
        if wanted.text != "none":
            render = render_marks if wanted.text == "marks" else render_tree
            text = redacted(render(await sandbox.elements(), sandbox.screen, wanted.max_chars), self._keys)
        return Observed(image=image, text=text, settled=frame.settled)

    def frames_of(self, messages: Sequence[Message]) -> dict[str, bytes]:
        """The PNGs of the frames that these messages name."""
        wanted = frames_in(messages)
        return {frame_id: png for frame_id, png in self.frames.items() if frame_id in wanted}
