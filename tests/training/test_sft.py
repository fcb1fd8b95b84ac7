"""Fine-tuning: the loss is where it should be, weighs tokens alike, and a killed training ends the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from evolver.errors import NotReady, UsageError
from tests.training.conversations import END, Said, rollout
from tests.training.test_rows import rows_of
from training.checkpoints import base_checkpoint, load_model
from training.recipe import Recipe
from training.render import Renderer
from training.rows import Row
from training.sft import Stage, arguments, train

pytestmark = pytest.mark.train
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def rows(renderer: Renderer, recipe: Recipe) -> list[Row]:
    made = [rollout([Said(text=f"Way {n}.", command="ls " * (1 + n % 3)), END], name=f"r-{n}") for n in range(8)]
    return list(rows_of(made, renderer, recipe).rows)


def weights(checkpoint: Path) -> dict[str, object]:
    return dict(load_model(checkpoint, "float32").named_parameters())


def fit(rows: list[Row], recipe: Recipe, tiny: Path, out: Path, **changes: object):
    return train(Stage(rows, recipe.model_copy(update=changes), 0, tiny), out, print)


def same(a: Path, b: Path, atol: float = 0.0) -> bool:
    one, other = weights(a), weights(b)
    return all(torch.allclose(one[name], other[name], rtol=0, atol=atol) for name in one)


def test_it_learns_the_rows_and_the_same_seed_gives_the_same_student(
    rows: list[Row], recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    first = fit(rows, recipe, tiny, tmp_path / "a", epochs=3, freeze_embeddings=False)
    again = fit(rows, recipe, tiny, tmp_path / "b", epochs=3, freeze_embeddings=False)
    assert first.loss_last < 0.9 * first.loss_first
    assert (first.loss_first, first.loss_last) == (again.loss_first, again.loss_last)
    assert same(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "a.partial").exists()


def test_t01_tokens_outside_the_loss_are_not_learned(
    rows: list[Row], recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    """Only positions under the loss enter it: computed by hand from the base model."""
    model = load_model(tiny, "float32").eval()
    total, count = 0.0, 0
    with torch.inference_mode():
        for row in rows[:4]:
            logits = model(torch.tensor([row.ids])).logits[0, :-1]
            labels = torch.tensor(row.labels)[1:]
            total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100).item()
            count += int((labels != -100).sum())
    trained = fit(rows[:4], recipe, tiny, tmp_path / "a", epochs=1)
    assert trained.loss_first == pytest.approx(total / count, abs=2e-3)


def test_t02_nothing_under_the_loss_stops(rows: list[Row], recipe: Recipe, tiny: Path, tmp_path: Path) -> None:
    masked = [dataclasses.replace(row, loss=(False,) * len(row.loss)) for row in rows]
    with pytest.raises(UsageError, match="no token is under the loss"):
        fit(masked, recipe, tiny, tmp_path / "a")


def test_t21_micro_batches_and_packs_change_nothing(
    rows: list[Row], recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    """Rows of unequal length and unequal loss: one batch, four alone, or two packs are one and the same step."""
    uneven = [dataclasses.replace(rows[0], loss=(False,) * (len(rows[0].loss) - 1) + (True,)), *rows[1:4]]
    once = {"epochs": 1, "learning_rate": 1e-3}
    fit(uneven, recipe, tiny, tmp_path / "one", **once)
    fit(uneven, recipe, tiny, tmp_path / "four", accumulate=4, **once)
    size = max(len(row.ids) for row in uneven[:2]) + max(len(row.ids) for row in uneven[2:])
    packed = fit(uneven, recipe, tiny, tmp_path / "packed", pack_tokens=size, batch_rows=2, accumulate=2, **once)
    assert packed.packing is not None and packed.packing.packs == 2 and packed.steps == 1
    assert packed.packing.tokens == sum(len(row.ids) for row in uneven) == 2 * size - packed.packing.waste
    for other in ("four", "packed"):
        assert same(tmp_path / "one", tmp_path / other, atol=1e-4) and not same(tmp_path / "one", tiny, atol=9e-4)


def test_frozen_parts_stay_as_they_were(rows: list[Row], recipe: Recipe, tiny: Path, tmp_path: Path) -> None:
    fit(rows, recipe, tiny, tmp_path / "a", frozen_layers=1)
    before, after = weights(tiny), weights(tmp_path / "a")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.startswith(("model.layers.1.", "model.norm")) for name in changed)
    with pytest.raises(UsageError, match="frozen_layers = 2, but tiny-random-llama has 2 layers"):
        fit(rows, recipe, tiny, tmp_path / "b", frozen_layers=2)


def test_mixed_precision_and_checkpointing_compute_nearly_the_same(
    rows: list[Row], recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    """What a GPU server sets, on a CPU: float32 weights, bfloat16 products, activations that are computed again."""
    plain = fit(rows, recipe, tiny, tmp_path / "plain", epochs=1)
    again = fit(rows, recipe, tiny, tmp_path / "again", epochs=1, checkpointing=True)
    assert again.loss_last == pytest.approx(plain.loss_last, abs=1e-5)
    mixed = fit(rows, recipe, tiny, tmp_path / "mixed", epochs=1, mixed=True, checkpointing=True)
    assert mixed.loss_last == pytest.approx(plain.loss_last, abs=0.05)
    assert not same(tmp_path / "mixed", tmp_path / "plain") and same(tmp_path / "mixed", tmp_path / "plain", atol=0.03)


def test_a_gpu_server_s_recipe_reaches_the_trainer(tmp_path: Path) -> None:
    server = Recipe(
        device="cuda", attention="flash_attention_2", checkpointing=True, mixed=True, pack_tokens=32_768, batch_rows=8,
        accumulate=4,
    )  # fmt: skip
    given = arguments(Recipe(), 7, tmp_path)  # the same but for its device, which this machine may lack
    assert (given.use_cpu, given.bf16, given.activation_checkpointing, given.seed, given.data_seed) == (
        True, False, False, 7, 7,
    )  # fmt: skip
    given = arguments(server.model_copy(update={"device": "cpu"}), 7, tmp_path)
    assert (
        given.bf16 and given.activation_checkpointing and given.max_length is None and given.optim.startswith("adamw")
    )
    assert (given.per_device_train_batch_size, given.gradient_accumulation_steps) == (2, 4)
    if torch.cuda.device_count() != 1:
        with pytest.raises(NotReady, match="device is cuda, and torch sees"):
            train(Stage([Row((1, 2), (False, True), "r", (0,))], server, 0, tmp_path), tmp_path / "a", print)


class Killed(BaseException):
    """Stands for the process's end."""


