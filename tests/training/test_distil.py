"""One student from rollouts to record: measured beside its control, and never made twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from devset.task import Task
from evolver.commands.stopping import finished
from evolver.config import RunConfig
from evolver.errors import UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.protocols import Ran
from evolver.records import Distillation, Evaluation, LedgerEntry, Rollout, Scorecard
from evolver.store import Store
from evolver.testing import FakeGrader, FakeSandbox, FakeSandboxes, ScriptedModel, reply
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path, tree_files
from tests.evolver.children import stopped
from tests.evolver.test_cli import called
from tests.evolver.test_rollout import DONE, LIST, SCREEN, task
from tests.evolver.test_rounds_play import played, worker
from training.distil import Splits, distil
from training.recipe import Recipe, StudentSampling
from training.student import open_student

pytestmark = pytest.mark.train


def lab(path: Path, teacher: ScriptedModel, success: float = 1.0) -> Lab:
    """A lab whose machines are fakes and whose student is the tiny random model."""
    store = Store.create(path, RunConfig(allow_unpriced=True))
    machines = FakeSandboxes(lambda: FakeSandbox({"ls": Ran(0, "a.txt")}, SCREEN))
    return Lab(store, Library(path / "library"), machines, [FakeGrader({"done": success})], teacher, LocalExecutor(1))


def teacher() -> ScriptedModel:
    return ScriptedModel([LIST, DONE] * 40, model_id="teacher")


def root(lab: Lab) -> str:
    return lab.library.add(tree_files(read_tree(seed_path("beta1"))), name="beta1", parents=(), message="m", branch="b")


def splits(train: int = 6, test: int = 2) -> Splits:
    def some(split: str, n: int) -> tuple[Task, ...]:
        return tuple(
            task(id=f"{split}-{i}", hash=f"{split}{i}", split=split, instruction=f"List the {split} files, number {i}.")
            for i in range(n)
        )

    return Splits(train=some("train", train), test=some("test", test))


@pytest.fixture
def small(recipe: Recipe) -> Recipe:
    return recipe.model_copy(update={"n_rollouts": 3, "epochs": 1})


async def test_a_student_is_made_measured_with_its_control_and_recorded(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    harness = root(here)
    said: list[str] = []
    made = await distil(here, harness, splits(), small, 7, said.append)
    assert here.store.all(Distillation) == [made]
    assert made.rows == 3 and made.trained_tokens > 0 and made.seed == 7
    trained_on = {r.key.task_id for r in here.store.all(Rollout) if r.key.purpose == "train"}
    assert trained_on == {"train-0", "train-1", "train-2"}  # no more than wanted, and no test task
    played = {(c.key.model_id, c.key.task_id) for c in here.store.all(Scorecard) if c.key.purpose == "test"}
    models = {"teacher", made.student_model, made.base_model}
    assert played == {(model, name) for model in models for name in ("test-0", "test-1")}
    assert {e.model_id for e in here.store.all(Evaluation)} == models
    assert made.student_model.startswith("student-")
    assert made.base_model.startswith("student-tiny-random-llama@untrained-")
    billed = {e.role for e in here.store.all(LedgerEntry) if e.model_id in (made.student_model, made.base_model)}
    assert billed == {"student"}
    assert open_student(tmp_path / made.checkpoint).renderer.sha256 == made.template_sha256
    assert any("loss" in line for line in said)


async def test_the_same_call_again_repeats_nothing(tmp_path: Path, small: Recipe) -> None:
    first = lab(tmp_path, teacher())
    harness = root(first)
    made = await distil(first, harness, splits(), small, 0, print)
    rollouts, weights = first.store.all(Rollout), tmp_path / made.checkpoint / "model.safetensors"
    before = weights.stat().st_mtime_ns
    silent = teacher()
    again = lab(tmp_path, silent)
    assert await distil(again, harness, splits(), small, 0, print) == made
    assert again.store.all(Rollout) == rollouts and not silent.requests
    assert again.store.all(Distillation) == [made] and weights.stat().st_mtime_ns == before


async def test_a_measurement_that_was_cut_off_goes_on_without_training(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    harness = root(here)
    unmeasured = Splits(train=splits().train, test=())
    first = await distil(lab(tmp_path, teacher()), harness, unmeasured, small, 0, print)
    said: list[str] = []
    made = await distil(here, harness, splits(), small, 0, said.append)
    assert made == first and said == [f"training: {made.student_model} is there already"]
    assert {c.key.model_id for c in here.store.all(Scorecard) if c.key.purpose == "test"} == {
        "teacher", made.student_model, made.base_model,
    }  # fmt: skip


async def test_another_seed_or_recipe_is_another_student_with_the_same_control(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    harness = root(here)
    made = [
        await distil(here, harness, splits(), recipe, seed, print)
        for recipe, seed in ((small, 0), (small, 1), (small.model_copy(update={"learning_rate": 1e-3}), 0))
    ]
    assert len({m.student_model for m in made}) == len({m.id for m in made}) == 3
    assert len({m.base_model for m in made}) == 1 and len({m.data_sha256 for m in made}) == 1


async def test_a_recipe_that_shows_or_samples_otherwise_has_a_control_of_its_own(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    harness = root(here)
    short = small.model_copy(update={"sampling": StudentSampling(max_new_tokens=8)})
    made = [await distil(here, harness, splits(), recipe, 0, print) for recipe in (small, short)]
    assert len({m.base_model for m in made}) == 2
    played = [c.key.model_id for c in here.store.all(Scorecard) if c.key.purpose == "test"]
    assert [played.count(m.base_model) for m in made] == [2, 2]


def test_s01_a_distillation_works_on_no_run_that_another_than_its_parent_works_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = lab(tmp_path / "run", teacher())
    words = ("distil", str(here.store.path), "nobody")
    with here.store.working():
        code, _, err = called(capsys, *words)
        assert code == 2 and f"is being worked on by process {os.getpid()}: wait for it or stop it" in err
        child = (sys.executable, "-m", "evolver", *words)  # as an experiment starts it, which holds the lock
        found = subprocess.run(child, capture_output=True, text=True)
        assert found.returncode == 2 and "nobody" in found.stderr and "worked on" not in found.stderr
    code, _, err = called(capsys, *words)
    assert code == 2 and "nobody" in err


async def test_nothing_is_learned_of_test_tasks_that_the_run_does_not_play(tmp_path: Path, small: Recipe) -> None:
    here, tasks = lab(tmp_path, teacher()), splits()
    tasks = tasks.model_copy(update={"sealed": frozenset({tasks.train[0].instruction})})
    made = await distil(here, root(here), tasks, small.model_copy(update={"equal": "budget"}), 0, print)
    assert made.rows == 2 and made.dropped == {"leak": 1}


def test_a_training_that_is_terminated_leaves_at_the_next_step(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    harness, said, closed = root(here), [], []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("training:") and len(said) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    async def work() -> None:
        try:
            await distil(here, harness, splits(), small.model_copy(update={"epochs": 50}), 0, say)
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    with pytest.raises(typer.Exit) as end:
        finished(work())
    assert end.value.exit_code == 143 and closed and len(said) == 1
    assert here.store.all(Distillation) == []


@pytest.mark.slow
def test_a_distillation_that_is_terminated_stops_cleanly(tmp_path: Path) -> None:
    run = tmp_path / "run"
    store = Store.create(run, RunConfig.model_validate({"tasks": {"train": 8, "test": 1, "families": ["csv.*"]}}))
    (tmp_path / "tiny.yaml").write_text("base: tiny-random-llama\nwindow_tokens: 1024\n")
    words = ("distil", str(run), "beta1", "--recipe", str(tmp_path / "tiny.yaml"))
    code, err = stopped(words, lambda: bool(store.all(Rollout)))
    assert code == 143 and "Resume: evolver distil" in err and "Traceback" not in err
    played, paid = store.all(Rollout), {entry.rollout_id for entry in store.all(LedgerEntry)}
    assert len(played) < 8 and {rollout.id for rollout in played} == paid


async def test_a_budget_counts_attempts_and_what_is_left_out_is_listed(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    tasks = splits()
    leak = tasks.train[0].model_copy(update={"instruction": tasks.test[0].instruction})
    tasks = Splits(train=(leak, *tasks.train[1:]), test=tasks.test, measured=1)
    made = await distil(here, root(here), tasks, small.model_copy(update={"equal": "budget"}), 0, print)
    assert made.rows == 2 and made.dropped == {"leak": 1}
    left_out = (tmp_path / made.checkpoint / "left_out.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in left_out] == ["leak"]
    assert '"flop":' in (tmp_path / made.checkpoint / "trained.json").read_text()
    played = {c.key.task_id for c in here.store.all(Scorecard) if c.key.purpose == "test"}
    assert played == {tasks.test[0].id}


async def test_without_a_successful_rollout_there_is_no_student(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, ScriptedModel([reply("I give up.", ("bash", {"command": "ls"})), DONE] * 40), success=0.0)
    with pytest.raises(UsageError, match="no row to train on"):
        await distil(here, root(here), splits(train=2), small, 0, print)
    assert here.store.all(Distillation) == []


async def test_a_window_that_the_base_lacks_is_refused_before_the_teacher_plays(tmp_path: Path, small: Recipe) -> None:
    here = lab(tmp_path, teacher())
    with pytest.raises(UsageError, match="set the recipe's window_tokens"):
        await distil(here, root(here), splits(), small.model_copy(update={"window_tokens": 4_096}), 0, print)
    assert here.store.all(Rollout) == []


def test_of_a_round_its_accepted_rollouts_teach_and_none_is_played_for_it(tmp_path: Path, small: Recipe) -> None:
    made = worker(tmp_path, values={"t-1": 0.0})
    harness, place = made.bench.harness.id, tmp_path / "round"
    played(tmp_path, lambda: worker(tmp_path, values={"t-1": 0.0})).close()
    machines = FakeSandboxes(lambda: FakeSandbox({"ls": Ran(0, "a.txt")}, SCREEN))
    priced = ScriptedModel([LIST, DONE] * 4, model_id="demonstrator")
    parts = (machines, [FakeGrader({"done": 1.0})], priced, LocalExecutor(1))
    here = Lab(Store.open(place), Library(place / "library"), *parts)
    asked = Splits(train=(), test=splits().test[:1])
    found = asyncio.run(distil(here, harness, asked, small, 0, print))
    assert (found.rows, found.trained_tokens > 0, found.dropped) == (2, True, {})
    assert {rollout.key.purpose for rollout in here.store.all(Rollout)} == {"test"}
    assert (place / found.checkpoint / "trained.json").is_file()
    with pytest.raises(UsageError, match="equal: budget"):
        asyncio.run(distil(here, harness, asked, small.model_copy(update={"equal": "budget"}), 0, print))
