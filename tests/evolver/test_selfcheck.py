"""The checks before a run: each finds the fault that it is for, is played once, and stops the run when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from devset.task import Criterion, Oracle, Split, Task
from evolver.audit import SelfCheck
from evolver.config import DistilConfig, HumanAuthor, RaceConfig, RunConfig, TaskLimitsConfig
from evolver.errors import NotReady, UsageError
from evolver.lab import Lab
from evolver.loop import run
from evolver.protocols import Request
from evolver.race import start_lineage
from evolver.records import LedgerEntry, Rollout, Score
from evolver.safeguards import ChecksConfig
from evolver.selfcheck import STOP, flawed, planned, self_checks
from evolver.stops import Stop
from harnesses.tree import SEEDS, harness_from_files, read_tree, seed_path
from tests.evolver.cards import Coin, ReadsTheReply, coin_lab, split_tasks
from tests.evolver.test_loop import Crash, CrashAfter, Listener

CHECKS = ChecksConfig(tasks=6, attempts=2, graded=2, neutral_every=0)


def config(checks: ChecksConfig = CHECKS) -> RunConfig:
    return RunConfig(
        root="beta1",
        tasks=TaskLimitsConfig(dev=12, select=10),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2),
        authors=(HumanAuthor(kind="human", harness="beta2", why="w"),),
        distil=DistilConfig(max_promotions=0),
        checks=checks,
    )


def obeys(request: Request) -> tuple[float, int]:
    """Solves 8 of 10 tasks, and none that it is told to leave alone."""
    told = any(STOP in str(part) for message in request.messages for part in message.parts)
    return (0.0 if told else 0.8, 500)


def deaf(request: Request) -> tuple[float, int]:
    return 0.8, 500


def with_oracles(split: Split, limit: int | None = None) -> list[Task]:
    return [task.model_copy(update={"oracle": Oracle(terminal=())}) for task in split_tasks(split, limit)]


class Knows(Coin):
    id = "demonstrator-oracle"


async def no_student(run_dir: Path, harness_id: str, seed: int, test_tasks: int | None) -> int:
    raise AssertionError("no student is asked for")


async def checked(lab: Lab, tasks: Sequence[Task], oracle: Coin | None = None) -> dict[str, str]:
    await start_lineage(lab, tasks)
    root = lab.library.resolve("beta1")
    try:
        await self_checks(lab, root, tasks, oracle or Knows(lambda request: (1.0, 10)))
    finally:
        found: dict[str, str] = {check.check: check.outcome for check in lab.store.all(SelfCheck)}
    return found


async def test_e32_checks_pass_where_harness_and_grader_work_and_are_charged_like_any_attempt(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(obeys))
    found = await checked(lab, with_oracles("dev"))
    assert found == dict.fromkeys(("idle_agent", "oracle", "a_a", "no_op_edit", "planted_flaw"), "passed")
    played = [rollout for rollout in lab.store.all(Rollout) if rollout.key.purpose == "check"]
    assert 0 < len(played) <= planned(CHECKS, 12)
    assert {r.id for r in played} <= {entry.rollout_id for entry in lab.store.all(LedgerEntry)}


async def test_e32_results_that_do_not_depend_on_the_harness_stop_the_run(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(deaf))
    with pytest.raises(UsageError, match=r"results do not depend on the harness \([-+0-9.]+ pp on 6 tasks, p = 0"):
        await checked(lab, with_oracles("dev"))
    assert {c.check: c.outcome for c in lab.store.all(SelfCheck)}["planted_flaw"] == "failed"


@pytest.mark.parametrize("seed", SEEDS)
def test_e32_the_planted_flaw_leaves_nothing_to_act_with(seed: str) -> None:
    made = harness_from_files(flawed(read_tree(seed_path(seed))))
    assert [(tool.kind, tool.actions) for tool in made.tools] == [("computer_use", ("terminate",))]
    assert made.scaffold.max_steps == 1 and "Stop at once" in made.prompt.system


class EvenAttempts(ReadsTheReply):
    """A grader that passes the original's even attempts alone: something else than the harness decides."""

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        value = float(rollout.key.purpose != "check" or rollout.key.attempt % 2 == 0)
        return [
            Score(criterion=c.id, weight=c.weight, required=c.required, value=value, explanation="", grader=self.name)
            for c in criteria
        ]


