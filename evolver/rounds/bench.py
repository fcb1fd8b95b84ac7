"""What a worker of a real round has open while it plays."""

from __future__ import annotations

from dataclasses import dataclass

from evolver.capsules import OpenedCapsule
from evolver.protocols import Grader, Model, Privileged, Sandboxes
from evolver.rounds.tasks import TaskSource
from evolver.store import Store
from harnesses.harness import Harness

RUN = "round"  # the run id that sandboxes carry


@dataclass(frozen=True)
class Bench:
    """Everything that is opened to play a unit."""

    opened: OpenedCapsule
    store: Store
    sandboxes: Sandboxes
    graders: tuple[Grader, ...]
    model: Model | Privileged
    source: TaskSource

    @property
    def harness(self) -> Harness:
        return self.opened.harness
