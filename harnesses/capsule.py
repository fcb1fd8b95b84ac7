"""The capsule: one record that pins everything a generation round depends on, and whose hash is the capsule's id.

Secrets are pinned by the name of their environment variable alone. What no field names can't be pinned: unknown fields
are refused, and two capsules are equal only when all of their fields are.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

CAPSULE_VERSION: Literal[1] = 1
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
GitId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Versions = dict[str, str]  # package → version
Digests = dict[str, Sha256]  # path → sha256 of the bytes


class Pin(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HarnessPin(Pin):
    """The tree: its git id, and each file, so that a drift names the file."""

    id: GitId
    files: Digests
    executable: tuple[str, ...]


class ModelPin(Pin):
    """A model and how it is reached. `key_name` is the environment variable that holds the key.

    What only one kind of model has is None for the others: `slip_rate` (0..1) is the demonstrator's, `weights` (the
    files of its checkpoint) a student's, the rest an endpoint's. Times in seconds.
    """

    provider: Literal["demonstrator", "openai", "student"]
    id: str
    slip_rate: Share | None = None
    weights: Digests | None = None
    endpoint: str | None = None
    key_name: str | None = None
    timeout_s: Amount | None = None
    retry_for_s: Amount | None = None
    first_contact_s: Amount | None = None
    concurrency: int | None = None
    image_tokens: str | None = None
    dialect: dict[str, JsonValue] | None = None


class TeacherPin(Pin):
    """Who plays, and what shapes its requests. `first_request_sha256` is that of the bytes of a first request (system
    prompt and tool schemas as they are sent), for one fixed instruction and no picture."""

    model: ModelPin
    temperature: Number
    top_p: Number
    max_tokens: int
    protocol: Literal["native_tools", "xml"]
    first_request_sha256: Sha256


class JudgePin(Pin):
    """Who answers criteria of kind `judge`; `signature` is what scores call it, `settings` the rest of its section."""

    model: ModelPin
    signature: str
    prompt_sha256: Sha256
    settings: dict[str, JsonValue]


class ImagePin(Pin):
    """What is inside a sandbox: the image, and the versions installed in it. `digest` is Docker's id, which is over the
    content; on the local back end it is that of the recipe alone.

    `deb` are Debian packages, `pip` Python packages that the agent can import, `graders` those that checks import.
    """

    digest: str
    deb: Versions
    pip: Versions
    graders: Versions


class MachinePin(Pin):
    """The machine of an attempt, and the one on which its checks run (`grading`). `screen` is None without one;
    `platform` is the processor's architecture."""

    backend: Literal["docker", "local"]
    platform: str
    image: ImagePin
    grading: ImagePin
    screen: tuple[int, int] | None
    network: Literal["none", "allowlist"]
    allowlist: tuple[str, ...]


class TaskSetPin(Pin):
    """The tasks that the harness was confirmed on. `sha256` is over ids and hashes, `rubrics_sha256` over rubrics;
    `checks` are the files of the library that check programs import."""

    name: str
    n: Annotated[int, Field(ge=1)]
    sha256: Sha256
    rubrics_sha256: Sha256
    checks: Digests


class ProgramPin(Pin):
    """This program: Python, the versions of what it depends on, the lock of all of them, and its own source files."""

    python: str
    packages: Versions
    constraints_sha256: Sha256 | None
    source: Digests


class PricePin(Pin):
    """US dollars per million tokens."""

    input: Amount
    output: Amount


class RetryPin(Pin):
    """How often an attempt that failed on our side is run, how often a judge is asked, and how long (s) a window may
    take to appear. Limits of tasks are in their hashes, those of endpoints with their models."""

    tries: int
    judge_asks: int
    window_wait_s: Amount


class StatedInterval(Pin):
    """A point with its 95 % interval, as a record of the run states it."""

    point: Number | None
    low: Number | None
    high: Number | None
    n: int
    method: str


class EvidencePin(Pin):
    """What the harness was promoted for: the lead over its incumbent, and its own success (0..1), both on fresh
    attempts at the pinned tasks, `attempts` of each task at most. Tokens are per solved task; None is unknown."""

    run_id: str
    decision_id: str
    candidate_id: str
    incumbent: GitId
    effect: StatedInterval
    p_value: Share | None
    success: StatedInterval
    attempts: Annotated[int, Field(ge=1)]
    tokens_per_solved: Number | None
    incumbent_tokens_per_solved: Number | None


class Capsule(Pin):
    """Everything that a generation round depends on. `files` are the capsule's own beside the lock; `settings` is what
    its config says of anything but models and prices; `prices_on` is the day (ISO 8601) that the prices are of.
    `held_out` are the tasks that its run imports for other splits than train: hash → sha256 of the instruction."""

    version: Literal[1] = CAPSULE_VERSION
    harness: HarnessPin
    teacher: TeacherPin
    judge: JudgePin | None
    machine: MachinePin
    tasks: TaskSetPin
    held_out: dict[Sha256, Sha256] = {}
    program: ProgramPin
    prices: dict[str, PricePin]
    prices_on: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    seed: int
    settings: dict[str, JsonValue]
    retry: RetryPin
    evidence: EvidencePin
    files: Digests

    @cached_property
    def id(self) -> str:
        """sha256 (64 hex digits) of the canonical JSON: keys sorted, no spaces, ASCII."""
        return hashlib.sha256(canonical(self.model_dump(mode="json"))).hexdigest()


class Drift(Pin):
    """One field that differs; None is "not there"."""

    field: str
    pinned: JsonValue
    found: JsonValue

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.pinned)} → {_shown(self.found)}"


class TaskPin(Pin):
    """One task of the capsule's set, as it was confirmed: `solved` of `scored` attempts. `checker` is the sha256 of its
    check program with the library modules that this runs. One that is no own task lies in the capsule (`carried`)."""

    id: str
    hash: Sha256
    checker: Sha256
    split: str | None
    seen_in_training: bool
    carried: bool
    solved: Annotated[int, Field(ge=0)]
    scored: Annotated[int, Field(ge=0)]


class TaskList(Pin):
    """tasks.json of a capsule."""

    name: str
    tasks: tuple[TaskPin, ...]


class PriceList(Pin):
    """prices.json of a capsule."""

    prices_on: str
    prices: dict[str, PricePin]


def canonical(value: JsonValue) -> bytes:
    """The one way to write a JSON value that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def differences(a: Capsule, b: Capsule) -> list[Drift]:
    """Every field in which `b` (found) differs from `a` (pinned), by path."""
    return drifts(a.model_dump(mode="json"), b.model_dump(mode="json"))


def drifts(pinned: JsonValue, found: JsonValue, field: str = "") -> list[Drift]:
    """`differences` of two JSON values; lists are compared whole."""
    if isinstance(pinned, dict) and isinstance(found, dict):
        return [
            drift
            for key in sorted(pinned.keys() | found.keys())
            for drift in drifts(pinned.get(key), found.get(key), f"{field}.{key}" if field else key)
        ]
    # JSON knows no difference between 1 and 1.0, Python none between 1 and True
    return [] if pinned == found and type(pinned) is type(found) else [Drift(field=field, pinned=pinned, found=found)]


def _shown(value: JsonValue) -> str:
    if value is None:
        return "(not there)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
