"""Every harness of a run that ran, as a possible parent: in cells, and drawn by what its attempts promise. Views only.

The archive is lenient: whatever is valid, passed its smoke test and is no duplicate is in it, whether it was promoted
or not. A lead too small to be promoted is not lost there; others build on it until it is large enough to show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import numpy as np

from evolver.parents import ArchiveConfig
from evolver.population import Population, by_task, cards_of, final_cards, population_of, tally
from evolver.records import Channel, Rollout, Scorecard, StopReason
from evolver.skills import Skills, skills
from evolver.store import Store

Kind = TypeVar("Kind", bound=str)


@dataclass(frozen=True)
class Cell:
    """A kind of harness: the components that its edit touched, how its failed attempts mostly ended (None: it failed
    nowhere), and the channel that its attempts mostly went through."""

    components: str
    failure: StopReason | None
    channel: Channel


@dataclass(frozen=True)
class Member:
    """A harness of the archive. `tallies` maps a dev task's id to (attempts solved, attempts scored); `parent` is the
    nearest of its forebears that is in the archive, None when none is."""

    harness_id: str
    name: str
    cell: Cell
    tallies: Mapping[str, tuple[int, int]]
    parent: str | None = None


def members_of(store: Store, model_id: str) -> list[Member]:
    """The archive of a run under one model."""
    stops = {rollout.id: rollout.stop_reason for rollout in store.all(Rollout)}
    return archive(population_of(store), store.all(Scorecard), stops, model_id)


def archive(
    population: Population, cards: Sequence[Scorecard], stops: Mapping[str, StopReason], model_id: str
) -> list[Member]:
    """The members in the order of their proposals, from the scorecards of races under one model. `stops` maps the id
    of a rollout to how it ended. Edits that can't matter are no parents."""
    root = population.root
    ran = {d.candidate_harness for d in population.decisions if d.looks} | ({root.harness_id} if root else set())
    members = list[Member]()
    for candidate in population.candidates:
        own = final_cards(cards_of(cards, candidate.harness_id, "race", model_id))
        scored = [card for card in own if card.success is not None]
        if candidate.harness_id in ran and scored and not candidate.hidden_neutral:
            ended = [stops[card.rollout_id] for card in scored if not card.success and card.rollout_id in stops]
            cell = Cell(
                components="+".join(candidate.components) or "root",
                failure=_commonest(ended),
                channel=_commonest([card.channel for card in scored]) or "none",
            )
            members.append(
                Member(
                    candidate.harness_id,
                    candidate.name,
                    cell,
                    {task: tally(part) for task, part in by_task(scored).items()},
                    _forebear(population, candidate.harness_id, {member.harness_id for member in members}),
                )
            )
    return members


def _forebear(population: Population, harness_id: str, known: Collection[str]) -> str | None:
    """The nearest one of `known` on the way to the root; where a harness has several parents, by its first."""
    seen = {harness_id}
    parents = population.parents(harness_id)
    while parents and parents[0] not in seen:
        if parents[0] in known:
            return parents[0]
        seen.add(parents[0])
        parents = population.parents(parents[0])
    return None


def cells(members: Sequence[Member]) -> dict[Cell, list[Member]]:
    """The occupied cells, each with its members."""
    found: dict[Cell, list[Member]] = defaultdict(list)
    for member in members:
        found[member.cell].append(member)
    return dict(found)


def draw_parent(members: Sequence[Member], incumbent: str, rules: ArchiveConfig, key: str) -> str:
    """The harness id of a parent; the same `key` and members give the same one.

    The incumbent has its share. Else the skills of all members are drawn from what their attempts say of them
    (evolver.skills) and the highest draw wins (Thompson 1933, Biometrika 25), by `temperature` nearer to what is most
    likely: what is surely worse is hardly ever drawn, what is uncertain sometimes. A share of these contests is held
    within one cell, taken at random, so that every cell has descendants.
    """
    rng = Random(f"parent|{key}")
    toss = rng.random()
    if not members or toss < rules.incumbent:
        return incumbent
    contest = members
    if toss < rules.incumbent + rules.cells:
        contest = rng.choice(list(cells(members).values()))
    drawn = dict(zip([m.harness_id for m in members], _fitted(members).drawn(rng, rules.temperature), strict=True))
    return max((drawn[member.harness_id], member.harness_id) for member in contest)[1]


def most_promising(members: Sequence[Member], among: Collection[str]) -> str:
    """The one of these members with the highest skill as far as all attempts tell."""
    ids = [member.harness_id for member in members]
    found = dict(zip(ids, _fitted(members).mode, strict=True))
    return max((found[harness_id], harness_id) for harness_id in among)[1]


def _fitted(members: Sequence[Member]) -> Skills:
    tasks = sorted({task for member in members for task in member.tallies})
    played = np.array([[member.tallies.get(task, (0, 0)) for task in tasks] for member in members], dtype=float)
    position = {member.harness_id: number for number, member in enumerate(members)}
    parents = [None if member.parent is None else position[member.parent] for member in members]
    return skills(played[:, :, 0], played[:, :, 1], parents)


def _commonest(values: Sequence[Kind]) -> Kind | None:
    """The most frequent value, the first in the alphabet of equals; None of none."""
    counted = Counter(values)
    return min(counted, key=lambda value: (-counted[value], str(value)), default=None)
