"""Supervised fine-tuning of a student on pre-tokenised rows, by TRL, made fast enough for two CPU cores."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evolver.errors import UsageError
from training.checkpoints import load_model
from training.recipe import Recipe
from training.render import END, PAD, START
from training.rows import Row

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import SFTConfig

LOG_EVERY_S = 10.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """Losses are nats per learned token, each over one optimizer step's rows."""

    loss_first: float
    loss_last: float
    steps: int
    seconds: float
    tokens_per_s: float


def train(rows: Sequence[Row], recipe: Recipe, seed: int, base: Path, out: Path, say: Say) -> Trained:
    """Fine-tunes `base` on the rows and leaves weights and tokenizer in `out`.

    Killed half-way, the same call resumes from the last whole epoch. UsageError when no token is under the loss.
    """
    if not any(any(row.loss[1:]) for row in rows):
        raise UsageError("no token is under the loss: there is nothing to learn from these rows")
    from transformers.trainer_callback import PrinterCallback

    work = out.with_name(f"{out.name}.partial")
    started = time.monotonic()
    model = _frozen(load_model(base, recipe.dtype), recipe)
    trainer_class, progress = _classes(say)
    trainer = trainer_class(
        model=model,
        args=_arguments(recipe, seed, work),
        train_dataset=_dataset(rows),
        processing_class=_tokenizer(base),
        callbacks=[progress],
    )
    trainer.remove_callback(PrinterCallback)
    checkpoints = sorted(_whole_checkpoints(work), key=lambda p: int(p.name.rpartition("-")[2]))
    trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    seconds = time.monotonic() - started
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    shutil.copy(base / "tokenizer.json", out / "tokenizer.json")
    shutil.rmtree(work, ignore_errors=True)
    done = trainer.state.global_step
    tokens = recipe.epochs * sum(len(row.ids) for row in rows) * (done - progress.first) / done  # those of this call
    return Trained(losses[0], losses[-1], done, seconds, tokens / seconds)


def _whole_checkpoints(work: Path) -> list[Path]:
    """Those whose saving was not cut off: the trainer's state is written after weights and optimizer."""
    return [path.parent for path in work.glob("checkpoint-*/trainer_state.json")]


def _frozen(model: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Freezes the lower layers; below the lowest trained weight nothing is kept for a backward pass."""
    layers = model.model.layers
    if recipe.frozen_layers >= len(layers):
        raise UsageError(f"frozen_layers = {recipe.frozen_layers}, but {recipe.base} has {len(layers)} layers")
    if recipe.frozen_layers or recipe.freeze_embeddings:
        model.get_input_embeddings().requires_grad_(False)
        model.get_output_embeddings().requires_grad_(False)
    for layer in layers[: recipe.frozen_layers]:
        layer.requires_grad_(False)
    return model


def _dataset(rows: Sequence[Row]) -> Dataset:
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "input_ids": [list(row.ids) for row in rows],
            "labels": [row.labels for row in rows],
            "length": [len(row.ids) for row in rows],
        }
    )


def _tokenizer(base: Path) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(base / "tokenizer.json"), bos_token=START, eos_token=END, pad_token=PAD
    )


def _arguments(recipe: Recipe, seed: int, work: Path) -> SFTConfig:
    from trl import SFTConfig

    return SFTConfig(
        output_dir=str(work),
        seed=seed,
        data_seed=seed,
        use_cpu=True,
        bf16=False,  # the weights themselves are in the recipe's dtype; autocast would convert at every use
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=recipe.warmup,
        weight_decay=recipe.weight_decay,
        optim="adamw_torch_fused",
        max_grad_norm=1.0,
        per_device_train_batch_size=recipe.batch_rows // recipe.accumulate,
        gradient_accumulation_steps=recipe.accumulate,
        activation_checkpointing=False,
        train_sampling_strategy="group_by_length",
        length_column_name="length",
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        save_strategy="epoch" if recipe.epochs > 1 else "no",
        save_total_limit=1,
    )


def _classes(say: Say):  # TRL and transformers are loaded here, so their subclasses live here
    """The trainer class and the progress callback."""
    import torch.nn.functional as F
    from transformers import TrainerCallback
    from trl import SFTTrainer

    class LabelledOnly(SFTTrainer):
        """On a CPU, TRL computes logits (49,152 a token) at every position; only those under the loss are needed."""

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            hidden = model.model(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
            ).last_hidden_state[:, :-1]
            targets = inputs["labels"][:, 1:]
            learned = targets != -100
            logits = model.get_output_embeddings()(hidden[learned]).float()
            total = F.cross_entropy(logits, targets[learned], reduction="sum")
            # Divided by the tokens of the whole step, so that every token weighs the same whatever its micro-batch.
            return total / (learned.sum() if num_items_in_batch is None else num_items_in_batch)

        def create_model_card(self, model_name=None, dataset_name=None, tags=None):
            """The recipe and the records say what a checkpoint is."""

        def _send_telemetry(self):
            """Nothing leaves this machine."""

    class Progress(TrainerCallback):
        def __init__(self) -> None:
            self.started = self.told = time.monotonic()
            self.first = 0

        def on_train_begin(self, args, state, control, **kwargs):
            self.started, self.first = time.monotonic(), state.global_step

        def on_log(self, args, state, control, logs=None, **kwargs):
            now = time.monotonic()
            last = state.global_step >= state.max_steps
            if logs is None or "loss" not in logs or (now - self.told < LOG_EVERY_S and not last):
                return
            self.told = now
            each = (now - self.started) / max(1, state.global_step - self.first)
            left = each * (state.max_steps - state.global_step)
            say(f"training: step {state.global_step}/{state.max_steps}, loss {logs['loss']:.3f}, {left:.0f} s left")

    return LabelledOnly, Progress()
