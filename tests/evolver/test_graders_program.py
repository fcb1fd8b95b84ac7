"""The program grader: what counts as a verdict, and what becomes of a grading that fails."""

from __future__ import annotations

import asyncio
import json

import pytest

from devset.task import Task
from evolver.controls import home_tar
from evolver.errors import CheckerFailed, SandboxLost
from evolver.graders.program import ProgramGrader, verdicts_in
from evolver.protocols import Ran
from evolver.records import Score
from evolver.testing import FakeSandbox, FakeSandboxes
from tests.evolver.graded_task import rollout, task

GOOD = {"done": {"value": 1, "explanation": "found"}, "kept": {"value": 0.25, "explanation": "half of it"}}
STATE = home_tar({"a.txt": b"right"})


def printed(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def test_g10_the_verdict_is_the_last_object_that_was_printed() -> None:
    wanted = {"done": (1.0, "found"), "kept": (0.25, "half of it")}
    for text in (printed(), f"warming up\n{printed(done={'value': 0})}\n{printed()}\n\n", json.dumps(GOOD, indent=2)):
        assert verdicts_in(text, task()) == wanted


@pytest.mark.parametrize("value", [1.5, -0.1, "1", None, [1], {"value": 1}, float("nan"), float("inf")])
def test_g09_s45_only_a_finite_number_between_0_and_1_is_a_value(value: object) -> None:
    with pytest.raises(CheckerFailed, match="value of 'done'"):
        verdicts_in(printed(done={"value": value, "explanation": ""}), task())


def test_e03_true_is_no_value() -> None:
    with pytest.raises(CheckerFailed, match="True"):
        verdicts_in(printed(done={"value": True, "explanation": ""}), task())


@pytest.mark.parametrize(
    "text",
    ["", "1.0", "[]", "no verdict", printed()[:-5], json.dumps({"done": GOOD["done"]}), printed(extra={"value": 1})],
)
def test_s40_anything_but_all_criteria_is_no_verdict(text: str) -> None:
    with pytest.raises(CheckerFailed, match="right-1"):
        verdicts_in(text, task())


# --- gradings on fake machines -----------------------------------------------------------------------------------


def says(report: object) -> FakeSandbox:
    """A sandbox whose every command prints this report."""
    sandbox = FakeSandbox()
    text = report if isinstance(report, str) else json.dumps(report)
    sandbox.otherwise = lambda fake, command: Ran(0, text)
    return sandbox


def lost() -> FakeSandbox:
    def dies(sandbox: FakeSandbox, command: str) -> Ran:
        raise SandboxLost("out of memory")

    sandbox = FakeSandbox()
    sandbox.otherwise = dies
    return sandbox


def handing_out(*machines: FakeSandbox) -> FakeSandboxes:
    left = list(machines)
    return FakeSandboxes(lambda: left.pop(0))


async def graded(grader: ProgramGrader, of: Task | None = None) -> list[Score]:
    of = of or task()
    return await grader.grade(of.rubric.criteria, of, rollout(of), STATE)


async def test_one_machine_serves_gradings_one_after_the_other_and_leaves_no_folder() -> None:
    sandboxes = handing_out(says({"printed": printed(), "dropped": 0}))
    grader = ProgramGrader(sandboxes)
    for _ in range(3):
        assert [(s.criterion, s.value) for s in await graded(grader)] == [("done", 1.0), ("kept", 0.25)]
    (machine,) = sandboxes.opened
    folders = [path.split("/bundle")[0] for path in machine.files]
    assert len(set(folders)) == 3
    assert all(f"rm -rf {folder};" in command for folder, command in zip(folders, machine.commands, strict=True))
    await grader.aclose()
    assert machine.closed


async def test_gradings_at_the_same_time_have_a_machine_each() -> None:
    sandboxes = FakeSandboxes(lambda: says({"printed": printed()}))
    grader = ProgramGrader(sandboxes)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(graded(grader))
    assert 1 <= len(sandboxes.opened) <= 3
    await grader.aclose()
    assert all(machine.closed for machine in sandboxes.opened)


async def test_a_lost_machine_is_replaced_and_the_grading_done_again() -> None:
    sandboxes = handing_out(lost(), says({"printed": printed()}))
    grader = ProgramGrader(sandboxes)
    assert [s.value for s in await graded(grader)] == [1.0, 0.25]
    assert sandboxes.opened[0].closed and not sandboxes.opened[1].closed


async def test_g12_a_machine_that_is_lost_twice_leaves_it_unscored() -> None:
    grader = ProgramGrader(handing_out(lost(), lost()))
    scores = await graded(grader)
    assert [s.value for s in scores] == [None, None]
    assert all("sandbox_lost" in s.explanation and "out of memory" in s.explanation for s in scores)


@pytest.mark.parametrize(
    "report", ["Killed", {"failed": "exit code 1: boom"}, {"printed": "nonsense"}, {"printed": None}, {}]
)
async def test_s40_a_failed_check_is_unscored_with_its_reason(report: object) -> None:
    scores = await graded(ProgramGrader(handing_out(says(report))))
    assert [(s.value, s.required, s.weight) for s in scores] == [(None, True, 3.0), (None, False, 1.0)]
    assert all(s.explanation.startswith("unscored, checker: ") and "right-1" in s.explanation for s in scores)


async def test_g12_a_check_whose_machine_does_not_come_back_is_unscored() -> None:
    def hangs(sandbox: FakeSandbox, command: str) -> Ran:
        return Ran(None, "", timed_out=True)

    def machine() -> FakeSandbox:
        sandbox = FakeSandbox()
        sandbox.otherwise = hangs
        return sandbox

    scores = await graded(ProgramGrader(handing_out(machine(), machine())))
    assert [s.value for s in scores] == [None, None]


async def test_g11_a_task_whose_bytes_are_not_those_of_its_hash_is_not_graded() -> None:
    tampered = task().model_copy(update={"check": "print('{}')"})
    sandboxes = FakeSandboxes()
    scores = await graded(ProgramGrader(sandboxes), tampered)
    assert [s.value for s in scores] == [None, None] and "hash" in scores[0].explanation
    assert sandboxes.opened == []


async def test_a_cancelled_grading_does_not_give_its_machine_to_the_next() -> None:
    class Stuck(FakeSandbox):
        async def exec(self, command: str, **options: object) -> Ran:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    sandboxes = handing_out(Stuck(), says({"printed": printed()}))
    grader = ProgramGrader(sandboxes)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await graded(grader)
    assert sandboxes.opened[0].closed
    assert [s.value for s in await graded(grader)] == [1.0, 0.25]
