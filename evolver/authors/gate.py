"""The gate that every author's tree passes before a single rollout is spent on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolver.errors import UsageError
from evolver.leaks import Leaks
from evolver.population import population_of
from evolver.protocols import Sandboxes
from evolver.store import Store
from harnesses.harness import Harness
from harnesses.library import Library
from harnesses.tree import HarnessError, harness_from_files

MOST_LEAKS = 8
GROWTH = 2  # times the parent's memory, processes and disk; each edit may double them, and a race lies between two


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
    """Refuses what is no harness, changes nothing, is known, carries a task, reaches out, or can't be built."""

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
        _refuse_reach(parent, harness)
        return harness

    async def buildable(self, harness: Harness) -> None:
        """Builds the environment, as the race would. Raises Refused when it can't be built."""
        try:
            await self.sandboxes.prepare(harness.environment)
        except UsageError as error:
            raise Refused([f"environment.toml: it can't be built: {error}"]) from error

    def _refuse_known(self, harness: Harness) -> None:
        population = population_of(self.store)
        for known in population.candidates:
            same = known.harness_id == harness.id
            if same or _meaning(self.library.get(known.harness_id)) == _meaning(harness):
                decision = population.decision_of.get(known.id)
                verdict = "the root" if not known.parents else decision.verdict if decision else "waits for its race"
                how = "is byte for byte" if same else "differs in nothing but comments, spaces or order from"
                raise Refused([f"harness/: it {how} {known.name} ({known.harness_id[:12]}: {verdict}), known already"])


def _refuse_reach(parent: Harness, harness: Harness) -> None:
    """A model that reads what strangers wrote opens no way out of the sandbox, and takes over no machine."""
    old, new = parent.environment, harness.environment
    reasons = [
        f"environment.toml: allowlist: {host!r} is not the parent's; only people open the network"
        for host in new.allowlist
        if host not in old.allowlist
    ]
    for name in ("memory_mb", "pids", "disk_mb"):
        most, wanted = GROWTH * getattr(old.limits, name), getattr(new.limits, name)
        if wanted > most:
            bound = f"at most {most:,} ({GROWTH} times the parent's)"
            reasons.append(f"environment.toml: limits.{name}: expected {bound}, got {wanted:,}")
    if reasons:
        raise Refused(reasons)


def _meaning(harness: Harness) -> Harness:
    """The harness without what only its bytes say: two that are equal in this behave alike."""
    programs = {path: data for path, data in harness.files.items() if path.startswith("files/")}
    return harness.model_copy(update={"id": "", "files": programs, "executable": harness.executable & programs.keys()})
