"""The quality of checkers: what is tried, what is counted, and that real sandboxes tell wrong from right."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devset.families import binding_of, families
from devset.task import Task, task_hash
from evolver.admission import Bench, admit
from evolver.commands.admission import opened_bench
from evolver.executors.local import LocalExecutor
from evolver.models.demonstrator import Demonstrator
from evolver.quality import Kind, Trial, measure, quality_of, tries_of
from evolver.testing import FakeSandbox, FakeSandboxes
from harnesses.tree import read_tree, seed_path
from tests.evolver.test_admission import StateGrader
from tests.evolver.test_cli import called


def fake_bench(value: float | None, sandboxes: FakeSandboxes | None = None) -> Bench:
    return Bench(
        sandboxes=sandboxes or FakeSandboxes(FakeSandbox),
        graders=(StateGrader(lambda state, asked: value),),
        executor=LocalExecutor(2),
        demonstrator=Demonstrator(),
        gui=read_tree(seed_path("alpha")),
        terminal=read_tree(seed_path("beta1")),
    )


def trial(kind: Kind, success: bool | None, *, task: str = "t-0", category: str = "os", name: str = "x") -> Trial:
    return Trial.model_validate(
        {
            "task_id": task, "task_hash": "h", "family": "f", "category": category, "kind": kind, "name": name,
            "script_sha256": "s", "success": success, "why": "", "seconds": 1.0,
        }
    )  # fmt: skip


def test_every_kind_of_try_is_made() -> None:
    made = families()["files.move"].instance(0)
    binding = binding_of(made)
    assert binding is not None
    tries = {kind: [t.name for t in tries_of(made) if t.kind == kind] for kind in ("mutant", "equivalent", "generic")}
    assert tries["mutant"] == list(binding.mutants) and tries["equivalent"] == list(binding.equivalents)
    assert tries["generic"] == ["misplaced", "touched", "stale", "half done"]
    refused = [t.kind for t in tries_of(families()["infeasible.missing-file"].instance(0))]
    assert "generic" not in refused, "where nothing is to be written there is nothing to write in a wrong place"


def test_shares_are_counted_per_category_and_in_all() -> None:
    trials = [
        trial("mutant", False), trial("mutant", True), trial("generic", False), trial("equivalent", True),
        trial("blind", False), trial("blind", True, task="t-1"), trial("blind", None, task="t-2"),
        trial("mutant", False, task="t-3", category="daily"),
    ]  # fmt: skip
    daily, system, every = quality_of(trials)
    assert (daily.category, system.category, every.category) == ("daily", "os", "all")
    assert (every.killed.point, every.killed.n, every.own.n, every.generic.point) == (0.75, 4, 3, 1.0)
    assert (every.accepted.point, every.unscored, every.tasks) == (1.0, 1, 3)
    assert every.blind.point == pytest.approx(1 / 3) and every.blind.low is not None and every.blind.low > 0.05
    assert daily.accepted.point is None
    assert [t.wrong for t in trials] == [False, True, False, False, False, True, False, False]


async def test_what_was_tried_is_not_tried_again_and_what_is_unscored_is(tmp_path: Path) -> None:
    tasks, log = [families()["files.copy"].instance(0)], tmp_path / "runs/quality.jsonl"
    first = [t async for t in measure(tasks, fake_bench(None), log)]
    assert {t.success for t in first} == {None} and len(first) == len(tries_of(tasks[0]))
    with log.open("a") as lines:
        lines.write('{"task_id": "cut o')
    second = [t async for t in measure(tasks, fake_bench(0.0), log)]
    assert {t.success for t in second} == {False}
    untouched = FakeSandboxes(FakeSandbox)
    assert sorted(t.name for t in second) == sorted(
        [t.name async for t in measure(tasks, fake_bench(1.0, untouched), log)]
    )
    assert untouched.opened == []


def test_the_command_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "tasks", "quality", "--family", "files.nothing")
    assert code == 2 and "known are files.rename" in err
    code, _, err = called(capsys, "tasks", "quality", "--split", "dev", "--family", "files.rename")
    assert code == 2 and "leave out one" in err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap (Debian: apt-get install bubblewrap)")
class TestInSandboxes:
    @pytest.fixture
    async def bench(self) -> AsyncIterator[Bench]:
        async with opened_bench("local", 2) as bench:
            yield bench

    async def test_g04_wrong_solutions_of_every_kind_fail_and_equivalents_pass(self, bench: Bench) -> None:
        names = ("files.copy", "infeasible.missing-file")
        trials = [t async for t in measure([families()[name].instance(4) for name in names], bench)]
        assert {t.kind for t in trials} == {"mutant", "generic", "equivalent", "blind"}
        assert [(t.task_id, t.name, t.why) for t in trials if t.wrong or t.success is None] == []

    async def test_g04_a_checker_that_looks_at_too_little_is_found_out(self, bench: Bench) -> None:
        task = families()["files.move"].instance(4)
        lenient = "import json\nprint(json.dumps({c: {'value': 1} for c in %r}))\n"
        blind = lenient % [criterion.id for criterion in task.rubric.criteria]
        task = task.model_copy(update={"check": blind})
        wrong = [t async for t in measure([task.model_copy(update={"hash": task_hash(task)})], bench) if t.wrong]
        assert {"misplaced", "copied", "half done"} <= {t.name for t in wrong}

    @pytest.mark.desktop
    async def test_g05_gui_oracle_shell_oracle_and_equivalents_all_score_1(self, bench: Bench) -> None:
        task = families()["text.append"].instance(4)
        assert task.oracle.channels == {"gui", "terminal"}
        (verdict,) = [v async for v in admit([task], bench)]
        assert verdict.admitted and verdict.proven and verdict.reasons == ()
        equivalents = [t.success async for t in measure([task], bench) if t.kind == "equivalent"]
        assert equivalents and all(equivalents)

    @pytest.mark.desktop
    async def test_s46_an_infeasible_task_of_ours_is_admitted_and_proven(self, bench: Bench) -> None:
        tasks: list[Task] = [f.instance(4) for name, f in families().items() if name.startswith("infeasible.")]
        verdicts = [v async for v in admit(tasks, bench)]
        assert len(verdicts) >= 3 and [v.reasons for v in verdicts if not (v.admitted and v.proven)] == []
        assert all(v.controls is not None and (v.controls.noop, v.controls.fail) == (False, True) for v in verdicts)
