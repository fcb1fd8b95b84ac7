"""Leave-one-out removal as an author: what a harness does not need costs tokens, time and room for mistakes.

Each component of the incumbent is taken away once, one a candidate; "not worse and cheaper" is enough to be promoted. A
promotion makes another incumbent, whose components are all tried again.
"""

from __future__ import annotations

from evolver.authors.human import free_name
from evolver.authors.proposal import proposal
from evolver.config import RemovalAuthor
from evolver.population import population_of
from evolver.protocols import Evidence, Proposal
from evolver.records import Manifest
from evolver.store import Store
from harnesses.library import Library
from harnesses.removals import removals
from harnesses.tree import harness_from_files


class Removal:
    """At most `config.n` candidates under `name`."""

    def __init__(self, config: RemovalAuthor, store: Store, library: Library, name: str = "removal") -> None:
        self.name = name
        self._n = config.n
        self._store = store
        self._library = library

    async def propose(self, evidence: Evidence) -> Proposal | None:
        population = population_of(self._store)
        if self._n is not None and sum(made.author == self.name for made in population.candidates) >= self._n:
            return None
        parent = self._library.get(evidence.parent_harness)
        for one in removals(parent):
            harness_id = harness_from_files(one.tree).id
            if harness_id not in population.harness_ids:
                name = free_name(self._library, f"without-{one.name}", harness_id)
                why = f"without {one.what}: taken away to see whether anything needs it."
                return proposal(parent, one.tree, self.name, name, Manifest(why=why))
        return None
