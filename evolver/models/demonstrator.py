"""The embedded teacher: replays a task's oracle turn by turn through the tools that the harness really offers.

It is a scripted, privileged expert for imitation (it knows the oracle and reads the live screen), not a language model.
At a declared rate it makes seeded slips, which are really executed and recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from random import Random

from pydantic import JsonValue

from devset.task import Channel, GuiStep, GuiTarget, Oracle, Task
from evolver.models.slips import kinds_for, off_target, wrong_argument, wrong_character
from evolver.offered import Offered, offered
from evolver.protocols import Element, Request, Sandbox
from evolver.records import Completion, ToolCall, Usage
from evolver.tokens import count_calls, count_request, count_text

GRID = 999
POLL_S = 0.3
PATIENCE_S = 25.0
SETTLE_S = 20.0  # a cap: a key sent before a window is drawn is lost, however long that takes
CLOSES = ("ctrl+q", "ctrl+w")
PROCESSES = "cat /proc/[0-9]*/comm 2>/dev/null | sort"
FILES = "find ~ -path '*/.*' -prune -o -type f -printf '%T@ %s %p\\n'"  # each with its time and size
CANNOT = "what is asked for can't be done on this machine"


class Demonstrator:
    """`slip_rate` is the probability of a slip per tool call; `seed` and the rollout's key decide which.

    `patience_s` is how long it waits for a window or an element; after a slip, which may well have kept it from
    appearing, a fifth of that. `oracle` is taken in place of each task's own.
    """

    id = "demonstrator"

    def __init__(
        self, slip_rate: float = 0.0, seed: int = 0, patience_s: float = PATIENCE_S, oracle: Oracle | None = None
    ) -> None:
        if not 0 <= slip_rate <= 1:
            raise ValueError(f"slip rate must be in 0..1, got {slip_rate}")
        self.slip_rate = slip_rate
        self.seed = seed
        self.patience_s = patience_s
        self.oracle = oracle
        self.declared = f"demonstrator (scripted, slip rate {slip_rate:g})"

    def bind(self, task: Task, sandbox: Sandbox, rollout_key: str, *, max_calls: int) -> BoundDemonstrator:
        """The demonstrator of one rollout; it makes at most `max_calls` calls a turn."""
        digest = hashlib.sha256(f"{self.seed}/{rollout_key}".encode()).digest()
        if self.oracle is not None:
            task = task.model_copy(update={"oracle": self.oracle})
        return BoundDemonstrator(self, task, sandbox, Random(digest), max_calls)


@dataclass
class _Reply:
    """A turn in the making: its line of text, its calls and the slips made."""

    text: str = ""
    calls: list[tuple[str, dict[str, JsonValue]]] = field(default_factory=list)
    slips: list[str] = field(default_factory=list)


class _Lost(Exception):
    """The screen is not as the oracle expects it: the demonstrator gives up, and says why."""


class BoundDemonstrator:
    """Implements Model for one rollout. `last_slip` names the slips of the turn that `complete` returned last."""

    def __init__(self, owner: Demonstrator, task: Task, sandbox: Sandbox, rng: Random, max_calls: int) -> None:
        self.id = owner.id
        self.declared = owner.declared
        self.last_slip: str | None = None
        self._rate = owner.slip_rate
        self._patience_s = owner.patience_s
        self._task = task
        self._sandbox = sandbox
        self._rng = rng
        self._max_calls = max_calls
        self._next = 0
        self._looked = False
        self._slipped = False
        self._unsaved: str | None = None  # the files before a save that takes its time
        self._closing: int | None = None  # how many windows there were before one was asked to close

    async def complete(self, request: Request) -> Completion:
        tools = offered(request.tools)
        reply = await self._reply(tools)
        self.last_slip = "; ".join(reply.slips) or None
        calls = tuple(ToolCall(id=f"call_{i}", name=n, arguments=a) for i, (n, a) in enumerate(reply.calls))
        usage = Usage(
            input_tokens=count_request(request.messages, request.tools),
            output_tokens=count_text(reply.text) + count_calls(calls),
            counted_by="estimate",
        )
        return Completion(text=reply.text, calls=calls, finish_reason="tool_calls" if calls else "stop", usage=usage)

    async def _reply(self, tools: Offered) -> _Reply:
        channel = channel_for(self._task, tools)
        if channel is None and self._task.feasible:
            return _ending(tools, "failure", "no tool that is offered fits a known way to do this")
        if tools.tree and not self._looked and channel is not None and self._sandbox.screen is not None:
            self._looked = True
            return _Reply("Look at what is on the screen.", [(tools.tree, {})])
        reply = _Reply()
        try:
            if channel == "terminal" and tools.bash:
                self._terminal_turn(tools.bash, reply)
            elif channel == "gui" and tools.gui:
                await self._gui_turn(tools.gui, reply)
        except _Lost as why:
            ending = _ending(tools, "failure", str(why))
            ending.slips = reply.slips
            return ending
        if reply.calls:
            return reply
        reason = self._task.oracle.reason or CANNOT
        ending = _ending(tools, "success") if self._task.feasible else _ending(tools, "failure", reason)
        ending.slips = reply.slips
        return ending

    # --- one turn of each channel --------------------------------------------------------------------------------

    def _terminal_turn(self, tool: str, reply: _Reply) -> None:
        steps = self._task.oracle.terminal or ()
        while self._next < len(steps) and not reply.calls:
            step = steps[self._next]
            self._next += 1
            reply.text = step.summary
            self._add(reply, tool, {"command": step.command})

    async def _gui_turn(self, tool: str, reply: _Reply) -> None:
        """Calls until the next turn starts: at a summary, or where the screen must be read again after a call."""
        steps = self._task.oracle.gui or ()
        await self._wait_for_save()
        await self._wait_for_close()
        while self._next < len(steps) and len(reply.calls) < self._max_calls:
            step = steps[self._next]
            if reply.calls and (step.summary or step.target or step.to or step.wait_window):
                break
            arguments = await self._arguments(step)
            self._next += 1
            if step.keys in CLOSES:
                self._closing = len(await self._sandbox.windows())
            elif step.keys == "ctrl+s" and [after.action for after in steps[self._next : self._next + 1]] == ["wait"]:
                self._unsaved = await self._files()
            if not reply.calls:
                reply.text = step.summary or _in_words(step)
            self._add(reply, tool, arguments)

    def _add(self, reply: _Reply, tool: str, arguments: dict[str, JsonValue]) -> None:
        """Adds the call, or with the declared probability what a slip makes of it."""
        if self._rng.random() >= self._rate:
            reply.calls.append((tool, arguments))
            return
        self._slipped = True  # at once: what this turn then waits for will often never come
        kind = self._rng.choice(kinds_for(arguments))
        changed = self._changed(kind, arguments)
        if changed is None:
            reply.slips.append(f"skipped: {reply.text}")
            return
        reply.slips.append(f"{kind}: {reply.text}")
        reply.calls.append((tool, changed))

    def _changed(self, kind: str, arguments: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
        command, text, point = arguments.get("command"), arguments.get("text"), arguments.get("coordinate")
        if kind == "wrong_value" and isinstance(command, str):
            wrong = wrong_argument(command, self._rng)
            return None if wrong is None else {**arguments, "command": wrong}
        if kind == "wrong_value" and isinstance(text, str):
            wrong = wrong_character(text, self._rng)
            return None if wrong is None else {**arguments, "text": wrong}
        if kind == "off_target" and isinstance(point, list) and self._sandbox.screen is not None:
            shifted = off_target(_pixels(point, self._sandbox.screen), self._sandbox.screen, self._rng)
            return {**arguments, "coordinate": self._grid(*shifted)}
        return None

    # --- the live screen -----------------------------------------------------------------------------------------

    async def _arguments(self, step: GuiStep) -> dict[str, JsonValue]:
        if step.wait_window:
            await self._wait_for_window(step.wait_window)
        if step.wait_window or step.target or step.to:
            await self._sandbox.screenshot(settle_s=SETTLE_S)
        arguments: dict[str, JsonValue] = {"action": step.action}
        if step.target:
            arguments["coordinate"] = await self._point(step.target)
        if step.to:
            arguments["to"] = await self._point(step.to)
        given = {"text": step.text, "keys": step.keys, "amount": step.clicks, "seconds": step.seconds}
        return arguments | {name: value for name, value in given.items() if value is not None}

    def _deadline(self) -> float:
        return time.monotonic() + self._patience_s / (5 if self._slipped else 1)

    async def _wait_for_window(self, title: str) -> None:
        deadline = self._deadline()
        while not any(title in window for window in await self._sandbox.windows()):
            if time.monotonic() > deadline:
                raise _Lost(f"no window titled {title!r} has opened")
            await asyncio.sleep(POLL_S)

    async def _wait_for_close(self) -> None:
        """After a window was asked to close: until it is gone and its program has ended, or has come to rest. What is
        clicked sooner is clicked in the window that closes, and an office program that is about to end takes a document
        that is opened then with it."""
        before, self._closing = self._closing, None
        deadline, now = self._deadline(), ""
        while before is not None and time.monotonic() < deadline:
            last, now = now, (await self._sandbox.exec(PROCESSES, timeout_s=PATIENCE_S)).output
            if now == last and len(await self._sandbox.windows()) < before:
                break
            await asyncio.sleep(POLL_S)

    async def _wait_for_save(self) -> None:
        """After ctrl+s and the oracle's own wait: until the files have changed and stand still, as long as it takes; it
        goes on if they never do, as after a slip that left nothing to save."""
        before, self._unsaved = self._unsaved, None
        deadline, now = self._deadline(), before
        while before is not None and time.monotonic() < deadline:
            last, now = now, await self._files()
            if now == last != before:
                break
            await asyncio.sleep(POLL_S)

    async def _files(self) -> str:
        return (await self._sandbox.exec(FILES, timeout_s=PATIENCE_S)).output

    async def _point(self, target: GuiTarget) -> JsonValue:
        deadline = self._deadline()
        while True:
            found = find(target, await self._sandbox.elements())
            if found is not None:
                return self._grid(found.x + found.width / 2 + target.dx, found.y + found.height / 2 + target.dy)
            if time.monotonic() > deadline:
                raise _Lost(f"there is no {target.role or 'element'} named {target.name!r} on the screen")
            await asyncio.sleep(POLL_S)

    def _grid(self, x: float, y: float) -> JsonValue:
        width, height = self._sandbox.screen or (GRID + 1, GRID + 1)
        return [_clamped(x * GRID / (width - 1)), _clamped(y * GRID / (height - 1))]


def channel_for(task: Task, tools: Offered) -> Channel | None:
    """Terminal where shell and oracle exist, else the GUI where its tool allows every action of the oracle."""
    if tools.bash and task.oracle.terminal is not None:
        return "terminal"
    actions = {step.action for step in task.oracle.gui or ()}
    if tools.gui and task.oracle.gui is not None and actions <= tools.gui_actions:
        return "gui"
    return None


def find(target: GuiTarget, elements: list[Element]) -> Element | None:
    """The `index`-th visible element with the target's role and exactly its name, in the order of the tree."""
    matches = [
        e for e in elements if e.name == target.name and target.role in (None, e.role) and e.width > 0 and e.height > 0
    ]
    return matches[target.index] if -len(matches) <= target.index < len(matches) else None


def _ending(tools: Offered, status: str, reason: str = "") -> _Reply:
    text = "Everything is done." if status == "success" else f"This can't be finished: {reason}."
    if not (tools.gui and tools.can_terminate):
        return _Reply(text)
    arguments: dict[str, JsonValue] = {"action": "terminate", "status": status}
    if reason:
        arguments["reason"] = reason
    return _Reply(text, [(tools.gui, arguments)])


def _in_words(step: GuiStep) -> str:
    name = step.target.name if step.target else step.keys or step.text or ""
    return f"{step.action.replace('_', ' ').capitalize()} {name}".strip() + "."


def _clamped(value: float) -> int:
    return min(GRID, max(0, round(value)))


def _pixels(point: list[JsonValue], screen: tuple[int, int]) -> tuple[float, float]:
    x, y = (v if isinstance(v, int | float) else 0.0 for v in point)
    return x * (screen[0] - 1) / GRID, y * (screen[1] - 1) / GRID
