"""The instruments of a round: probes at fixed distances, and the units themselves, each on a chart of its own.

    endpoint      fixed requests are answered as at the round's start                           (a probe)
    environment   oracles succeed, idle agents fail, the machine's image is the pinned one      (a probe)
    judge         frozen cases that it failed, or passed, are judged as they were: two charts   (a probe)
    more_success, less_success, infra, tokens   of the units, against what the first came to    (free)

What is known is kept in the book: a resumed round goes on with the charts of the stopped one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field, TypeAdapter

from evolver.errors import UsageError
from evolver.protocols import Finding, Probe
from evolver.records import Record
from evolver.rounds.book import Book
from evolver.rounds.drift import Chart, Settings
from evolver.rounds.settling import Came

LENIENT, STRICT = "lenient_judge", "strict_judge"  # what cases that the judge failed, and passed, can show of it
# Of the charts of probes: the share of looks that may be off, or what so many first looks bound it at, if that is more.
EXPECTED = {"endpoint": (0.05, 400), "environment": (0.02, 0), LENIENT: (0.05, 200), STRICT: (0.05, 100)}
ENOUGH = 5  # looks of a probe on a chart, for it to be repeated at once until it is known what is to be expected
INFRA_EXPECTED, LONG = 0.02, 0.9  # LONG: the share of the first units that take no more tokens than what "long" means
FIRST_LOOKS, CALLS_A_UNIT = 40, 20  # at most, for a bound on how often a chart is looked at
KEY = "watch"


class Alarm(UsageError):
    """An instrument of the round is off: nothing more is played until a person has looked."""


class Known(Record):
    """All that the watch has learned so far. `long_tokens` is where a unit begins to be long; `firsts` are the tokens
    of the units that tell."""

    charts: dict[str, Chart] = Field(default_factory=dict)
    asked: dict[str, int] = Field(default_factory=dict)
    firsts: tuple[int, ...] = ()
    long_tokens: int | None = None
    alarm: str | None = None


@dataclass(frozen=True)
class Schedule:
    """Which probes are made, each after every so many calls; the first `burn_in` units set the free charts up."""

    every: dict[Probe, int] = field(default_factory=dict)
    burn_in: int = 200
    level: float = 0.005


class Watch:
    """Hears findings and units; `alarm` says what is off. The transaction that keeps it makes suspect what was done
    since that was last known to be right."""

    def __init__(self, book: Book, schedule: Schedule, units: int) -> None:
        self._book, self._schedule, self._units = book, schedule, units
        self._dirty = False
        kept = book.get(KEY)
        self.known = Known() if kept is None else TypeAdapter(Known).validate_python(kept)

    @property
    def alarm(self) -> str | None:
        return self.known.alarm

    def due(self, calls: int, *, final: bool = False) -> Probe | None:
        """The probe that is to be made before the next unit, if any, after so many calls of the round. `final`: each
        that was not made since the last call."""
        for probe, every in self._schedule.every.items():
            if probe not in self.known.asked or calls - self.known.asked[probe] >= (1 if final else every):
                return probe
        return None

    def begun(self, probe: Probe, calls: int) -> None:
        """The probe counts as made, after so many calls of the round."""
        self._learn({"asked": {**self.known.asked, probe: calls}})

    def again(self, probe: Probe) -> None:
        """The probe is due again."""
        self._learn({"asked": {name: at for name, at in self.known.asked.items() if name != probe}})

    def probed(self, findings: Sequence[Finding], committed: int) -> None:
        self._book.look([(f.probe, f.name, f.off, f.detail) for f in findings])
        for probe, chart in dict.fromkeys((one.probe, one.chart or one.probe) for one in findings):
            found = [one for one in findings if (one.chart or one.probe) == chart]
            off = [one for one in found if one.off]
            if sure := [one for one in off if one.at_once]:
                good = self.known.charts[chart].good if chart in self.known.charts else 0
                self._raise(chart, _what(sure[0]), good)
            last = _what(off[-1]) if off else ""
            self._look(chart, len(found), len(off), committed, last, settings=self._probe_settings(probe, chart))
            if len(found) >= ENOUGH and not self.known.charts[chart].ready:
                self.again(probe)  # what is to be expected must be known before it can be missed
        self.save()

    def played(self, came: Came, committed: int) -> None:
        """Units that are done: whether each succeeded, could be scored, and how long it took."""
        n, infra = len(came.units), sum(reason == "infra" for reason in came.reasons)
        scored = [one for one in came.successes if one is not None]
        solved = sum(scored)
        self._look("infra", n, infra, committed)
        if scored:
            self._look("more_success", len(scored), solved, committed)
            self._look("less_success", len(scored), len(scored) - solved, committed)
        tokens = [one for one, reason in zip(came.tokens, came.reasons, strict=True) if one and reason != "infra"]
        if tokens:
            self._lengths(tokens, committed)

    def forgive(self, why: str) -> None:
        """After an alarm that a person has seen to: every chart starts anew."""
        self._book.put(f"forgiven-{self._book.committed()}", f"{self.known.alarm}: {why}")
        self.known = Known()
        self._dirty = True
        self.save()

    def save(self) -> None:
        if self._dirty:
            self._book.put(KEY, self.known.model_dump(mode="json"))
            self._dirty = False

    def _lengths(self, tokens: Sequence[int], committed: int) -> None:
        limit = self.known.long_tokens
        if limit is None:
            firsts = (*self.known.firsts, *tokens)
            if len(firsts) < self._schedule.burn_in:
                self._learn({"firsts": firsts})
                return
            limit = sorted(firsts)[int(LONG * (len(firsts) - 1))]
            self._learn({"firsts": (), "long_tokens": limit})
            tokens = firsts
        self._look("tokens", len(tokens), sum(one > limit for one in tokens), committed)

    def _look(
        self, name: str, seen: int, off: int, committed: int, what: str = "", settings: Settings | None = None
    ) -> None:
        chart = self.known.charts.get(name) or Chart(settings=settings or self._settings(name))
        chart = chart.looked(seen, off, committed)
        self._learn({"charts": {**self.known.charts, name: chart}})
        if chart.alarm:
            later = chart.later
            why = f"{later.off} of {later.seen} looks are off, {chart.expected:.0%} were to be expected at most"
            self._raise(name, f"{why}; last: {what}" if what else why, chart.good)

    def _probe_settings(self, probe: Probe, chart: str) -> Settings:
        expected, burn_in = EXPECTED[chart]
        looks = FIRST_LOOKS + CALLS_A_UNIT * self._units // max(1, self._schedule.every.get(probe, 1))
        return Settings(expected=expected, looks=looks, burn_in=burn_in, level=self._schedule.level)

    def _settings(self, name: str) -> Settings:
        """Of a chart of the units."""
        expected = INFRA_EXPECTED if name == "infra" else 1 - LONG if name == "tokens" else 0.0
        burn_in, level = self._schedule.burn_in, self._schedule.level
        return Settings(expected=expected, looks=self._units, burn_in=burn_in, level=level)

    def _raise(self, name: str, why: str, good: int) -> None:
        if self.known.alarm is None:
            alarm = f"{name} has drifted ({why})"
            self._learn({"alarm": alarm})
            self._book.suspect(good, alarm, KEY, self.known.model_dump(mode="json"))

    def _learn(self, update: Mapping[str, object]) -> None:
        self.known = self.known.model_copy(update=update)
        self._dirty = True


def _what(finding: Finding) -> str:
    return f"{finding.name}: {finding.detail}" if finding.detail else finding.name
