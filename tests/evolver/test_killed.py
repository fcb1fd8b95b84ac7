"""`kill -9` at fifty points of one run: checks, candidates, hidden edits and final comparison end as if nothing was."""

from __future__ import annotations

import multiprocessing
import random
import signal
from pathlib import Path

import pytest

from evolver.audit import SelfCheck
from evolver.records import Candidate, Decision, Final, LedgerEntry, Rollout, Scorecard
from evolver.store import Store
from tests.evolver.killed_run import CONFIG, start

KILLS = 50


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::evolver.store.TornLine")
def test_e12_a_run_killed_fifty_times_decides_the_same_and_pays_no_rollout_twice(tmp_path: Path) -> None:
    start(tmp_path / "whole", 0)
    whole = Store.open(tmp_path / "whole")
    total = sum(len(whole.all(kind)) for kind in (Rollout, Scorecard))
    clean = multiprocessing.get_context("forkserver")  # forks of a process without threads, with all imported
    clean.set_forkserver_preload(["tests.evolver.killed_run", "optuna", "scipy.optimize", "scipy.stats"])
    rng, kills = random.Random(0), 0
    for number in range(KILLS + 1):
        records = 0 if kills >= KILLS else rng.randint(1, 5 * total // (4 * KILLS))
        timed = bool(records) and number % 5 == 0
        wait_s = rng.uniform(0.01, 0.15) if timed else 0.0
        child = clean.Process(target=start, args=(tmp_path / "cut", 0 if timed else records, wait_s))
        child.start()
        child.join(120)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        kills += 1
    cut = Store.open(tmp_path / "cut")
    assert child.exitcode == 0 and kills == KILLS
    for kind, apart in ((Decision, {"decided_at"}), (Candidate, {"proposed_at"}), (SelfCheck, {"at"}), (Final, {"at"})):
        wanted, found = ([r.model_dump(exclude=apart) for r in store.all(kind)] for store in (whole, cut))
        assert found == wanted, kind
    keys = [rollout.key for rollout in cut.all(Rollout)]
    assert len(set(keys)) == len(keys) == len(whole.all(Rollout))
    assert sorted(e.rollout_id or "" for e in cut.all(LedgerEntry)) == sorted(r.id for r in cut.all(Rollout))
    assert {c.hidden_neutral for c in cut.all(Candidate)} == {True, False} and CONFIG.checks.neutral_every == 2
