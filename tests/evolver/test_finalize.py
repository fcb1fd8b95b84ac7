"""The final comparison: fixed before it is played, `test` opened once, resumable, and the end of the run."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from evolver.audit import Opening
from evolver.authors.human import propose
from evolver.baselines import baselines_table, best_of, final_table, matched
from evolver.config import Caps, DistilConfig, HumanAuthor, RaceConfig, RunConfig, TaskLimitsConfig
from evolver.errors import BudgetSpent, UsageError
from evolver.finalize import finalize, mcnemar
from evolver.lab import Attempt, Lab
from evolver.leaks import Leaks
from evolver.loop import run
from evolver.protocols import Request
from evolver.records import Candidate, Final, Frozen, Rollout
from evolver.report import report
from evolver.safeguards import FinalConfig
from evolver.stages import enter_stage
from harnesses.library import Library
from harnesses.tree import HarnessError, read_archive, read_tree, seed_path
from tests.evolver.cards import Coin, a_candidate, a_card, coin_lab, split_tasks
from tests.evolver.test_loop import Crash, CrashAfter, shell_helps
from tests.evolver.test_selfcheck import no_student

Skill = Callable[[Request], tuple[float, int]]
ALPHA, BETA1 = (read_tree(seed_path(name)).id for name in ("alpha", "beta1"))


def config(**changes: object) -> RunConfig:
    return RunConfig(
        root="alpha",
        tasks=TaskLimitsConfig(dev=12, select=10, test=16),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2),
        authors=(HumanAuthor(kind="human", harness="beta1", why="a shell"),),
        distil=DistilConfig(max_promotions=0),
        final=FinalConfig(attempts=2, best_of=4),
    ).model_copy(update=changes)


def dear(request: Request) -> tuple[float, int]:
    """The shell solves three times as much, for three times the tokens."""
    return (0.9, 3_000) if any(tool.name == "bash" for tool in request.tools) else (0.3, 1_000)


async def ended(path: Path, skill: Skill = shell_helps, **changes: object) -> Lab:
    lab = coin_lab(path, config(**changes), Coin(skill))
    await run(lab, tasks=split_tasks, distil=no_student)
    return lab


async def test_the_winner_is_played_against_the_original_on_attempts_that_decided_nothing(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run")
    await lab.score([Attempt(BETA1, task, "test") for task in split_tasks("test", 3)])  # a gap's attempts
    final = await finalize(lab, tasks=split_tasks)
    assert [arm.name for arm in final.arms] == ["winner", "original"] and final.n_tasks == 16
    assert final.effect.point is not None and final.effect.low is not None and final.effect.low > 0.2
    assert final.p_better is not None and final.p_better < 0.01
    assert final.mcnemar_p is not None and final.mcnemar_p < 0.05
    played = [r.key for r in lab.store.all(Rollout) if r.key.purpose == "test"]
    assert {key.attempt for key in played if key.harness_id == ALPHA} == {1, 2}  # 0 was played for something else
    assert all(arm.n_unscored == 0 for arm in final.arms)
    assert lab.library.tags()["main-final"] == BETA1


async def test_the_original_may_spend_what_the_winner_spends_with_an_oracle_that_picks(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run", dear, race=RaceConfig.model_validate(
        {"attempts": (1, 2), "confirm_attempts": 2, "guards": {"tokens": 0}}
    ))  # fmt: skip
    final = await finalize(lab, tasks=split_tasks)
    winner, original = final.arms
    assert final.k == 3 and (winner.attempts, original.attempts) == (2, 3)
    assert final.best_of.point is not None and original.success.point is not None
    assert final.best_of.point > original.success.point
    assert final.against_best_of.point is not None and final.effect.point is not None
    assert final.against_best_of.point < final.effect.point
    rows = {row[0]: row for row in baselines_table(lab.store).rows}
    assert "upper bound" in rows["original best of 3"][4]
    assert rows["random search"][1] == "not played"


async def test_test_is_opened_once_and_a_second_finalize_shows_the_first_result(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run", tasks=TaskLimitsConfig(dev=12, select=10, test=2))
    first = await finalize(lab)  # the tasks that ship, whatever the coin says of them
    calls = [opening.why for opening in lab.store.all(Opening)]
    again = coin_lab(tmp_path / "run", lab.config, model := Coin(lambda request: (0.0, 1)))
    assert await finalize(again) == first and model.calls == 0
    assert [opening.why for opening in again.store.all(Opening)] == calls == ["final"]


async def test_e12_a_final_comparison_that_was_cut_off_goes_on_with_what_was_fixed(tmp_path: Path) -> None:
    whole = await ended(tmp_path / "whole")
    wanted = await finalize(whole, tasks=split_tasks)
    total = len([r for r in whole.store.all(Rollout) if r.key.purpose == "test"])
    for point in (1, 2, 40, 2 * total):
        cut = await ended(tmp_path / f"cut-{point}")
        cut.observers.append(CrashAfter(point))
        with pytest.raises(Crash):
            await finalize(cut, tasks=split_tasks)
        assert len(cut.store.all(Frozen)) == 1
        resumed = coin_lab(tmp_path / f"cut-{point}", config(final=FinalConfig(attempts=8)), Coin(shell_helps))
        assert (await finalize(resumed, tasks=split_tasks)).model_dump(exclude={"at"}) == wanted.model_dump(
            exclude={"at"}
        )
        keys = [r.key for r in resumed.store.all(Rollout) if r.key.purpose == "test"]
        assert len(set(keys)) == len(keys) == total


async def test_once_it_is_fixed_the_run_takes_no_candidate_and_no_stage(tmp_path: Path) -> None:
    spent = len((await ended(tmp_path / "run")).store.all(Rollout))
    lab = coin_lab(tmp_path / "run", config(caps=Caps(rollouts=spent + 20)), Coin(shell_helps))
    with pytest.raises(BudgetSpent):
        await finalize(lab, tasks=split_tasks)
    assert lab.store.all(Frozen) and not lab.store.all(Final)
    with pytest.raises(UsageError, match="is frozen: its final comparison was fixed by `evolver finalize`"):
        await run(coin_lab(tmp_path / "run", config(), Coin(shell_helps)), tasks=split_tasks, distil=no_student)
    with pytest.raises(UsageError, match="is frozen"):
        propose(lab.store, lab.library, "beta1", seed_path("beta2"), "w", Leaks([]))
    with pytest.raises(UsageError, match="is frozen"):
        enter_stage(lab.store, lab.library, "beta", "w")
    assert len(lab.store.all(Candidate)) == 2
    richer = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    assert (await finalize(richer, tasks=split_tasks)).n_tasks == 16


async def test_a_stage_with_another_teacher_than_the_config_keeps_test_shut(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run")
    enter_stage(lab.store, lab.library, "beta", "w")
    enter_stage(lab.store, lab.library, "gamma", "w", teacher="another")
    with pytest.raises(UsageError, match="stage 'gamma' is played by teacher 'another'"):
        await finalize(lab)
    assert not lab.store.all(Frozen) and not lab.store.all(Opening)


async def test_e10_what_is_played_was_read_from_the_archive_that_is_kept(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run")
    await finalize(lab, tasks=split_tasks)
    kept = (lab.store.path / "final" / "main-final.tar").read_bytes()
    assert read_archive(kept).id == BETA1 == lab.harness(BETA1).id
    assert Library(lab.store.path / "library").archive("main-final") == kept
    played = [r for r in lab.store.all(Rollout) if r.key.purpose == "test" and r.key.harness_id == BETA1]
    assert played and {r.loaded_harness_id for r in played} == {BETA1}


def test_e10_an_archive_with_anything_but_plain_files_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "odd.tar", "w") as tar:
        for name in ("scaffold.toml", "link"):
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.SYMTYPE if name == "link" else tarfile.REGTYPE
            tar.addfile(entry)
    with pytest.raises(HarnessError, match="link: expected a plain file"):
        read_archive((tmp_path / "odd.tar").read_bytes())


async def test_a_run_without_a_promotion_has_a_final_comparison_that_claims_nothing(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run", lambda request: (0.5, 500))
    final = await finalize(lab, tasks=split_tasks)
    assert [arm.name for arm in final.arms] == ["original"] and final.effect.point is None
    assert "no candidate was promoted" in final_table(lab.store, {}).caption


async def test_baselines_are_in_the_report_and_one_that_was_not_played_says_so(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run")
    tables = {table.title: table for table in report(lab.store).tables}
    rows = {row[0]: row for row in tables["Baselines"].rows}
    assert rows["original re-run"][3] == "select, n = 10" and rows["original re-run"][2].startswith("+")
    assert "attempts that decided the race" in rows["original best of 1"][4]
    assert rows["random search"][1] == "not played" and "random author" in rows["random search"][4]
    assert "opens test once" in tables["Final comparison"].caption


# --- the figures ------------------------------------------------------------------------------------------------------


def test_best_of_k_is_the_chance_that_one_of_k_drawn_attempts_solves() -> None:
    cards = [a_card("i", 0, number == 0, number) for number in range(4)] + [a_card("i", 1, True, 0)]
    assert best_of(cards, 1) == {"dev-0": 0.25, "dev-1": 1.0}
    assert best_of(cards, 2) == {"dev-0": 0.5}


def test_matched_attempts_come_from_the_tokens_on_common_tasks() -> None:
    winner = [a_card("c", task, True, tokens=2_600) for task in range(3)]
    original = [a_card("i", task, True, tokens=1_000) for task in range(2)]
    assert matched(winner, original) == 3 and matched(original, winner) == 1
    assert matched([a_card("c", 0, True, tokens=None)], original) == 1


def test_mcnemar_is_the_exact_test_of_discordant_first_attempts() -> None:
    ours = [a_card("c", task, True) for task in range(8)]
    theirs = [a_card("i", task, task < 2) for task in range(8)] + [a_card("i", 5, True, 1)]
    assert mcnemar(ours, theirs, 0) == pytest.approx(2 * 0.5**6)
    assert mcnemar(ours, ours, 0) == 1.0 and mcnemar(ours, [], 0) is None


async def test_a_random_candidate_that_never_raced_is_no_baseline(tmp_path: Path) -> None:
    """Two tasks of a smoke test, both solved, before a cap ended the run."""
    lab = await ended(tmp_path / "run")
    beta2 = lab.library.add_seed("beta2")
    lab.record(a_candidate("random-1", parents=(ALPHA,), author="random").model_copy(update={"harness_id": beta2}))
    for n in range(2):
        card = a_card(beta2, n, True)
        lab.record(card.model_copy(update={"key": card.key.model_copy(update={"model_id": lab.model.id})}))
    assert [arm.name for arm in (await finalize(lab, tasks=split_tasks)).arms] == ["winner", "original"]
