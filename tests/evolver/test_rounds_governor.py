"""Back-pressure, outages and money of a round, by a clock that the test turns."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from evolver.errors import BudgetSpent, NotReady
from evolver.executors.crew import WorkerDied
from evolver.protocols import Lease, Planned
from evolver.rounds.attempts import Attempts
from evolver.rounds.book import Cost
from evolver.rounds.driver import Rules
from evolver.rounds.governor import FIRST_PAUSE_S, Breaker, Purse, Window
from evolver.rounds.rows import Again
from evolver.rounds.settling import Came, lost, settlement
from evolver.rounds.view import read_round
from evolver.rounds.watch import Schedule
from evolver.testing.rounds import COST, noop_rows
from tests.evolver.rounds import CAPSULE, Spec, a_plan, changed, driven, opened

N = 40  # units


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_calls_that_are_turned_away_halve_the_window_once_and_peace_opens_it_again() -> None:
    clock = Clock()
    window = Window(16, clock)
    began = clock.now
    clock.now += 1
    for _ in range(5):  # all of them began before the endpoint said so
        window.heard(3, 0.0, began)
    assert window.open == 8
    window.heard(1, 0.0, clock.now)
    assert window.open == 4
    for _ in range(200):
        window.heard(0, 0.0, clock.now)
    assert window.open == 16


def test_a_window_waits_as_long_as_the_endpoint_asks() -> None:
    clock = Clock()
    window = Window(4, clock)
    window.heard(1, 30.0, clock.now)
    assert window.open == 0
    clock.now += 31
    assert window.open == 2
    for _ in range(9):
        window.heard(1, 0.0, clock.now)
        clock.now += 1
    assert window.open == 1  # never none for good


def test_an_outage_pauses_then_tries_one_and_one_that_comes_back_sound_ends_it() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    for sound in (True, False, False, True, False, False, False):
        breaker.heard(sound)
    assert breaker.limit(8) == 8  # too few to say so
    for _ in range(3):
        breaker.heard(False)
    assert breaker.tripped and breaker.limit(8) == 0
    clock.now += FIRST_PAUSE_S + 1
    assert breaker.limit(8) == 1
    breaker.heard(False)
    assert breaker.limit(8) == 0
    clock.now += FIRST_PAUSE_S + 1
    assert breaker.limit(8) == 0  # twice as long this time
    clock.now += FIRST_PAUSE_S + 1
    breaker.heard(True)
    assert not breaker.tripped and breaker.limit(8) == 8 and breaker.opened == 1


@pytest.mark.parametrize(
    ("spent", "reserved", "units"),
    [(0, 0, 8), (50, 0, 5), (50, 40, 1), (95, 0, 0), (100, 0, 0), (90, 10, 0), (130, 0, 0)],
)
def test_a_purse_gives_what_is_left_and_not_spoken_for(spent: int, reserved: int, units: int) -> None:
    assert Purse(cap=100, unit=10).units(spent, reserved, 8) == units
    assert Purse(cap=None, unit=10).units(spent, reserved, 8) == 8
    assert Purse(cap=100, unit=0).units(spent, reserved, 8) == (8 if spent + reserved < 100 else 0)


def test_a_purse_covers_what_cannot_pass_the_cap() -> None:
    purse = Purse(cap=100, unit=10)
    assert purse.covers(30, 50, 20) and not purse.covers(31, 50, 20) and not purse.covers(1, 130, 0)
    assert purse.covers(0, 130, 0) and Purse(cap=None, unit=10).covers(31, 50, 20)


def test_a_lease_sets_aside_what_it_can_cost_until_it_is_settled(tmp_path: Path) -> None:
    book = opened(tmp_path).book
    claim = book.claim(4, 40, 250)
    assert claim is not None and book.reserved() == 1_000
    book.settle(claim[0], lost(Cost(calls=1, nusd=70)), "lost")
    assert book.reserved() == 0 and book.cost() == book.cost("lost") == Cost(calls=1, nusd=70)
    book.close()


def test_the_cap_holds_to_the_unit_whatever_is_under_way(tmp_path: Path) -> None:
    rules = Rules(lease_units=4, workers=3, unit_nusd=COST.nusd, cap_nusd=17 * COST.nusd)
    with pytest.raises(BudgetSpent, match="raise cost_usd"):
        driven(tmp_path, rules=rules)
    assert read_round(tmp_path).done == 17
    assert driven(tmp_path).rows == N
    assert read_round(tmp_path).spent_usd == pytest.approx(N * COST.nusd / 1e9)


def test_e13_a_call_whose_cost_nobody_knows_is_taken_at_its_most(tmp_path: Path) -> None:
    """Three tries timed out and may be billed: what they can have cost is not spent a second time."""
    book = opened(tmp_path).book
    claim = book.claim(4, 40, 0)
    assert claim is not None
    book.settle(claim[0], lost(Cost(calls=3, unknown=3)), "lost")
    book.close()
    rules = Rules(unit_nusd=COST.nusd, call_nusd=2 * COST.nusd, cap_nusd=17 * COST.nusd)
    with pytest.raises(BudgetSpent, match=r"are spent \(3 calls of unknown cost taken at their most\), and one more"):
        driven(tmp_path, rules=rules)
    assert read_round(tmp_path).done == 17 - 3 * 2


def test_a_round_that_has_passed_a_lower_cap_stops_at_once(tmp_path: Path) -> None:
    rules = Rules(lease_units=4, workers=3, unit_nusd=COST.nusd, cap_nusd=17 * COST.nusd)
    for cap in (17, 10):
        with pytest.raises(BudgetSpent, match="raise cost_usd"):
            driven(tmp_path, rules=replace(rules, cap_nusd=cap * COST.nusd))
    assert read_round(tmp_path).done == 17


def test_a_look_that_the_cap_leaves_no_room_for_is_not_begun(tmp_path: Path) -> None:
    """The first look and the one at the end, when every unit is played: the round is not closed without it."""
    spec, schedule = Spec(tmp_path), Schedule({"judge": 1_000})
    rules = Rules(lease_units=4, unit_nusd=COST.nusd, probe_nusd={"judge": 5_000})
    short = N * COST.nusd + 4_999
    for cap, done in ((4_999, 0), (short, N), (short, N)):
        with pytest.raises(BudgetSpent, match=r"a look at the judge may cost .*: raise cost_usd"):
            driven(tmp_path, spec, replace(rules, cap_nusd=cap), schedule=schedule)
        assert read_round(tmp_path).done == done and bool(spec.worked) == bool(done)
    assert driven(tmp_path, spec, replace(rules, cap_nusd=N * COST.nusd + 5_000), schedule=schedule).rows == N


def test_g44_an_outage_is_a_failure_of_the_unit_where_the_endpoint_answers() -> None:
    unit = Planned(0, "0" * 64, 0, 0)
    table = changed(noop_rows(Lease(1, (unit,)), CAPSULE, "w", lambda unit: None), "again", ["outage"])
    silent = Came.of(changed(table, "calls", [0]))
    hanging = Came.of(changed(table, "nusd", [None]))  # tries that timed out: of unknown cost
    cases = [(silent, False, True), (silent, True, False), (hanging, True, False), (Came.of(table), True, True)]
    for came, down, counts in cases:
        for before in (0, 2):
            made = settlement(came, {came.units[0]: before}, 3, down=down)
            assert (len(made.again), len(made.done)) == ((1, 0) if counts and before == 0 else (0, int(counts)))


@pytest.mark.parametrize("again", ["try", "outage"])
def test_a_unit_that_always_fails_keeps_no_other_waiting_and_no_round_open(tmp_path: Path, again: Again) -> None:
    played: list[int] = []

    def fails(unit: Planned) -> bool | None:
        played.append(unit.position)
        return None if unit.position == 0 else True

    spec = Spec(tmp_path, success=fails, again=lambda unit: again if unit.position == 0 else "")
    closed = driven(tmp_path, spec, Rules(lease_units=1, tries=3, workers=1))
    assert (closed.rows, closed.accepted) == (N, N - 1) and played == [*range(N), 0, 0]
    assert read_round(tmp_path).rejections == {"infra": 1}


def test_g44_an_outage_of_the_endpoint_costs_no_unit(tmp_path: Path) -> None:
    """Nobody is answered by the first ten attempts: the breaker opens at the sixth. The clock runs fast."""
    leases: list[int] = []
    ticks = itertools.count()

    def fails(unit: Planned) -> bool | None:
        leases.append(unit.position)
        return None if len(leases) <= 10 else True

    spec = Spec(tmp_path, success=fails, again=lambda unit: "outage" if len(leases) < 10 else "")
    rules = Rules(lease_units=1, tries=2, workers=1)
    closed = driven(tmp_path, spec, rules, clock=lambda: 100.0 * next(ticks))
    assert closed.accepted == N


@pytest.mark.parametrize("paid", [False, True])
def test_g36_g44_what_fails_unpaid_while_the_endpoint_is_down_is_no_try(tmp_path: Path, paid: bool) -> None:
    """The first ten leases fail; the breaker opens at the sixth. Four units fail once more, and are given up if that
    cost anything: a round could pay for them for ever."""
    leases: list[int] = []
    ticks = itertools.count()

    def fails(lease: Lease) -> None:
        leases.append(lease.id)
        if len(leases) <= 10:
            if paid:
                journal = Attempts.of(tmp_path).journal(lease.id)
                journal.asked()
                journal.answered(COST)
                journal.close()
            raise OSError("no machine")

    rules, plan = Rules(lease_units=1, tries=2, workers=1), a_plan(units=6, shard_units=6)
    closed = driven(tmp_path, Spec(tmp_path, fails), rules, plan, clock=lambda: 100.0 * next(ticks))
    assert closed.accepted == (2 if paid else 6)
    assert read_round(tmp_path).rejections == ({"infra": 4} if paid else {})


@pytest.mark.parametrize(("error", "times"), [(OSError("no room"), 3), (WorkerDied("killed"), 5)])
def test_a_look_that_fails_time_after_time_stops_the_round(tmp_path: Path, error: Exception, times: int) -> None:
    looks: list[int] = []

    def fails(lease: Lease) -> None:
        if lease.probe is not None:
            looks.append(lease.id)
            if len(looks) <= most:
                raise error

    rules, schedule, most = Rules(lease_units=4, tries=3, deaths=5, workers=1), Schedule({"environment": 1_000}), times
    with pytest.raises(NotReady, match=f"look at the environment has failed {times} times, the last time: .*{error}"):
        driven(tmp_path, Spec(tmp_path, fails), rules, schedule=schedule)
    assert len(looks) == times and read_round(tmp_path).done == 0
    looks, most = [], times - 1
    assert driven(tmp_path, Spec(tmp_path, fails), rules, schedule=schedule).rows == N
