"""A run that the real loop has made, on machines in memory, with a capsule of its winner; or a run that is named.

`EVOLVER_TEST_RUN=runs/demo pytest -m browser tests/dashboards/test_walk.py` walks over a copy of that run instead.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from evolver.config import DistilConfig, HumanAuthor, StructuredAuthor
from evolver.freeze import Wanted, freeze
from evolver.loop import run
from evolver.records import Candidate
from evolver.safeguards import ChecksConfig
from tests.evolver.frozen_run import hashed_tasks, lab_of
from tests.evolver.test_loop import Students

NAMED = "EVOLVER_TEST_RUN"
CAPSULE = "winner-1"


async def looped(path: Path) -> Path:
    """Two candidates of an author and one of a person, raced and decided; the promoted one frozen and released."""
    if os.environ.get(NAMED):
        return Path(shutil.copytree(os.environ[NAMED], path))
    authors = (
        HumanAuthor(kind="human", harness="beta1", why="a shell"),
        StructuredAuthor(kind="structured", n=2, space=("tools.bash", "scaffold.max_steps")),
    )
    checks = ChecksConfig(tasks=0, neutral_every=0)
    lab = lab_of(path, authors=authors, checks=checks, distil=DistilConfig(max_promotions=1))
    await run(lab, tasks=hashed_tasks, distil=Students(lab))
    winner = next(c for c in lab.store.all(Candidate) if c.name == "beta1")
    await freeze(lab, Wanted(winner.harness_id, CAPSULE), tasks=hashed_tasks)
    return path
