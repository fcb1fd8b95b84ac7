"""Which channels a request's tools offer, found by their JSON schemas: a harness names its tools itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from evolver.records import ToolSpec


@dataclass(frozen=True)
class Offered:
    """Names of the tools that a harness offers (None: it does not) and the GUI actions allowed."""

    gui: str | None = None
    gui_actions: frozenset[str] = frozenset()
    bash: str | None = None
    tree: str | None = None

    @property
    def can_terminate(self) -> bool:
        return self.gui is not None and "terminate" in self.gui_actions


def offered(tools: Sequence[ToolSpec]) -> Offered:
    """The GUI tool has an `action` enumeration, the shell a `command`, the accessibility tree no arguments at all."""
    gui = next((t for t in tools if _enum(t)), None)
    bash = next((t for t in tools if "command" in _properties(t) and t is not gui), None)
    tree = next((t for t in tools if not _properties(t) and _speaks_of_a_tree(t)), None)
    return Offered(
        gui=gui.name if gui else None,
        gui_actions=_enum(gui) if gui else frozenset(),
        bash=bash.name if bash else None,
        tree=tree.name if tree else None,
    )


def _properties(tool: ToolSpec) -> Mapping[str, JsonValue]:
    properties = tool.parameters.get("properties", {})
    return properties if isinstance(properties, dict) else {}


def _enum(tool: ToolSpec) -> frozenset[str]:
    action = _properties(tool).get("action")
    values = action.get("enum") if isinstance(action, dict) else None
    return frozenset(v for v in values if isinstance(v, str)) if isinstance(values, list) else frozenset()


def _speaks_of_a_tree(tool: ToolSpec) -> bool:
    said = f"{tool.name} {tool.description}".lower()
    return "a11y" in said or "accessib" in said
