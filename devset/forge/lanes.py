"""Which skills go together: in tasks of one app and in tasks of several, and in which order they are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from devset.families.skill import Family
from devset.forge.ports import fits
from devset.forge.settings import Settings
from devset.forge.workflow import SEEDS, Edge
from devset.task import Channel, Oracle

Lane = Literal["single", "multi"]  # tasks of one app, and of several
LANES: tuple[Lane, ...] = ("single", "multi")
Pair = tuple[str, str]


@dataclass(frozen=True)
class Pick:
    """The skills that a task starts from, how many it is to have, and the channel that must be able to do them all."""

    names: tuple[str, ...]
    size: int
    channel: Channel | None = None


class Lanes:
    """The skills of `families` that the settings let in. A skill by itself may be any; several must be composable."""

    def __init__(self, families: Mapping[str, Family], settings: Settings) -> None:
        left = {n: f for n, f in families.items() if n not in settings.retired}
        self.families = {n: f for n, f in left.items() if settings.held_out or not f.held_out}
        made = {name: family.binding(SEEDS) for name, family in self.families.items()}
        self._channels = {n: Oracle(terminal=m.terminal, gui=m.gui).channels for n, m in made.items()}
        self._opens = {name: bool(one.open) for name, one in made.items()}
        self._composable = [n for n, m in made.items() if not m.infeasible and "terminal" in self._channels[n]]
        self._feeds = [(a, b) for a, b in permutations(self._composable, 2) if fits(a, b) is not None]
        self._starts = {(lane, size): self._starting(lane, size) for lane in LANES for size in (1, 2, 3)}

    def starts(self, lane: Lane, size: int) -> list[str]:
        """The skills that a task of this lane and size can start from."""
        return self._starts[lane, size]

    def feeds(self, lane: Lane) -> list[Pair]:
        """Pairs of which the first leaves something behind for the second, of the lane's apps."""
        return [two for two in self._feeds if (len(self._apps(two)) == 1) == (lane == "single")]

    def beside(self, lane: Lane, names: Sequence[str], pick: Pick) -> list[str]:
        """The skills that may stand beside those; in a task of several apps the last makes them several, if need be."""
        apps, last = self._apps(names), len(names) == pick.size - 1
        found = []
        for name in self._composable:
            together = apps | set(self.families[name].apps)
            fine = len(together) == 1 if lane == "single" else len(together) > 1 or not last
            if fine and name not in names and pick.channel in (None, *self._channels[name]):
                found.append(name)
        return found

    def ordered(self, names: Sequence[str]) -> list[Family]:
        """The skills in an order in which they can be done: what is open from the start first, what is fed after what
        feeds it, office programs last (they take longest to close)."""
        chosen = [self.families[name] for name in sorted(names)]
        return sorted(
            chosen,
            key=lambda f: (
                not self._opens[f.name],
                sum(fits(o.name, f.name) is not None for o in chosen),
                f.apps[-1].startswith("libreoffice"),
            ),
        )

    def _starting(self, lane: Lane, size: int) -> list[str]:
        names = list(self.families) if size == 1 else self._composable
        if lane == "multi":
            return [n for n in names if size > 1 or len(self.families[n].apps) > 1]
        alone = [n for n in names if len(self.families[n].apps) == 1]
        peers = {n: sum(self.families[o].apps == self.families[n].apps for o in alone) for n in alone}
        return [n for n in alone if peers[n] >= size]

    def _apps(self, names: Sequence[str]) -> set[str]:
        return {app for name in names for app in self.families[name].apps}


def edges_of(chosen: Sequence[Family]) -> tuple[Edge, ...]:
    """A value flows wherever two of the skills fit: into each at most one, from the nearest before it."""
    edges = []
    for target, family in enumerate(chosen):
        for source in reversed(range(target)):
            slot = fits(chosen[source].name, family.name)
            if slot is not None:
                edges.append(Edge(source, target, slot))
                break
    return tuple(edges)


def pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)
