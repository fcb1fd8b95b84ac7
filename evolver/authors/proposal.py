"""From a tree to a candidate: what changed is read from the trees, never from what an author claims."""

from __future__ import annotations

import time
from collections.abc import Mapping

from evolver.protocols import Proposal
from evolver.records import Candidate, Manifest
from harnesses.diff import diff
from harnesses.harness import Harness
from harnesses.tree import harness_from_files


def proposal(parent: Harness, tree: Mapping[str, bytes], author: str, name: str, manifest: Manifest) -> Proposal:
    """The candidate that `tree` is, seen from `parent`; its id follows from the tree. Raises HarnessError."""
    harness = harness_from_files(tree)
    changed = diff(parent, harness)
    return Proposal(
        candidate=Candidate(
            id=f"cand-{harness.id[:12]}",
            name=name,
            harness_id=harness.id,
            parents=(parent.id,),
            author=author,
            components=changed.components,
            changes=changed.changes,
            manifest=manifest,
            proposed_at=time.time(),
        ),
        tree=tree,
    )
