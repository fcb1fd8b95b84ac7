"""Records of one attempt: what the model was shown, what it answered, what came of it, what it cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from devset.task import Category, Split

SCHEMA_VERSION = 1

Channel = Literal["gui", "terminal", "both", "none"]
Role = Literal["author", "teacher", "judge", "annotator", "student"]
Purpose = Literal["admit", "calibrate", "race", "confirm", "train", "test", "adhoc", "check", "author", "capsule"]
ImageRule = Literal["qwen2", "qwen3", "openai_tiles", "openai_patches"]  # how a model counts an image (tokens.py)
StopReason = Literal["finished", "infeasible", "step_limit", "time_limit", "bad_replies", "cap", "error"]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]  # strict: True and "0.5" are no numbers
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


# --- what a model is shown and what it answers ---------------------------------------------------------------


class Text(Record):
    type: Literal["text"] = "text"
    text: str


class Image(Record):
    """A screenshot by content: `frame_id` is the sha256 of its PNG bytes, kept under `blobs/` of the run."""

    type: Literal["image"] = "image"
    frame_id: str
    width: int
    height: int


Part = Annotated[Text | Image, Field(discriminator="type")]


class ToolCall(Record):
    id: str
    name: str
    arguments: dict[str, JsonValue]


class ToolResult(Record):
    call_id: str
    text: str
    is_error: bool = False
    seconds: Finite = 0.0
    frame_id: str | None = None  # the screenshot that a GUI call's coordinates were read against


class Message(Record):
    """One chat message. A `tool` message answers `call_id`; an assistant message may carry `calls`."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


class ToolSpec(Record):
    name: str
    description: str
    parameters: dict[str, JsonValue]


class Usage(Record):
    """Tokens of one model call; `None` is unknown, never 0. `counted_by` says who counted."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    counted_by: Literal["provider", "tokenizer", "estimate"]

    @property
    def total(self) -> int | None:
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Completion(Record):
    """A model's reply. `text` is what it wrote outside reasoning and calls; `invalid` says why it can't be used."""

    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: Literal["stop", "tool_calls", "length", "other"] = "stop"
    invalid: str | None = None
    usage: Usage


# --- one attempt ---------------------------------------------------------------------------------------------


class Observed(Record):
    """What was read from the screen after the calls of a turn (or before the first turn)."""

    image: Image | None = None
    text: str | None = None
    settled: bool | None = None


class Turn(Record):
    """One model call and what came of it. `request_sha256` is the hash of the messages and tools of the call,
    `request_tokens` what they were estimated at; `Rollout.requests_sha256` has the request itself.

    `slip` names the declared, simulated error that the demonstrator made in this turn (always None for a model).
    """

    index: int
    request_sha256: str
    request_tokens: int | None = None
    completion: Completion
    summary: str
    results: tuple[ToolResult, ...] = ()
    observed: Observed = Observed()
    channel: Channel
    slip: str | None = None
    model_s: Finite
    tools_s: Finite


class Failure(Record):
    """Why a rollout has no score: `blame` says whose fault it was (rule 1: ours is never averaged as 0)."""

    kind: str
    blame: Literal["harness", "task", "provider", "sandbox", "grader", "platform"]
    message: str

    @property
    def outage(self) -> bool:
        """Whether the model did not answer at all, which another try may mend: a refusal is an answer."""
        return self.blame == "provider" and self.kind != "refused"


class Connection(Record):
    """One connection that an agent with an allow-list asked for. `refused` says why there was none; empty if there was.

    `at` in seconds since the epoch; `sent` and `received` in bytes, as the agent sees them.
    """

    at: Finite
    host: str
    port: int
    refused: str = ""
    address: str = ""
    sent: int = 0
    received: int = 0


class RolloutKey(Record):
    """What makes an attempt one of a kind. `attempt` counts from 0 within everything else."""

    purpose: Purpose
    harness_id: str
    model_id: str
    task_id: str
    task_hash: str
    split: Split | None
    attempt: int
    seed: int

    @property
    def pair(self) -> tuple[str, str, int, int]:
        """What two arms must share to be compared (task id, task hash, attempt, seed)."""
        return (self.task_id, self.task_hash, self.attempt, self.seed)


class Rollout(Record):
    """One attempt from the first look to the last. `loaded_harness_id` is what the sandbox really got;
    `state_sha256` is the blob of the frozen home, so that grading can be repeated without the agent;
    `requests_sha256` is that of the exact request of every call (evolver.sent), whose images `image_rule` counted.
    `spoiled` are tries of calls that may be billed although no reply came of them."""

    id: str
    key: RolloutKey
    retry_of: str | None = None
    loaded_harness_id: str
    image_digest: str
    apps: tuple[str, ...]
    category: Category
    first: Observed = Observed()
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    state_sha256: str | None = None
    requests_sha256: str | None = None
    image_rule: ImageRule = "qwen2"
    connections: tuple[Connection, ...] = ()
    spoiled: tuple[Usage, ...] = ()
    error: Failure | None = None
    started_at: Finite
    finished_at: Finite


class Score(Record):
    criterion: str
    weight: Finite
    required: bool
    value: Unit | None
    explanation: str
    grader: str


class Scorecard(Record):
    """The one atomic card of a rollout. `success` and `rubric` are None when anything required is unscored."""

    rollout_id: str
    key: RolloutKey
    checker_hash: str
    scores: tuple[Score, ...]
    success: bool | None
    rubric: Unit | None
    error: Failure | None = None
    channel: Channel
    tokens: int | None
    cost_usd: Finite | None
    seconds: Finite


class LedgerEntry(Record):
    """One billed call, or one rollout's worth of calls to one model, counted exactly once. `spoiled`: tries without a
    reply, which may be billed: where nobody says for how much, no cap counts them."""

    id: str
    role: Role
    model_id: str
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Finite | None
    rollout_id: str | None = None
    at: Finite
    seconds: Finite | None = None  # from asking to the answer; None where nobody took the time
    spoiled: bool = False
