"""The instruments of a round: drift that was put in is found in time, and none is found where there is none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from evolver.errors import UsageError
from evolver.protocols import Finding, Lease, Probe, Report
from evolver.rounds.drift import Chart, Settings, upper_share
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.manifest import Manifest
from evolver.rounds.reader import files
from evolver.rounds.view import read_round
from evolver.rounds.watch import LENIENT, Alarm, Schedule, Watch
from tests.evolver.drifting import CALLS, DRIFTS, Drift, after, simulated
from tests.evolver.rounds import Spec, driven, opened


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: drift.what)
def test_g41_drift_is_found_in_time(tmp_path: Path, drift: Drift) -> None:
    """`make bench-instruments` does the same with many rounds."""
    for seed in range(3):
        why, done = simulated(tmp_path / str(seed), after(3_000, drift.shares), seed)
        assert why is not None and why.startswith(drift.named), why
        assert 3_000 < done <= 3_000 + drift.calls / CALLS, f"{why} after {done}"


@pytest.mark.slow
def test_g41_ten_rounds_without_drift_raise_one_false_alarm_at_most(tmp_path: Path) -> None:
    alarms = [why for seed in range(10) if (why := simulated(tmp_path / str(seed), after(0, {}), 100 + seed)[0])]
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


def test_unlucky_first_looks_delay_an_alarm_and_do_not_prevent_it() -> None:
    """Failures of 40 %, of which the first 200 units had 48: they bound it at 59 %, and it rises to 65."""
    chart = Chart(settings=Settings(expected=0.0, looks=10_000, burn_in=200)).looked(200, 96, 0)
    marks = 0
    while not chart.alarm and marks < 300:
        marks += 1
        chart = chart.looked(20, 13, marks)
    assert 0.58 < chart.expected < 0.6 and 50 < marks < 150


def begun(watch: Watch, calls: int) -> Probe | None:
    """The probe that is due, which is then made."""
    probe = watch.due(calls)
    if probe is not None:
        watch.begun(probe, calls)
    return probe


def test_what_is_known_outlives_the_driver(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    schedule = Schedule({"environment": 10, "judge": 10})
    watch = Watch(round_.book, schedule, 40)
    assert [begun(watch, 0), begun(watch, 0), begun(watch, 0)] == ["environment", "judge", None]
    watch.probed([Finding("environment", "image", False)] * 3, 0)
    again = Watch(round_.book, schedule, 40)
    assert again.known == watch.known and again.due(5) is None and begun(again, 10) == "environment"
    again.again("environment")
    assert begun(again, 11) == "environment"
    again.probed([Finding("judge", "case", False, chart=LENIENT)] * 20, 0)
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
