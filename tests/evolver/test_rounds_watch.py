"""The instruments of a round: drift that was put in is found in time, and none is found where there is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from evolver.errors import UsageError
from evolver.protocols import Finding, Lease, Probe, Report
from evolver.rounds.drift import Chart, Settings, upper_share
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.manifest import Manifest
from evolver.rounds.reader import files
from evolver.rounds.settling import Came
from evolver.rounds.view import read_round
from evolver.rounds.watch import Alarm, Schedule, Watch
from tests.evolver.rounds import Spec, driven, opened

UNITS, CALLS, EVERY = 10_000, 5, 250  # calls a unit, and between two looks
LOOKS: dict[Probe, int] = {"endpoint": 20, "environment": 6, "judge": 20}
Share = Callable[[str, int], float]  # of looks that are off, by instrument and units done


def calm(name: str, done: int) -> float:
    """A round without drift: an endpoint and a judge that waver a little."""
    return {
        "endpoint": 0.03,
        "judge": 0.03,
        "environment": 0.0,
        "image": 0.0,
        "infra": 0.005,
        "fails": 0.4,
        "long": 0.1,
    }[name]


def played(folder: Path, share: Share, seed: int) -> tuple[str | None, int]:
    """A simulated round; what the alarm says (None: there was none), and after how many units."""
    rng = random.Random(seed)
    round_ = opened(folder)
    watch = Watch(round_.book, Schedule({"endpoint": EVERY, "environment": 2 * EVERY, "judge": EVERY}), UNITS)
    watch.save = lambda: None  # type: ignore[method-assign]
    try:
        for done in range(0, UNITS, 20):
            while (probe := watch.due(CALLS * done)) is not None:
                found = [Finding(probe, "x", rng.random() < share(probe, done)) for _ in range(LOOKS[probe])]
                if probe == "environment":
                    found.append(Finding(probe, "image", rng.random() < share("image", done), at_once=True))
                watch.probed(found, done)
            infra = [rng.random() < share("infra", done) for _ in range(20)]
            ends = [None if lost else rng.random() >= share("fails", done) for lost in infra]
            long = [1_000 + 9_000 * (rng.random() < share("long", done)) + rng.randrange(100) for _ in range(20)]
            watch.played(came(ends, long), done + 20)
            if watch.alarm is not None:
                return watch.alarm, done + 20
        return None, UNITS
    finally:
        round_.close()


def came(ends: list[bool | None], tokens: list[int]) -> Came:
    n = len(ends)
    reasons = ["infra" if end is None else "" if end else "state" for end in ends]
    return Came(
        units=[str(i) for i in range(n)], again=[""] * n, verdicts=["accepted"] * n, reasons=reasons,
        successes=ends, channels=["gui"] * n, calls=[1] * n, tokens=list(tokens), nusd=[0] * n,
    )  # fmt: skip


def after(start: int, **changed: float) -> Share:
    return lambda name, done: changed[name] if name in changed and done >= start else calm(name, done)


@pytest.mark.parametrize(
    ("drift", "named", "calls"),
    [
        ({"endpoint": 0.5}, "endpoint", 1_000),  # a swapped model answers half of the fixed requests otherwise
        ({"image": 1.0}, "environment", 1_000),  # a stale image
        ({"environment": 0.43}, "environment", 3_500),  # machines on which no known solution works any more
        ({"judge": 0.5}, "judge", 1_000),  # a lenient judge passes what it failed before
        ({"fails": 0.65}, "less_success", 7_500),  # the swapped model, seen from the units alone
        ({"fails": 0.15}, "more_success", 5_000),  # the lenient judge, likewise
        ({"infra": 0.15}, "infra", 5_000),
        ({"long": 0.5}, "tokens", 5_000),
    ],
)
def test_g41_drift_is_found_in_time(tmp_path: Path, drift: dict[str, float], named: str, calls: int) -> None:
    for seed in range(3):
        why, done = played(tmp_path / str(seed), after(3_000, **drift), seed)
        assert why is not None and why.startswith(named), why
        assert 3_000 < done <= 3_000 + calls / CALLS, f"{why} after {done}"


@pytest.mark.slow
def test_g41_ten_rounds_without_drift_raise_one_false_alarm_at_most(tmp_path: Path) -> None:
    alarms = [why for seed in range(10) if (why := played(tmp_path / str(seed), calm, 100 + seed)[0])]
    assert len(alarms) <= 1, alarms


def test_a_chart_alarms_no_more_often_than_its_level() -> None:
    """500 charts of 1,000 looks at exactly the expected share; at most `level` of them may alarm, and chance on top."""
    rng, alarms = random.Random(0), 0
    for _ in range(500):
        chart = Chart(settings=Settings(expected=0.1, looks=1_000, level=0.05))
        for at in range(20):
            chart = chart.looked(50, sum(rng.random() < 0.1 for _ in range(50)), at)
        alarms += chart.alarm
    assert alarms <= 40


def test_a_chart_that_is_always_off_needs_no_bound() -> None:
    assert upper_share(5, 5) == 1.0 and 0.0 < upper_share(0, 100) < 0.1
    chart = Chart(settings=Settings(expected=0.0, looks=100, burn_in=10))
    chart = chart.looked(10, 10, 0)
    for mark in range(200):  # all of the first looks were: nothing can be worse, however long it goes on
        chart = chart.looked(1_000, 1_000, mark)
    assert chart.ready and chart.expected == 1.0 and not chart.alarm


def test_what_is_known_outlives_the_driver(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    schedule = Schedule({"environment": 10, "judge": 10})
    watch = Watch(round_.book, schedule, 40)
    assert [watch.due(0), watch.due(0), watch.due(0)] == ["environment", "judge", None]
    watch.probed([Finding("environment", "image", False)] * 3, 0)
    again = Watch(round_.book, schedule, 40)
    assert again.known == watch.known and again.due(5) is None and again.due(10) == "environment"
    again.again("environment")
    assert again.due(11) == "environment"
    again.probed([Finding("judge", "case", False)] * 20, 0)
    assert again.due(11) == "judge"  # until it is known what is to be expected of it
    round_.close()


# --- what an alarm does to a round ----------------------------------------------------------------------------------


def alarmed(path: Path) -> str:
    """A round of 40 units whose image is another one from the second look on."""
    import asyncio
    from dataclasses import dataclass, field

    from evolver.executors.local import LocalCrew
    from tests.evolver.rounds import Player

    @dataclass
    class Worker:
        inner: Player
        looks: list[int] = field(default_factory=list)

        async def work(self, lease: Lease) -> Report:
            if lease.probe is None:
                return await self.inner.work(lease)
            self.looks.append(lease.id)
            off = len(self.looks) > 1
            found = Finding("environment", "image", off, "sha256:b, pinned sha256:a", at_once=True)
            return Report(lease.id, "w", findings=(found,))

        async def aclose(self) -> None:
            return None

    class Hires(Spec):
        async def open(self, name: str) -> Worker:  # type: ignore[override]
            return Worker(Player(self, name))

    async def play() -> str:
        round_ = opened(path)
        crew = LocalCrew(Hires(path), 1)
        try:
            watch = Watch(round_.book, Schedule({"environment": 20}), 40)
            with pytest.raises(Alarm) as stopped:
                await Driver(round_, crew, Rules(lease_units=5, workers=1), watch).run()
            return str(stopped.value)
        finally:
            await crew.aclose()
            round_.close()

    return asyncio.run(play())


def test_g40_g41_an_alarm_stops_the_round_and_what_came_since_the_last_good_look_is_left_out(tmp_path: Path) -> None:
    assert "environment has drifted (image: sha256:b, pinned sha256:a)" in alarmed(tmp_path)
    view = read_round(tmp_path)
    assert view.state == "alarm" and view.done == 20
    assert set(Manifest.of(tmp_path).suspects) == {0, 1}
    assert files(tmp_path) == [] and len(files(tmp_path, suspect=True)) == 2
    assert view.accepted == 20 and view.usable == 0
    round_ = opened(tmp_path)
    watch = Watch(round_.book, Schedule(), 40)
    with pytest.raises(UsageError, match="environment has drifted"):
        raise Alarm(watch.alarm or "")
    watch.forgive("the image was built anew")
    round_.close()
    driven(tmp_path)
    view = read_round(tmp_path)
    assert (view.state, view.done, view.accepted, view.usable) == ("complete", 40, 40, 20)
