"""The instruments of a round: drift that was put in is found in time, and none is found where there is none."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from evolver.errors import BudgetSpent, UsageError
from evolver.protocols import Finding, Lease, Probe, Report
from evolver.rounds.book import Book
from evolver.rounds.drift import Chart, Settings, upper_share
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.folder import BOOK
from evolver.rounds.manifest import FILE, Manifest
from evolver.rounds.reader import check_round, files
from evolver.rounds.start import Wanted, generate, settings_of
from evolver.rounds.view import read_round
from evolver.rounds.watch import LENIENT, Alarm, Schedule, Watch
from evolver.testing.rounds import COST, noop_rows
from tests.evolver.drifting import CALLS, DRIFTS, Drift, after, simulated
from tests.evolver.round_capsule import write_made_capsule
from tests.evolver.rounds import CAPSULE, Spec, changed, claimed, driven, opened, settled

STALE = Finding("environment", "image", True, "sha256:b, pinned sha256:a", at_once=True)


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


def test_a_look_that_was_under_way_when_the_driver_was_killed_is_made_again_and_booked(tmp_path: Path) -> None:
    """The last one: every unit is played, and without it the round is not closed."""
    spec, schedule = Spec(tmp_path), Schedule({"judge": 1_000})
    short = Rules(lease_units=4, unit_nusd=COST.nusd, probe_nusd={"judge": 5_000}, cap_nusd=40 * COST.nusd + 4_999)
    with pytest.raises(BudgetSpent, match="a look at the judge"):
        driven(tmp_path, spec, short, schedule=schedule)
    round_ = opened(tmp_path)
    watch = Watch(round_.book, schedule, 40)
    watch.begun("judge", round_.book.cost("kept").calls)
    watch.save()
    journal = round_.attempts.journal(round_.book.claim_probe("judge", 0))
    journal.asked()
    journal.answered(COST)
    journal.close()
    round_.close()
    before = len(spec.worked)
    assert driven(tmp_path, spec, schedule=schedule).rows == 40
    assert len(spec.worked) == before + 1
    book = Book.read(tmp_path / BOOK)
    assert book.cost("probe") == COST and book.cost("lost").calls == 0
    book.close()


# --- what an alarm does to a round ----------------------------------------------------------------------------------


def alarmed(path: Path) -> str:
    """A round of 40 units whose image is another one from the second look on."""
    from dataclasses import dataclass, field, replace

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
            return Report(lease.id, "w", findings=(replace(STALE, off=len(self.looks) > 1),))

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
    forgive(tmp_path)
    driven(tmp_path)
    view = read_round(tmp_path)
    assert (view.state, view.done, view.accepted, view.usable) == ("complete", 40, 40, 20)


def forgive(path: Path) -> None:
    book = Book(path / BOOK)
    Watch(book, Schedule(), 40).forgive("the image was built anew")
    book.close()


def test_g31_g41_an_alarm_that_the_driver_did_not_live_to_tell_makes_suspect_what_it_must_and_no_more(
    tmp_path: Path,
) -> None:
    """Of four shards whose rows say the same, one is made and the rows of one are not settled when the alarm is raised.
    Neither is trusted, nor keeps a later row from being the first of its kind."""
    round_ = opened(tmp_path)

    def played(*, settle: bool = True) -> None:
        lease = claimed(round_, 10)
        same = [f"{unit.position % 10:064x}" for unit in lease.units]
        round_.attempts.write(lease.id, changed(noop_rows(lease, CAPSULE, "w"), "sameness", same))
        if settle:
            assert settled(round_, lease) == 10
            round_.compactor.compact()

    played()
    played(settle=False)
    Watch(round_.book, Schedule(), 40).probed([STALE], 10)
    round_.close()  # killed before the manifest says so
    forgive(tmp_path)
    round_ = opened(tmp_path)
    played()
    played()
    round_.close()
    assert driven(tmp_path).accepted == 30
    view = read_round(tmp_path)
    assert set(Manifest.of(tmp_path).suspects) == {0, 1}
    assert view.usable == 10 and view.rejections == {"duplicate": 10}


def test_a_suspicion_that_was_cut_off_the_manifest_s_end_is_told_again_by_the_next_driver(tmp_path: Path) -> None:
    alarmed(tmp_path)
    path = tmp_path / FILE
    *lines, last = path.read_text().splitlines(keepends=True)
    assert '"kind":"suspect"' in last
    path.write_text("".join(lines))
    assert check_round(tmp_path) is None and len(files(tmp_path)) == 2  # a manifest alone can't show it
    forgive(tmp_path)
    driven(tmp_path)
    assert set(Manifest.of(tmp_path).suspects) == {0, 1}


def test_a_round_that_an_alarm_stopped_goes_on_with_what_was_mended_alone(tmp_path: Path) -> None:
    """There is no money for a unit, so a round that goes on says that."""
    capsule, out = write_made_capsule(tmp_path / "capsule", "beta1", "local"), tmp_path / "round"

    def said(after_alarm: str) -> str:
        settings = settings_of(["cost_usd=0", "probe_every=0", f"after_alarm={after_alarm}"])
        with pytest.raises((UsageError, BudgetSpent)) as stopped:
            asyncio.run(generate(Wanted(capsule, "train", out, 40, settings=settings), lambda *told: None, str))
        return str(stopped.value)

    assert "raise cost_usd" in said("")
    book = Book(out / BOOK)
    Watch(book, Schedule(), 40).probed([STALE], 0)
    for nothing in ("", " "):
        assert "stopped by an alarm: environment has drifted (image: sha256:b" in said(nothing)
        assert read_round(out).state == "alarm"
    assert "raise cost_usd" in said("the image was built anew")
    assert read_round(out).why == ""
    assert str(book.get("forgiven-0")).endswith("pinned sha256:a): the image was built anew")
    book.close()
