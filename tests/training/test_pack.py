"""Packing: every row once and whole, little waste, and no row sees another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.errors import UsageError
from training.attention import use_attention
from training.checkpoints import load_model
from training.cost import Shape, shape_of, training_flop
from training.pack import PACK_TOKENS, pack
from training.recipe import Recipe
from training.rows import Row
from training.sft import Stage, trainer_for

pytestmark = pytest.mark.train
torch = pytest.importorskip("torch")


def row(length: int, name: int = 0, first: int = 5) -> Row:
    ids = tuple((first + 7 * name + 3 * i) % 40_000 for i in range(length))
    return Row(ids=ids, loss=tuple(i % 3 != 0 for i in range(length)), rollout_id=f"r-{name}", turns=(0,))


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 100), max_size=60))
def test_every_row_is_in_one_pack_once_and_whole(lengths: list[int]) -> None:
    rows = [row(length, name) for name, length in enumerate(lengths)]
    found = pack(rows, 100)
    assert sorted(r.rollout_id for p in found.packs for r in p) == sorted(r.rollout_id for r in rows)
    assert all(sum(len(r.ids) for r in p) <= 100 for p in found.packs)
    assert found.waste == 100 * len(found.packs) - sum(lengths) >= 0
    assert len(found.packs) <= 11 / 9 * -(-sum(lengths) // 100) + 1 or sum(lengths) > 50 * len(found.packs)


def test_best_fit_puts_a_row_where_it_leaves_least() -> None:
    found = pack([row(6), row(5), row(4), row(3), row(2)], 10)
    assert [[len(r.ids) for r in p] for p in found.packs] == [[6, 4], [5, 3, 2]]
    assert (found.density, found.waste) == (1.0, 0) and pack([], 10).density == 1.0


def test_rows_of_agents_fill_packs_to_999_in_1000() -> None:
    lengths = [200 + (7919 * n) % 3_800 for n in range(3_000)]
    found = pack([row(length, n) for n, length in enumerate(lengths)])
    assert found.size == PACK_TOKENS == 32_768 and found.density > 0.995, found.density
    assert len(found.packs) == -(-sum(lengths) // PACK_TOKENS)  # no packing has fewer
    *full, _ = sorted((sum(len(r.ids) for r in p) for p in found.packs), reverse=True)
    assert sum(full) / (len(full) * PACK_TOKENS) >= 0.999  # only the last one is left half empty


def test_a_row_longer_than_a_pack_stops() -> None:
    with pytest.raises(UsageError, match="r-3 has a row of 11 tokens, more than a pack of 10"):
        pack([row(11, 3)], 10)


def test_t09_a_packed_row_has_the_logits_and_the_loss_of_the_row_alone(
    tiny: Path, recipe: Recipe, tmp_path: Path
) -> None:
    """Through the trainer's own batches and model: each row of a pack as if nothing else were there."""
    rows = [row(n, name, first) for name, (n, first) in enumerate([(40, 5), (17, 900), (1, 3), (33, 5)])]
    packed = recipe.model_copy(update={"batch_rows": 1, "pack_tokens": 91})
    trainer = trainer_for(Stage(rows, packed, 0, tiny), tmp_path)
    (batch,) = trainer.get_train_dataloader()
    model = trainer.model.eval()
    alone = load_model(tiny, "float32").eval()
    ordered = sorted(rows, key=lambda r: -len(r.ids))
    labels = batch.pop("labels")[0]
    with torch.inference_mode():
        together = model(**batch).logits[0]
        contaminated = alone(input_ids=batch["input_ids"]).logits[0]
        start = 0
        for one in ordered:
            end = start + len(one.ids)
            assert batch["input_ids"][0, start:end].tolist() == list(one.ids)
            assert batch["position_ids"][0, start:end].tolist() == list(range(len(one.ids)))
            assert labels[start] == -100 and labels[start + 1 : end].tolist() == one.labels[1:]
            assert torch.allclose(together[start:end], alone(torch.tensor([one.ids])).logits[0], rtol=0, atol=1e-5)
            start = end
    assert not torch.allclose(together[40:], contaminated[40:], rtol=0, atol=1e-3)  # what the boundaries are for


def test_t09_boundaries_hold_for_each_way_to_attend(tiny: Path) -> None:
    """transformers' own mask of packed sequences, which flash-attn is tested against, says the same as row by row."""
    lengths, model = [5, 1, 9], load_model(tiny, "float32").eval()
    ids = torch.arange(10, 25)[None]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    bounds = torch.tensor([0, 5, 6, 15], dtype=torch.int32)
    with torch.inference_mode():
        masked = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        use_attention(model, "sdpa")
        by_row = model(input_ids=ids, position_ids=positions, cu_seq_lens_q=bounds).logits
    assert torch.allclose(masked, by_row, rtol=0, atol=1e-5)


def test_the_cost_of_a_stage_follows_tokens_epochs_and_what_is_frozen(tiny: Path) -> None:
    shape = Shape(layers=30, hidden=576, body=106_203_456, head=28_311_552)
    rows = [row(500, n) for n in range(10)]
    once = training_flop(rows, shape, 1)
    assert training_flop(rows, shape, 2) == 2 * once
    assert 0.6 < once / (6 * 134_515_008 * 5_000) < 1.1
    half = training_flop(rows, replace(shape, frozen_layers=15), 1)
    assert 0.6 < half / once < 0.75
    adapted = training_flop(rows, replace(shape, adapter=2_000_000), 1)
    assert 0.65 < adapted / once < 0.8 and adapted > training_flop(rows, replace(shape, adapter=0), 1)
    assert once < training_flop(rows, replace(shape, train_head=True), 1) < 1.1 * once
    seen = training_flop(rows, replace(shape, vision=1_000, picture_id=rows[0].ids[0]), 1) - once
    assert seen == 2.0 * 1_000 * 4 * sum(r.ids.count(rows[0].ids[0]) for r in rows) > 0
    weights = sum(p.numel() for p in load_model(tiny, "float32").parameters())
    read = shape_of(tiny, Recipe(frozen_layers=1))
    assert read == Shape(2, 48, weights - 49_152 * 48, 49_152 * 48, frozen_layers=1)
