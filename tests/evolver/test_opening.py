"""The sealed split: what may open it, what has to ask, and that every opening is on record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from devset.splits import load_split
from devset.task import SPLITS
from evolver.audit import Opening
from evolver.config import GapConfig, RunConfig, TaskLimitsConfig
from evolver.errors import UsageError
from evolver.loop import run
from evolver.opening import LOG, open_split, record_opening
from evolver.records import Decision, Rollout
from evolver.store import Store
from evolver.turns import evidence_of
from tests.evolver.cards import Coin, coin_lab, split_tasks
from tests.evolver.rollouts import a_rollout
from tests.evolver.test_cli import called
from tests.evolver.test_loop import Students, shell_helps
from tests.evolver.test_loop import config as experiment

TEST_TASK, TESTED = load_split("test", 1, unsealed=True)[0], len(load_split("test", unsealed=True))


def openings(store: Store) -> list[tuple[str, str, bool]]:
    return [(opening.split, opening.why, opening.flagged) for opening in store.all(Opening)]


def test_a_gap_and_a_distillation_open_test_and_it_is_on_record(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    assert open_split(store, "dev", 2, "gap") == load_split("dev", 2)
    assert openings(store) == [], "dev is not sealed"
    assert open_split(store, "test", 1, "gap") == [TEST_TASK]
    open_split(store, "test", None, "distil")
    assert openings(store) == [("test", "gap", False), ("test", "distil", False)]
    first = store.all(Opening)[0]
    assert first.command.startswith("evolver") and first.who and first.at > 0
    with pytest.raises(UsageError, match="needs a reason"):
        record_opening(store, "test", "  ", flagged=True)


def test_a_config_may_keep_to_some_families(tmp_path: Path) -> None:
    config = RunConfig(tasks=TaskLimitsConfig(families=("files.*", "text.sort")))
    store = Store.create(tmp_path / "run", config)
    found = {task.family for task in open_split(store, "dev", None, "race")}
    assert "text.sort" in found and len(found) > 5
    assert all(family == "text.sort" or family.startswith("files.") for family in found)
    assert len(open_split(store, "dev", 3, "race")) == 3, "the limit counts those that are left"
    nothing = Store.create(tmp_path / "none", RunConfig(tasks=TaskLimitsConfig(families=("file.*",))))
    with pytest.raises(UsageError, match=r"no task of dev is of file\.\*; known: .*files\.rename"):
        open_split(nothing, "dev", None, "race")


async def test_a_run_opens_test_for_its_gaps_alone(tmp_path: Path) -> None:
    asked: list[str] = []

    class Noted(Coin):
        """Notes the run's openings at every call."""

        async def complete(self, request):  # type: ignore[no-untyped-def]
            asked.append(f"{len(lab.store.all(Opening))}")
            return await super().complete(request)

    limits = {"dev": 2, "select": 2, "test": 2}
    lab = coin_lab(tmp_path / "run", experiment(tasks=limits, authors=()), Noted(shell_helps))
    await run(lab, distil=Students(lab))
    assert openings(lab.store) == [] and set(asked) == {"0"}
    pairs = GapConfig(pairs=(("alpha", "beta1"),))
    lab = coin_lab(tmp_path / "gap", experiment(tasks=limits, authors=(), gap=pairs), Noted(shell_helps))
    await run(lab, distil=Students(lab))
    assert openings(lab.store) == [("test", "gap", False)]


