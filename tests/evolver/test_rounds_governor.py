"""Back-pressure, outages and money of a round, by a clock that the test turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.rounds.book import Cost
from evolver.rounds.governor import FIRST_PAUSE_S, Breaker, Purse, Window
from evolver.rounds.settling import lost
from tests.evolver.rounds import opened


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
