"""The next candidate of a run: whose turn it is, and which harness is built on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolver.archive import draw_parent, members_of
from evolver.config import AuthorConfig, SearchingAuthor
from evolver.evidence import evidence
from evolver.lab import Lab
from evolver.neutral import hidden_neutral
from evolver.population import Population, population_of
from evolver.protocols import Author, Evidence, Proposal
from evolver.records import Candidate


@dataclass(frozen=True)
class Seat:
    """An author with its section of the config."""

    section: AuthorConfig
    author: Author


async def next_candidate(lab: Lab, seats: Sequence[Seat]) -> Candidate | None:
    """What waits for a verdict comes first, then the authors in turn; None when no author has another candidate.

    A candidate is recorded before its rollouts.
    """
    population = population_of(lab.store)
    if population.pending:
        return population.pending[0]
    proposal = hidden_neutral(lab) or await _proposed(lab, seats, population)
    if proposal is None:
        return None
    made = proposal.candidate
    lab.library.add(proposal.tree, name=made.name, parents=made.parents, message=made.manifest.why)
    lab.record(made)
    return made


async def _proposed(lab: Lab, seats: Sequence[Seat], population: Population) -> Proposal | None:
    told: dict[str, Evidence] = {}
    for seat in in_turn(seats, population):
        searches = isinstance(seat.section, SearchingAuthor) and seat.section.parents == "archive"
        parent = _drawn(lab, population) if searches else population.incumbent or ""
        if parent not in told:
            told[parent] = evidence_of(lab, parent)
        proposal = await seat.author.propose(told[parent])
        if proposal is not None:
            return proposal
    return None


def in_turn(seats: Sequence[Seat], population: Population) -> list[Seat]:
    """Who is asked first, second, ...: who has waited for `every` candidates of others, the longest wait first, so that
    none is passed over for ever; the rest as in the config; and last those who have to wait still, so that a run does
    not end before they are done."""

    def rank(seat: Seat) -> tuple[int, int]:
        if seat.section.every is None:
            return 1, 0
        waited = _waited(seat, population)
        return (0, -waited) if waited >= seat.section.every else (2, 0)

    return sorted(seats, key=rank)


def evidence_of(lab: Lab, parent: str | None = None) -> Evidence:
    """What authors are told before they change `parent`, else the incumbent (evolver.evidence)."""
    return evidence(lab.store, lab.harness(parent or population_of(lab.store).incumbent or ""))


def _drawn(lab: Lab, population: Population) -> str:
    """The parent of this generation; the same one after every resume."""
    members = members_of(lab.store, lab.model.id)
    key = f"{lab.config.seed}/{len(population.candidates)}"
    return draw_parent(members, population.incumbent or "", lab.config.archive, key)


def _waited(seat: Seat, population: Population) -> int:
    """How many candidates of others were proposed since the last one of this author; hidden edits, which bear a
    person's name, are nobody's."""
    authors = [made.author for made in population.candidates if made.parents and not made.hidden_neutral]
    return next((n for n, name in enumerate(reversed(authors)) if name == seat.author.name), len(authors))
