"""What a round looks like from outside, at any time, while it runs and after: for the command line and for pages.

`read_round` only reads. Progress and costs come from the book, everything about data from the manifest.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from evolver.errors import UsageError
from evolver.intervals import wilson
from evolver.records import Finite, Interval, Record
from evolver.rounds.book import NANO, Book, Tallied
from evolver.rounds.folder import BOOK
from evolver.rounds.manifest import Manifest, Opened
from evolver.rounds.rows import Reason
from evolver.rounds.watch import KEY, Known

STALE_S = 30.0  # a driver that has not been heard of for so long is not there
SHOWN = 50  # looks of the instruments
State = Literal["running", "paused", "stopped", "alarm", "complete"]


class InstrumentView(Record):
    """One chart (evolver.rounds.watch): `statistic` reaches `threshold` at an alarm (both logarithms).

    `expected` is the share of looks that may be off; None while the first looks, which say it, are being taken."""

    name: str
    seen: int
    off: int
    expected: Finite | None
    statistic: Finite
    threshold: Finite
    alarm: bool


class LookView(Record):
    """One look of a probe: what was looked at, whether it was off, after how many units, when (s since 1970)."""

    probe: str
    name: str
    off: bool
    detail: str
    after_units: int
    at: Finite


class ShardView(Record):
    """One shard; `suspect` says why it is left out unless asked for, "" if it is not."""

    number: int
    file: str
    rows: int
    accepted: int
    bytes: int
    suspect: str


class RoundView(Record):
    """A round as it stands. Money in $, times in s since 1970; None is unknown.

    `done` units of `planned` are played and kept, `accepted` + `rejected` of them; `rejections` counts by reason
    (evolver.rounds.rows.Reason). `success` is over the units that could be scored. `channels` counts accepted units by
    channel. `spent_usd` is all that was paid: for kept units, for attempts that were lost or superseded
    (`wasted_usd`) and for probes. `unknown_costs` counts calls whose cost nobody knows, which are in no sum. A round
    with suspect shards has `usable` accepted units that are in no such shard.
    """

    path: str
    state: State
    why: str
    capsule_id: str
    capsule: str
    harness_id: str
    model_id: str
    tasks: str
    n_tasks: int
    planned: int
    done: int
    under_way: int
    accepted: int
    rejected: int
    usable: int
    rejections: dict[Reason, int]
    success: Interval
    channels: dict[str, int]
    spent_usd: Finite
    wasted_usd: Finite
    probes_usd: Finite
    one_off_usd: Finite | None
    usd_per_accepted: Finite | None
    usd_per_accepted_all_in: Finite | None
    unknown_costs: int
    tokens: int
    started_at: Finite
    heard_at: Finite | None
    ended_at: Finite | None
    left_s: Finite | None
    instruments: tuple[InstrumentView, ...]
    looks: tuple[LookView, ...]
    shards: tuple[ShardView, ...]
    root: str | None


def read_round(path: Path, now: float | None = None) -> RoundView:
    """Raises UsageError when there is no round at `path`, or its manifest was tampered with."""
    manifest = Manifest.of(path)
    if not manifest.is_open:
        raise UsageError(f"no round at {path}: `evolver generate` starts one")
    book = Book.read(path / BOOK)
    try:
        return _view(path, manifest, book, time.time() if now is None else now)
    finally:
        book.close()


def _view(path: Path, manifest: Manifest, book: Book, now: float) -> RoundView:
    opened, closed, tally = manifest.opened, manifest.closed, book.tally()
    known = Known() if book.get(KEY) is None else Known.model_validate(book.get(KEY))
    beat = book.get("beat")
    heard, out, paused = (beat["at"], beat["out"], beat["paused"]) if isinstance(beat, dict) else (None, 0, False)
    live = isinstance(heard, float) and now - heard < STALE_S
    done = book.committed()
    accepted, total = _count(tally, "accepted"), book.cost()
    suspects, one_off = manifest.suspects, opened.one_off_usd
    spent = total.nusd / NANO
    state: State = (
        "alarm"
        if known.alarm
        else "complete"
        if closed
        else "stopped"
        if not live
        else "paused"
        if paused
        else "running"
    )
    return RoundView(
        path=str(path),
        state=state,
        why=known.alarm or ("most of what came back failed on our side" if state == "paused" else ""),
        **opened.model_dump(include={"capsule_id", "capsule", "harness_id", "model_id", "tasks", "n_tasks"}),
        planned=opened.units,
        done=done,
        under_way=out if live and isinstance(out, int) else 0,
        accepted=accepted,
        rejected=_count(tally, "rejected"),
        usable=accepted - sum(shard.accepted for shard in manifest.shards if shard.number in suspects),
        rejections=_by(tally, "rejected"),  # type: ignore[arg-type]
        success=wilson(sum(t.successes for t in tally), sum(t.n for t in tally if t.reason != "infra"), "units"),
        channels=_channels(tally),
        spent_usd=spent,
        wasted_usd=book.cost("lost", "superseded").nusd / NANO,
        probes_usd=book.cost("probe").nusd / NANO,
        one_off_usd=one_off,
        usd_per_accepted=spent / accepted if accepted else None,
        usd_per_accepted_all_in=(spent + one_off) / accepted if accepted and one_off is not None else None,
        unknown_costs=total.unknown,
        tokens=total.tokens,
        started_at=opened.at,
        heard_at=heard if isinstance(heard, float) else None,
        ended_at=closed.at if closed else None,
        left_s=_left(opened, book.get("start"), done, now) if live and not closed else None,
        instruments=_instruments(known),
        looks=_looks(book),
        shards=_shards(manifest),
        root=closed.root if closed else None,
    )


def _count(tally: list[Tallied], verdict: str) -> int:
    return sum(one.n for one in tally if one.verdict == verdict)


def _by(tally: list[Tallied], verdict: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for one in tally:
        if one.verdict == verdict:
            counts[one.reason] += one.n
    return {reason: n for reason, n in counts.most_common() if n}


def _channels(tally: list[Tallied]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for one in tally:
        if one.verdict == "accepted":
            counts[one.channel] += one.n
    return {channel: n for channel, n in counts.most_common() if n}


def _left(opened: Opened, start: JsonValue, done: int, now: float) -> float | None:
    """By what was done since the round was started the last time: the days in which it stood still say nothing."""
    since, before = (start["at"], start["done"]) if isinstance(start, dict) else (opened.at, 0)
    if not (isinstance(since, float) and isinstance(before, int)) or done <= before:
        return None
    return (now - since) / (done - before) * (opened.units - done)


def _instruments(known: Known) -> tuple[InstrumentView, ...]:
    return tuple(
        InstrumentView(
            name=name,
            seen=chart.first.seen + chart.later.seen,
            off=chart.first.off + chart.later.off,
            expected=chart.expected if chart.ready else None,
            statistic=chart.statistic,
            threshold=chart.threshold,
            alarm=chart.alarm,
        )
        for name, chart in sorted(known.charts.items())
    )


def _looks(book: Book) -> tuple[LookView, ...]:
    return tuple(
        LookView(probe=probe, name=name, off=off, detail=detail, after_units=seq, at=at)
        for probe, name, off, detail, seq, at in book.looks(SHOWN)
    )


def _shards(manifest: Manifest) -> tuple[ShardView, ...]:
    suspects = manifest.suspects
    return tuple(
        ShardView(
            number=shard.number,
            file=shard.file,
            rows=shard.rows,
            accepted=shard.accepted,
            bytes=shard.bytes,
            suspect=suspects.get(shard.number, ""),
        )
        for shard in manifest.shards
    )
