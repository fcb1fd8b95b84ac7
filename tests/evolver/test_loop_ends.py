"""Every way that an experiment can end, and what is refused before anything is spent on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.authors.human import enter
from evolver.config import Caps, DistilConfig, HumanAuthor, RaceConfig, TaskLimitsConfig
from evolver.errors import BudgetSpent, ProviderFailed, UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import Attempt
from evolver.loop import run
from evolver.protocols import Request
from evolver.records import Completion, Decision, Rollout, Scorecard
from evolver.stops import Stop
from evolver.testing import FakeSandbox, FakeSandboxes
from harnesses.edit import with_changes
from harnesses.harness import Environment
from harnesses.tree import harness_from_files, read_tree, seed_path, write_tree
from tests.evolver.cards import Coin, coin_lab, split_tasks
from tests.evolver.test_loop import Listener, Students, config, shell_helps


async def test_e35_e17_a_spent_budget_is_not_a_finished_search_and_a_higher_cap_goes_on(tmp_path: Path) -> None:
    model = Coin(shell_helps)
    lab = coin_lab(tmp_path / "run", config(caps=Caps(rollouts=40), min_proposals=0), model)
    end = await run(lab, tasks=split_tasks, distil=Students(lab))
    assert end.reason is Stop.BUDGET and "caps.rollouts = 40" in end.detail
    assert 40 <= len(lab.store.all(Rollout)) <= 41
    richer = coin_lab(tmp_path / "run", config(), model)
    assert (await run(richer, tasks=split_tasks, distil=Students(richer))).reason is Stop.AUTHORS_DONE
    keys = [rollout.key for rollout in richer.store.all(Rollout)]
    assert len(set(keys)) == len(keys) == model.calls


async def test_e15_many_at_once_spend_the_cap_before_it_stops_them(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(caps=Caps(rollouts=10)), Coin(shell_helps))
    lab.executor = LocalExecutor(8)
    root = enter(lab.library, "alpha")
    with pytest.raises(BudgetSpent, match=r"caps\.rollouts = 10"):
        await lab.score([Attempt(root, task, "race") for task in split_tasks("dev", 24)])
    assert 10 <= len(lab.store.all(Rollout)) <= 10 + 8


async def test_e35_a_reached_target_ends_the_search(tmp_path: Path) -> None:
    race = RaceConfig(attempts=(1, 2), confirm_attempts=2, target=0.7)
    lab = coin_lab(tmp_path / "run", config(race=race), Coin(shell_helps))
    end = await run(lab, tasks=split_tasks, distil=Students(lab))
    assert end.reason is Stop.TARGET and len(lab.store.all(Decision)) == 1


async def test_e35_candidates_that_bring_nothing_end_the_search_as_a_plateau(tmp_path: Path) -> None:
    people = tuple(HumanAuthor(kind="human", harness=h, why="w") for h in ("beta1", "beta2"))
    race = RaceConfig(attempts=(1, 2), confirm_attempts=2, patience=1)
    lab = coin_lab(tmp_path / "run", config(race=race, authors=people), Coin(lambda request: (0.5, 100)))
    end = await run(lab, tasks=split_tasks, distil=Students(lab))
    assert end.reason is Stop.PLATEAU and len(lab.store.all(Decision)) == 1


async def test_e16_caps_that_buy_fewer_than_three_proposals_refuse_to_start(tmp_path: Path) -> None:
    model = Coin(shell_helps)
    lab = coin_lab(tmp_path / "run", config(caps=Caps(rollouts=140)), model)
    with pytest.raises(
        UsageError, match=r"caps.rollouts = 140 buys 1 proposals of 72 rollouts each.*min_proposals = 0"
    ):
        await run(lab, tasks=split_tasks, distil=Students(lab))
    assert model.calls == 0


async def test_e16_a_cap_on_tokens_is_judged_once_the_root_has_shown_what_a_rollout_takes(tmp_path: Path) -> None:
    model = Coin(shell_helps)
    lab = coin_lab(tmp_path / "run", config(caps=Caps(tokens=60_000)), model)
    with pytest.raises(UsageError, match=r"caps.tokens = 60,000 buys \d proposals"):
        await run(lab, tasks=split_tasks, distil=Students(lab))
    assert model.calls == 12


async def test_e16_e34_a_run_says_what_its_caps_buy_and_what_its_tasks_can_show(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(caps=Caps(rollouts=1_000)), Coin(shell_helps))
    lab.observers.append(listener := Listener())
    await run(lab, tasks=split_tasks, distil=Students(lab))
    assert "12 dev tasks x 2 attempts detect a lead of about" in listener.texts[0]
    assert "the caps buy 13 races (caps.rollouts = 1,000)" in listener.texts[0]


async def test_e37_every_second_promotion_is_played_against_the_root_on_attempts_of_its_own(tmp_path: Path) -> None:
    def tools_help(request: Request) -> tuple[float, int]:
        names = {tool.name for tool in request.tools}
        return (0.05 + 0.45 * ("bash" in names) + 0.45 * ("a11y_tree" in names), 500)

    people = tuple(HumanAuthor(kind="human", harness=h, why="w") for h in ("beta1", "beta2"))
    race = RaceConfig(attempts=(1, 2), confirm_attempts=4, root_every=2)
    tasks = TaskLimitsConfig(dev=24, select=24)
    distil = DistilConfig(max_promotions=0)
    lab = coin_lab(tmp_path / "run", config(race=race, authors=people, tasks=tasks, distil=distil), Coin(tools_help))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    first, second = lab.store.all(Decision)
    assert (first.verdict, second.verdict) == ("promote", "promote")
    assert first.cumulative is None and second.cumulative is not None
    assert second.cumulative.point is not None and second.cumulative.point > 0.7
    numbers = [c.key.attempt for c in lab.store.all(Scorecard) if c.key.purpose == "confirm"]
    assert {8, 9, 10, 11} <= set(numbers) and max(numbers) == 11


async def test_e34_a_root_that_solves_everything_is_refused(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(lambda request: (1.0, 100)))
    with pytest.raises(
        UsageError, match=r"solves 100.0 % of dev, above race.saturation.*12 tasks show no lead below about \d+ pp"
    ):
        await run(lab, tasks=split_tasks, distil=Students(lab))


class Down(Coin):
    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        raise ProviderFailed("404: no such model")


async def test_e24_a_model_that_does_not_answer_stops_the_run_after_the_smoke_test(tmp_path: Path) -> None:
    model = Down(shell_helps)
    lab = coin_lab(tmp_path / "run", config(), model)
    end = await run(lab, tasks=split_tasks, distil=Students(lab))
    assert end.reason is Stop.ERROR and "404: no such model" in end.detail
    assert model.calls <= 2 * 3


class Blank(Coin):
    """Works at first, then its endpoint sends empty replies."""

    async def complete(self, request: Request) -> Completion:
        reply = await super().complete(request)
        return reply if self.calls <= 4 else reply.model_copy(update={"text": "", "calls": ()})


async def test_e25_e33_wholesale_failure_of_the_incumbent_pauses_the_run(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Blank(shell_helps))
    end = await run(lab, tasks=split_tasks, distil=Students(lab))
    assert end.reason is Stop.ERROR and "replies are blank under the incumbent" in end.detail
    assert lab.store.all(Decision) == []


class Mute(Coin):
    """Makes no tool call under a harness without a shell's neighbour, the GUI."""

    async def complete(self, request: Request) -> Completion:
        reply = await super().complete(request)
        quiet = any("quiet" in str(part) for message in request.messages for part in message.parts)
        return reply.model_copy(update={"calls": ()}) if quiet else reply