async def test_evidence_for_authors_names_no_task_of_select_or_test(tmp_path: Path) -> None:
    settings = experiment(gap=GapConfig(pairs=(("alpha", "beta1"),)))
    lab = coin_lab(tmp_path / "run", settings, Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    played = {(r.key.split, r.key.task_id) for r in lab.store.all(Rollout)}
    assert {split for split, _ in played} == {"dev", "select", "test"} and lab.store.all(Decision)
    evidence = evidence_of(lab)
    told = evidence.summary + "".join(path + data.decode() for path, data in evidence.files.items())
    ids = {rollout.id for rollout in lab.store.all(Rollout) if rollout.key.split != "dev"}
    for split in ("select", "test"):
        secret = [task for task in split_tasks(split) if (split, task.id) in played]
        assert secret and not any(task.id in told for task in secret)
    assert not any(one in told for one in ids), "nor an attempt at one, through which it could be read"


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path) -> object:
    """A working directory of its own: what is opened without a run is recorded below it."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def test_tasks_of_test_are_listed_and_shown_only_when_it_is_opened(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = called(capsys, "tasks", "list", "--split", "test", "--limit", "1")
    assert (code, out) == (2, "") and "sealed" in err and "--open-test WHY" in err
    code, out, err = called(capsys, "tasks", "show", TEST_TASK.id)
    assert (code, out) == (2, "") and "sealed" in err
    assert not (elsewhere / "runs").exists(), "a refusal opens nothing"
    code, out, err = called(capsys, "tasks", "list", "--limit", "1", "--json")
    assert code == 0 and {row["split"] for row in json.loads(out)["tasks"]} == set(SPLITS) - {"test"}
    assert "without test, which is sealed" in err
    code, out, _ = called(capsys, "tasks", "list", "--split", "test", "--limit", "1", "--json", "--open-test", "a look")
    assert code == 0 and json.loads(out)["tasks"][0]["id"] == TEST_TASK.id
    kept = Opening.model_validate_json((elsewhere / "runs" / LOG).read_text())
    assert (kept.split, kept.why, kept.flagged) == ("test", "a look", True)


def test_an_opening_is_recorded_in_the_run_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    words = ("tasks", "show", TEST_TASK.id, "--open-test", "a look", "--run", str(store.path), "--json")
    assert called(capsys, *words)[0] == 0
    assert openings(store) == [("test", "a look", True)]


def test_a_run_shows_attempts_on_test_only_after_it_was_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    seen, sealed = a_rollout(), a_rollout()
    seen = seen.model_copy(update={"id": "r-seen", "key": seen.key.model_copy(update={"split": "dev"})})
    sealed = sealed.model_copy(
        update={"id": "r-sealed", "key": sealed.key.model_copy(update={"split": "test", "purpose": "test"})}
    )
    store.append(seen)
    store.append(sealed)
    run_dir = str(store.path)
    open_split(store, "test", 1, "gap")  # what a gap opens is not open to look at
    code, out, err = called(capsys, "rollout", "list", run_dir, "--json")
    assert code == 0 and [row["id"] for row in json.loads(out)["rollouts"]] == ["r-seen"]
    assert "without 1 attempts on test" in err
    code, out, err = called(capsys, "show", "r-sealed", "--run", run_dir)
    assert (code, out) == (2, "") and f"evolver rollout list {run_dir} --open-test WHY" in err
    code, out, _ = called(capsys, "rollout", "list", run_dir, "--json", "--open-test", "what failed?")
    assert code == 0 and len(json.loads(out)["rollouts"]) == 2
    assert called(capsys, "show", "r-sealed", "--run", run_dir)[0] == 0
    assert openings(store)[1:] == [("test", "what failed?", True)]


def test_overlap_prints_pairs_with_similarity_and_exits_1_when_there_are_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = tmp_path / "goals.jsonl"
    planted.write_text(json.dumps({"id": "planted", "instruction": TEST_TASK.instruction.upper()}))
    code, out, err = called(capsys, "tasks", "overlap", "test", str(planted), "--json")
    found = json.loads(out)
    assert code == 1 and [(p["a"], p["b"], p["files"], p["exact"]) for p in found["pairs"]] == [
        (TEST_TASK.id, "planted", None, False)
    ]
    assert found["pairs"][0]["similarity"] == 1.0 and (found["a"]["tasks"], found["b"]["tasks"]) == (TESTED, 1)
    assert f"1 pairs of {TESTED:,} x 1 tasks are alike by 0.7 or more" in err
    assert TEST_TASK.instruction not in out + err, "what is compared is not shown"
    code, out, err = called(capsys, "tasks", "overlap", "train", str(planted))
    assert (code, out) == (0, "") and f"0 pairs of {len(load_split('train')):,} x 1" in err
    assert called(capsys, "tasks", "overlap", "train", str(planted), "--threshold", "0.05")[0] == 1
    code, _, err = called(capsys, "tasks", "overlap", "trane", "test")
    assert code == 2 and "trane: is neither a split" in err and "splits are train, dev, select, test" in err
