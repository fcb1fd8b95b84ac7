"""From a tool call to its result: finds the tool by name, checks the arguments, runs it in the sandbox."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from pydantic import JsonValue

from evolver.errors import BadAction
from evolver.protocols import Ran, Sandbox
from evolver.records import Image, ToolCall, ToolResult, ToolSpec
from evolver.tools import computer_use
from evolver.tools.screen import render_tree
from harnesses.harness import Harness, Tool

HARNESS_DIR = "/tmp/harness"  # where the programs of the tree lie in the sandbox


@dataclass(frozen=True)
class Outcome:
    """What a call did. `ended` is set when it was `terminate`: its status and reason."""

    result: ToolResult
    ended: tuple[Literal["success", "failure"], str] | None = None


def tool_specs(harness: Harness) -> tuple[ToolSpec, ...]:
    """The tools as the model is told of them: name, description (with the prompt's note), JSON schema."""
    specs = []
    for tool in harness.tools:
        note = harness.prompt.notes.get(tool.name, "").strip()
        description = f"{tool.description}\n{note}" if note else tool.description
        specs.append(ToolSpec(name=tool.name, description=description, parameters=_parameters(tool)))
    return tuple(specs)


def _parameters(tool: Tool) -> dict[str, JsonValue]:
    if tool.kind == "computer_use":
        return computer_use.parameters(tool)
    if tool.kind == "bash":
        return {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    if tool.kind == "program" and tool.parameters is not None:
        return tool.parameters
    return {"type": "object", "properties": {}}


async def call_tool(call: ToolCall, harness: Harness, sandbox: Sandbox, seen: Image | None = None) -> Outcome:
    """Runs one call; a call that can't be run is an error result for the model, never an exception.

    `seen` is the newest screenshot that the model was shown: its size decides what the call's coordinates mean.
    """
    started = time.monotonic()
    ended: tuple[Literal["success", "failure"], str] | None = None
    frame_id: str | None = None
    try:
        tool = next((t for t in harness.tools if t.name == call.name), None)
        if tool is None:
            raise BadAction(f"there is no tool {call.name!r}; tools: {', '.join(t.name for t in harness.tools)}")
        if tool.kind == "computer_use" and call.arguments.get("action") == "terminate" and "terminate" in tool.actions:
            ended = _terminate(call)
            text = "ended"
        else:
            if tool.kind == "computer_use":
                frame_id = None if seen is None else seen.frame_id
                text = await computer_use.act(call.arguments, tool, sandbox, seen)
            else:
                text = await _run(call, tool, harness, sandbox)
        error = False
    except (BadAction, OSError) as reason:  # the latter when the agent shut its own home
        text, error = f"error: {reason}", True
    seconds = round(time.monotonic() - started, 4)
    result = ToolResult(call_id=call.id, text=text, is_error=error, seconds=seconds, frame_id=frame_id)
    return Outcome(result, ended)


def _terminate(call: ToolCall) -> tuple[Literal["success", "failure"], str]:
    status = call.arguments.get("status", "success")
    if status not in ("success", "failure"):
        raise BadAction(f"terminate needs status success or failure, got {status!r}")
    reason = call.arguments.get("reason", "")
    return ("success" if status == "success" else "failure"), reason if isinstance(reason, str) else ""


async def _run(call: ToolCall, tool: Tool, harness: Harness, sandbox: Sandbox) -> str:
    if tool.kind == "bash":
        command = call.arguments.get("command")
        if not isinstance(command, str) or not command.strip():
            raise BadAction(f"bash needs `command`, a non-empty string, got {command!r}")
        return _said(await sandbox.bash(command, timeout_s=tool.timeout_s), tool.timeout_s)
    if tool.kind == "a11y_tree":
        if sandbox.screen is None:
            raise BadAction("this environment has no screen")
        return render_tree(await sandbox.elements(), sandbox.screen, harness.scaffold.observation.max_chars)
    ran = await sandbox.exec(
        f"{HARNESS_DIR}/{quote(tool.entry or '')} {quote(json.dumps(call.arguments, sort_keys=True))}",
        timeout_s=tool.timeout_s,
    )
    return _said(ran, tool.timeout_s)


def _said(ran: Ran, timeout_s: float) -> str:
    parts = [ran.output.rstrip("\n")] if ran.output.strip() else []
    if ran.timed_out:
        parts.append(f"(killed after {timeout_s:g} s)")
    elif ran.exit_code:
        parts.append(f"(exit code {ran.exit_code})")
    if ran.notice:
        parts.append(f"({ran.notice})")
    return "\n".join(parts) or "ok"