async def test_e32_an_original_that_differs_from_itself_stops_the_run(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(ChecksConfig(tasks=8, attempts=4, graded=0)), Coin(obeys))
    lab.config = lab.config.model_copy(update={"race": RaceConfig(saturation=1.0)})
    lab.graders = (EvenAttempts(),)
    with pytest.raises(UsageError, match="the original differs from itself"):
        await checked(lab, split_tasks("dev"))


class Generous(ReadsTheReply):
    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        scores = await super().grade(criteria, task, rollout, state)
        given = rollout.key.model_id == "noop"
        return [score.model_copy(update={"value": 1.0 if given else score.value}) for score in scores]


async def test_e32_a_grader_that_passes_an_agent_that_does_nothing_stops_the_run(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(obeys))
    lab.graders = (Generous(),)
    with pytest.raises(UsageError, match=r"an agent that does nothing succeeds.*wrong on dev-0, dev-1"):
        await checked(lab, with_oracles("dev"))


async def test_e32_a_known_solution_that_always_fails_stops_the_run(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(obeys))
    with pytest.raises(UsageError, match="a known solution fails"):
        await checked(lab, with_oracles("dev"), Knows(lambda request: (0.0, 10)))
    tries = [r for r in lab.store.all(Rollout) if r.key.model_id == Knows.id]
    assert len(tries) == 4  # two tasks, two tries each


async def test_what_can_not_be_judged_is_said_and_stops_nothing(tmp_path: Path) -> None:
    """No oracle is known, and the original solves nothing, so a flaw has nothing to lose."""
    lab = coin_lab(tmp_path / "run", config(), Coin(lambda request: (0.0, 500)))
    found = await checked(lab, split_tasks("dev"))
    assert found["oracle"] == found["planted_flaw"] == "not_judged"
    assert found["a_a"] == found["no_op_edit"] == found["idle_agent"] == "passed"


class Crashes(ReadsTheReply):
    """A grader whose program crashes on every attempt of the checks."""

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        scores = await super().grade(criteria, task, rollout, state)
        if rollout.key.purpose != "check":
            return scores
        return [score.model_copy(update={"value": None, "explanation": "no module named docx"}) for score in scores]


async def test_checks_that_can_not_be_scored_say_why_and_how_to_go_on(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(obeys))
    lab.graders = (Crashes(),)
    why = r"only 0 of 48 attempts .* have a score: 48 times: no module named docx.*with --fresh.*checks\.tasks = 0"
    with pytest.raises(NotReady, match=why):
        await checked(lab, split_tasks("dev"))


async def test_e12_checks_are_played_once_however_often_a_run_is_cut_off(tmp_path: Path) -> None:
    for point in (20, 65):
        model = Coin(obeys)
        cut = coin_lab(tmp_path / f"run-{point}", config(), model)
        cut.observers.append(CrashAfter(point))
        with pytest.raises(Crash):
            await run(cut, tasks=split_tasks, distil=no_student)
        resumed = coin_lab(tmp_path / f"run-{point}", config(), model)
        resumed.observers.append(listener := Listener())
        assert (await run(resumed, tasks=split_tasks, distil=no_student)).reason is Stop.AUTHORS_DONE
        keys = [rollout.key for rollout in resumed.store.all(Rollout)]
        assert len(set(keys)) == len(keys) and len(resumed.store.all(SelfCheck)) == 5
        assert any("a_a passed" in text for text in listener.texts)


async def test_a_failed_check_fails_again_without_a_rollout_and_zero_tasks_go_on_without(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), model := Coin(deaf))
    for _ in range(2):
        with pytest.raises(UsageError, match="checks before the run failed"):
            await run(lab, tasks=split_tasks, distil=no_student)
        played = model.calls
        lab = coin_lab(tmp_path / "run", config(), model)
    assert model.calls == played
    without = coin_lab(tmp_path / "run", config(ChecksConfig(tasks=0, neutral_every=0)), model)
    without.observers.append(listener := Listener())
    assert (await run(without, tasks=split_tasks, distil=no_student)).reason is Stop.AUTHORS_DONE
    assert any("no checks before the run" in text for text in listener.texts)


def test_planned_rollouts_are_what_the_settings_say() -> None:
    assert planned(ChecksConfig(), 24) == 4 * 6 * 2 + 2 * 3
    assert planned(ChecksConfig(tasks=0), 24) == 0
