"""What the rows of a lease come to: which units are done, which are played again, and what all of them cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from evolver.rounds.book import Cost, Settlement, Tallied


@dataclass(frozen=True)
class Came:
    """The small columns of a lease's rows, one entry a row (see evolver.rounds.rows.ROW)."""

    units: list[str]
    again: list[str]
    verdicts: list[str]
    reasons: list[str]
    successes: list[bool | None]
    channels: list[str]
    calls: list[int | None]
    tokens: list[int | None]
    nusd: list[int | None]
    paid: Cost | None = None  # by the lease's journal, which knows the calls of a row one by one

    @classmethod
    def of(cls, table: pa.Table, paid: Cost | None = None) -> Came:
        names = ("unit", "again", "verdict", "reason", "success", "channel", "calls", "tokens", "nusd")
        columns = [table[name].to_pylist() for name in names]
        return replace(cls(*columns), paid=paid)

    def cost(self, row: int) -> Cost:
        calls, tokens, nusd = self.calls[row] or 0, self.tokens[row], self.nusd[row]
        if tokens is not None and nusd is not None:
            return Cost(calls, tokens, nusd)
        if self.paid is not None and len(self.units) == 1 and self.paid.calls == calls:
            return self.paid
        return Cost(calls, tokens or 0, nusd or 0, calls)


def settlement(came: Came, held: Mapping[str, int], tries: int, *, down: bool = False) -> Settlement:
    """`held` are the units that the lease still holds, with their failures so far; rows of others are superseded.

    A unit that failed on our side for the `tries`-th time is done: it stays `infra`, and says nothing about the agent.
    An outage is a failure like others where the endpoint answers: it does not while it is `down`, but for a unit that
    had calls answered (those of unknown cost may be tries that were not).
    """
    done, again = [], []
    kept = superseded = lost = Cost()
    tallied: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row, unit in enumerate(came.units):
        cost = came.cost(row)
        if unit not in held:
            superseded += cost
        elif came.again[row] == "outage" and down and cost.calls == cost.unknown:
            lost += cost
        elif came.again[row] and held[unit] + 1 < tries:
            lost += cost
            again.append(unit)
        else:
            done.append(unit)
            kept += cost
            counts = tallied[came.verdicts[row], came.reasons[row], came.channels[row]]
            counts[0] += 1
            counts[1] += came.successes[row] is True
            counts[2] += cost.nusd
    spent = {"kept": kept, "superseded": superseded, "lost": lost}
    return Settlement(
        done=done,
        again=again,
        spent={kind: cost for kind, cost in spent.items() if cost != Cost()},  # type: ignore[misc]
        tallied=[Tallied(*key, *counts) for key, counts in tallied.items()],
    )


def lost(cost: Cost) -> Settlement:
    """Of a lease that left nothing but what its journal says was paid for."""
    return Settlement((), (), {"lost": cost} if cost != Cost() else {})


def probed(cost: Cost) -> Settlement:
    return Settlement((), (), {"probe": cost} if cost != Cost() else {})
