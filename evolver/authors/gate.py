"""The gate that every author's tree passes before a single rollout is spent on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolver.errors import UsageError
from evolver.leaks import Leaks
from evolver.population import Population
from evolver.protocols import Sandboxes
from evolver.records import Candidate, Decision
from evolver.store import Store
from harnesses.harness import Harness
from harnesses.library import Library
from harnesses.tree import HarnessError, harness_from_files

MOST_LEAKS = 8


class Refused(Exception):
    """What can't be taken, and why: a line for each reason, written for the author."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


def refuse_leaks(leaks: Leaks, parent: Harness, tree: Mapping[str, bytes]) -> None:
    """Raises Refused for lines that `tree` adds to `parent` and that carry one task."""
    found = leaks.added(parent.files, tree)
    if found:
        more = [f"and {len(found) - MOST_LEAKS} more such lines"] if len(found) > MOST_LEAKS else []
        raise Refused(
            [*(f"{leak}; a harness says what holds for any task" for leak in found[:MOST_LEAKS]), *more],
        )


@dataclass(frozen=True)
class Gate:
    """Refuses what is no harness, changes nothing, is known, carries a task, or asks for a machine that can't be."""

    store: Store
    library: Library
    sandboxes: Sandboxes
    leaks: Leaks

    def checked(self, parent: Harness, tree: Mapping[str, bytes]) -> Harness:
        """The typed tree. Raises Refused."""
        try:
            harness = harness_from_files(tree)
        except HarnessError as error:
            raise Refused([f"harness/: {error}"]) from error
        if harness.id == parent.id:
            raise Refused(["harness/: expected a change, got the parent's tree byte for byte"])
        self._refuse_known(harness)
        refuse_leaks(self.leaks, parent, tree)
        return harness

    async def buildable(self, harness: Harness) -> None:
        """Builds the environment, as the race would. Raises Refused when it can't be built."""
        try:
            await self.sandboxes.prepare(harness.environment)
        except UsageError as error:
            raise Refused([f"environment.toml: it can't be built: {error}"]) from error

    def _refuse_known(self, harness: Harness) -> None:
        population = Population(self.store.all(Candidate), self.store.all(Decision))
        for known in population.candidates:
            same = known.harness_id == harness.id
            if same or _meaning(self.library.get(known.harness_id)) == _meaning(harness):
                decision = population.decision_of.get(known.id)
                verdict = "the root" if not known.parents else decision.verdict if decision else "waits for its race"
                how = "is byte for byte" if same else "differs in nothing but comments, spaces or order from"
                raise Refused([f"harness/: it {how} {known.name} ({known.harness_id[:12]}: {verdict}), known already"])


def _meaning(harness: Harness) -> Harness:
    """The harness without what only its bytes say: two that are equal in this behave alike."""
    programs = {path: data for path, data in harness.files.items() if path.startswith("files/")}
    return harness.model_copy(update={"id": "", "files": programs, "executable": harness.executable & programs.keys()})
