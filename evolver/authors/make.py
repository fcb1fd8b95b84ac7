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
    for position, config in enumerate(store.config.authors):
        if isinstance(config, HumanAuthor):
            authors.append(Human(config, store, library))
        else:
            authors.append(Structured(config, store, library, f"structured{position}" if position else "structured"))
    return authors
