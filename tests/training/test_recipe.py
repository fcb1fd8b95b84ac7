"""Recipes and base models: what is wrong is named before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.errors import UsageError
from training.recipe import RECIPES, Lora, Recipe, load_recipe

pytest.importorskip("yaml", reason="not installed: pyyaml (extra 'train')")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda p: p.stem)
def test_the_shipped_recipes_load_by_name(path: Path) -> None:
    assert load_recipe(path.stem) == load_recipe(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 2", "epoch = 2"),
        ("epochs: 0", "epochs = 0"),
        ("render: {system: short}", "render.system = 'short'"),
        ("batch_rows: 8\naccumulate: 3", "must be a multiple of accumulate"),
        ("epochs: [", "is not YAML"),
        ("learning_rate: .nan", "learning_rate = nan"),
        ("max_length: 400\npack_tokens: 200", "pack_tokens 200 must hold a row of max_length 400"),
        ("lora: {rank: 0}", "lora.rank = 0"),
        ("attention: flash_attention_2", "needs device cuda and dtype bfloat16"),
    ],
)
def test_a_wrong_recipe_names_file_field_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_recipe(str(path))
    assert message in str(caught.value) and "mine.yaml" in str(caught.value)


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"can't read recipe 'nope'.*recipes: .*demo"):
        load_recipe("nope")


def test_every_field_makes_another_recipe() -> None:
    plain = Recipe()
    changed = [plain.model_copy(update=u) for u in ({"epochs": 3}, {"frozen_layers": 1}, {"learning_rate": 1e-4})]
    assert len({r.sha256 for r in (plain, *changed)}) == 4


def test_an_unknown_base_is_named(tmp_path: Path) -> None:
    from training.checkpoints import base_checkpoint

    with pytest.raises(UsageError, match="expected smollm2-135m or a directory"):
        base_checkpoint(str(tmp_path / "nothing"))


def test_a_setting_that_was_added_leaves_older_recipes_the_same() -> None:
    plain, budget = Recipe(), Recipe(equal="budget")
    assert "equal" not in plain.recorded and budget.recorded == plain.recorded | {"equal": "budget"}
    assert Recipe.model_validate(plain.recorded) == plain and budget.sha256 != plain.sha256
    packed, adapted = Recipe(pack_tokens=2_048), Recipe(lora=Lora())
    assert Recipe.model_validate(adapted.recorded) == adapted
    assert len({recipe.sha256 for recipe in (plain, packed, adapted, Recipe(lora=Lora(rank=8)))}) == 4
