"""Whole experiments on coin-tossing agents: the order of records, resume, isolation, and every way a run can end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import JsonValue

from evolver.authors.human import enter
from evolver.config import (
    Caps,
    DistilConfig,
    GapConfig,
    HumanAuthor,
    RaceConfig,
    RunConfig,
    StructuredAuthor,
    TaskLimitsConfig,
)
from evolver.errors import BudgetSpent, ProviderFailed, UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import Attempt, Lab
from evolver.leaks import Leaks
from evolver.looks import LookConfig
from evolver.loop import run
from evolver.population import Population
from evolver.protocols import Request
from evolver.race import interleaved
from evolver.records import (
    Candidate,
    Completion,
    Decision,
    Distillation,
    Evaluation,
    Gap,
    LedgerEntry,
    Record,
    Rollout,
    Scorecard,
)
from evolver.stops import Stop
from evolver.testing import FakeSandbox, FakeSandboxes
from harnesses.edit import with_changes
from harnesses.harness import Environment
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, seed_path, tree_files, write_tree
from tests.evolver.cards import Coin, a_task, coin_lab, split_tasks


def shell_helps(request: Request) -> tuple[float, int]:
    """9 of 10 tasks with a shell, 3 of 10 without one."""
    return (0.9, 400) if any(tool.name == "bash" for tool in request.tools) else (0.3, 1_000)


def config(**changes: object) -> RunConfig:
    plain = RunConfig(
        root="alpha",
        tasks=TaskLimitsConfig(dev=12, select=10, test=8),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2),
        authors=(
            HumanAuthor(kind="human", harness="beta1", why="a shell"),
            StructuredAuthor(kind="structured", n=2, space=("tools.bash", "scaffold.max_steps")),
        ),
        distil=DistilConfig(max_promotions=1),
    )
    return RunConfig.model_validate({**dict(plain), **changes})


@dataclass
class Students:
    """Stands for `evolver distil`: notes what it was asked for, and leaves a student's records like the real one."""

    lab: Lab
    exits: Mapping[str, int] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    tasks: list[int | None] = field(default_factory=list)

    async def __call__(self, run_dir: Path, harness_id: str, seed: int, test_tasks: int | None) -> int:
        self.asked.append((harness_id, seed))
        self.tasks.append(test_tasks)
        code = self.exits.get(harness_id, 0)
        if code == 0:
            self.lab.store.append(
                Distillation(
                    id=f"dis-{harness_id}-{seed}", teacher_harness=harness_id, teacher_model=Coin.id, base_model="base",
                    student_model=f"student-{harness_id[:6]}-{seed}", recipe={}, seed=seed, data_sha256="d",
                    template_sha256="t", rows=1, trained_tokens=1, dropped={}, train_loss_first=None,
                    train_loss_last=None, train_s=1.0, checkpoint="c",
                )
            )  # fmt: skip
        return code


class Crash(BaseException):
    """Ends the program, as a kill does."""


