"""Whole experiments on coin-tossing agents: the order of records, resume, isolation, and every way a run can end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import JsonValue

from evolver.config import (
    DistilConfig,
    GapConfig,
    HumanAuthor,
    RaceConfig,
    RunConfig,
    StructuredAuthor,
    TaskLimitsConfig,
)
from evolver.errors import UsageError
from evolver.lab import Lab
from evolver.leaks import Leaks
from evolver.looks import LookConfig
from evolver.loop import run
from evolver.population import Population
from evolver.protocols import Request
from evolver.race import interleaved
from evolver.records import (
    Candidate,
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
from evolver.students import Order, measure_gaps
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, seed_path, tree_files
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
    """Stands for `evolver distil`: notes what it was asked for, and leaves a student's records like the real one. One
    that `plays` does on each test task what its teacher did."""

    lab: Lab
    exits: Mapping[str, int] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    tasks: list[int | None] = field(default_factory=list)
    plays: bool = False

    async def __call__(self, run_dir: Path, order: Order) -> int:
        harness_id, seed = order.harness_id, order.seed
        self.asked.append((harness_id, seed))
        self.tasks.append(order.test_tasks)
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
            if self.plays:
                self._play(order, f"student-{harness_id[:6]}-{seed}")
        return code

    def _play(self, order: Order, student: str) -> None:
        wanted = ("test", order.harness_id, Coin.id)
        cards = [
            c for c in self.lab.store.all(Scorecard) if (c.key.purpose, c.key.harness_id, c.key.model_id) == wanted
        ]
        for card in cards[: order.test_tasks]:
            key = card.key.model_copy(update={"model_id": student})
            self.lab.store.append(card.model_copy(update={"rollout_id": f"{student}-{card.rollout_id}", "key": key}))


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
    assert lab.library.lineage("main")[-1] == beta1 and lab.library.tags()["main-1"] == beta1
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
    assert set(lab.library.tags().values()) == set(promoted)


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
    failing = Students(lab, exits={beta1: 1})
    end = await run(lab, tasks=split_tasks, distil=failing)
    assert end.reason is Stop.AUTHORS_DONE and verdicts(lab)[0] == (beta1, "promote")
    assert len(verdicts(lab)) > 1 and failing.asked == [(beta1, 0)]  # not once a decision
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
    students = Students(lab, plays=True)
    await run(lab, tasks=split_tasks, distil=students)
    pair = [read_tree(seed_path(name)).id for name in ("beta1", "beta2")]
    assert students.asked == [(h, seed) for h in pair for seed in (0, 1)]
    [found] = lab.store.all(Gap)
    assert [found.harness_a, found.harness_b] == pair and found.n_tasks == 8 and found.teacher_gap.point is not None
    again = coin_lab(tmp_path / "run", wanted, Coin(shell_helps))
    assert found.student_seeds == (0, 1) and found.student_gap.point == pytest.approx(found.teacher_gap.point)
    resumed = Students(again)
    await run(again, tasks=split_tasks, distil=resumed)
    assert resumed.asked == [] and again.store.all(Gap) == [found]


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
    with pytest.raises(UsageError, match="wants 8 test tasks, there are 7"):
        await measure_gaps(lab, [(pair[0], pair[1])], split_tasks("test", 7), students)


async def test_no_pair_goes_on_to_another_look_before_all_have_had_theirs(tmp_path: Path) -> None:
    looks = (LookConfig(seeds=2, tasks=4), LookConfig(seeds=3, tasks=8))
    pairs = (("beta1", "beta2"), ("alpha", "beta1"))
    wanted = config(gap=GapConfig(pairs=pairs, looks=looks), distil=DistilConfig(max_promotions=0, seeds=(0, 1, 2)))
    lab = coin_lab(tmp_path / "run", wanted, Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    assert [found.look for found in lab.store.all(Gap)] == [0, 0, 1, 1]


async def test_wrong_names_stop_before_anything_is_spent(tmp_path: Path) -> None:
    model = Coin(shell_helps)
    for changes in ({"root": "gamma"}, {"gap": GapConfig(pairs=(("beta1", "beta9"),))}):
        lab = coin_lab(tmp_path / next(iter(changes)), config(**changes), model)
        with pytest.raises(UsageError, match="expected one of alpha, beta1, beta2 or a directory"):
            await run(lab, tasks=split_tasks, distil=Students(lab))
    assert model.calls == 0
