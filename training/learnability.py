"""How hard a harness is to learn from: a student's loss on turns of the teacher that it never saw, and their length.

No student plays for it: the teacher's own rollouts on the test split, which a gap has anyway, are read. Nothing is
learned from them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from devset.task import Task
from evolver.channels import switches
from evolver.lab import Lab
from evolver.population import cards_of, final_cards
from evolver.records import Learnability, Rollout, Scorecard
from training.checkpoints import base_checkpoint, load_model
from training.recipe import Recipe
from training.rows import Row, Rows, build_rows
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
            loss_before=before[0] if before else loss(base_checkpoint(recipe.base), rows, recipe),
            loss_after=loss(checkpoint, rows, recipe),
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


def loss(checkpoint: Path, rows: Rows, recipe: Recipe) -> float | None:
    """Mean loss of a checkpoint in nats per learned token of the rows; None where there is none."""
    import torch
    import torch.nn.functional as F

    if not rows.trained_tokens:
        return None
    model = load_model(checkpoint, recipe.dtype).to(recipe.device).eval()
    total, count = 0.0, 0
    for batch in _batches(rows.rows):
        width = len(batch[-1].ids)
        ids = torch.tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in batch], device=recipe.device)
        labels = torch.tensor([row.labels + [-100] * (width - len(row.ids)) for row in batch], device=recipe.device)
        with torch.inference_mode():  # causal: what is padded on the right changes nothing before it
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
            learned = labels[:, 1:] != -100
            logits = model.get_output_embeddings()(hidden[learned]).float()
            total += float(F.cross_entropy(logits, labels[:, 1:][learned], reduction="sum"))
            count += int(learned.sum())
    return total / count


def _batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows of like length together, shortest first, of at most `BATCH_TOKENS` with their padding."""
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if batch and len(row.ids) * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _name(*parts: str) -> str:
    return f"learn-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"
