"""Simulated rounds, for what their instruments find and how late: units and looks are drawn, the watch is real."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evolver.protocols import Finding, Probe
from evolver.rounds.settling import Came
from evolver.rounds.watch import LENIENT, STRICT, Schedule, Watch
from tests.evolver.rounds import opened

UNITS, CALLS, EVERY, STEP = 10_000, 5, 250, 10  # calls a unit, and between two looks; units that come at a time
LOOKS: dict[str, tuple[Probe, int]] = {
    "endpoint": ("endpoint", 20),
    "environment": ("environment", 6),
    LENIENT: ("judge", 20),
    STRICT: ("judge", 10),
}
CALM = {  # a round without drift: an endpoint and a judge that waver a little
    "endpoint": 0.03, LENIENT: 0.03, STRICT: 0.03, "environment": 0.0, "image": 0.0, "infra": 0.005, "fails": 0.4,
    "long": 0.1,
}  # fmt: skip
Share = Callable[[str, int], float]  # of looks that are off, by instrument and units done


@dataclass(frozen=True)
class Drift:
    """What is off how often once it has set in, the chart that should say so, and after how many calls at most."""

    what: str
    shares: dict[str, float]
    named: str
    calls: int


DRIFTS = (
    Drift("a swapped model answers half of the fixed requests otherwise", {"endpoint": 0.5}, "endpoint", 1_000),
    Drift("a stale image", {"image": 1.0}, "environment", 1_000),
    Drift("a lenient judge passes half of what it failed", {LENIENT: 0.5}, LENIENT, 1_000),
    Drift("a strict judge fails half of what it passed", {STRICT: 0.5}, STRICT, 3_000),
    Drift("machines on which no known solution works", {"environment": 0.43}, "environment", 3_500),
    Drift("units: success falls from 60 to 35 %", {"fails": 0.65}, "less_success", 7_500),
    Drift("units: success rises from 60 to 85 %", {"fails": 0.15}, "more_success", 5_000),
    Drift("units: 15 % come to nothing, not 0.5 %", {"infra": 0.15}, "infra", 5_000),
    Drift("units: half are long, not a tenth", {"long": 0.5}, "tokens", 5_000),
)


def after(start: int, changed: dict[str, float], before: dict[str, float] = CALM) -> Share:
    return lambda name, done: changed[name] if name in changed and done >= start else before[name]


def simulated(folder: Path, share: Share, seed: int) -> tuple[str | None, int]:
    """A round of `UNITS`; what the alarm says (None: there was none), and after how many units."""
    rng = random.Random(seed)
    round_ = opened(folder)
    every: dict[Probe, int] = {"endpoint": EVERY, "environment": 2 * EVERY, "judge": EVERY}
    watch = Watch(round_.book, Schedule(every), UNITS)
    watch.save = lambda: None  # type: ignore[method-assign]
    try:
        for done in range(0, UNITS, STEP):
            while (probe := watch.due(CALLS * done)) is not None:
                watch.begun(probe, CALLS * done)
                watch.probed(looked(probe, share, done, rng), done)
            watch.played(came(share, done, rng), done + STEP)
            if watch.alarm is not None:
                return watch.alarm, done + STEP
        return None, UNITS
    finally:
        round_.close()


def looked(probe: Probe, share: Share, done: int, rng: random.Random) -> list[Finding]:
    found = [
        Finding(probe, "x", rng.random() < share(chart, done), chart=chart)
        for chart, (its, n) in LOOKS.items()
        for _ in range(n if its == probe else 0)
    ]
    if probe == "environment":
        found.append(Finding(probe, "image", rng.random() < share("image", done), at_once=True))
    return found


def came(share: Share, done: int, rng: random.Random) -> Came:
    """The next units: whether each was scored, succeeded, and took long."""
    ends = [None if rng.random() < share("infra", done) else rng.random() >= share("fails", done) for _ in range(STEP)]
    return Came(
        units=[str(i) for i in range(STEP)],
        again=[""] * STEP,
        verdicts=["accepted"] * STEP,
        reasons=["infra" if end is None else "" if end else "state" for end in ends],
        successes=list(ends),
        channels=["gui"] * STEP,
        calls=[1] * STEP,
        tokens=[1_000 + 9_000 * (rng.random() < share("long", done)) + rng.randrange(100) for _ in range(STEP)],
        nusd=[0] * STEP,
    )
