"""The decoder computes what transformers computes, whatever shares its cache."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.errors import UsageError
from training.checkpoints import load_model

pytestmark = pytest.mark.train
torch = pytest.importorskip("torch")
IDS = st.lists(st.integers(3, 400), min_size=1, max_size=40)
COMMON = [7 + i for i in range(20)]


def decoder(checkpoint: Path, slots: int = 3):
    from training.decoder import Decoder

    return Decoder(checkpoint, dtype="float32", slots=slots, max_length=600)


@functools.cache
def model_of(checkpoint: Path):
    return load_model(checkpoint, "float32").eval()


def reference(checkpoint: Path, ids: list[int]):
    with torch.inference_mode():
        return model_of(checkpoint)(torch.tensor([ids])).logits[0, -1]


@settings(deadline=None, max_examples=10)
@given(prompts=st.lists(IDS, min_size=1, max_size=6), shared=st.booleans())
def test_prompts_that_share_slots_get_the_logits_of_transformers(
    tiny: Path, prompts: list[list[int]], shared: bool
) -> None:
    own = decoder(tiny, slots=2)
    for prompt in prompts:
        ids = COMMON + prompt if shared else prompt
        slot, logits = own.begin(ids)
        assert torch.allclose(logits, reference(tiny, ids), atol=1e-4)
        (after,) = own.step([slot], [5])
        assert torch.allclose(after, reference(tiny, [*ids, 5]), atol=1e-4)
        own.end(slot)


def test_slots_of_different_lengths_advance_together_and_grow(tiny: Path) -> None:
    own = decoder(tiny)
    texts = [COMMON, COMMON + [9] * 505, [4]]  # the second one outgrows the first capacity of 512
    slots = [own.begin(list(ids))[0] for ids in texts]
    for token in range(3, 6):
        logits = own.step(slots, [token] * 3)
        texts = [[*ids, token] for ids in texts]
        for row, ids in zip(logits, texts, strict=True):
            assert torch.allclose(row, reference(tiny, ids), atol=1e-4)
    own.end(slots[1])
    logits = own.step([slots[0], slots[2]], [8, 8])
    assert torch.allclose(logits[1], reference(tiny, [*texts[2], 8]), atol=1e-4)


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3"])
def test_other_architectures_with_biases_and_norms(tmp_path: Path, kind: str) -> None:
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=600,
    )  # fmt: skip
    torch.manual_seed(1)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "_norm" in name:
            torch.nn.init.normal_(weight)
    model.save_pretrained(tmp_path)
    _, logits = decoder(tmp_path).begin([5, 6, 7])
    assert torch.allclose(logits, reference(tmp_path, [5, 6, 7]), atol=1e-4)


def test_an_unknown_architecture_is_refused(tiny: Path, tmp_path: Path) -> None:
    import transformers

    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=50)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    shutil.copy(tiny / "tokenizer.json", tmp_path)
    with pytest.raises(UsageError, match="must be one of llama"):
        decoder(tmp_path)


def test_a_window_beyond_the_positions_is_refused(tiny: Path) -> None:
    from training.decoder import Decoder

    assert Decoder(tiny, dtype="float32", slots=1, max_length=2_048).max_length == 2_048
    with pytest.raises(UsageError, match=r"2048 positions.*window_tokens to at most 2048"):
        Decoder(tiny, dtype="float32", slots=1, max_length=2_049)
