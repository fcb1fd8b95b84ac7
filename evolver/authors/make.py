"""The authors of a run, in the order of its config."""

from __future__ import annotations

from collections.abc import Sequence

from devset.splits import listed_tasks
from devset.task import Task
from evolver.authors.claims import Known
from evolver.authors.gate import Gate
from evolver.authors.human import Human
from evolver.authors.llm import LLMAuthor
from evolver.authors.removal import Removal
from evolver.authors.structured import Structured
from evolver.config import HumanAuthor, RemovalAuthor
from evolver.config import LLMAuthor as LLMConfig
from evolver.ground import imported_tasks
from evolver.lab import Lab
from evolver.leaks import Leaks
from evolver.models.openai import OpenAIModel
from evolver.protocols import Author


def make_authors(lab: Lab, dev: Sequence[Task], held_out: Sequence[Task]) -> list[Author]:
    """One author for each section of the config. What no harness may carry is taken from the tasks of the run.

    Raises UsageError for a harness that is not there, an unknown knob and a missing key, before anything is spent."""
    authors: list[Author] = []
    store, library = lab.store, lab.library
    leaks = Leaks(dev, [*held_out, *imported_tasks(lab.config)["test"]], listed_tasks())
    for config in store.config.authors:
        same = sum(other.name.startswith(config.kind) for other in authors) + 1
        name = config.kind if same == 1 else f"{config.kind}{same}"
        if isinstance(config, HumanAuthor):
            authors.append(Human(config, store, library, leaks))
        elif isinstance(config, LLMConfig):
            gate = Gate(store, library, lab.sandboxes, leaks)
            known = Known(frozenset(task.id for task in dev), frozenset(app for task in dev for app in task.apps))
            authors.append(LLMAuthor(config, lab, gate, known, OpenAIModel(config.model), name))
        elif isinstance(config, RemovalAuthor):
            authors.append(Removal(config, store, library, name))
        else:
            authors.append(Structured(config, store, library, name))
    return authors
