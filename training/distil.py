"""One student from one frozen harness: train rollouts → rows → fine-tuning → student and control on the test split.

The student may also play under other harnesses, and how hard its own was to learn from is taken down.

Every step finds what an earlier, killed call left (rollouts in the store, the checkpoint on disk), so the same call
finishes it. The Distillation record comes last: it says that student, control and teacher are measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from devset.task import Task
from evolver.annotate import Annotated, Scored, annotate
from evolver.errors import UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import Attempt, Lab
from evolver.models.openai import OpenAIModel
from evolver.race import record_evaluation
from evolver.records import Distillation, Rollout, Scorecard
from evolver.rounds.reader import is_round, taught_in
from training.checkpoints import base_checkpoint, require_positions
from training.cost import shape_of, training_flop
from training.filter import as_lines, as_words
from training.learnability import take_down
from training.pack import Packing
from training.recipe import Recipe
from training.render import Renderer, open_renderer
from training.rows import Rows, build_rows
from training.sft import Stage, train
from training.student import CARD, StudentModel, open_student, open_untrained, student_card, untrained_id

Say = Callable[[str], None]
STUDENTS = "students"  # within a run
TRAINED = "trained.json"
LEFT_OUT = "left_out.jsonl"


class Training(BaseModel):
    """What fine-tuning left beside the checkpoint (`trained.json`); `flop` of the whole stage, by training.cost.

    `logit_shift`: the largest change of a logit on the first row; `packing` None when rows were not packed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss_first: float
    loss_last: float
    steps: int
    seconds: float
    tokens_per_s: float
    flop: float | None = None
    logit_shift: float | None = None
    packing: Packing | None = None


class Splits(BaseModel):
    """The tasks that a distillation may learn from, and those that nothing may be learned from; it is measured on the
    first `measured` of these (absent: on all), and under other harnesses on the first `crossed[harness id]`. `sealed`
    are more instructions that nothing may be learned from, of test tasks that are not played here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: tuple[Task, ...]
    test: tuple[Task, ...]
    sealed: frozenset[str] = frozenset()
    measured: int | None = None
    crossed: dict[str, int] = {}


async def distil(lab: Lab, harness_id: str, splits: Splits, recipe: Recipe, seed: int, say: Say) -> Distillation:
    """Makes, or finishes, the student of (harness, recipe, seed) and returns its record.

    Raises UsageError when no rollout succeeded, a row is too long for the recipe, or the window for its base.
    """
    base = base_checkpoint(recipe.base)
    require_positions(base, recipe.window_tokens)
    instructions, scored = await _material(lab, harness_id, splits.train, recipe)
    renderer = open_renderer(base, recipe.render)
    sealed = splits.sealed | {task.instruction for task in splits.test}
    notes = await _reasoned(lab, instructions, scored, recipe, say)
    rows = build_rows(lab.harness(harness_id), instructions, notes.scored, renderer, recipe, sealed)
    marked = [replace(row, annotated=notes.turns_of(row.rollout_id, row.turns)) for row in rows.rows]
    rows = replace(rows, rows=tuple(marked))
    if not rows.rows:
        left_out = as_words(rows.dropped)
        raise UsageError(f"no row to train on under {harness_id[:12]}: {len(scored)} rollouts, left out: {left_out}")
    student_id = _student_id(recipe, seed, rows)
    checkpoint = lab.store.path / STUDENTS / student_id
    trained = await _trained(checkpoint, rows, Stage(rows.rows, recipe, seed, base, lab.store.blob), say)
    _write_card(checkpoint, student_id, recipe, renderer, seed)
    await _measure(lab, harness_id, splits, recipe, checkpoint)
    take_down(lab, harness_id, splits.test, recipe, checkpoint)
    record = Distillation(
        id=f"distil-{_hash(harness_id, student_id)}",
        teacher_harness=harness_id,
        teacher_model=lab.model.id,
        base_model=untrained_id(recipe),
        student_model=student_id,
        recipe=recipe.recorded,
        seed=seed,
        data_sha256=rows.sha256,
        template_sha256=renderer.sha256,
        rows=len(rows.rows),
        trained_tokens=rows.trained_tokens,
        dropped=rows.dropped,
        train_loss_first=trained.loss_first,
        train_loss_last=trained.loss_last,
        train_s=trained.seconds,
        checkpoint=str(checkpoint.relative_to(lab.store.path)),
        annotator=next(iter(notes.by.values()), None),
        annotated_turns=sum(len(row.annotated) for row in rows.rows),
    )
    if lab.store.get(Distillation, record.id) is None:
        lab.record(record)
    return record


async def _material(
    lab: Lab, harness_id: str, tasks: Sequence[Task], recipe: Recipe
) -> tuple[dict[str, str], list[tuple[Rollout, Scorecard]]]:
    """Task id → instruction, and the rollouts to learn from: the first that a generation round accepted, or the
    teacher's on these tasks."""
    if not is_round(lab.store.path):
        return {task.id: task.instruction for task in tasks}, await _rollouts(lab, harness_id, tasks, recipe)
    if recipe.equal == "budget":
        raise UsageError("equal: budget counts attempts, and of a round only accepted ones are learned from: accepted")
    return taught_in(lab.store.path, harness_id, recipe.n_rollouts)


