"""How hard a harness is to learn from: a student's loss on turns of the teacher that it never saw, and their length.

No student plays for it: the teacher's own rollouts on the test split, which a gap has anyway, are read. Nothing is
learned from them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from devset.task import Task
from evolver.channels import switches
from evolver.lab import Lab
from evolver.population import cards_of, final_cards
from evolver.records import Learnability, Rollout, Scorecard
from training.attention import use_attention
from training.batches import Frame, collator_for, examples_of, summed_loss
from training.checkpoints import base_checkpoint, load_model
from training.pack import pack
from training.recipe import Recipe
from training.rows import Rows, build_rows
from training.student import open_student, untrained_id

MOST_ROLLOUTS = 48  # the first successful ones, in the order of the tasks
BATCH_TOKENS = 4_096
Played = list[tuple[Rollout, Scorecard]]


def take_down(lab: Lab, harness_id: str, tasks: Sequence[Task], recipe: Recipe, checkpoint: Path) -> None:
    """Records how hard the harness was to learn from for the student at `checkpoint`, once; `tasks` are held out."""
    student, base = open_student(checkpoint), untrained_id(recipe)
    played = _played(lab, harness_id, tasks)
    instructions = {task.id: task.instruction for task in tasks}
    window = recipe.model_copy(update={"max_length": recipe.window_tokens, "overlength": "fork"})
    rows = build_rows(lab.harness(harness_id), instructions, played, student.renderer, window)
    name = _name(harness_id, student.id, rows.sha256)
    known = lab.store.all(Learnability)
    if any(one.id == name for one in known):
        return
    before = [one.loss_before for one in known if (one.base_model, one.rows_sha256) == (base, rows.sha256)]
    lab.record(
        Learnability(
            id=name,
            harness_id=harness_id,
            teacher_model=lab.model.id,
            base_model=base,
            student_model=student.id,
            seed=student.card.seed or 0,
            rollouts=rows.rollouts,
            turns=sum(len(row.turns) for row in rows.rows),
            tokens=rows.trained_tokens,
            switches=sum(switches(rollout.turns) for rollout, _ in played),
            loss_before=before[0] if before else loss(base_checkpoint(recipe.base), rows, recipe, lab.store.blob),
            loss_after=loss(checkpoint, rows, recipe, lab.store.blob),
            rows_sha256=rows.sha256,
            at=time.time(),
        )
    )


def _played(lab: Lab, harness_id: str, tasks: Sequence[Task]) -> Played:
    """The teacher's first successful rollouts on these tasks, in their order."""
    cards = final_cards(cards_of(lab.store.all(Scorecard), harness_id, "test", lab.model.id))
    solved = {card.key.task_id: card for card in cards if card.success is True}
    rollouts = {rollout.id: rollout for rollout in lab.store.all(Rollout)}
    chosen = [solved[task.id] for task in tasks if task.id in solved][:MOST_ROLLOUTS]
    return [(rollouts[card.rollout_id], card) for card in chosen]


def loss(checkpoint: Path, rows: Rows, recipe: Recipe, frame: Frame) -> float | None:
    """Mean loss of a checkpoint in nats per learned token of the rows; None where there is none."""
    import torch

    if not rows.trained_tokens:
        return None
    model = load_model(checkpoint, recipe.dtype).to(recipe.device).eval()
    use_attention(model, recipe.attention)
    collate = collator_for(model, checkpoint, frame)
    total, count = 0.0, 0
    size = max(BATCH_TOKENS, *(len(row.ids) for row in rows.rows))
    for example in examples_of(pack(rows.rows, size).packs):
        batch = collate([example])
        batch = {name: on.to(recipe.device) if isinstance(on, torch.Tensor) else on for name, on in batch.items()}
        with torch.inference_mode():
            summed, learned = summed_loss(model, batch)
        total, count = total + float(summed), count + learned
    return total / count


def _name(*parts: str) -> str:
    return f"learn-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"
