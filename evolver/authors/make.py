"""The authors of a run, in the order of its config."""

from __future__ import annotations

from evolver.authors.human import Human
from evolver.authors.structured import Structured
from evolver.config import HumanAuthor
from evolver.protocols import Author
from evolver.store import Store
from harnesses.library import Library


def make_authors(store: Store, library: Library) -> list[Author]:
    """Raises UsageError for a harness that is not there and for an unknown knob, before anything is spent."""
    authors: list[Author] = []
    optunas = 0
    for config in store.config.authors:
        if isinstance(config, HumanAuthor):
            authors.append(Human(config, store, library))
        else:
            optunas += 1
            authors.append(Structured(config, store, library, "structured" if optunas == 1 else f"structured{optunas}"))
    return authors
