"""Packing: every row once and whole, little waste, and no row sees another."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.errors import UsageError
from training.checkpoints import load_model
from training.cost import Shape, shape_of, training_flop
from training.pack import PACK_TOKENS, pack, packed_batch
from training.rows import Row

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


def test_t09_a_packed_row_has_the_logits_and_the_loss_of_the_row_alone(tiny: Path) -> None:
    rows = [row(n, name, first) for name, (n, first) in enumerate([(40, 5), (17, 900), (1, 3), (33, 5)])]
    model = load_model(tiny, "float32").eval()
    batch = packed_batch(rows)
    with torch.inference_mode():
        packed = model(
            input_ids=batch.input_ids, position_ids=batch.position_ids, attention_mask=batch.attention_mask
        ).logits[0]
        contaminated = model(input_ids=batch.input_ids).logits[0]
        start = 0
        for one in rows:
            alone = model(torch.tensor([one.ids])).logits[0]
            assert torch.allclose(packed[start : start + len(one.ids)], alone, rtol=0, atol=1e-5)
            assert batch.labels[0, start] == -100
            assert batch.labels[0, start + 1 : start + len(one.ids)].tolist() == one.labels[1:]
            start += len(one.ids)
    assert not torch.allclose(packed[40:], contaminated[40:], rtol=0, atol=1e-3)  # what the mask is for


def test_the_cost_of_a_stage_follows_tokens_epochs_and_what_is_frozen(tiny: Path) -> None:
    shape = Shape(layers=30, hidden=576, parameters=134_515_008, vocabulary=49_152)
    rows = [row(500, n) for n in range(10)]
    once = training_flop(rows, shape, 1)
    assert training_flop(rows, shape, 2) == 2 * once
    assert 0.6 < once / (6 * 134_515_008 * 5_000) < 1.1
    half = training_flop(rows, Shape(30, 576, 134_515_008, 49_152, frozen_layers=15), 1)
    assert 0.6 < half / once < 0.75
    read = shape_of(tiny, frozen_layers=1)
    assert read == Shape(2, 48, sum(p.numel() for p in load_model(tiny, "float32").parameters()), 49_152, 1)