class CrashAfter:
    """An observer that ends the program after so many records."""

    def __init__(self, records: int) -> None:
        self.left = records

    def on_record(self, record: Record) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash

    def progress(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None:
        return None

    def close(self) -> None:
        return None


class Listener(CrashAfter):
    """Keeps records and progress texts in order."""

    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[Record] = []
        self.texts: list[str] = []

    def on_record(self, record: Record) -> None:
        self.records.append(record)

    def progress(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None:
        self.texts.append(text)


def verdicts(lab: Lab) -> list[tuple[str, str]]:
    return [(d.candidate_harness, d.verdict) for d in lab.store.all(Decision)]


# --- the whole experiment -------------------------------------------------------------------------------------------


async def test_a_run_promotes_what_helps_and_keeps_what_does_not(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    students = Students(lab)
    end = await run(lab, tasks=split_tasks, distil=students)
    beta1 = read_tree(seed_path("beta1")).id
    assert end.reason is Stop.AUTHORS_DONE
    found = verdicts(lab)
    assert found[0] == (beta1, "promote") and len(found) == 3
    assert all(verdict != "promote" for _, verdict in found[1:])
    assert lab.library.lineage("main")[-1] == beta1 and lab.library.frozen()["main-1"] == beta1
    assert students.asked == [(beta1, 0)]
    purposes = Counter((e.harness_id == beta1, e.purpose) for e in lab.store.all(Evaluation))
    assert purposes[True, "race"] >= 1 and purposes[True, "confirm"] == 1


async def test_e24_a_candidate_is_recorded_before_its_rollouts_and_a_decision_before_the_promotion(
    tmp_path: Path,
) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    lab.observers.append(listener := Listener())
    await run(lab, tasks=split_tasks, distil=Students(lab))
    known: set[str] = set()
    for record in listener.records:
        if isinstance(record, Candidate):
            known.add(record.harness_id)
        if isinstance(record, Rollout):
            assert record.key.harness_id in known
    scored = [r.rollout_id for r in listener.records if isinstance(r, Scorecard)]
    assert len(set(scored)) == len(scored) == sum(isinstance(r, Rollout) for r in listener.records)


async def test_e30_no_promotion_without_a_decision_that_passed_both_gates(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    for decision in lab.store.all(Decision):
        if decision.verdict == "promote":
            assert decision.looks[-1].verdict == "pass"
            assert decision.confirmation is not None and decision.reasons
    promoted = [d.candidate_harness for d in lab.store.all(Decision) if d.verdict == "promote"]
    assert set(lab.library.frozen().values()) == set(promoted)


async def test_e18_e12_a_finished_run_does_nothing_when_it_is_run_again(tmp_path: Path) -> None:
    model = Coin(shell_helps)
    lab = coin_lab(tmp_path / "run", config(), model)
    await run(lab, tasks=split_tasks, distil=Students(lab))
    calls, before = model.calls, [len(lab.store.all(kind)) for kind in (Candidate, Rollout, Decision, Evaluation)]
    again = coin_lab(tmp_path / "run", config(), model)
    students = Students(again)
    assert (await run(again, tasks=split_tasks, distil=students)).reason is Stop.AUTHORS_DONE
    assert model.calls == calls and students.asked == []
    assert [len(again.store.all(kind)) for kind in (Candidate, Rollout, Decision, Evaluation)] == before


@pytest.mark.slow
async def test_e12_e07_a_run_cut_off_anywhere_ends_with_the_same_decisions_and_repeats_nothing(tmp_path: Path) -> None:
    whole = coin_lab(tmp_path / "whole", config(), straight := Coin(shell_helps))
    whole.observers.append(listener := Listener())
    await run(whole, tasks=split_tasks, distil=Students(whole))
    wanted = [d.model_dump(exclude={"decided_at"}) for d in whole.store.all(Decision)]
    total = len(listener.records)
    for point in sorted({1, 2, 5, total // 5, total // 3, total // 2, 2 * total // 3, total - 2, total - 1}):
        model = Coin(shell_helps)
        cut = coin_lab(tmp_path / f"cut-{point}", config(), model)
        cut.observers.append(CrashAfter(point))
        with pytest.raises(Crash):
            await run(cut, tasks=split_tasks, distil=Students(cut))
        resumed = coin_lab(tmp_path / f"cut-{point}", config(), model)
        await run(resumed, tasks=split_tasks, distil=Students(resumed))
        assert [d.model_dump(exclude={"decided_at"}) for d in resumed.store.all(Decision)] == wanted, point
        keys = [rollout.key for rollout in resumed.store.all(Rollout)]
        assert len(set(keys)) == len(keys) == len(whole.store.all(Rollout)), point
        assert len(resumed.store.all(LedgerEntry)) == len(keys)
        assert model.calls <= straight.calls + 2  # at most what each worker had in hand


async def test_e07_another_run_with_the_same_seed_has_the_same_lineage(tmp_path: Path) -> None:
    ends = []
    for name in ("one", "two"):
        lab = coin_lab(tmp_path / name, config(), Coin(shell_helps))
        await run(lab, tasks=split_tasks, distil=Students(lab))
        ends.append((verdicts(lab), lab.library.lineage("main"), lab.library.commit_of("main-1")))
    assert ends[0] == ends[1]


async def test_e10_a_frozen_harness_is_what_was_raced_byte_for_byte(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    frozen = Library(lab.store.path / "library").get("main-1")
    assert harness_from_files(tree_files(frozen)).id == frozen.id == lab.library.lineage("main")[-1]
    [decision] = [d for d in lab.store.all(Decision) if d.verdict == "promote"]
    loaded = {r.loaded_harness_id for r in lab.store.all(Rollout) if r.key.harness_id == decision.candidate_harness}
    assert loaded == {frozen.id}


# --- how it ends ----------------------------------------------------------------------------------------------------


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
    lab = coin_lab(tmp_path / "run", config(caps=Caps(rollouts=100)), model)
    with pytest.raises(
        UsageError, match=r"caps.rollouts = 100 buys 1 proposals of 72 rollouts each.*min_proposals = 0"
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


# --- order, isolation, students --------------------------------------------------------------------------------------


def test_e23_arms_are_interleaved_and_take_turns_in_going_first() -> None:
    order = interleaved({"c": range(2), "i": range(2)}, [a_task(0), a_task(1)], "race")
    assert [(a.number, a.task.id, a.harness_id) for a in order] == [
        (0, "dev-0", "c"), (0, "dev-0", "i"), (0, "dev-1", "i"), (0, "dev-1", "c"),
        (1, "dev-0", "i"), (1, "dev-0", "c"), (1, "dev-1", "c"), (1, "dev-1", "i"),
    ]  # fmt: skip


async def test_a_confirmation_takes_fresh_attempts_of_both_arms_and_test_stays_closed(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    cards = lab.store.all(Scorecard)
    assert {c.key.split for c in cards if c.key.purpose == "race"} == {"dev"}
    assert {c.key.split for c in cards} == {"dev", "select"}
    confirmed = [d for d in lab.store.all(Decision) if d.confirmation is not None]
    for number, decision in enumerate(confirmed):
        for harness_id in (decision.candidate_harness, decision.incumbent_harness):
            numbers = {c.key.attempt for c in cards if c.key.harness_id == harness_id and c.key.purpose == "confirm"}
            assert 2 * number in numbers and numbers <= set(range(2 * len(confirmed)))


async def test_pending_proposals_come_before_the_authors(tmp_path: Path) -> None:
    from evolver.authors.human import propose

    lab = coin_lab(tmp_path / "run", config(authors=()), Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    assert lab.store.all(Decision) == []
    candidate = propose(lab.store, lab.library, "alpha", seed_path("beta1"), "a shell", Leaks([]))
    again = coin_lab(tmp_path / "run", config(authors=()), Coin(shell_helps))
    await run(again, tasks=split_tasks, distil=Students(again))
    assert verdicts(again) == [(candidate.harness_id, "promote")]
    assert Population(again.store.all(Candidate), again.store.all(Decision)).pending == []


async def test_a_failed_distillation_is_reported_costs_nothing_else_and_is_tried_again(tmp_path: Path) -> None:
    beta1 = read_tree(seed_path("beta1")).id
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    lab.observers.append(listener := Listener())
    end = await run(lab, tasks=split_tasks, distil=Students(lab, exits={beta1: 1}))
    assert end.reason is Stop.AUTHORS_DONE and verdicts(lab)[0] == (beta1, "promote")
    assert any("FAILED with exit code 1" in text for text in listener.texts)
    again = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    students = Students(again)
    await run(again, tasks=split_tasks, distil=students)
    assert students.asked == [(beta1, 0)] and len(again.store.all(Distillation)) == 1


async def test_e35_a_cap_reached_in_the_child_ends_the_run_as_budget(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    end = await run(lab, tasks=split_tasks, distil=Students(lab, exits={read_tree(seed_path("beta1")).id: 4}))
    assert end.reason is Stop.BUDGET and "while distilling" in end.detail


async def test_gaps_are_measured_at_the_end_once_with_the_missing_students(tmp_path: Path) -> None:
    wanted = config(gap=GapConfig(pairs=(("beta1", "beta2"),)), distil=DistilConfig(max_promotions=0, seeds=(0, 1)))
    lab = coin_lab(tmp_path / "run", wanted, Coin(shell_helps))
    students = Students(lab)
    await run(lab, tasks=split_tasks, distil=students)
    pair = [read_tree(seed_path(name)).id for name in ("beta1", "beta2")]
    assert students.asked == [(h, seed) for h in pair for seed in (0, 1)]
    [found] = lab.store.all(Gap)
    assert [found.harness_a, found.harness_b] == pair and found.n_tasks == 8 and found.teacher_gap.point is not None
    again = coin_lab(tmp_path / "run", wanted, Coin(shell_helps))
    await run(again, tasks=split_tasks, distil=Students(again))
    assert len(again.store.all(Gap)) == 1


async def test_a_sequential_rule_measures_more_until_a_gap_is_found_or_the_looks_are_used_up(tmp_path: Path) -> None:
    looks = (LookConfig(seeds=2, tasks=4), LookConfig(seeds=3, tasks=8))
    wanted = config(
        gap=GapConfig(pairs=(("beta1", "beta2"),), looks=looks),
        distil=DistilConfig(max_promotions=0, seeds=(0, 1, 2)),
    )
    lab = coin_lab(tmp_path / "run", wanted, Coin(shell_helps))
    students = Students(lab)
    await run(lab, tasks=split_tasks, distil=students)
    pair = [read_tree(seed_path(name)).id for name in ("beta1", "beta2")]
    assert students.asked[:4] == [(h, seed) for h in pair for seed in (0, 1)] and students.tasks[:4] == [4] * 4
    assert students.asked[4:] == [(h, seed) for h in pair for seed in (0, 1, 2)] and students.tasks[4:] == [8] * 6
    first, last = lab.store.all(Gap)
    assert (first.look, first.n_tasks, last.look, last.n_tasks) == (0, 4, 1, 8)
    assert first.level < last.level == wanted.gap.level(1) and last.found is None  # these students never played


async def test_wrong_names_stop_before_anything_is_spent(tmp_path: Path) -> None:
    model = Coin(shell_helps)
    for changes in ({"root": "gamma"}, {"gap": GapConfig(pairs=(("beta1", "beta9"),))}):
        lab = coin_lab(tmp_path / next(iter(changes)), config(**changes), model)
        with pytest.raises(UsageError, match="expected one of alpha, beta1, beta2 or a directory"):
            await run(lab, tasks=split_tasks, distil=Students(lab))
    assert model.calls == 0
