"""The GUI channel: one `computer_use` call → one action on the real screen."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from evolver.errors import BadAction
from evolver.protocols import Act, Sandbox
from evolver.records import Image
from evolver.tools.screen import to_pixels
from harnesses.harness import Tool

POINTED = ("mouse_move", "left_click", "right_click", "middle_click", "double_click", "triple_click", "left_click_drag")
MAX_WAIT_S = 10.0
_POINT: dict[str, JsonValue] = {"type": "array", "items": {"type": "integer"}, "description": "[x, y] in 0..999"}


def parameters(tool: Tool) -> dict[str, JsonValue]:
    """JSON schema of the call, limited to the actions that the harness allows."""
    properties: dict[str, JsonValue] = {"action": {"type": "string", "enum": list(tool.actions)}}
    allowed = set(tool.actions)
    if allowed & {*POINTED, "scroll", "hscroll"}:
        properties["coordinate"] = _POINT
    if "left_click_drag" in allowed:
        properties["to"] = {**_POINT, "description": "where the drag ends"}
    if "key" in allowed:
        properties["keys"] = {"type": "string", "description": "a chord such as ctrl+s or Return"}
    if "type" in allowed:
        properties["text"] = {"type": "string"}
    if allowed & {"scroll", "hscroll"}:
        properties["amount"] = {"type": "integer", "description": "wheel clicks, positive is down or right"}
    if "wait" in allowed:
        properties["seconds"] = {"type": "number"}
    if "terminate" in allowed:
        properties["status"] = {"type": "string", "enum": ["success", "failure"]}
        properties["reason"] = {"type": "string"}
    return {"type": "object", "properties": properties, "required": ["action"]}


def _text(arguments: Mapping[str, JsonValue], field: str, action: str) -> str:
    value = arguments.get(field)
    if not isinstance(value, str) or not value:
        raise BadAction(f"{action} needs `{field}`, a non-empty string, got {value!r}")
    return value


def _number(arguments: Mapping[str, JsonValue], field: str, action: str) -> float:
    value = arguments.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise BadAction(f"{action} needs `{field}`, a number, got {value!r}")
    return float(value)


def to_act(arguments: Mapping[str, JsonValue], tool: Tool, screen: tuple[int, int]) -> Act:
    """Checks a call's arguments and maps them to pixels of `screen` (width, height).

    Anything unusable is a BadAction, never a click at (0,0).
    """
    action = arguments.get("action")
    if not isinstance(action, str) or action not in tool.actions:
        raise BadAction(f"action must be one of {', '.join(tool.actions)}; got {action!r}")
    if action == "key":
        return Act(kind=action, keys=_text(arguments, "keys", action))
    if action == "type":
        return Act(kind=action, text=_text(arguments, "text", action), timeout_s=tool.timeout_s)
    if action == "wait":
        seconds = _number(arguments, "seconds", action)
        if not 0 <= seconds <= MAX_WAIT_S:
            raise BadAction(f"wait needs seconds in 0..{MAX_WAIT_S:g}, got {seconds:g}")
        return Act(kind=action, seconds=seconds)
    x, y = to_pixels(arguments.get("coordinate"), screen)
    if action in ("scroll", "hscroll"):
        amount = _number(arguments, "amount", action)
        if amount != int(amount) or not 1 <= abs(amount) <= 100:
            raise BadAction(f"{action} needs an integer amount in -100..100 other than 0, got {amount:g}")
        return Act(kind=action, x=x, y=y, amount=int(amount))
    if action == "left_click_drag":
        to_x, to_y = to_pixels(arguments.get("to"), screen)
        return Act(kind=action, x=x, y=y, to_x=to_x, to_y=to_y)
    return Act(kind=action, x=x, y=y)


async def act(arguments: Mapping[str, JsonValue], tool: Tool, sandbox: Sandbox, seen: Image | None) -> str:
    """`seen`: the screenshot that the coordinates were read from; None where the screen was shown as text alone."""
    if sandbox.screen is None:
        raise BadAction("this environment has no screen")
    await sandbox.act(to_act(arguments, tool, sandbox.screen if seen is None else (seen.width, seen.height)))
    return "ok"
