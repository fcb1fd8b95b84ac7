"""Records of what became of it: students, gaps between them, and how a run ended."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from evolver.records.attempts import Finite, Record, Unit
from evolver.records.verdicts import Interval

Equal = Literal["accepted", "budget"]  # what two arms have alike: successful teacher rollouts, or attempts at them


class Distillation(Record):
    """One student: which rollouts it was trained on, with which recipe and seed, and where it lies.

    `annotator` is the model that wrote the reasoning of `annotated_turns` of the learned turns; None: nobody did.
    """

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
    annotator: str | None = None
    annotated_turns: int = 0

    @property
    def equal(self) -> Equal:
        """What its arm has alike with others; recipes name it where it is the budget."""
        return "budget" if self.recipe.get("equal") == "budget" else "accepted"


class Annotation(Record):
    """Reasoning that another model wrote for a turn that had none; None where its reply could not be used (`fault`)."""

    id: str
    rollout_id: str
    turn: int
    annotator: str
    reasoning: str | None
    fault: str = ""
    at: Finite


class Learnability(Record):
    """How hard a harness is to learn from, without a rollout of a student: on turns of its teacher that are held out.

    Losses are in nats per token that the student was to write, of the untrained base and of the student; None where the
    teacher left nothing to read. `tokens` are those tokens in the student's own vocabulary, `switches` changes of the
    channel; both, like `turns`, over the `rollouts`.
    """

    id: str
    harness_id: str
    teacher_model: str
    base_model: str
    student_model: str
    seed: int
    rollouts: int
    turns: int
    tokens: int
    switches: int
    loss_before: Finite | None
    loss_after: Finite | None
    rows_sha256: str
    at: Finite


class SeedTest(Record):
    """Students of one seed under B and A: tasks that only B's solved, only A's, and McNemar's exact two-sided test."""

    seed: int
    only_b: int
    only_a: int
    p: Unit


class Gap(Record):
    """B minus A, for teachers and for their students, on the same test tasks; success in 0..1, differences likewise.

    `student_p` is the two-sided test of the student gap against chance over tasks and seeds, `level` what it must not
    exceed at this `look` (from 0; None: the only one). `mcnemar` ignores seeds and is a diagnostic. `equal` is what the
    arms were asked to have alike; None: whatever their recipe says.
    """

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
    student_p: Unit | None = None
    level: Unit = 0.05
    look: int | None = None
    equal: Equal | None = None
    mcnemar: tuple[SeedTest, ...] = ()
    notes: tuple[str, ...]
    at: Finite

    @property
    def found(self) -> bool | None:
        """Whether there is a student gap; None where nothing says so."""
        return None if self.student_p is None else self.student_p <= self.level


class Effect(Record):
    """A difference of success with its interval and its two-sided p-value; None with one training seed an arm."""

    size: Interval
    p: Unit | None


class Crossing(Record):
    """Students of A and of B, each played under both harnesses on the same test tasks: 2 x 2.

    `ab` is the success of A's students under B. `trained`: what B's data add, whatever harness plays. `played`: what
    playing under B adds, whoever taught. `home`: what a student's own harness adds over the other one.
    """

    id: str
    harness_a: str
    harness_b: str
    equal: Equal | None
    aa: Interval
    ab: Interval
    ba: Interval
    bb: Interval
    control_a: Interval
    control_b: Interval
    trained: Effect
    played: Effect
    home: Effect
    n_tasks: int
    student_seeds: tuple[int, ...]
    at: Finite


class Arm(Record):
    """One harness in the final comparison: its attempts on `test` and what they came to."""

    name: str
    harness_id: str
    attempts: int
    n_unscored: int
    success: Interval
    tokens_per_attempt: Finite | None


class Frozen(Record):
    """What the final comparison will be, fixed before any of it is played; no candidate is proposed or raced after it.

    `first` is the number of the first attempt: those below it were played for something else. `arms` maps the arms'
    names to harness ids; the original plays `best_of` attempts a task where that is more than `attempts`.
    """

    id: str
    teacher: str
    arms: dict[str, str]
    attempts: int
    best_of: int
    first: int
    alpha: Finite
    tag: str
    at: Finite


class Final(Record):
    """The result on `test`: incumbent minus original on fresh attempts, and the baselines.

    `mcnemar_p` is the exact two-sided test of first attempts, a diagnostic beside the verdict's own test `p_better`.
    `best_of` is the success of an original that is given `k` attempts and an oracle that picks the right one.
    """

    id: str
    frozen_id: str
    arms: tuple[Arm, ...]
    effect: Interval
    p_better: Unit | None
    mcnemar_p: Unit | None
    best_of: Interval
    k: int
    against_best_of: Interval
    flip_rate: Finite | None
    n_tasks: int
    seed: int
    tasks_sha256: str
    notes: tuple[str, ...]
    at: Finite


class Freeze(Record):
    """A capsule as it was begun: what will be played from its bytes before it is released, fixed before any of it is.

    `first` is the number of the first attempt: those below it were played for other capsules. `stated` is the success
    (0..1) that the harness was promoted with on these tasks, `expected` where as many fresh attempts should come out.
    """

    id: str
    name: str
    capsule_id: str
    harness_id: str
    teacher: str
    path: str
    n_tasks: int
    attempts: int
    first: int
    stated: Interval
    expected: Interval
    at: Finite


class Release(Record):
    """Whether a capsule was released: `success` of the fresh attempts against what was expected of them. `tag` is that
    of its harness in the library, empty when it was refused."""

    id: str
    freeze_id: str
    name: str
    capsule_id: str
    harness_id: str
    verdict: Literal["released", "refused"]
    success: Interval
    expected: Interval
    n_tasks: int
    attempts: int
    n_unscored: int
    reasons: tuple[str, ...]
    tag: str
    at: Finite


class Ending(Record):
    """How one start of a run ended, so that a spent budget is never read as a finished search."""

    id: str
    reason: Literal["done", "target", "plateau", "budget", "interrupted", "failed"]
    detail: str
    at: Finite
