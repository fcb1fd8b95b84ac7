"""A person as an author: harnesses named in the config, and working copies that come in through `evolver propose`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from devset.splits import listed_tasks
from evolver.authors.gate import Refused, refuse_leaks
from evolver.authors.proposal import proposal
from evolver.config import HumanAuthor as HumanConfig
from evolver.errors import UsageError
from evolver.ground import imported_tasks, tasks_of
from evolver.leaks import Leaks
from evolver.population import population_of
from evolver.protocols import Evidence, Proposal
from evolver.records import Candidate, Manifest
from evolver.stages import require_open
from evolver.store import Store
from harnesses.harness import Harness
from harnesses.library import Library, UnknownHarness
from harnesses.tree import SEEDS, HarnessError, read_tree, seed_path, tree_files


class Human:
    """Proposes the one harness of its config section, once; a tree that is known already is not proposed again."""

    name = "human"

    def __init__(self, config: HumanConfig, store: Store, library: Library, leaks: Leaks) -> None:
        self._config = config
        self._store = store
        self._library = library
        self._leaks = leaks

    async def propose(self, evidence: Evidence) -> Proposal | None:
        harness = read_named(self._config.harness)
        known = population_of(self._store)
        if harness.id in known.harness_ids:
            return None
        parent = self._library.get(evidence.parent_harness)
        _refuse_leaks(self._leaks, parent, harness, self._config.harness)
        name = free_name(self._library, Path(self._config.harness).name, harness.id)
        return proposal(parent, tree_files(harness), self.name, name, Manifest(why=self._config.why))


@dataclass(frozen=True)
class Draft:
    """A harness that a person proposes: `parent` is a harness id or name, `why` says why it should be better."""

    parent: str
    name: str
    why: str
    harness: Harness


def propose(store: Store, library: Library, parent: str, tree: Path, why: str, leaks: Leaks) -> Candidate:
    """`evolver propose`: queues the working copy in directory `tree`. Raises UsageError as `queue` does."""
    try:
        return queue(store, library, Draft(parent, tree.resolve().name, why, read_tree(tree)), leaks)
    except HarnessError as error:
        raise UsageError(str(error)) from error


def queue(store: Store, library: Library, draft: Draft, leaks: Leaks) -> Candidate:
    """Adds a draft as a pending candidate, which the loop decides before it asks an author. Nothing of it is run.

    Raises UsageError for an unknown parent, a frozen run, a missing reason, and a harness that was proposed before or
    carries one task.
    """
    require_open(store)
    why, harness = draft.why.strip(), draft.harness
    if not why:
        raise UsageError("a candidate needs a reason: say in one sentence why it should be better")
    try:
        before = library.get(draft.parent)
        known = population_of(store).candidate(harness.id)
        if known is not None:
            raise UsageError(
                f"{draft.name!r} is harness {harness.id[:12]}, which {known.author} proposed already as {known.name!r}"
            )
        _refuse_leaks(leaks, before, harness, draft.name)
        name = free_name(library, draft.name, harness.id)
        made = proposal(before, tree_files(harness), Human.name, name, Manifest(why=why))
        library.add(made.tree, name=name, parents=[before.id], message=why)
    except (HarnessError, UnknownHarness) as error:
        raise UsageError(str(error)) from error
    store.append(made.candidate)
    return made.candidate


def leaks_of(store: Store) -> Leaks:
    """What no candidate of a run may carry: what its dev, select and imported test tasks give away."""
    held_out = [*tasks_of(store, "select", None, "gate"), *imported_tasks(store.config)["test"]]
    return Leaks(tasks_of(store, "dev", None, "gate"), held_out, listed_tasks())


def _refuse_leaks(leaks: Leaks, parent: Harness, harness: Harness, named: str) -> None:
    try:
        refuse_leaks(leaks, parent, harness.files)
    except Refused as error:
        raise UsageError(f"harness {named!r}: {error}") from error


def enter(library: Library, named: str) -> str:
    """The id of a harness by id, name, seed or directory; what the library lacks is added. Raises UsageError."""
    try:
        return library.resolve(named)
    except UnknownHarness:
        harness = read_named(named)
        return library.add(tree_files(harness), name=Path(named).name, message=f"from {Path(named).name}")


def read_named(named: str) -> Harness:
    """A seed by its name, or a harness directory. Raises UsageError."""
    try:
        if named in SEEDS:
            return read_tree(seed_path(named))
        if not Path(named).is_dir():
            raise UsageError(f"harness {named!r}: expected one of {', '.join(SEEDS)} or a directory")
        return read_tree(Path(named))
    except HarnessError as error:
        raise UsageError(f"harness {named!r}: {error}") from error


def free_name(library: Library, wanted: str, harness_id: str) -> str:
    """`wanted` made fit for the library; with the id's first digits when another harness has it."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in wanted.lower()).strip("-") or "harness"
    taken = (library.names() | library.tags()).get(plain, harness_id) != harness_id
    return f"{plain[:60]}-{harness_id[:6]}" if taken else plain[:80]
