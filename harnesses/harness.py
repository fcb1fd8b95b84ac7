"""What evolves: a harness = scaffold (F) + tools (T) + prompt (P) + environment (E), as typed data."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

GUI_ACTIONS = (
    "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click",
    "middle_click", "double_click", "scroll", "wait", "terminate",
)  # fmt: skip
OPT_IN_ACTIONS = ("triple_click", "hscroll")

Component = Literal["F", "T", "P", "E"]
ToolKind = Literal["computer_use", "bash", "a11y_tree", "program"]


class Strict(BaseModel):
    """Base of everything that is read from a harness tree: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Observation(Strict):
    """What the model is shown of the screen.

    `image` adds the screenshot; `text` adds a list of the visible actionable elements (`marks`, coordinates in
    [0, 999]) or the accessibility tree (`tree`). `when` says at which turns: `every_turn`, or `after_gui` (only
    after a turn that used the GUI channel; and at the start when the harness has no terminal).
    """

    image: bool = True
    text: Literal["none", "marks", "tree"] = "none"
    when: Literal["every_turn", "after_gui"] = "every_turn"
    max_chars: Annotated[int, Field(ge=200, le=40_000)] = 4_000
    settle_s: Annotated[float, Field(ge=0, le=20)] = 3.0


class Sampling(Strict):
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Annotated[int, Field(ge=16, le=32_768)] = 2_048


class Hook(Strict):
    """A program of the harness tree that runs in the sandbox at a fixed point of a rollout."""

    at: Literal["start", "finish"]
    entry: str
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 20.0


class Scaffold(Strict):
    """F: the loop around the model (arXiv 2610.40747: 50 steps, 15 calls a turn, 3 screenshots, 32,768 tokens)."""

    max_steps: Annotated[int, Field(ge=1, le=200)] = 50
    max_calls_per_turn: Annotated[int, Field(ge=1, le=15)] = 15
    max_bad_replies: Annotated[int, Field(ge=1, le=10)] = 3
    screenshots_kept: Annotated[int, Field(ge=0, le=10)] = 3
    history: Literal["one_line", "full", "none"] = "one_line"
    turns_kept: Annotated[int, Field(ge=1, le=50)] = 3
    window_tokens: Annotated[int, Field(ge=1_024, le=1_048_576)] = 32_768
    protocol: Literal["native_tools", "xml"] = "native_tools"
    observation: Observation = Observation()
    sampling: Sampling = Sampling()
    finish_check: bool = False
    hooks: tuple[Hook, ...] = ()


class Tool(Strict):
    """T: one tool. `computer_use` lists its allowed actions; a `program` lives in the tree and has a JSON schema."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")]
    kind: ToolKind
    description: str
    actions: tuple[str, ...] = ()
    parameters: dict[str, JsonValue] | None = None
    entry: str | None = None
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Tool:
        if self.kind == "computer_use":
            unknown = [a for a in self.actions if a not in GUI_ACTIONS + OPT_IN_ACTIONS]
            if unknown or not self.actions:
                raise ValueError(
                    f"actions must be some of {', '.join(GUI_ACTIONS + OPT_IN_ACTIONS)}; got {unknown or 'none'}"
                )
        elif self.actions:
            raise ValueError(f"only a computer_use tool has actions, this is a {self.kind} tool")
        if (self.kind == "program") != (self.entry is not None and self.parameters is not None):
            raise ValueError("a program tool needs `entry` and `parameters`, other kinds have neither")
        if self.parameters is not None:
            _check_schema(self.parameters)
        return self


def _check_schema(parameters: dict[str, JsonValue]) -> None:
    """Raises ValueError: endpoints refuse every request that holds a broken schema, as if it were the model's fault."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        json.dumps(parameters, allow_nan=False)
        Draft202012Validator.check_schema(parameters)
    except SchemaError as error:
        raise ValueError(f"parameters: expected a JSON schema: {error.json_path}: {error.message[:200]}") from error
    except ValueError as error:
        raise ValueError(f"parameters: expected a JSON schema: {error}") from error
    if parameters.get("type") != "object":
        raise ValueError(f"parameters: expected type = 'object', got {parameters.get('type')!r}")


class Prompt(Strict):
    """P: markdown. `task` holds the placeholder `{instruction}`; `notes` maps a tool's name to its note."""

    system: str
    task: str = "{instruction}"
    notes: dict[str, str] = {}

    @model_validator(mode="after")
    def _task_shows_the_instruction(self) -> Prompt:
        if self.task.count("{instruction}") != 1:
            raise ValueError("task.md must contain {instruction} exactly once")
        return self


class Limits(Strict):
    memory_mb: Annotated[int, Field(ge=256, le=65_536)] = 2_048
    pids: Annotated[int, Field(ge=64, le=8_192)] = 512
    disk_mb: Annotated[int, Field(ge=64, le=65_536)] = 512
    cpus: Annotated[float, Field(gt=0, le=64)] = 2.0


# Package and host names end up in commands that build images, so nothing else passes.
AptPackage = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*(=[A-Za-z0-9.+:~-]+)?$")]
PipPackage = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[a-z0-9,_-]+\])?(==[A-Za-z0-9.+!]+)?$")]
_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
Host = Annotated[str, Field(pattern=rf"^(\*\.)?({_LABEL}\.)*[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=253)]
Pixels = Annotated[int, Field(ge=320, le=7_680)]


class Environment(Strict):
    """E: the machine. Adding python-pptx or removing xdotool is an edit here.

    `allowlist` names the hosts that the agent may reach (ports 80 and 443): each exactly, or as *.SUFFIX all below it.
    """

    image: Literal["desktop", "terminal"] = "desktop"
    apt: tuple[AptPackage, ...] = ()
    pip: tuple[PipPackage, ...] = ()
    screen: tuple[Pixels, Pixels] = (1920, 1080)
    network: Literal["none", "allowlist"] = "none"
    allowlist: tuple[Host, ...] = ()
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _hosts_go_with_the_network(self) -> Environment:
        if (self.network == "allowlist") != bool(self.allowlist):
            raise ValueError("network = 'allowlist' needs hosts in `allowlist`, and they need it")
        return self


class Harness(Strict):
    """One version of a harness. `files` holds its whole tree (path → bytes), `executable` what may be run.

    `id` is the git tree id (40 hex digits) of exactly the tree that was read, so two equal trees are one version.
    """

    id: str
    scaffold: Scaffold
    tools: tuple[Tool, ...]
    prompt: Prompt
    environment: Environment
    files: dict[str, bytes] = {}
    executable: frozenset[str] = frozenset()

    def tool(self, kind: ToolKind) -> Tool | None:
        return next((t for t in self.tools if t.kind == kind), None)

    @property
    def channels(self) -> frozenset[str]:
        kinds = {t.kind for t in self.tools}
        found = {"gui"} if "computer_use" in kinds else set()
        return frozenset(found | ({"terminal"} if kinds & {"bash", "program"} else set()))
