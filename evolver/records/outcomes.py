"""Records of what became of it: students, gaps between them, and how a run ended."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from evolver.records.attempts import Finite, Record
from evolver.records.verdicts import Interval


class Distillation(Record):
    """One student: which rollouts it was trained on, with which recipe and seed, and where it lies."""

    id: str
    teacher_harness: str
    teacher_model: str
    base_model: str
    student_model: str
    recipe: dict[str, JsonValue]
    seed: int
    data_sha256: str
    template_sha256: str
    rows: int
    trained_tokens: int
    dropped: dict[str, int]
    train_loss_first: Finite | None
    train_loss_last: Finite | None
    train_s: Finite
    checkpoint: str


class Gap(Record):
    """B minus A, for teachers and for their students, on the same test tasks; success in 0..1, differences likewise."""

    id: str
    harness_a: str
    harness_b: str
    teacher_a: Interval
    teacher_b: Interval
    teacher_gap: Interval
    student_a: Interval
    student_b: Interval
    student_gap: Interval
    control_a: Interval
    control_b: Interval
    lift_a: Interval
    lift_b: Interval
    amplification: Interval
    n_tasks: int
    student_seeds: tuple[int, ...]
    notes: tuple[str, ...]
    at: Finite


class Ending(Record):
    """How one start of a run ended, so that a spent budget is never read as a finished search."""

    id: str
    reason: Literal["done", "target", "plateau", "budget", "interrupted", "failed"]
    detail: str
    at: Finite
