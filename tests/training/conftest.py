"""The tiny random model, once per session, and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from training.checkpoints import base_checkpoint
from training.recipe import Recipe, StudentSampling
from training.render import Renderer, RenderOptions, load_tokenizer
from training.student import StudentModel, open_untrained

torch = pytest.importorskip("torch", reason="not installed: torch (extra 'train')")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tiny matrices gain nothing from more, and lose much when others want the cores too."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> Path:
    return base_checkpoint("tiny-random-llama")


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return Recipe(
        base="tiny-random-llama", dtype="float32", render=RenderOptions(system="brief"), batch_rows=4, epochs=2,
        learning_rate=1e-2, warmup=0.0, window_tokens=1_024, sampling=StudentSampling(max_new_tokens=24), concurrency=4,
    )  # fmt: skip


@pytest.fixture(scope="session")
def renderer(tiny: Path, recipe: Recipe) -> Renderer:
    return Renderer(load_tokenizer(tiny), recipe.render)


@pytest.fixture
def student(recipe: Recipe) -> Iterator[StudentModel]:
    model = open_untrained(recipe)
    yield model
    model.close()