async def _rollouts(
    lab: Lab, harness_id: str, tasks: Sequence[Task], recipe: Recipe
) -> list[tuple[Rollout, Scorecard]]:
    """The teacher's rollouts, task by task, until `n_rollouts` succeeded (`equal: budget`: were played) or the tasks
    are used up."""
    cards: list[Scorecard] = []
    while len(cards) < len(tasks):
        counted = [card for card in cards if card.success is True or recipe.equal == "budget"]
        missing = recipe.n_rollouts - len(counted)
        if missing <= 0:
            break
        batch = tasks[len(cards) : len(cards) + missing]
        attempts = [Attempt(harness_id, task, "train") for task in batch]
        cards += await lab.score(attempts, label=f"train rollouts under {harness_id[:12]}")
    by_id = {rollout.id: rollout for rollout in lab.store.all(Rollout)}
    return [(by_id[card.rollout_id], card) for card in cards]


async def _reasoned(lab: Lab, instructions: Mapping[str, str], scored: Scored, recipe: Recipe, say: Say) -> Annotated:
    """The rollouts with the reasoning that the run's annotator adds, or as they are where it has none."""
    spec = lab.config.distil.annotator
    if spec is None:
        return Annotated(scored, {}, 0)
    if recipe.render.reasoning == "drop":
        raise UsageError(
            "distil.annotator writes reasoning that the recipe drops: set render.reasoning to keep, or take it out"
        )
    found = await annotate(lab, OpenAIModel(spec), instructions, scored, spec.concurrency)
    say(f"reasoning: {len(found.by)} turns by {spec.model}; unusable, left without: {found.unusable}")
    return found


async def _trained(checkpoint: Path, rows: Rows, stage: Stage, say: Say) -> Training:
    """Fine-tunes, or reads what an earlier call left; `trained.json` is written last and makes it whole."""
    if (checkpoint / TRAINED).is_file():
        say(f"training: {checkpoint.name} is there already")
        return Training.model_validate_json((checkpoint / TRAINED).read_text())
    shutil.rmtree(checkpoint, ignore_errors=True)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    say(
        f"training: {rows.rollouts} rollouts, {len(rows.rows)} rows, {rows.tokens:,} tokens ({rows.trained_tokens:,} "
        f"learned) x {stage.recipe.epochs} epochs; left out: {as_words(rows.dropped)}"
    )
    try:
        done = train(stage, checkpoint, say)
    except asyncio.CancelledError:
        await asyncio.sleep(0)  # takes the cancellation that training saw, which would end the first wait of a clean-up
        raise
    flop = training_flop(rows.rows, shape_of(checkpoint, stage.recipe), stage.recipe.epochs)
    say(
        f"training: {done.seconds:.0f} s, {done.tokens_per_s:.0f} tokens/s, {flop:.2e} FLOP, "
        f"loss {done.loss_first:.3f} → {done.loss_last:.3f}, logits changed by up to {done.logit_shift:.2f}"
    )
    result = Training(**vars(done), flop=flop)
    _write(checkpoint / LEFT_OUT, as_lines(rows.left_out))
    _write(checkpoint / TRAINED, result.model_dump_json(indent=1))
    return result


def _write_card(checkpoint: Path, student_id: str, recipe: Recipe, renderer: Renderer, seed: int) -> None:
    card = student_card(student_id, recipe, renderer.sha256, seed)
    _write(checkpoint / CARD, card.model_dump_json(indent=1))


async def _measure(lab: Lab, harness_id: str, splits: Splits, recipe: Recipe, checkpoint: Path) -> None:
    """Teacher, student and untrained control on the test split, by the same rollout code; the student also crossed."""
    tasks = splits.test[: splits.measured]
    attempts = [Attempt(harness_id, task, "test") for task in tasks]
    where = f"under {harness_id[:12]}"
    await lab.score(attempts, label=f"teacher on test {where}")
    record_evaluation(lab, harness_id, "test", tasks)
    # Students wait for one batch of decoding together, so many of them run at once.
    many = LocalExecutor(recipe.concurrency)
    for who, model in (("student", lambda: open_student(checkpoint)), ("untrained", lambda: open_untrained(recipe))):
        async with _served(model) as student:
            await lab.score(attempts, model=student, role="student", label=f"{who} on test {where}", executor=many)
            for other, number in splits.crossed.items() if who == "student" else ():
                crossed = [Attempt(other, task, "test") for task in splits.test[:number]]
                label = f"{who} of {harness_id[:12]} on test under {other[:12]}"
                await lab.score(crossed, model=student, role="student", label=label, executor=many)
        record_evaluation(lab, harness_id, "test", tasks, model_id=student.id)


@asynccontextmanager
async def _served(make: Callable[[], StudentModel]) -> AsyncIterator[StudentModel]:
    student = make()
    try:
        yield student
    finally:
        student.close()


def _student_id(recipe: Recipe, seed: int, rows: Rows) -> str:
    return f"student-{_hash(recipe.base, recipe.sha256, str(seed), rows.sha256)[:12]}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)
