"""An even sample of compositions: skills and pairs that were seldom drawn come first; duplicates are never drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from devset.families.skill import Family
from devset.forge.flow import DoesNotFit
from devset.forge.ports import fits
from devset.forge.rules import Violation, violations
from devset.forge.workflow import SEEDS, Edge, Workflow, bound, task_of
from devset.task import Oracle, Task

TRIES = 8  # seeds per choice of skills: most of what static rules refuse is a name that two skills drew
PER_TEMPLATE = 8
FLOWING = 0.5  # of the choices start from two skills of which one feeds the other; there are far fewer such pairs
PATIENCE = 200  # choices in a row of which nothing came: there is nothing new to be had
Pair = tuple[str, str]


@dataclass(frozen=True)
class Composed:
    """A workflow and its task; `id` and `hash` are those of the task."""

    flow: Workflow
    task: Task

    @property
    def id(self) -> str:
        return self.task.id


@dataclass
class Draws:
    """What was drawn, and what the static rules refused, by rule."""

    drawn: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, found: Sequence[Violation]) -> None:
        self.refused[found[0].rule] += 1
        self.examples.setdefault(found[0].rule, found[0].why)


@dataclass(frozen=True)
class Coverage:
    """Of a set of compositions: canonical paths, their effective number (exp of the entropy, so that a few templates
    with many instances count little), and how many of the possible pairs of skills occur."""

    tasks: int
    paths: int
    effective: float
    skills: int
    pairs: int
    possible_pairs: int
    flows: int


class Sampler:
    """Draws workflows of `size` skills out of `families`, by `seed`; `draws` tells how it went.

    Weights are inverse to how often a skill, and a pair of skills, was drawn before; half of the choices start from two
    skills of which one feeds the other. A template (canonical path) is
    drawn at most `cap` times, and no two of its instances are the same task.
    """

    def __init__(self, families: Mapping[str, Family], size: int, seed: int, cap: int = PER_TEMPLATE) -> None:
        if size < 2:
            raise ValueError(f"a composition has at least 2 skills, got {size}")
        self.families = {name: family for name, family in families.items() if composable(family)}
        self.size, self.seed, self.cap = size, seed, cap
        self.draws = Draws()
        self._feeds = [
            (a, b) for a in self.families for b in self.families if fits(a, b) is not None and self._crosses(b, [a])
        ]
        self._skills: Counter[str] = Counter()
        self._pairs: Counter[Pair] = Counter()
        self._paths: Counter[str] = Counter()
        self._hashes: set[str] = set()
        self._rng = Random(f"forge/{size}/{seed}")

    def __iter__(self) -> Iterator[Composed]:
        """Compositions without end, or until nothing new comes any more."""
        failed = 0
        while failed < PATIENCE:
            made = self._one()
            failed = failed + 1 if made is None else 0
            if made is not None:
                yield made

    def _one(self) -> Composed | None:
        chosen = self._chosen()
        edges = edges_of(chosen)
        for _ in range(TRIES):
            seed = self.seed * 1_000_000 + self.draws.drawn
            self.draws.drawn += 1
            try:
                flow = bound(chosen, edges, seed)
            except DoesNotFit as error:
                self.draws.refuse([Violation("C6", str(error))])
                continue
            if self._paths[flow.path] >= self.cap:
                self.draws.refuse([Violation("duplicate", "the template has all of its instances")])
                return None
            task = task_of(flow)
            if found := violations(flow, task):
                self.draws.refuse(found)
                continue
            self._count(flow, task)
            return Composed(flow, task)
        return None

    def _chosen(self) -> list[Family]:
        """Different skills that share a channel with a terminal oracle and are of two apps or more, in an order in
        which they can be done."""
        names = self._flow() if self._rng.random() < FLOWING else [self._pick(list(self.families), [])]
        while len(names) < self.size:
            names.append(self._pick([n for n in self.families if n not in names], names))
        chosen = [self.families[name] for name in names]
        # Last come skills that leave an office program open: through the GUI, it does not always close at once.
        return sorted(
            chosen,
            key=lambda f: (
                not _opens(f),
                sum(fits(o.name, f.name) is not None for o in chosen),
                f.apps[-1].startswith("libreoffice"),
            ),
        )

    def _flow(self) -> list[str]:
        """Two skills of which one feeds the other; pairs that were seldom drawn come first."""
        if not self._feeds:
            return [self._pick(list(self.families), [])]
        weights = [1 / (1 + self._pairs[_pair(*two)]) ** 2 for two in self._feeds]
        return list(self._rng.choices(self._feeds, weights)[0])

    def _pick(self, among: Sequence[str], beside: Sequence[str]) -> str:
        fitting = [n for n in among if not beside or self._crosses(n, beside)] or list(among)
        weights = [
            1 / ((1 + self._skills[n]) * math.prod(1 + self._pairs[_pair(n, other)] for other in beside) ** 2)
            for n in fitting
        ]
        return self._rng.choices(fitting, weights)[0]

    def _crosses(self, name: str, beside: Sequence[str]) -> bool:
        """Whether together they are of two apps or more."""
        return len({app for one in (name, *beside) for app in self.families[one].apps}) > 1

    def _count(self, flow: Workflow, task: Task) -> None:
        self._paths[flow.path] += 1
        self._skills.update(flow.skills)
        self._pairs.update(_pair(*two) for two in combinations(flow.skills, 2))
        self._hashes.add(task.hash)

    def coverage(self) -> Coverage:
        return coverage_of(self._paths, self._pairs, len(self.families))


def coverage_of(paths: Mapping[str, int], pairs: Mapping[Pair, int], skills: int) -> Coverage:
    """`paths` and `pairs` count tasks; `skills` is how many skills there are to compose."""
    total = sum(paths.values())
    shares = [count / total for count in paths.values()]
    return Coverage(
        tasks=total,
        paths=len(paths),
        effective=round(math.exp(-sum(share * math.log(share) for share in shares)), 2) if total else 0.0,
        skills=len({name for pair in pairs for name in pair}),
        pairs=len(pairs),
        possible_pairs=skills * (skills - 1) // 2,
        flows=sum(count for path, count in paths.items() if " | " in path),
    )


def composable(family: Family) -> bool:
    """Whether the rules can be run on it: feasible, with a terminal oracle."""
    made = family.binding(SEEDS)
    return not made.infeasible and "terminal" in Oracle(terminal=made.terminal, gui=made.gui).channels


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


def _opens(family: Family) -> bool:
    return bool(family.binding(SEEDS).open)


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)
