"""A small made-up run, record by record, for tests of what reads a run directory."""

from __future__ import annotations

from pathlib import Path

from evolver.config import RunConfig
from evolver.records import (
    Candidate,
    ChannelRow,
    Decision,
    Distillation,
    Ending,
    Evaluation,
    Gap,
    Interval,
    LedgerEntry,
    Look,
    Manifest,
    Record,
    RolloutKey,
    Score,
    Scorecard,
)
from evolver.store import Store

ALPHA, BETA1, BETA2 = "a" * 40, "b" * 40, "c" * 40
TEACHER, STUDENT = "demonstrator(slip_rate=0.05)", "student-beta1-0"


def ci(point: float | None, low: float | None = None, high: float | None = None, n: int = 24) -> Interval:
    return Interval(point=point, low=low, high=high, n=n, method="bootstrap over tasks")


def ledger(name: str = "led-1", **changes: object) -> LedgerEntry:
    entry = LedgerEntry(
        id=name, role="teacher", model_id=TEACHER, calls=3, input_tokens=900, output_tokens=100, cost_usd=0.0,
        rollout_id=f"r-{name}", at=1.0,
    )  # fmt: skip
    return LedgerEntry.model_validate({**entry.model_dump(), **changes})


def card(number: int = 0, success: bool | None = True, tokens: int | None = 1000) -> Scorecard:
    key = RolloutKey(
        purpose="race", harness_id=BETA1, model_id=TEACHER, task_id=f"task-{number}", task_hash="h", split="dev",
        attempt=0, seed=0,
    )  # fmt: skip
    value = None if success is None else float(success)
    score = Score(criterion="done", weight=1, required=True, value=value, explanation="", grader="program")
    return Scorecard(
        rollout_id=f"r-{number}", key=key, checker_hash="c", scores=(score,), success=success, rubric=value,
        channel="terminal", tokens=tokens, cost_usd=0.0, seconds=2.0,
    )  # fmt: skip


def candidate(name: str, harness: str, parent: str | None, author: str = "human") -> Candidate:
    return Candidate(
        id=name, name=name, harness_id=harness, parents=(parent,) if parent else (), author=author,
        components=("T", "P") if parent else (),
        changes=("tools: + bash",), manifest=Manifest(why=f"{name} should work better"), proposed_at=1.0,
    )  # fmt: skip


def decision(number: int, of: Candidate, effect: Interval, **changes: object) -> Decision:
    verdict = "promote" if (effect.low or 0) > 0 else "reject"
    made = Decision(
        id=f"d-{number}", candidate_id=of.id, candidate_harness=of.harness_id, incumbent_harness=of.parents[0],
        verdict=verdict, looks=(Look(attempts=1, effect=effect, p_value=0.01, alpha=0.02, verdict="pass"),),
        confirmation=effect if verdict == "promote" else None,
        confirmation_p=0.01 if verdict == "promote" else None, alpha_spent=0.02,
        flip_rate_aa=ci(0.05, 0.0, 0.1), flip_rate_ab=ci(0.3, 0.1, 0.5),
        tokens_per_solved=ci(1500, 1300, 1800), incumbent_tokens_per_solved=ci(5200, 4100, 6900),
        reasons=("confirmed on select",), decided_at=2.0,
    )  # fmt: skip
    return Decision.model_validate({**made.model_dump(), **changes})


def evaluation(harness: str, model: str, success: Interval, purpose: str = "race") -> Evaluation:
    row = ChannelRow(
        app="calc", rollouts=24, gui_calls=41, terminal_calls=63, none_turns=2, switches=9, tokens=None, seconds=60.0,
        success_by_channel={"gui": ci(0.5, 0.2, 0.8, 10), "terminal": ci(0.9, 0.7, 0.98, 14)},
    )  # fmt: skip
    return Evaluation.model_validate(
        {
            "id": f"e-{harness[0]}-{model}", "purpose": purpose, "harness_id": harness, "model_id": model,
            "split": "dev", "seed": 0, "attempts": 1, "n_tasks": 24, "n_unscored": 1, "success": success,
            "success_seen": None, "success_unseen": None, "rubric": success, "tokens_per_task": ci(1800, 1500, 2100),
            "tokens_per_solved": None, "cost_usd": 0.0, "seconds_per_task": 3.0, "channels": (row,),
            "tasks_sha256": "t",
        }
    )  # fmt: skip


def distillation() -> Distillation:
    return Distillation(
        id="s-1", teacher_harness=BETA1, teacher_model=TEACHER, base_model="smollm2-135m", student_model=STUDENT,
        recipe={"epochs": 2, "lr": 0.0005}, seed=0, data_sha256="d", template_sha256="t", rows=240,
        trained_tokens=99_000, dropped={"unsuccessful": 3}, train_loss_first=2.0, train_loss_last=0.2, train_s=60.0,
        checkpoint="students/s-1",
    )  # fmt: skip


def gap(**changes: object) -> Gap:
    made = Gap(
        id="g-1", harness_a=BETA1, harness_b=BETA2, teacher_a=ci(0.9, 0.8, 0.97, 40), teacher_b=ci(0.85, 0.7, 0.93, 40),
        teacher_gap=ci(-0.05, -0.15, 0.05, 40), student_a=ci(0.40, 0.3, 0.5, 40), student_b=ci(0.25, 0.15, 0.36, 40),
        student_gap=ci(-0.15, -0.27, -0.03, 40), control_a=ci(0.0, 0.0, 0.09, 40), control_b=ci(0.0, 0.0, 0.09, 40),
        lift_a=ci(0.4, 0.3, 0.5, 40), lift_b=ci(0.25, 0.15, 0.36, 40), amplification=ci(None, n=40), n_tasks=40,
        student_seeds=(0,), notes=("one seed per arm: the interval leaves out training noise",), at=3.0,
    )  # fmt: skip
    return Gap.model_validate({**made.model_dump(), **changes})


def records() -> list[Record]:
    beta1, beta2 = candidate("beta1", BETA1, ALPHA), candidate("beta2", BETA2, BETA1, "structured")
    return [
        candidate("alpha", ALPHA, None), beta1,
        evaluation(ALPHA, TEACHER, ci(0.3, 0.15, 0.5)), evaluation(BETA1, TEACHER, ci(0.9, 0.7, 0.97)),
        decision(1, beta1, ci(0.6, 0.4, 0.8)), beta2, decision(2, beta2, ci(-0.04, -0.12, 0.04)),
        evaluation(BETA1, STUDENT, ci(0.4, 0.3, 0.5, 40), "test"), distillation(), gap(), card(0), card(1, None, None),
        ledger("led-1"), ledger("led-2", role="student", model_id=STUDENT),
        ledger("led-3", role="author", model_id="gpt-x", input_tokens=None, output_tokens=None, cost_usd=None),
        Ending(id="end-1", reason="done", detail="", at=4.0),
    ]  # fmt: skip


def sample_run(path: Path, config: RunConfig | None = None) -> Store:
    store = Store.create(path, config or RunConfig())
    for record in records():
        store.append(record)
    return store
