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


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StudentSampling(Strict):
    """How the student is sampled when it is served. `temperature` None takes the harness's; 0 is greedy."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    max_new_tokens: Count = 160


class Recipe(Strict):
    """`n_rollouts` are wanted; fewer are used when the train split ends first.

    `frozen_layers` counts from the bottom; with any frozen, the embeddings are frozen too. `batch_rows` is
    the rows of one optimizer step, in `accumulate` forward passes. `overlength` says what a
    row longer than `max_length` tokens does: stop the training, be dropped and counted, or end before the first turn
    that does not fit. `equal` says what two arms have alike: "accepted", `n_rollouts` successful rollouts each, or
    "budget", `n_rollouts` attempts each, whatever came of them.
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
    render: RenderOptions = RenderOptions()
    sampling: StudentSampling = StudentSampling()
    concurrency: Count = 16

    @model_validator(mode="after")
    def _batch_splits_evenly(self) -> Recipe:
        if self.batch_rows % self.accumulate:
            raise ValueError(f"batch_rows {self.batch_rows} must be a multiple of accumulate {self.accumulate}")
        return self

    @property
    def sha256(self) -> str:
        """The hash of what is recorded."""
        return hashlib.sha256(self.model_dump_json(exclude=self._absent).encode()).hexdigest()

    @property
    def recorded(self) -> dict[str, JsonValue]:
        """All settings, as a Distillation has them; `equal` where it is set, so that older recipes stay the same."""
        return self.model_dump(mode="json", exclude=self._absent)

    @property
    def _absent(self) -> set[str]:
        return {"equal"} if self.equal == "accepted" else set()


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
