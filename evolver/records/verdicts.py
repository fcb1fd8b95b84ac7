"""Records of what attempts say of a harness: evaluations, candidates, decisions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from devset.task import Split
from evolver.records.attempts import Channel, Finite, Purpose, Record, Unit

Route = Literal["better", "cheaper"]  # solves more; not worse and cheaper


class Interval(Record):
    """A point with its 95 % interval; all three None when there is nothing to estimate from."""

    point: Finite | None
    low: Finite | None
    high: Finite | None
    n: int
    method: str


class ChannelRow(Record):
    """One app under one harness: what was called, what it took, how often it worked."""

    app: str
    rollouts: int
    gui_calls: int
    terminal_calls: int
    none_turns: int
    switches: int
    tokens: int | None
    seconds: Finite
    success_by_channel: dict[Channel, Interval]


class Evaluation(Record):
    id: str
    purpose: Purpose
    harness_id: str
    model_id: str
    split: Split
    seed: int
    attempts: int
    n_tasks: int
    n_unscored: int
    success: Interval
    success_seen: Interval | None
    success_unseen: Interval | None
    rubric: Interval
    tokens_per_task: Interval
    tokens_per_solved: Finite | None
    cost_usd: Finite | None
    seconds_per_task: Finite | None
    channels: tuple[ChannelRow, ...]
    tasks_sha256: str
    cost_per_task: Finite | None = None  # dollars of an attempt, averaged over tasks; None in old records too


class Flip(Record):
    """A task that is solved under the parent and not under the candidate, or the other way round, by which edit."""

    task_id: str
    probability: Unit
    edit: str = ""


class Manifest(Record):
    """What the author claims: the reason, its edits in words, and the flips it predicts.

    `expected_token_change` is relative (-0.2: a fifth fewer tokens a task); `expected_channel_change` is, per app, the
    change of the share of calls that go through the terminal (-1..1).
    """

    why: str
    edits: tuple[str, ...] = ()
    predicted_flips: tuple[Flip, ...] = ()
    predicted_regressions: tuple[Flip, ...] = ()
    expected_token_change: Finite | None = None
    expected_channel_change: dict[str, Finite] = Field(default_factory=dict)


class Candidate(Record):
    """A proposed harness. `components` comes from the tree diff, never from the author."""

    id: str
    name: str
    harness_id: str
    parents: tuple[str, ...]
    author: str
    components: tuple[Literal["F", "T", "P", "E"], ...]
    changes: tuple[str, ...]
    manifest: Manifest
    author_tokens: int | None = None
    author_cost_usd: Finite | None = None
    proposed_at: Finite
    hidden_neutral: bool = False  # an edit that can't matter, judged to count false accepts; never in the lineage


class FailedProposal(Record):
    """A proposal that became no candidate: why each version of it was refused, and what its author was paid.

    `changes` are those of the last version that could be read, `why` its author's reason.
    """

    id: str
    author: str
    parent: str
    reasons: tuple[str, ...]
    why: str = ""
    changes: tuple[str, ...] = ()
    rollout_ids: tuple[str, ...]
    author_tokens: int | None
    author_cost_usd: Finite | None
    failed_at: Finite


class Look(Record):
    """One look of the race: the effect on `dev` after so many attempts a task of the candidate and of the incumbent.

    These are means where tasks have different numbers of them: `spread` (the candidate's) and `pool_spread` then say
    how many each task has; empty = all as many.
    """

    attempts: int
    pool: int = 0
    spread: dict[str, int] = Field(default_factory=dict)
    pool_spread: dict[str, int] = Field(default_factory=dict)
    effect: Interval
    p_value: Unit | None
    alpha: Finite
    verdict: Literal["continue", "pass", "futile"]


class GuardResult(Record):
    """What one guard saw of a candidate that was about to be promoted. `interval` is of the harm or the shift that the
    guard limits, in the unit of `limit`; `subject` is the app where the guard looks at each.

    held: within the limit, or not shown to be beyond it; tripped: no promotion, whatever was gained; flagged: beyond
    the limit, pointed out; unmeasured: too little to judge by; off: switched off.
    """

    guard: Literal["app", "tokens", "dollars", "seconds", "infra", "channel", "rubric"]
    subject: str = ""
    outcome: Literal["held", "tripped", "flagged", "unmeasured", "off"]
    interval: Interval
    limit: Finite
    p_value: Unit | None = None
    reason: str


class Decision(Record):
    """A verdict with its grounds. `teacher` is the id of the model that played both arms; empty in old records.

    A candidate whose small lead waited has two: the first `waits`, the one that was made when it was `heard` stands.
    `routes` are the ways in which a promotion was shown; empty in old records.
    """

    id: str
    candidate_id: str
    candidate_harness: str
    incumbent_harness: str
    verdict: Literal["promote", "keep", "reject", "inconclusive"]
    looks: tuple[Look, ...]
    confirmation: Interval | None
    confirmation_p: Unit | None
    cumulative: Interval | None = None
    alpha_spent: Finite  # the chance with which a neutral edit in its place is promoted
    flip_rate_aa: Interval | None
    flip_rate_ab: Interval | None
    tokens_per_solved: Interval | None
    incumbent_tokens_per_solved: Interval | None
    reasons: tuple[str, ...]
    decided_at: Finite
    guards: tuple[GuardResult, ...] = ()
    teacher: str = ""
    waits: bool = False
    heard: bool = False
    routes: tuple[Route, ...] = ()

    @field_validator("flip_rate_aa", "flip_rate_ab", "tokens_per_solved", "incumbent_tokens_per_solved", mode="before")
    @classmethod
    def _with_its_interval(cls, value: object) -> object:
        """Old records hold the number alone."""
        if isinstance(value, int | float):
            return {"point": value, "low": None, "high": None, "n": 0, "method": "an old record, without interval"}
        return value


class Stage(Record):
    """A named step of a lineage (alpha, beta, ...): from here on it stands for `harness_id` played by `teacher`.

    A change of the teacher model is a step of its own kind: results on its two sides are never compared. `before_*` is
    where the stage before stood, empty at the first one.
    """

    id: str
    name: str
    kind: Literal["harness", "teacher"]
    harness_id: str
    teacher: str
    before_harness: str
    before_teacher: str
    why: str
    at: Finite
