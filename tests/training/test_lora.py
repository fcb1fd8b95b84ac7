"""An adapter: it is trained, resumed and merged, and what is served is what was trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.errors import UsageError
from tests.training.test_sft import Killed, fit, same, weights
from training.checkpoints import load_model
from training.cost import shape_of, training_flop
from training.recipe import Lora, Recipe
from training.rows import Row
from training.sft import Stage, train

pytestmark = pytest.mark.train
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    made = []
    for name in range(8):
        ids = tuple(5 + (3 * name + 7 * i) % 90 for i in range(24 + 5 * name))
        made.append(Row(ids=ids, loss=tuple(i > 10 for i in range(len(ids))), rollout_id=f"r-{name}", turns=(0,)))
    return made


@pytest.fixture(scope="module")
def small(recipe: Recipe) -> Recipe:
    return recipe.model_copy(update={"lora": Lora(rank=4, alpha=8.0, dropout=0.2), "learning_rate": 3e-2})


def test_t20_the_merged_adapter_is_what_was_trained_and_what_is_served(
    rows: list[Row], small: Recipe, tiny: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    from training.decoder import Decoder

    made = fit(rows, small, tiny, tmp_path / "a", frozen_layers=1)
    assert made.logit_shift > 1e-3 and made.loss_last < made.loss_first
    before, after = weights(tiny), weights(tmp_path / "a")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.startswith("model.layers.1.") and name.endswith("proj.weight")}
    adapted = PeftModel.from_pretrained(load_model(tiny, "float32"), tmp_path / "a" / "adapter").eval()
    ids = list(rows[-1].ids)
    with torch.inference_mode():
        wanted = adapted(torch.tensor([ids])).logits[0, -1]
        base = load_model(tiny, "float32").eval()(torch.tensor([ids])).logits[0, -1]
    _, served = Decoder(tmp_path / "a", dtype="float32", slots=1, max_length=100).begin(ids)
    assert torch.allclose(served, wanted, rtol=0, atol=1e-5) and not torch.allclose(served, base, rtol=0, atol=1e-3)
    shape = shape_of(tmp_path / "a", small.model_copy(update={"frozen_layers": 1}))
    assert shape.adapter == sum(
        weight.numel() for name, weight in adapted.named_parameters() if "lora_" in name
    ) and training_flop(rows, shape, 1) < training_flop(rows, shape_of(tiny, Recipe(frozen_layers=1)), 1)


def test_t20_an_adapter_that_changes_nothing_stops(rows: list[Row], small: Recipe, tiny: Path, tmp_path: Path) -> None:
    """One step, all of it warm-up: its learning rate is 0, so the base itself would be served as the student."""
    with pytest.raises(UsageError, match="compute what the base computes"):
        fit(rows[:4], small, tiny, tmp_path / "a", epochs=1, warmup=0.5)


def test_t25_a_killed_adapter_ends_as_if_it_had_not_been(
    rows: list[Row], small: Recipe, tiny: Path, tmp_path: Path
) -> None:
    """Optimizer, order of the packs and dropout go on where they were."""
    packed = small.model_copy(update={"pack_tokens": 100, "max_length": 64, "batch_rows": 1})
    stage = Stage(rows, packed, 3, tiny)

    def die_late(line: str) -> None:
        if line.startswith("training: step"):  # the first that is told is the last of the last epoch
            raise Killed(line)

    whole = train(stage, tmp_path / "whole", print)
    with pytest.raises(Killed):
        train(stage, tmp_path / "cut", die_late)
    (kept,) = (tmp_path / "cut.partial").glob("checkpoint-*")
    assert (kept / "adapter_model.safetensors").is_file() and not (kept / "model.safetensors").exists()
    resumed = train(stage, tmp_path / "cut", print)
    assert (resumed.loss_first, resumed.loss_last) == (whole.loss_first, whole.loss_last)
    assert same(tmp_path / "whole", tmp_path / "cut")
    assert whole.packing is not None and whole.packing.density > 0.8
