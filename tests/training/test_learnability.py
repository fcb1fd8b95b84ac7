"""How hard a harness is to learn from: losses on held-out turns, taken down once, with nobody playing for it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from evolver.records import Distillation, Learnability, Rollout, Scorecard
from tests.training.test_distil import lab, root, splits, teacher
from training.distil import distil
from training.learnability import loss
from training.recipe import Recipe
from training.render import Renderer
from training.rows import Row, Rows

pytestmark = pytest.mark.train


@pytest.fixture
def small(recipe: Recipe) -> Recipe:
    return recipe.model_copy(update={"n_rollouts": 3, "epochs": 3})


def a_row(ids: list[int], learned: int) -> Row:
    return Row(tuple(ids), tuple(i >= len(ids) - learned for i in range(len(ids))), "r", (0,))


def test_a_loss_is_a_mean_over_learned_tokens_whatever_the_batch(
    tiny: Path, recipe: Recipe, renderer: Renderer
) -> None:
    text = renderer.tokenizer.encode("List the files on the Desktop, please, and then rename them all.").ids
    rows = [a_row(text[:n], 3) for n in (5, 9, 12)]
    each = [loss(tiny, Rows((row,)), recipe, {}.__getitem__) for row in rows]
    together = loss(tiny, Rows(tuple(rows)), recipe, {}.__getitem__)
    assert together is not None and all(one is not None for one in each)
    assert together == pytest.approx(sum(one or 0 for one in each) / 3, rel=1e-4)
    assert together == pytest.approx(math.log(49_152), rel=0.2)  # a random model knows nothing
    assert loss(tiny, Rows(()), recipe, {}.__getitem__) is None


async def test_figures_of_the_student_are_taken_down_once_and_cost_no_rollout(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    harness = root(here)
    made = await distil(here, harness, splits(), small, 0, print)
    [one] = here.store.all(Learnability)
    assert (one.harness_id, one.student_model, one.rollouts, one.turns) == (harness, made.student_model, 2, 4)
    assert one.loss_before is not None and one.loss_after is not None and one.loss_after < one.loss_before
    assert one.tokens > 0 and one.switches == 0
    rollouts = len(here.store.all(Rollout))
    await distil(here, harness, splits(), small, 0, print)
    assert here.store.all(Learnability) == [one] and len(here.store.all(Rollout)) == rollouts


async def test_a_student_plays_under_another_harness_when_asked(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    harness = root(here)
    from harnesses.tree import read_tree, seed_path, tree_files

    other = here.library.add(
        tree_files(read_tree(seed_path("beta2"))), name="beta2", parents=(), message="m", branch="c"
    )
    crossed = splits().model_copy(update={"crossed": {other: 1}})
    made = await distil(here, harness, crossed, small, 0, print)
    keys = [c.key for c in here.store.all(Scorecard) if c.key.model_id == made.student_model]
    played = sorted((key.harness_id, key.task_id) for key in keys)
    assert played == sorted([(harness, "test-0"), (harness, "test-1"), (other, "test-0")])
    assert [d.teacher_harness for d in here.store.all(Distillation)] == [harness]
