"""Drives a round to its end: hands out leases, settles what comes back, compacts, and stops when something is off.

The driver owns every retry. Whatever dies, itself included, the same command goes on: a lease that left its rows is
settled as if its worker had reported, one that did not is booked by its journal and its units wait again.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from pydantic import JsonValue

from evolver.errors import BudgetSpent, NotReady
from evolver.protocols import Crew, Finished, Lease, Lost, Probe, Report
from evolver.rounds.attempts import Attempts
from evolver.rounds.book import NANO, Book, End
from evolver.rounds.folder import Round
from evolver.rounds.governor import Breaker, Purse, Window
from evolver.rounds.manifest import FIRST, Closed, Suspect, closing
from evolver.rounds.plan import TaskRef
from evolver.rounds.rows import Origin, infra_row, table_of
from evolver.rounds.settling import Came, lost, probed, settlement
from evolver.rounds.ungraded import Shelf
from evolver.rounds.watch import Alarm, Watch

GRACE_S = 120.0  # beside the units' own deadlines: setting a machine up, grading, writing
BEAT_S = 2.0
Tell = Callable[[int, int, dict[str, JsonValue]], None]


@dataclass(frozen=True)
class Rules:
    """How a round is driven. `unit_nusd` is the most that one unit can cost, `probe_nusd` the most that each probe can
    (nothing where it is not named), `cap_nusd` the most that the round may. A call whose cost nobody knows is taken to
    have cost `call_nusd`.

    A unit is given up as `infra` after `tries` failures on our side, or the deaths of `deaths` workers; after as many
    of one look, in a row, the round stops.
    """

    lease_units: int = 1
    deadline_s: float = 3_600.0
    unit_nusd: int = 0
    call_nusd: int = 0
    probe_nusd: Mapping[Probe, int] = field(default_factory=dict)
    cap_nusd: int | None = None
    tries: int = 3
    deaths: int = 10
    workers: int = 2


@dataclass
class Driver:
    """Use `run`, in the process that holds the round's lock."""

    round: Round
    crew: Crew
    rules: Rules
    watch: Watch
    tell: Tell = lambda done, total, detail: None
    clock: Callable[[], float] = time.monotonic
    _out: dict[int, tuple[Lease, float]] = field(default_factory=dict, init=False)
    _unpaid: Probe | None = field(default=None, init=False)  # is due, and there is no money for it now
    _unseen: Counter[tuple[Probe, bool]] = field(default_factory=Counter, init=False)  # in a row; by death, or failure
    _beat: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.window = Window(self.rules.workers, self.clock)
        self.breaker = Breaker(self.clock)
        self.purse = Purse(self.rules.cap_nusd, self.rules.unit_nusd)

    @property
    def book(self) -> Book:
        return self.round.book

    @property
    def attempts(self) -> Attempts:
        return self.round.attempts

    async def run(self) -> Closed:
        """Plays what is missing and closes the manifest. Raises Alarm when an instrument is off, BudgetSpent when the
        cap leaves no room for another unit or look, NotReady when no worker is left."""
        self.recover()
        self.book.put("start", {"at": time.time(), "done": self.book.committed()})
        self._progress(force=True)
        while True:
            played = self.book.committed() == self.round.manifest.opened.units
            if self.watch.alarm is None:
                self._hand_out(final=played)
            if played and not self._out and (self.watch.alarm is not None or self._looked()):
                break
            if not self._out:
                self._stuck()
            came = await self.crew.next(min(1.0, BEAT_S))
            if came is not None:
                self._take(came)
            self._end_overdue()
            self._progress()
        self._compact()
        self._progress(force=True)
        if self.watch.alarm is not None:
            raise Alarm(self.watch.alarm)
        return self._close()

    def recover(self) -> None:
        """Settles what the last driver left open. Its workers are dead, or may no longer commit."""
        self.attempts.sweep()
        for lease in self.book.open_leases():
            if lease.probe is not None:
                self._probed(lease.probe, lease.id, None)
            elif self.attempts.has(lease.id):
                self._settle(lease.id)
            else:
                self._lose(lease.id, "lost")
        for lease_id in self.attempts.leases():
            if self.attempts.has(lease_id):
                self._settle(lease_id)  # a late one; those that counted before are no change
        self.round.compactor.recover()
        self._mark(range(self.round.compactor.next))
        self._compact()
        first, _ = self.round.compactor.bounds(self.round.compactor.next)
        needed = set(self.book.spent_leases(first, self.round.manifest.opened.units, first))
        for lease_id in set(self.attempts.leases()) - needed:
            self.attempts.drop(lease_id)

    # --- handing out

    def _hand_out(self, *, final: bool) -> None:
        """`final`: no unit is left, and the instruments are looked at a last time."""
        self._unpaid = None
        below = self.round.compactor.frontier(self.round.compactor.next)
        while self.crew.free > 0 and len(self._out) < self.breaker.limit(self.window.open):
            calls = self.book.cost("kept").calls
            probe = self.watch.due(calls, final=final)
            if probe is not None:
                cost = self.rules.probe_nusd.get(probe, 0)
                if not self.purse.covers(cost, self._spent(), self.book.reserved()):
                    self._unpaid = probe
                    return
                self.watch.begun(probe, calls)
                self._submit(Lease(self.book.claim_probe(probe, cost), probe=probe))
                continue
            most = self.rules.lease_units if not self.breaker.tripped else 1
            most = self.purse.units(self._spent(), self.book.reserved(), most)
            claimed = self.book.claim(most, below, self.rules.unit_nusd) if most > 0 else None
            if claimed is None:
                return
            self._submit(Lease(*claimed, deadline_s=self.rules.deadline_s))

    def _looked(self) -> bool:
        """Whether no instrument is to be looked at a last time, also where no worker is free for it yet."""
        return self.watch.due(self.book.cost("kept").calls, final=True) is None

    def _submit(self, lease: Lease) -> None:
        self._out[lease.id] = lease, self.clock()
        self.crew.submit(lease)

    def _stuck(self) -> None:
        """Nothing is under way: whether anything still can be."""
        if self.watch.alarm is not None:
            self._compact()
            raise Alarm(self.watch.alarm)
        if self.crew.alive == 0:
            raise NotReady("no worker is left, and none can be had: see to the machines and run the same command again")
        spent = self._spent()
        if self._unpaid is not None:
            self._stop_at_cap(spent, f"a look at the {self._unpaid}", self.rules.probe_nusd[self._unpaid])
        if not self.purse.units(spent, 0, 1) and self.book.waiting():
            self._stop_at_cap(spent, "one more unit", self.rules.unit_nusd)

    def _spent(self) -> int:
        """Nano-dollars, with calls of unknown cost at their worst: a cap holds for them too."""
        cost = self.book.cost()
        return cost.nusd + cost.unknown * self.rules.call_nusd

    def _stop_at_cap(self, spent: int, what: str, cost: int) -> NoReturn:
        self._compact()
        cap = (self.rules.cap_nusd or 0) / NANO
        unknown = self.book.cost().unknown
        most = f" ({unknown:,} calls of unknown cost taken at their most)" if unknown else ""
        raise BudgetSpent(
            f"${spent / NANO:,.4f} of ${cap:,.4f} are spent{most}, and {what} may cost ${cost / NANO:,.4f}: "
            "raise cost_usd and run the same command again"
        )

    def _end_overdue(self) -> None:
        now = self.clock()
        for lease, began in list(self._out.values()):
            if now > began + GRACE_S + lease.deadline_s * max(1, len(lease.units)):
                self.crew.end(lease.id)

    # --- taking back

    def _take(self, came: Finished | Lost) -> None:
        lease, began = self._out.pop(came.lease.id)
        if isinstance(came, Finished):
            self.window.heard(came.report.throttled, came.report.asked_s, began)
        if lease.probe is not None:
            self._probed(lease.probe, lease.id, came.report if isinstance(came, Finished) else None)
            self._stop_unseen(lease.probe, came)
        elif self.attempts.has(lease.id):
            if not self._settle(lease.id):
                self.attempts.drop(lease.id)
        else:
            self._failed(lease, came)
        self._compact()

    def _probed(self, probe: Probe, lease_id: int, report: Report | None) -> None:
        """What it says is kept before its lease is ended: a driver that finds that open looks again."""
        if report is None:
            self.watch.again(probe)
        else:
            self.watch.probed(report.findings, self.book.committed())
            self._alarmed()
        self.watch.save()
        self.book.settle(lease_id, probed(self.attempts.spent(lease_id)))
        self.attempts.drop(lease_id)

    def _stop_unseen(self, probe: Probe, came: Finished | Lost) -> None:
        """Raises NotReady when an instrument can't be looked at, time after time: no round is closed without."""
        if isinstance(came, Finished):
            del self._unseen[probe, False], self._unseen[probe, True]
            return
        self._unseen[probe, came.died] += 1
        n = self._unseen[probe, came.died]
        if n >= (self.rules.deaths if came.died else self.rules.tries):
            raise NotReady(
                f"the look at the {probe} has failed {n} times, the last time: {came.why}; mend that and run the same "
                "command again"
            )

    def _failed(self, lease: Lease, came: Finished | Lost) -> None:
        """It left no rows. While the endpoint is down that is no failure of its units, unless calls were answered."""
        died, why = (came.died, came.why) if isinstance(came, Lost) else (False, "its worker left no rows")
        down = self.breaker.tripped and not self.attempts.spent(lease.id).calls
        self._lose(lease.id, "died" if died else "lost" if down else "failed")
        for _ in lease.units if not died else ():
            self.breaker.heard(sound=False)
        self._give_up_worn(why)

    def _settle(self, lease_id: int) -> int:
        """Settles a lease by the rows that it left; returns how many units that completed."""
        came = Came.of(self.attempts.summary(lease_id), self.attempts.spent(lease_id))
        made = settlement(came, self.book.held(lease_id), self.rules.tries, down=self.breaker.tripped)
        done = self.book.settle(lease_id, made)
        for reason in came.reasons:
            self.breaker.heard(sound=reason != "infra")
        if done:
            self.watch.played(came, self.book.committed())
            self._alarmed()
        return done

    def _lose(self, lease_id: int, end: End) -> None:
        cost = self.attempts.spent(lease_id)
        self.book.settle(lease_id, lost(cost), end)
        self.attempts.drop(lease_id)

    def _give_up_worn(self, why: str) -> None:
        """What workers fail or die over again and again is not played a further time: it is kept as `infra`."""
        units = self.book.worn(self.rules.tries, self.rules.deaths)
        if not units:
            return
        lease, tasks = self.book.claim_these(units), self.book.tasks()
        origin = Origin(self.round.manifest.opened.capsule_id, "driver", f"a-{lease}", lease)
        rows = [infra_row(u, origin, _about(tasks[u.task]), f"given up, the last time: {why}", "") for u in units]
        self.attempts.write(lease, table_of(rows))
        self._settle(lease)

    def _compact(self) -> None:
        self._mark([shard.number for shard in self.round.compactor.compact()])

    def _alarmed(self) -> None:
        """Marks what is made already; shards to come are marked as they are made."""
        if self.watch.alarm is not None:
            self._mark(range(self.round.compactor.next))

    def _mark(self, shards: Iterable[int]) -> None:
        """Says in the manifest which of these shards are suspect by the book, where it does not say so yet."""
        found = defaultdict[str, list[int]](list)
        for number in shards:
            why = self.round.compactor.suspect(number)
            if why is not None and number not in self.round.manifest.suspects:
                found[why].append(number)
        for why, numbers in found.items():
            self.round.manifest.append(Suspect(prev=FIRST, shards=tuple(numbers), why=why, at=time.time()))

    def _close(self) -> Closed:
        Shelf.of(self.round.path).clear()
        manifest = self.round.manifest
        if manifest.closed is None:
            manifest.append(closing(manifest.shards))
        assert manifest.closed is not None
        return manifest.closed

    def _progress(self, *, force: bool = False) -> None:
        now = self.clock()
        if not force and now - self._beat < BEAT_S:
            return
        self._beat = now
        self.watch.save()
        self.book.put("beat", {"at": time.time(), "out": len(self._out), "paused": self.breaker.tripped})
        if not force and self.book.committed() == self.round.manifest.opened.units:
            return  # a last look at the instruments: there is nothing new to tell
        tally, cost = self.book.tally(), self.book.cost()
        accepted = sum(one.n for one in tally if one.verdict == "accepted")
        self.tell(
            self.book.committed(),
            self.round.manifest.opened.units,
            {
                "accepted": accepted,
                "rejected": sum(one.n for one in tally if one.verdict == "rejected"),
                "usd": cost.nusd / NANO,
                "usd_per_accepted": cost.nusd / NANO / accepted if accepted else None,
                "tokens": cost.tokens,
                "paused": self.breaker.tripped,
            },
        )


def _about(task: TaskRef) -> dict[str, JsonValue]:
    return {"task_id": task.id, "task_hash": task.hash, "skills": [], "instruction": ""}
