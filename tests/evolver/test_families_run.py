"""Families whose state a plain folder can't stand for: what a browser downloads, and what git makes of its files."""

from __future__ import annotations

import shutil

import pytest

from devset.families import families
from evolver.admission import Admission, Bench, admit
from evolver.executors.local import LocalExecutor
from evolver.graders.program import ProgramGrader
from evolver.models.demonstrator import Demonstrator
from evolver.sandboxes import open_backend
from harnesses.tree import read_tree, seed_path

pytestmark = [pytest.mark.desktop, pytest.mark.slow]


async def test_a_form_is_filled_in_and_downloaded_and_a_repository_is_one_to_git() -> None:
    tasks = [families()[name].instance(4) for name in ("web.form", "develop.git-restore")]
    sandboxes = open_backend("docker" if shutil.which("bwrap") is None else "local", spares=0)
    grader = ProgramGrader(sandboxes)
    bench = Bench(
        sandboxes=sandboxes,
        graders=[grader],
        executor=LocalExecutor(2),
        demonstrator=Demonstrator(),
        gui=read_tree(seed_path("alpha")),
        terminal=read_tree(seed_path("beta1")),
    )
    try:
        found: list[Admission] = [verdict async for verdict in admit(tasks, bench)]
    finally:
        await grader.aclose()
        await sandboxes.aclose()
    assert {f.task_id: f.reasons for f in found} == {task.id: () for task in tasks}
    assert all(f.proven for f in found)
