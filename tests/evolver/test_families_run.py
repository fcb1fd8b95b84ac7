"""Families whose state a plain folder can't stand for: what a browser downloads, and what git makes of its files."""

from __future__ import annotations

import shutil

import pytest

from devset.families import families
from evolver.admission import admit
from evolver.commands.admission import opened_bench

pytestmark = [pytest.mark.desktop, pytest.mark.slow]


async def test_a_form_is_filled_in_and_downloaded_and_a_repository_is_one_to_git() -> None:
    tasks = [families()[name].instance(4) for name in ("web.form", "develop.git-restore")]
    async with opened_bench("docker" if shutil.which("bwrap") is None else "local", 2) as bench:
        found = [verdict async for verdict in admit(tasks, bench)]
    assert {f.task_id: f.reasons for f in found} == {task.id: () for task in tasks}
    assert all(f.proven for f in found)