async def test_e24_a_candidate_without_a_tool_call_is_rejected_after_two_attempts(tmp_path: Path) -> None:
    beta1 = read_tree(seed_path("beta1"))
    write_tree(harness_from_files(with_changes(beta1, {"prompt.system": "quiet"})), tmp_path / "quiet")
    people = (HumanAuthor(kind="human", harness=str(tmp_path / "quiet"), why="w"),)
    lab = coin_lab(tmp_path / "run", config(authors=people), Mute(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    [decision] = lab.store.all(Decision)
    assert (decision.verdict, decision.looks) == ("reject", ())
    assert "not one tool call in 2 attempts" in decision.reasons[0]
    assert sum(r.key.harness_id == decision.candidate_harness for r in lab.store.all(Rollout)) == 2


class NoSuchPackage(FakeSandboxes):
    async def prepare(self, environment: Environment) -> str:
        if "no-such-package" in environment.pip:
            raise UsageError("pip knows no package 'no-such-package'")
        return await super().prepare(environment)


async def test_e24_a_candidate_whose_machine_can_not_be_built_is_rejected_and_the_run_goes_on(tmp_path: Path) -> None:
    beta1 = read_tree(seed_path("beta1"))
    write_tree(harness_from_files(with_changes(beta1, {"environment.pip": ["no-such-package"]})), tmp_path / "odd")
    people = tuple(HumanAuthor(kind="human", harness=h, why="w") for h in (str(tmp_path / "odd"), "beta1"))
    lab = coin_lab(tmp_path / "run", config(authors=people), Coin(shell_helps))
    lab.sandboxes = NoSuchPackage(lambda: FakeSandbox({}, (64, 48)))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    odd, beta1_decision = lab.store.all(Decision)
    assert odd.verdict == "reject" and "no-such-package" in odd.reasons[0]
    assert beta1_decision.looks
