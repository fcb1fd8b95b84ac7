"""Supervised fine-tuning of a student on pre-tokenised rows, by TRL, made fast enough for two CPU cores."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evolver.errors import NotReady, UsageError
from training.attention import use_attention
from training.batches import Frame, collator_for, examples_of, summed_loss
from training.checkpoints import load_model
from training.pack import Packing, Packs, pack
from training.recipe import Recipe
from training.render import END, PAD, START
from training.rows import Row
from training.vision import PROCESSOR
from training.weights import adapter_of, freeze, logit_shift, save

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, TrainerCallback
    from trl import SFTConfig, SFTTrainer

LOG_EVERY_S = 10.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """Losses are nats per learned token, each over one optimizer step's rows; `logit_shift` is the largest change of
    a logit on the first row; `packing` None when rows were not packed."""

    loss_first: float
    loss_last: float
    steps: int
    seconds: float
    tokens_per_s: float
    logit_shift: float
    packing: Packing | None


def _no_frame(frame_id: str) -> bytes:
    raise UsageError(f"the rows show picture {frame_id[:12]}, and nothing says where pictures are")


@dataclass(frozen=True)
class Stage:
    """What is trained, on what: `base` is a checkpoint directory, `frame` gives the PNG of a frame id."""

    rows: Sequence[Row]
    recipe: Recipe
    seed: int
    base: Path
    frame: Frame = _no_frame

    @property
    def packs(self) -> Packs | None:
        return None if self.recipe.pack_tokens is None else pack(self.rows, self.recipe.pack_tokens)


def train(stage: Stage, out: Path, say: Say) -> Trained:
    """Fine-tunes the base on the rows and leaves weights, tokenizer and what pictures need in `out`.

    Killed half-way, the same call resumes from the last whole epoch. Raises UsageError when no token is under the loss
    or nothing was learned, NotReady when the recipe's device is not here.
    """
    rows, recipe = stage.rows, stage.recipe
    if not any(any(row.loss[1:]) for row in rows):
        raise UsageError("no token is under the loss: there is nothing to learn from these rows")
    _require_device(recipe)
    started = time.monotonic()
    work = out.with_name(f"{out.name}.partial")
    report = None if stage.packs is None else stage.packs.report
    if report is not None:
        say(f"training: {report}")
    trainer = trainer_for(stage, work)
    trainer.add_callback(_progress(say))
    first, checkpoint = max(_whole_checkpoints(work), default=(0, None))
    trainer.train(resume_from_checkpoint=checkpoint)
    seconds = time.monotonic() - started
    save(trainer.model, recipe, out)
    for name in ("tokenizer.json", PROCESSOR):
        if (stage.base / name).is_file():
            shutil.copy(stage.base / name, out / name)
    shift = logit_shift(stage.base, out, recipe, rows[0].ids)
    shutil.rmtree(work, ignore_errors=True)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    done = trainer.state.global_step
    tokens = recipe.epochs * sum(len(row.ids) for row in rows) * (done - first) / done  # those of this call
    return Trained(losses[0], losses[-1], done, seconds, tokens / seconds, shift, report)


def trainer_for(stage: Stage, work: Path) -> SFTTrainer:
    """TRL's trainer over the rows or their packs, ready to start."""
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback

    recipe = stage.recipe
    model = load_model(stage.base, "float32" if recipe.mixed else recipe.dtype)
    use_attention(model, recipe.attention)
    freeze(model, recipe)
    packs = [[row] for row in stage.rows] if stage.packs is None else stage.packs.packs
    trainer = _trainer_class()(
        model=model,
        args=arguments(recipe, stage.seed, work),
        train_dataset=Dataset.from_list(examples_of(packs)),
        processing_class=_tokenizer(stage.base),
        data_collator=collator_for(model, stage.base, stage.frame),
        peft_config=adapter_of(model, recipe),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _require_device(recipe: Recipe) -> None:
    if recipe.device == "cpu":
        return
    import torch

    if torch.cuda.device_count() != 1:
        raise NotReady(
            f"the recipe's device is cuda, and torch sees {torch.cuda.device_count()} GPUs; it takes one: install "
            "torch for CUDA, or choose one by CUDA_VISIBLE_DEVICES"
        )


def _whole_checkpoints(work: Path) -> list[tuple[int, str]]:
    """Step and path of those whose saving was not cut off: the trainer's state is written last."""
    found = [path.parent for path in work.glob("checkpoint-*/trainer_state.json")]
    return [(int(path.name.rpartition("-")[2]), str(path)) for path in found]


def _tokenizer(base: Path) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(base / "tokenizer.json"), bos_token=START, eos_token=END, pad_token=PAD
    )


def arguments(recipe: Recipe, seed: int, work: Path) -> SFTConfig:
    """What TRL is told of a recipe."""
    from trl import SFTConfig

    return SFTConfig(
        output_dir=str(work),
        seed=seed,
        data_seed=seed,
        use_cpu=recipe.device == "cpu",
        bf16=recipe.mixed,  # else the weights themselves are in the recipe's dtype: autocast would convert at every use
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=recipe.warmup,
        weight_decay=recipe.weight_decay,
        optim="adamw_torch_fused",
        max_grad_norm=1.0,
        per_device_train_batch_size=recipe.batch_rows // recipe.accumulate,
        gradient_accumulation_steps=recipe.accumulate,
        activation_checkpointing=recipe.checkpointing,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        save_strategy="epoch" if recipe.epochs > 1 else "no",
        save_total_limit=1,
    )


def _trainer_class() -> type[SFTTrainer]:  # TRL is loaded here, so its subclass lives here
    from trl import SFTTrainer

    class LabelledOnly(SFTTrainer):
        """TRL's own loss computes logits at every position where there is no GPU; those learned are enough."""

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            total, learned = summed_loss(model, inputs)
            # Divided by the tokens of the whole step, so that every token weighs the same whatever its micro-batch.
            return total / (learned if num_items_in_batch is None else num_items_in_batch)

        def create_model_card(self, model_name=None, dataset_name=None, tags=None):
            """The recipe and the records say what a checkpoint is."""

        def _send_telemetry(self):
            """Nothing leaves this machine."""

    return LabelledOnly


def _progress(say: Say) -> TrainerCallback:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        def __init__(self) -> None:
            self.started = self.told = time.monotonic()
            self.first = 0

        def on_train_begin(self, args, state, control, **kwargs):
            self.started, self.first = time.monotonic(), state.global_step

        def on_step_end(self, args, state, control, **kwargs):
            _leave_if_cancelled()

        def on_log(self, args, state, control, logs=None, **kwargs):
            now = time.monotonic()
            last = state.global_step >= state.max_steps
            if logs is None or "loss" not in logs or (now - self.told < LOG_EVERY_S and not last):
                return
            self.told = now
            each = (now - self.started) / max(1, state.global_step - self.first)
            left = each * (state.max_steps - state.global_step)
            say(f"training: step {state.global_step}/{state.max_steps}, loss {logs['loss']:.3f}, {left:.0f} s left")

    return Progress()


def _leave_if_cancelled() -> None:
    """Raises CancelledError when the task that trains was cancelled: training never gives way to its loop."""
    with suppress(RuntimeError):  # no loop: nobody cancels
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
