"""Every harness of a run that ran, as a possible parent: in cells, and drawn by what its attempts promise. Views only.

The archive is lenient: whatever is valid, passed its smoke test and is no duplicate is in it, whether it was promoted
or not. A lead too small to be promoted is not lost there; others build on it until it is large enough to show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from evolver.parents import ArchiveConfig
from evolver.population import Population, by_task, cards_of, final_cards, tally
from evolver.records import Channel, Scorecard, StopReason

PRIOR_ATTEMPTS = 1.0  # what the whole archive knows of a task counts as so many attempts of each member at it

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
    """A harness of the archive. `tallies` maps a dev task's id to (attempts solved, attempts scored)."""

    harness_id: str
    name: str
    cell: Cell
    tallies: Mapping[str, tuple[int, int]]


def archive(
    population: Population, cards: Sequence[Scorecard], stops: Mapping[str, StopReason], model_id: str
) -> list[Member]:
    """The members in the order of their proposals, from the scorecards of races under one model. `stops` maps the id
    of a rollout to how it ended. Edits that can't matter are no parents."""
    root = population.root
    ran = {d.candidate_harness for d in population.decisions if d.looks} | ({root.harness_id} if root else set())
    members = []
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
                )
            )
    return members


def cells(members: Sequence[Member]) -> dict[Cell, list[Member]]:
    """The occupied cells, each with its members."""
    found: dict[Cell, list[Member]] = defaultdict(list)
    for member in members:
        found[member.cell].append(member)
    return dict(found)


def draw_parent(members: Sequence[Member], incumbent: str, rules: ArchiveConfig, key: str) -> str:
    """The harness id of a parent; the same `key` and members give the same one.

    The incumbent has its share. Else success on dev is drawn from each member's posterior and the highest draw wins
    (Thompson 1933, Biometrika 25): what is surely worse is hardly ever drawn, what is uncertain sometimes. A share of
    these contests is held within one cell, taken at random, so that every cell has descendants.
    """
    rng = Random(f"parent|{key}")
    toss = rng.random()
    if not members or toss < rules.incumbent:
        return incumbent
    contest = members
    if toss < rules.incumbent + rules.cells:
        contest = rng.choice(list(cells(members).values()))
    prior = _pooled(members)
    drawn = [(_draw(member, prior, rng), member.harness_id) for member in contest]
    return max(drawn)[1]


def _draw(member: Member, prior: Mapping[str, float], rng: Random) -> float:
    """One draw of a member's success on dev (0..1): tasks are averaged, each has a Beta posterior of its own, since how
    hard a task is is common to all members and tells nothing of any."""
    total = 0.0
    for task, share in prior.items():
        solved, scored = member.tallies.get(task, (0, 0))
        failed = scored - solved
        total += rng.betavariate(PRIOR_ATTEMPTS * share + solved, PRIOR_ATTEMPTS * (1 - share) + failed)
    return total / len(prior)


def _pooled(members: Sequence[Member]) -> dict[str, float]:
    """Task id → the share of all members' attempts that solved it, kept off 0 and 1."""
    tasks = sorted({task for member in members for task in member.tallies})
    found = {}
    for task in tasks:
        tallies = [member.tallies[task] for member in members if task in member.tallies]
        found[task] = (sum(solved for solved, _ in tallies) + 0.5) / (sum(scored for _, scored in tallies) + 1)
    return found


def _commonest(values: Sequence[Kind]) -> Kind | None:
    """The most frequent value, the first in the alphabet of equals; None of none."""
    counted = Counter(values)
    return min(counted, key=lambda value: (-counted[value], str(value)), default=None)
