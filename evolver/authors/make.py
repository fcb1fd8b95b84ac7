"""The authors of a run, in the order of its config."""

from __future__ import annotations

from evolver.authors.human import Human
from evolver.authors.removal import Removal
from evolver.authors.structured import Structured
from evolver.config import HumanAuthor, RemovalAuthor
from evolver.protocols import Author
from evolver.store import Store
from harnesses.library import Library


def make_authors(store: Store, library: Library) -> list[Author]:
    """One author for each section of the config. Raises UsageError for a harness that is not there and for an unknown
    knob, before anything is spent."""
    authors: list[Author] = []
    for config in store.config.authors:
        same = sum(other.name.startswith(config.kind) for other in authors) + 1
        name = config.kind if same == 1 else f"{config.kind}{same}"
        if isinstance(config, HumanAuthor):
            authors.append(Human(config, store, library))
        elif isinstance(config, RemovalAuthor):
            authors.append(Removal(config, store, library, name))
        else:
            authors.append(Structured(config, store, library, name))
    return authors
