"""A student of annotated rollouts: it learns reasoning beside the teacher's own actions, and rows say whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.config import OpenAISpec, RunConfig
from evolver.errors import UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.records import Annotation, LedgerEntry, Rollout
from evolver.store import Store
from evolver.testing import FakeGrader, FakeSandbox, FakeSandboxes
from harnesses.library import Library
from tests.evolver.endpoint_server import chat, serving
from tests.evolver.test_rollout import SCREEN
from tests.training.test_distil import root, splits, teacher
from training.distil import distil
from training.recipe import Recipe

pytestmark = pytest.mark.train

THOUGHT = "I should look at the folder before I say that it is done."
KEY = "THINKER_KEY_OF_TESTS"


def annotated_lab(path: Path, url: str) -> Lab:
    spec = OpenAISpec(kind="openai", model="thinker", base_url=url, api_key_env=KEY, concurrency=1)
    plain = RunConfig(allow_unpriced=True)
    distil = plain.distil.model_copy(update={"annotator": spec})
    store = Store.create(path, plain.model_copy(update={"distil": distil}))
    machines = FakeSandboxes(lambda: FakeSandbox(screen=SCREEN))
    return Lab(store, Library(path / "library"), machines, [FakeGrader({"done": 1.0})], teacher(), LocalExecutor(1))


@pytest.fixture
def thinking(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv(KEY, "none")
    render = recipe.render.model_copy(update={"reasoning": "keep"})
    return recipe.model_copy(update={"n_rollouts": 2, "epochs": 2, "render": render})


async def test_reasoning_is_learned_and_its_author_is_on_record(tmp_path: Path, thinking: Recipe) -> None:
    good, bad = chat({"content": f'{{"reasoning": "{THOUGHT}"}}'}), chat({"content": "Because."})
    with serving(good, bad, good) as endpoint:
        here = annotated_lab(tmp_path, endpoint.url)
        said: list[str] = []
        made = await distil(here, root(here), splits(test=1), thinking, 0, said.append)
        asked = len(endpoint.requests)
        await distil(here, root(here), splits(test=1), thinking, 0, said.append)
        assert len(endpoint.requests) == asked == 4  # two rollouts of two turns, each once
    assert made.annotated_turns == 3 and made.annotator is not None and made.annotator.startswith("thinker:")
    assert any("unusable, left without: 1" in line for line in said)
    assert [a.reasoning for a in here.store.all(Annotation)] == [THOUGHT, None, THOUGHT, THOUGHT]
    assert all(not turn.completion.reasoning for r in here.store.all(Rollout) for turn in r.turns)
    billed = [entry for entry in here.store.all(LedgerEntry) if entry.role == "annotator"]
    assert len(billed) == 4 and {(e.input_tokens, e.output_tokens) for e in billed} == {(11, 7)}


async def test_a_recipe_that_drops_reasoning_is_refused_before_a_token_is_paid_for(
    tmp_path: Path, thinking: Recipe
) -> None:
    dropping = thinking.model_copy(update={"render": thinking.render.model_copy(update={"reasoning": "drop"})})
    with serving(chat({"content": "{}"})) as endpoint:
        here = annotated_lab(tmp_path, endpoint.url)
        with pytest.raises(UsageError, match=r"render\.reasoning to keep"):
            await distil(here, root(here), splits(test=1), dropping, 0, print)
        assert endpoint.requests == []