def test_t25_a_killed_training_ends_as_if_it_had_not_been(
    rows: list[Row], recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    whole = fit(rows, recipe, tiny, tmp_path / "whole", epochs=3)

    def die_late(line: str) -> None:
        if "step 5/6" in line or "step 6/6" in line:
            raise Killed(line)

    with pytest.raises(Killed):
        train(Stage(rows, recipe.model_copy(update={"epochs": 3}), 0, tiny), tmp_path / "cut", die_late)
    assert not (tmp_path / "cut").exists() and (tmp_path / "cut.partial" / "checkpoint-4").is_dir()
    (tmp_path / "cut.partial" / "checkpoint-5").mkdir()  # as one that was being saved
    resumed = fit(rows, recipe, tiny, tmp_path / "cut", epochs=3)
    assert (resumed.loss_first, resumed.loss_last) == (whole.loss_first, whole.loss_last)
    assert same(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_t27_the_base_is_saved_unpacked(renderer: Renderer) -> None:
    checkpoint = base_checkpoint("smollm2-135m")
    assert "quantization" not in (checkpoint / "config.json").read_text()
    model = load_model(checkpoint, "bfloat16")
    assert all(weight.dtype == torch.bfloat16 for weight in model.parameters())
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    ids = renderer.tokenizer.encode("The capital of France is", add_special_tokens=False).ids
    with torch.inference_mode():
        best = int(model.eval()(torch.tensor([ids])).logits[0, -1].argmax())
    assert renderer.decode([best]) == " Paris"
