"""Small leads wait, others build on them, and the most promising one is confirmed when the authors are done."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evolver.config import (
    AuthorConfig,
    Caps,
    DistilConfig,
    HumanAuthor,
    RaceConfig,
    RunConfig,
    StructuredAuthor,
    TaskLimitsConfig,
)
from evolver.hearing import spent_before
from evolver.lab import Lab
from evolver.loop import run
from evolver.population import Population, population_of
from evolver.protocols import Request
from evolver.records import Candidate, Decision, LedgerEntry, Record, Rollout, Scorecard
from evolver.report import report
from evolver.stops import Stop
from evolver.turns import evidence_of
from harnesses.tree import read_tree, seed_path
from tests.evolver.cards import Coin, a_candidate, a_decision, coin_lab, split_tasks
from tests.evolver.test_loop import Crash, CrashAfter
from tests.evolver.test_selfcheck import no_student

PERSON = HumanAuthor(kind="human", harness="beta1", why="a shell")
SEARCH = StructuredAuthor(kind="structured", n=2, space=("scaffold.max_steps", "scaffold.history"))
BETA1 = read_tree(seed_path("beta1")).id


def config(*authors: AuthorConfig, **changes: object) -> RunConfig:
    """Every lead is a small one."""
    plain = RunConfig(
        root="alpha",
        tasks=TaskLimitsConfig(dev=12, select=10),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2, confirm_from=1.0),
        authors=authors,
        distil=DistilConfig(max_promotions=0),
    )
    return RunConfig.model_validate({**dict(plain), **changes})


def shell_helps(request: Request) -> tuple[float, int]:
    return 0.9 if any(tool.name == "bash" for tool in request.tools) else 0.2, 1_000


async def ended(path: Path, settings: RunConfig, stop: Stop = Stop.AUTHORS_DONE) -> Lab:
    lab = coin_lab(path, settings, Coin(shell_helps))
    end = await run(lab, tasks=split_tasks, distil=no_student)
    assert end.reason is stop, end
    return lab


def confirmed(lab: Lab) -> Counter[str]:
    return Counter(card.key.harness_id for card in lab.store.all(Scorecard) if card.key.purpose == "confirm")


async def test_one_candidate_with_a_small_lead_is_confirmed_at_the_end_and_never_again(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run", config(PERSON))
    first, heard = lab.store.all(Decision)
    assert first.waits and not first.heard and first.reasons[-1].startswith("waits: ")
    assert (heard.verdict, heard.heard, heard.candidate_harness) == ("promote", True, BETA1)
    assert heard.looks == first.looks and heard.alpha_spent == first.alpha_spent and heard.confirmation is not None
    assert lab.library.lineage("main")[-1] == BETA1
    calls = len(lab.store.all(Rollout))
    again = await ended(tmp_path / "run", config(PERSON))
    assert len(again.store.all(Rollout)) == calls and len(again.store.all(Decision)) == 2
    assert "beta1" in (told := "\n".join(report(again.store).lines)) and "wait" not in told


async def test_others_build_on_what_waits_and_one_alone_is_heard(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run", config(PERSON, SEARCH))
    *raced, heard = lab.store.all(Decision)
    assert len(raced) == 3 and raced[0].waits and heard.heard
    assert {d.incumbent_harness for d in (*raced, heard)} == {read_tree(seed_path("alpha")).id}
    children = [c for c in lab.store.all(Candidate) if c.author == "structured"]
    assert BETA1 in {c.parents[0] for c in children}
    assert heard.candidate_harness in {d.candidate_harness for d in raced if d.waits}
    assert set(confirmed(lab)) == {heard.candidate_harness, heard.incumbent_harness}


async def test_patience_used_up_brings_the_hearing_and_a_promotion_renews_it(tmp_path: Path) -> None:
    race = RaceConfig(attempts=(1, 2), confirm_attempts=2, confirm_from=1.0, patience=1)
    lab = await ended(tmp_path / "run", config(PERSON, SEARCH, race=race), Stop.PLATEAU)
    verdicts = [(d.verdict, d.heard) for d in lab.store.all(Decision)]
    assert verdicts[:2] == [("inconclusive", False), ("promote", True)] and len(verdicts) == 3


async def test_e16_what_the_hearing_takes_is_kept_from_the_caps(tmp_path: Path) -> None:
    """After the root (12) and the first race (24 + 12) no other race of 60 fits beside a hearing of 40."""
    settings = config(PERSON, SEARCH, caps=Caps(rollouts=12 + 48 + 40 + 30), min_proposals=1)
    lab = await ended(tmp_path / "run", settings, Stop.BUDGET)
    assert [(d.verdict, d.heard) for d in lab.store.all(Decision)][:2] == [("inconclusive", False), ("promote", True)]


class CrashInTheHearing(CrashAfter):
    """Ends the program after so many records of fresh attempts."""

    def on_record(self, record: Record) -> None:
        if isinstance(record, Scorecard) and record.key.purpose == "confirm":
            super().on_record(record)


@pytest.mark.parametrize("cards", [1, 7, 20])
async def test_e12_a_hearing_that_was_cut_off_ends_as_if_nothing_was(tmp_path: Path, cards: int) -> None:
    whole = await ended(tmp_path / "whole", config(PERSON, SEARCH))
    cut = coin_lab(tmp_path / "cut", config(PERSON, SEARCH), Coin(shell_helps))
    cut.observers.append(CrashInTheHearing(cards))
    with pytest.raises(Crash):
        await run(cut, tasks=split_tasks, distil=no_student)
    assert "small leads that wait: beta1" in "\n".join(report(cut.store).lines)
    assert "A lead of less than 100 pp is not confirmed at once: it waits" in evidence_of(cut).summary
    resumed = await ended(tmp_path / "cut", config(PERSON, SEARCH))
    wanted, found = ([d.model_dump(exclude={"decided_at"}) for d in x.store.all(Decision)] for x in (whole, resumed))
    assert found == wanted
    keys = [rollout.key for rollout in resumed.store.all(Rollout)]
    assert len(set(keys)) == len(keys) == len(resumed.store.all(LedgerEntry))


async def test_what_a_look_asked_of_each_task_is_on_record_and_was_played(tmp_path: Path) -> None:
    lab = await ended(tmp_path / "run", config(SEARCH))
    population = population_of(lab.store)
    looks = [(d, d.looks[1]) for d in population.decisions if len(d.looks) == 2 and d.looks[1].spread]
    assert looks
    for decision, look in looks:
        assert sum(look.spread.values()) == 2 * 12 and min(look.spread.values()) >= 1
        assert all(look.pool_spread.get(task, look.pool) >= count for task, count in look.spread.items())
        played = Counter(
            card.key.task_id for card in lab.store.all(Scorecard) if card.key.harness_id == decision.candidate_harness
        )
        assert played == look.spread


def test_a_hidden_edit_that_waits_is_heard_first_and_takes_nobody_s_turn() -> None:
    def raced(name: str) -> Decision:
        return a_decision(name, "root", "inconclusive").model_copy(update={"waits": True, "teacher": "m"})

    root, real = a_candidate("root", parents=()), a_candidate("real", parents=("root",))
    fake = a_candidate("fake", parents=("root",)).model_copy(update={"hidden_neutral": True})
    first, second = raced("real"), raced("fake")
    found = Population([root, real, fake], [first, second])
    assert found.waiting("m") == [second, first]
    heard = second.model_copy(update={"id": "dec-fake-heard", "waits": False, "heard": True, "verdict": "promote"})
    after = Population([root, real, fake], [first, second, heard])
    assert after.waiting("m") == [first] and not after.was_heard and after.incumbent == "root"
    done = first.model_copy(update={"id": "dec-real-heard", "waits": False, "heard": True})
    assert Population([root, real, fake], [first, done, second]).was_heard, "a hidden edit renews nobody's hearing"


def test_a_candidate_is_heard_at_the_level_it_was_charged_whoever_was_heard_before() -> None:
    def raced(name: str) -> Decision:
        made = a_decision(name, "root", "inconclusive")
        return made.model_copy(update={"waits": True, "alpha_spent": 0.004})

    candidates = [a_candidate("root", parents=()), *(a_candidate(name, parents=("root",)) for name in "abc")]
    a, b, c = map(raced, "abc")
    heard = a.model_copy(update={"id": "dec-a-heard", "waits": False, "heard": True})
    assert spent_before(candidates, [a, b], b) == spent_before(candidates, [a, b, heard, c], b) == 0.004
    assert spent_before(candidates, [a, b, heard, c], c) == 0.008
