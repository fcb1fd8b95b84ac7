"""The Grader contract on the program grader in real sandboxes, and on the fake."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator

import pytest

from evolver.controls import home_tar
from evolver.graders.program import ProgramGrader
from evolver.protocols import Grader, Sandboxes
from evolver.sandboxes import open_backend
from evolver.testing import FakeGrader, GraderContract
from evolver.testing.contracts import Case
from tests.evolver.graded_task import LINES, rollout, task

LIBRARY = """from devset.checks import grade

grade({"done": [("text_is", {"path": "a.txt", "expected": ["right"]})], "kept": [("absent", {"path": "b.txt"})]})
"""
RIGHT, WRONG = home_tar({"a.txt": b"right"}), home_tar({"a.txt": b"wrong"})


def case(check: str = LINES, state: bytes = RIGHT) -> Case:
    made = task(check=check)
    return made.rubric.criteria, made, rollout(made), state


class TestFake(GraderContract):
    failing = False

    def make(self) -> Grader:
        return FakeGrader({} if self.failing else {"done": 1.0, "kept": 0.0})

    def case(self) -> Case:
        return case()

    def broken(self) -> Case:
        self.failing = True
        return case()


class OnBackend(GraderContract):
    backend: Sandboxes

    def make(self) -> Grader:
        return ProgramGrader(self.backend)

    def case(self) -> Case:
        return case()

    def broken(self) -> Case:
        return case(LINES + "raise SystemExit(1)\n")

    async def test_the_state_decides(self) -> None:
        grader = self.make()
        try:
            values = [[s.value for s in await grader.grade(*case(state=state))] for state in (RIGHT, WRONG)]
        finally:
            await grader.aclose()
        assert values == [[1.0, 1.0], [0.0, 1.0]]

    async def test_g13_the_library_of_checks_is_there_and_the_network_is_not(self) -> None:
        offline = (
            "import json, socket\n"
            "try:\n    socket.create_connection(('1.1.1.1', 53), 2)\n    reached = 0\n"
            "except OSError:\n    reached = 1\n"
            "print(json.dumps({'done': {'value': reached}, 'kept': {'value': 1}}))\n"
        )
        grader = self.make()
        try:
            scores = await grader.grade(*case(LIBRARY))
            alone = await grader.grade(*case(offline))
        finally:
            await grader.aclose()
        assert [s.value for s in scores] == [1.0, 1.0]
        assert [s.value for s in alone] == [1.0, 1.0]

    async def test_g15_the_same_state_gets_the_same_verdict_also_at_the_same_time(self) -> None:
        grader = self.make()
        try:
            async with asyncio.TaskGroup() as group:
                grading = [group.create_task(grader.grade(*case())) for _ in range(3)]
            again = await grader.grade(*case())
        finally:
            await grader.aclose()
        assert all(done.result() == again for done in grading)

    async def test_g12_a_check_that_hangs_is_unscored_and_the_next_one_works(self) -> None:
        grader = self.make()
        hanging = case("import time; time.sleep(600)")
        limits = hanging[1].limits.model_copy(update={"check_timeout_s": 1.0})
        slow = task(check="import time; time.sleep(600)", limits=limits)
        try:
            scores = await grader.grade(slow.rubric.criteria, slow, rollout(slow), RIGHT)
            after = await grader.grade(*case())
        finally:
            await grader.aclose()
        assert [s.value for s in scores] == [None, None] and "within 1 s" in scores[0].explanation
        assert [s.value for s in after] == [1.0, 1.0]

    async def test_s43_a_check_finds_no_trace_of_an_earlier_grading(self) -> None:
        look = (
            "import json\nfrom pathlib import Path\n"
            "others = [p for p in Path('/tmp').glob('grading-*') if p != Path.cwd().parent]\n"
            "print(json.dumps({'done': {'value': float(not others)}, 'kept': {'value': 1}}))\n"
        )
        grader = self.make()
        try:
            values = [[s.value for s in await grader.grade(*case(look))] for _ in range(2)]
        finally:
            await grader.aclose()
        assert values == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.docker
class TestProgramOnDocker(OnBackend):
    @pytest.fixture(autouse=True)
    async def opened(self) -> AsyncIterator[None]:
        self.backend = open_backend("docker", spares=0)
        yield
        await self.backend.aclose()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap (Debian: apt-get install bubblewrap)")
class TestProgramOnLocal(OnBackend):
    @pytest.fixture(autouse=True)
    async def opened(self) -> AsyncIterator[None]:
        self.backend = open_backend("local", spares=0)
        yield
        await self.backend.aclose()
