"""Stages: named steps of a lineage with a tag each, and a change of the teacher as a step that nothing is compared
across."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.authors.human import propose
from evolver.compare import Arms, compare
from evolver.config import DistilConfig, HumanAuthor, OpenAISpec, RaceConfig, RunConfig, TaskLimitsConfig
from evolver.errors import UsageError
from evolver.lab import Lab
from evolver.leaks import Leaks
from evolver.loop import run
from evolver.protocols import Request
from evolver.race import dev_cards
from evolver.records import Candidate, Decision, Rollout, Scorecard, Stage
from evolver.stages import enter_stage
from evolver.store import Store
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path
from tests.evolver.cards import Coin, coin_lab, split_tasks
from tests.evolver.test_loop import shell_helps
from tests.evolver.test_selfcheck import no_student

ALPHA, BETA1 = read_tree(seed_path("alpha")).id, read_tree(seed_path("beta1")).id


def teacher(name: str) -> OpenAISpec:
    return OpenAISpec(kind="openai", model=name, base_url="http://127.0.0.1:1")


def config(model: str = "small", authors: tuple[str, ...] = ("beta1",)) -> RunConfig:
    return RunConfig(
        root="alpha",
        teacher=teacher(model),
        allow_unpriced=True,
        tasks=TaskLimitsConfig(dev=12, select=10),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2),
        authors=tuple(HumanAuthor(kind="human", harness=h, why="w") for h in authors),
        distil=DistilConfig(max_promotions=0),
    )


class Small(Coin):
    id = "small"


class Large(Coin):
    id = "large"


async def promoted(path: Path) -> Lab:
    """A run in which beta1 has replaced alpha."""
    lab = coin_lab(path, config(), Small(shell_helps))
    await run(lab, tasks=split_tasks, distil=no_student)
    assert [d.verdict for d in lab.store.all(Decision)] == ["promote"]
    return lab


async def test_stages_name_steps_of_the_lineage_and_tag_them(tmp_path: Path) -> None:
    lab = await promoted(tmp_path / "run")
    first = enter_stage(lab.store, lab.library, "alpha", "clicks alone", harness="alpha")
    second = enter_stage(lab.store, lab.library, "beta", "a shell beside the screen")
    assert (first.kind, first.harness_id, first.before_harness) == ("harness", ALPHA, "")
    assert (second.kind, second.harness_id, second.before_harness) == ("harness", BETA1, ALPHA)
    assert enter_stage(lab.store, lab.library, "beta", "again") == second
    assert lab.store.all(Stage) == [first, second]
    tags = Library(lab.store.path / "library").tags()
    assert (tags["stage-alpha"], tags["stage-beta"]) == (ALPHA, BETA1)


async def test_a_step_is_in_the_lineage_and_changes_one_thing(tmp_path: Path) -> None:
    lab = await promoted(tmp_path / "run")
    lab.library.add_seed("beta2")
    for wrong, words in (("beta2", "not in the lineage"), ("beta9", "unknown harness")):
        with pytest.raises(UsageError, match=words):
            enter_stage(lab.store, lab.library, "gamma", "w", harness=wrong)
    enter_stage(lab.store, lab.library, "alpha", "w", harness="alpha")
    with pytest.raises(UsageError, match="changes harness and teacher at once"):
        enter_stage(lab.store, lab.library, "beta", "w", harness="beta1", teacher="large")
    with pytest.raises(UsageError, match="changes neither the harness nor the teacher"):
        enter_stage(lab.store, lab.library, "beta", "w", harness="alpha")
    with pytest.raises(UsageError, match="choose another name"):
        enter_stage(lab.store, lab.library, "alpha", "w", harness="beta1")
    with pytest.raises(UsageError, match="needs a reason"):
        enter_stage(lab.store, lab.library, "beta", " ")
    assert len(lab.store.all(Stage)) == 1


async def test_another_teacher_is_a_stage_that_the_config_follows_and_nothing_is_compared_across(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    lab = await promoted(path)
    with pytest.raises(UsageError, match=r"teacher.model: 'small' → 'large'.*evolver stage .* NAME --teacher MODEL"):
        Store.create(path, config("large"))
    stage = enter_stage(lab.store, lab.library, "gamma", "a larger teacher", teacher="large")
    assert (stage.kind, stage.harness_id, stage.before_teacher, stage.teacher) == ("teacher", BETA1, "", "large")
    with pytest.raises(UsageError, match="stage 'gamma' is played by teacher 'large', the config has 'small'"):
        await run(coin_lab(path, config(), Small(shell_helps)), tasks=split_tasks, distil=no_student)

    def a11y_helps(request: Request) -> tuple[float, int]:
        return (0.95 if any(tool.name == "a11y_tree" for tool in request.tools) else 0.3, 500)

    with pytest.raises(UsageError, match="authors"):
        Store.create(path, config("large", authors=("beta1", "beta2")))
    after = coin_lab(path, config("large"), Large(a11y_helps))
    propose(after.store, after.library, "beta1", seed_path("beta2"), "the tree of elements", Leaks([]))
    await run(after, tasks=split_tasks, distil=no_student)
    decision = after.store.all(Decision)[-1]
    assert (decision.verdict, decision.incumbent_harness, decision.teacher) == ("promote", BETA1, "large")
    fresh = [r for r in after.store.all(Rollout) if r.key.model_id == "large"]
    assert {r.key.attempt for r in fresh if r.key.harness_id == BETA1 and r.key.purpose == "race"} >= {0, 1}
    keys = [r.key for r in after.store.all(Rollout)]
    assert len(set(keys)) == len(keys)
    old = [c for c in after.store.all(Scorecard) if c.key.model_id == "small" and c.key.harness_id == ALPHA]
    with pytest.raises(UsageError, match="played by different models"):
        compare(Arms(dev_cards(after, BETA1), old, 12, 1), after.config.race, 0.05, 0)
    assert len(after.store.all(Candidate)) == 3
