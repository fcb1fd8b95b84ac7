"""An even sample of tasks of one app and of several: skills and pairs that were seldom drawn come first.

What is drawn depends on the settings, the number of the draw and the tasks so far alone, so a sample that was cut off
goes on as if it had not been.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Literal

from devset.families.skill import Family
from devset.forge.flow import DoesNotFit
from devset.forge.lanes import Lane, Lanes, Pair, Pick, edges_of, pair
from devset.forge.rules import Violation, violations
from devset.forge.settings import Settings
from devset.forge.workflow import Workflow, bound, path_of, task_of
from devset.task import Task

TRIES = 8  # seeds per choice of skills: most of what static rules refuse is a name that two skills drew
PATIENCE = 400  # choices in a row of which nothing came: there is nothing new to be had
Source = Literal["targets", "coverage", "fresh"]
Refuses = Callable[[Workflow, Task], str | None]


@dataclass(frozen=True)
class Composed:
    """A workflow and its task; `id` and `hash` are those of the task. `lane` and `source` say what it was drawn for,
    `draw` is the number of the draw after it."""

    flow: Workflow
    task: Task
    lane: Lane = "multi"
    source: Source = "coverage"
    draw: int = 0

    @property
    def id(self) -> str:
        return self.task.id


@dataclass
class Draws:
    """What was drawn, and what was refused, by rule."""

    drawn: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, rule: str, why: str) -> None:
        self.refused[rule] += 1
        self.examples.setdefault(rule, why)


@dataclass(frozen=True)
class Coverage:
    """Of a set of tasks: canonical paths, their effective number (exp of the entropy, so that a few templates with many
    instances count little), and how many of the possible pairs of skills occur."""

    tasks: int
    paths: int
    effective: float
    skills: int
    pairs: int
    possible_pairs: int
    flows: int


@dataclass
class Counts:
    """What a sample has so far."""

    lanes: Counter[Lane] = field(default_factory=Counter)
    sources: Counter[Source] = field(default_factory=Counter)
    skills: Counter[str] = field(default_factory=Counter)
    pairs: Counter[Pair] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)

    def add(self, task_id: str, path: str, skills: Sequence[str], drawn: tuple[Lane, Source]) -> None:
        self.lanes[drawn[0]] += 1
        self.sources[drawn[1]] += 1
        self.ids.add(task_id)
        self.paths[path] += 1
        self.skills.update(skills)
        self.pairs.update(pair(*two) for two in combinations(skills, 2))


def nothing(flow: Workflow, task: Task) -> str | None:
    return None


class Sampler:
    """Draws tasks out of `families` as `settings` say; `refuses` may name a reason against one (a duplicate). `draws`
    tells how it went, `counts` what there is: whoever goes on with a sample fills both in."""

    def __init__(self, families: Mapping[str, Family], settings: Settings, refuses: Refuses = nothing) -> None:
        self.settings = settings
        self.lanes = Lanes(families, settings)
        self.draws, self.counts = Draws(), Counts()
        self._refuses = refuses

    def __iter__(self) -> Iterator[Composed]:
        """Tasks without end, or until nothing new comes any more in the lane whose turn it is."""
        failed = 0
        while failed < PATIENCE:
            made = self._one()
            failed = failed + 1 if made is None else 0
            if made is not None:
                yield made

    def _one(self) -> Composed | None:
        lane = self._lane()
        rng = Random(f"forge/{self.settings.seed}/{self.draws.drawn}")
        source, chosen = self._chosen(lane, rng)
        if not chosen:
            self.draws.drawn += 1
            self.draws.refuse("template", "it has all of its instances")
            return None
        edges = edges_of(chosen)
        for _ in range(TRIES):
            seed = self.settings.seed * 10_000_000 + self.draws.drawn
            self.draws.drawn += 1
            try:
                flow = bound(chosen, edges, seed)
                task = task_of(flow)
            except ValueError as error:  # with other seeds the same skills may do
                self.draws.refuse("C6" if isinstance(error, DoesNotFit) else "slots", str(error))
                continue
            against = self._against(flow, task)
            if against is None:
                self.counts.add(task.id, flow.path, flow.skills, (lane, source))
                return Composed(flow, task, lane, source, self.draws.drawn)
            self.draws.refuse(against.rule, against.why)
        return None

    def _against(self, flow: Workflow, task: Task) -> Violation | None:
        if found := violations(flow, task):
            return found[0]
        if task.id in self.counts.ids:
            return Violation("bytes", "the same skills with the same seed")
        if twin := self._refuses(flow, task):
            return Violation(twin, f"{flow.path}")
        return None

    def _lane(self) -> Lane:
        """The lane that lacks most."""
        made, single = sum(self.counts.lanes.values()), self.settings.single
        return "single" if single * (made + 1) - self.counts.lanes["single"] > 0.5 else "multi"

    def _chosen(self, lane: Lane, rng: Random) -> tuple[Source, list[Family]]:
        """What the first skill was drawn for, and different skills of the lane in an order in which they can be done;
        none where the templates that came to mind have all of their instances."""
        size = rng.choice(self.settings.sizes)
        source = self._source()
        picks = self._picks(source, lane, size, rng)
        if not picks:
            source, picks = "coverage", self._covering(lane, size, rng)
        if not picks:
            return source, []
        pick = picks[0]
        names = list(pick.names)
        while len(names) < pick.size:
            among = self.lanes.beside(lane, names, pick)
            if len(names) == pick.size - 1:
                among = [n for n in among if self._has_room([*names, n])]
            if not among:
                return source, []
            names.append(rng.choices(among, [self._weight(n, names) for n in among])[0])
        return source, self.lanes.ordered(names) if self._has_room(names) else []

    def _source(self) -> Source:
        """The source that lacks most, of those that there are."""
        shares: dict[Source, float] = {"coverage": self.settings.shares.coverage}
        if self.settings.targets:
            shares["targets"] = self.settings.shares.targets
        if self.settings.fresh:
            shares["fresh"] = self.settings.shares.fresh
        made, whole = sum(self.counts.sources.values()), sum(shares.values()) or 1.0
        return max(shares, key=lambda s: shares[s] / whole * (made + 1) - self.counts.sources[s])

    def _picks(self, source: Source, lane: Lane, size: int, rng: Random) -> list[Pick]:
        if source == "targets":
            fitting = [(t, s) for t in self.settings.targets for s in t.sizes if self._starts(lane, s, t.skill)]
            if not fitting:
                return []
            target, size = rng.choices(fitting, [t.weight / len(t.sizes) for t, _ in fitting])[0]
            return [Pick((target.skill,), size, target.channel)]
        if source == "fresh":
            fitting_names = [name for name in self.settings.fresh if self._starts(lane, size, name)]
            return [Pick((rng.choice(fitting_names),), size)] if fitting_names else []
        return self._covering(lane, size, rng)

    def _covering(self, lane: Lane, size: int, rng: Random) -> list[Pick]:
        """What was seldom drawn: two skills of which one feeds the other or any skill; half of the time one that is
        below the floor, where there is one."""
        names = [name for name in self.lanes.starts(lane, size) if size > 1 or self._has_room([name])]
        low = [name for name in names if self.counts.skills[name] < self.settings.floor]
        low = low if rng.random() < 0.5 else []
        if not low and size > 1 and (feeds := self.lanes.feeds(lane)) and rng.random() < 0.5:
            weights = [1 / (1 + self.counts.pairs[pair(*two)]) ** 2 for two in feeds]
            return [Pick(rng.choices(feeds, weights)[0], size)]
        names = low or names
        return [Pick((rng.choices(names, [self._weight(n, ()) for n in names])[0],), size)] if names else []

    def _starts(self, lane: Lane, size: int, name: str) -> bool:
        return name in self.lanes.starts(lane, size) and (size > 1 or self._has_room([name]))

    def _weight(self, name: str, beside: Sequence[str]) -> float:
        known = math.prod(1 + self.counts.pairs[pair(name, other)] for other in beside)
        return 1 / ((1 + self.counts.skills[name]) * known**2)

    def _has_room(self, names: Sequence[str]) -> bool:
        """Whether the template of these skills may have another instance."""
        chosen = self.lanes.ordered(names)
        cap = self.settings.alone if len(names) == 1 else self.settings.cap
        return self.counts.paths[path_of(chosen, edges_of(chosen))] < cap

    def coverage(self) -> Coverage:
        return coverage_of(self.counts.paths, self.counts.pairs, self.counts.skills, len(self.lanes.families))


def coverage_of(paths: Mapping[str, int], pairs: Mapping[Pair, int], skills: Mapping[str, int], known: int) -> Coverage:
    """`paths`, `pairs` and `skills` count tasks; `known` is how many skills there are."""
    total = sum(paths.values())
    shares = [count / total for count in paths.values()]
    return Coverage(
        tasks=total,
        paths=len(paths),
        effective=round(math.exp(-sum(share * math.log(share) for share in shares)), 2) if total else 0.0,
        skills=len(skills),
        pairs=len(pairs),
        possible_pairs=known * (known - 1) // 2,
        flows=sum(count for path, count in paths.items() if " | " in path),
    )
