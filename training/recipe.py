"""What a student is made from and how: one YAML file, checked before anything runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from evolver.errors import UsageError
from training.render import RenderOptions

RECIPES = Path(__file__).parent / "recipes"
Count = Annotated[int, Field(ge=1)]
ADDED = ("equal", "pack_tokens", "lora", "train_vision", "device", "mixed", "attention", "checkpointing")


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StudentSampling(Strict):
    """How the student is sampled when it is served. `temperature` None takes the harness's; 0 is greedy."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    max_new_tokens: Count = 160


class Lora(Strict):
    """A low-rank adapter on every matrix of the layers that are not frozen (arXiv 2106.09685); it is merged at the end.

    What a matrix computes is changed by `alpha / rank` times the product of two matrices with `rank` columns and rows.
    """

    rank: Count = 16
    alpha: Annotated[float, Field(gt=0)] = 32.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Recipe(Strict):
    """`n_rollouts` are wanted; fewer are used when the train split ends first.

    `frozen_layers` counts from the bottom; with any frozen, the embeddings are frozen too. With `lora` only an adapter
    on the others is trained. `train_vision` trains the part of a vision-language base that sees.

    `batch_rows` is the rows of one optimizer step, in `accumulate` forward passes; with `pack_tokens` they are packs of
    at most so many tokens. `overlength` says what a row longer than `max_length` tokens does: stop the training, be
    dropped and counted, or end before the first turn that does not fit. `equal` says what two arms have alike:
    "accepted", `n_rollouts` successful rollouts each, or "budget", `n_rollouts` attempts each, whatever came of them.

    `dtype` is that of the weights in training and serving; with `mixed` they are trained in float32 and multiplied in
    bfloat16. `attention`: torch's own, row by row, or the package flash-attn. `checkpointing` keeps fewer activations
    and computes them again.
    """

    base: str = "smollm2-135m"
    n_rollouts: Count = 160
    equal: Literal["accepted", "budget"] = "accepted"
    epochs: Count = 2
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-4
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.05
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch_rows: Count = 8
    accumulate: Count = 1
    frozen_layers: Annotated[int, Field(ge=0)] = 0
    freeze_embeddings: bool = True
    max_length: Annotated[int, Field(ge=32)] = 1_024
    overlength: Literal["error", "drop", "fork"] = "error"
    window_tokens: Annotated[int, Field(ge=64)] = 4_096
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    pack_tokens: Annotated[int, Field(ge=32)] | None = None
    lora: Lora | None = None
    train_vision: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    mixed: bool = False
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"
    checkpointing: bool = False
    render: RenderOptions = RenderOptions()
    sampling: StudentSampling = StudentSampling()
    concurrency: Count = 16

    @model_validator(mode="after")
    def _settings_fit_each_other(self) -> Recipe:
        if self.batch_rows % self.accumulate:
            raise ValueError(f"batch_rows {self.batch_rows} must be a multiple of accumulate {self.accumulate}")
        if self.pack_tokens is not None and self.pack_tokens < self.max_length:
            raise ValueError(f"pack_tokens {self.pack_tokens} must hold a row of max_length {self.max_length}")
        if self.attention == "flash_attention_2" and (self.device, self.dtype) != ("cuda", "bfloat16"):
            raise ValueError("attention flash_attention_2 needs device cuda and dtype bfloat16")
        return self

    @property
    def sha256(self) -> str:
        """The hash of what is recorded."""
        return hashlib.sha256(self.model_dump_json(exclude=self._absent).encode()).hexdigest()

    @property
    def recorded(self) -> dict[str, JsonValue]:
        """All settings, as a Distillation has them; those of ADDED where they are set, so that older recipes stay the
        same."""
        return self.model_dump(mode="json", exclude=self._absent)

    @property
    def _absent(self) -> set[str]:
        return {name for name in ADDED if getattr(self, name) == type(self).model_fields[name].default}


def load_recipe(name: str) -> Recipe:
    """A recipe by name (`training/recipes/NAME.yaml`) or by the path of a YAML file."""
    import yaml

    path = RECIPES / f"{name}.yaml" if "/" not in name and not name.endswith(".yaml") else Path(name)
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        known = ", ".join(sorted(p.stem for p in RECIPES.glob("*.yaml")))
        raise UsageError(f"can't read recipe {name!r} ({error.strerror}); recipes: {known}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    try:
        return Recipe.model_validate(raw or {})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {where} = {first['input']!r}: {first['msg']}") from None


def facts(name: str) -> dict[str, int]:
    """What a plan asks of a recipe (evolver.gap_plan.RecipeFacts), by the entry point `evolver.recipes`."""
    recipe = load_recipe(name)
    return {"n_rollouts": recipe.n_rollouts, "epochs": recipe.epochs, "concurrency": recipe.concurrency}
