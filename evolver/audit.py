"""Records of a run about its own honesty: what its judge was tried on, and who opened a sealed split."""

from __future__ import annotations

from typing import Literal

from devset.task import Split
from evolver.records import Channel, Finite, Interval, Record, Unit

Kind = Literal["solved", "failed", "oracle", "noop", "mutant", "blank_screen", "empty_home"]
BLANKS: tuple[Kind, ...] = ("blank_screen", "empty_home")


class Judgement(Record):
    """One frozen state whose outcome the check program knows (`checked`), as the judge saw it.

    `judged` is None where the judge gave no answer that counts; such a case is asked again at the next start.
    """

    id: str
    judge: str
    kind: Kind
    case: str
    task_id: str
    task_hash: str
    rollout_id: str
    model_id: str
    channel: Channel
    turns: int
    checked: bool
    judged: bool | None
    why: str
    at: Finite


class Agreement(Record):
    """Judge against check programs over some cases. `bias` is the judge's success rate minus the checkers', -1..1."""

    name: str
    n: int
    n_tasks: int
    n_unscored: int
    checked_rate: Unit | None
    judged_rate: Unit | None
    accuracy: Interval
    bias: Interval


class Calibration(Record):
    """What one judge is worth in this run. It may decide promotions only when `faults` is empty."""

    id: str
    judge: str
    model_id: str
    accuracy: Interval
    kappa: Interval
    true_accepts: Interval
    false_accepts: Interval
    kinds: tuple[Agreement, ...]
    channels: tuple[Agreement, ...]
    lengths: tuple[Agreement, ...]
    families: tuple[Agreement, ...]
    faults: tuple[str, ...]
    at: Finite


class Opening(Record):
    """One opening of a sealed split: what for, by which command, and whether a person had to ask for it."""

    id: str
    split: Split
    why: str
    command: str
    flagged: bool
    who: str
    at: Finite


class SelfCheck(Record):
    """One check of the experiment itself, played once before its first candidate (evolver.selfcheck)."""

    id: str
    check: Literal["a_a", "planted_flaw", "no_op_edit", "idle_agent", "oracle"]
    outcome: Literal["passed", "failed", "not_judged"]
    effect: Interval
    p_value: Unit | None
    reason: str
    at: Finite
