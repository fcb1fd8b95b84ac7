"""The admission gate on fake machines: what is refused, and why. tests/contracts has it on real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from devset.task import Choice, Criterion, GuiStep, GuiTarget, Oracle, Rubric, Task, TerminalStep, task_hash
from evolver.admission import Admission, Bench, Controls, admit, read_admissions
from evolver.commands.admission import table
from evolver.controls import home_tar
from evolver.errors import SandboxLost
from evolver.executors.local import LocalExecutor
from evolver.models.demonstrator import Demonstrator
from evolver.protocols import Act, Element, Ran
from evolver.records import Rollout, Score
from evolver.testing import FakeSandbox, FakeSandboxes
from harnesses.tree import read_tree, seed_path
from tests.evolver.graded_task import task

ANSWER = "/home/user/a.txt"
CLICK = GuiStep(action="left_click", summary="Click it.", target=GuiTarget(name="Write", role="push button"))
TERMINAL = (TerminalStep(summary="Write it.", command="printf right > a.txt"),)
WORSE_OR_BETTER = (Choice(label="no", description="no", value=0), Choice(label="yes", description="yes", value=1))
BOTH = Oracle(terminal=TERMINAL, gui=(CLICK,))


def machine() -> FakeSandbox:
    """A desktop where the oracle's command, or a click on its one button, writes the answer."""

    def run(sandbox: FakeSandbox, command: str) -> Ran:
        if command == TERMINAL[0].command:
            sandbox.files[ANSWER] = b"right"
        return Ran(0, "")

    def click(sandbox: FakeSandbox, action: Act) -> None:
        sandbox.files[ANSWER] = b"right"

    sandbox = FakeSandbox(screen=(1920, 1080))
    sandbox.otherwise, sandbox.on_act = run, click
    sandbox.shown = [Element("push button", "Write", 100, 100, 50, 20)]
    return sandbox


class StateGrader:
    """Grades by a function of (frozen state, how often it was asked)."""

    name = "program"

    def __init__(self, judge: Callable[[bytes, int], float | None]) -> None:
        self.judge = judge
        self.asked = 0

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        self.asked += 1
        value = self.judge(state, self.asked)
        return [
            Score(criterion=c.id, weight=1.0, required=c.required, value=value, explanation="judged", grader="program")
            for c in criteria
        ]

    async def aclose(self) -> None:
        return None


def right(state: bytes, asked: int) -> float:
    return float(state == home_tar({"a.txt": b"right"}))


def oracles(oracle: Oracle, **changes: object) -> Task:
    made = task(oracle=oracle, channels=oracle.channels, **changes)
    return made.model_copy(update={"hash": task_hash(made)})


async def verdicts(
    *tasks: Task,
    judge: Callable[[bytes, int], float | None] = right,
    make: Callable[[], FakeSandbox] = machine,
    path: Path | None = None,
    oracle_needed: bool = True,
) -> tuple[list[Admission], FakeSandboxes]:
    sandboxes = FakeSandboxes(make)
    bench = Bench(
        sandboxes=sandboxes,
        graders=(StateGrader(judge),),
        executor=LocalExecutor(1),
        demonstrator=Demonstrator(patience_s=0.2),
        gui=read_tree(seed_path("alpha")),
        terminal=read_tree(seed_path("beta1")),
        imported=frozenset() if oracle_needed else frozenset(t.id for t in tasks),
    )
    return [a async for a in admit(tasks, bench, path)], sandboxes


async def refused(*tasks: Task, **options: object) -> str:
    (admission,), _ = await verdicts(*tasks, **options)
    assert not admission.admitted
    return " | ".join(admission.reasons)


async def test_s41_a_proven_task_enters_and_the_line_says_so(tmp_path: Path) -> None:
    one, path = oracles(BOTH), tmp_path / "out/admissions.jsonl"
    (admission,), sandboxes = await verdicts(one, path=path)
    assert (admission.task_id, admission.task_hash, admission.admitted, admission.reasons) == (
        one.id,
        one.hash,
        True,
        (),
    )
    assert json.loads(path.read_text()) == admission.model_dump(mode="json")
    assert len(sandboxes.opened) == 3  # untouched, GUI, terminal: a fresh machine each
    assert all(s.closed for s in sandboxes.opened)
    gui, terminal = sandboxes.opened[1:]
    assert [a.kind for a in gui.acts] == ["left_click"] and TERMINAL[0].command in terminal.commands


async def test_g01_a_task_that_the_untouched_state_solves_is_refused() -> None:
    assert await refused(oracles(BOTH), judge=lambda state, asked: 1.0) == "the untouched state succeeds"


async def test_g01_a_task_that_a_judge_decides_is_refused_where_no_judge_grades() -> None:
    by_judge = Criterion(id="looks", description="it looks right", grader="judge", choices=WORSE_OR_BETTER)
    made = oracles(BOTH, rubric=Rubric(criteria=(Criterion(id="done", description="it is done"), by_judge)))
    for needed in (True, False):
        reasons = await refused(made, oracle_needed=needed)
        assert reasons == "no control can fail: its criteria of judge are not graded here"


async def test_g02_an_oracle_that_does_not_succeed_is_named_with_what_failed() -> None:
    def broken() -> FakeSandbox:
        sandbox = machine()
        sandbox.on_act = lambda fake, action: None
        return sandbox

    reasons = await refused(oracles(BOTH), make=broken)
    assert reasons == "oracle (gui) does not succeed: done is 0 (judged)"


async def test_an_oracle_that_is_lost_on_the_screen_is_refused() -> None:
    nowhere = GuiStep(action="left_click", summary="Click.", target=GuiTarget(name="Nowhere"))
    assert "oracle (gui) does not succeed" in await refused(oracles(Oracle(gui=(nowhere,))))


async def test_g02_a_task_without_an_oracle_is_unproven_and_costs_nothing() -> None:
    made = task(oracle=Oracle(), channels=frozenset({"gui"}))
    (admission,), sandboxes = await verdicts(made)
    assert admission.reasons == ("unproven: no oracle for channel gui",) and sandboxes.opened == []


async def test_g15_a_checker_that_disagrees_with_itself_is_refused() -> None:
    reasons = await refused(oracles(BOTH), judge=lambda state, asked: float(asked % 2 == 0))
    assert "disagrees with itself" in reasons and "'done': 0.0" in reasons


async def test_s40_a_checker_that_fails_is_refused_as_such() -> None:
    reasons = await refused(oracles(BOTH), judge=lambda state, asked: None)
    assert "criterion done is unscored: judged" in reasons


async def test_s10_a_set_up_that_fails_is_refused_before_any_oracle() -> None:
    def no_setup() -> FakeSandbox:
        sandbox = FakeSandbox(screen=(1920, 1080))
        sandbox.otherwise = lambda fake, command: Ran(7, "no such file")
        return sandbox

    reasons = await refused(oracles(BOTH, setup="cp missing x"), make=no_setup)
    assert "setup" in reasons and "no such file" in reasons and "oracle" not in reasons


async def test_a_machine_of_ours_that_is_lost_is_not_held_against_the_task() -> None:
    class Lost(FakeSandbox):
        async def freeze(self) -> bytes:
            raise SandboxLost("the host went away")

    machines = [Lost(screen=(1920, 1080))]
    (admission,), sandboxes = await verdicts(oracles(BOTH), make=lambda: machines.pop() if machines else machine())
    assert admission.admitted and len(sandboxes.opened) == 4
    reasons = await refused(oracles(BOTH), make=lambda: Lost(screen=(1920, 1080)))
    assert "sandbox_lost: the host went away" in reasons


async def test_s46_an_infeasible_task_enters_when_giving_up_is_what_succeeds() -> None:
    made = oracles(Oracle(), feasible=False)
    (admission,), sandboxes = await verdicts(made, judge=lambda state, asked: 1.0)
    assert admission.admitted and len(sandboxes.opened) == 2


async def test_one_refusal_does_not_stop_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "admissions.jsonl"
    bad = oracles(Oracle(gui=(CLICK,), terminal=(TerminalStep(summary="No.", command="true"),)), id="bad-1")
    admissions, _ = await verdicts(bad, oracles(BOTH), path=path)
    assert {a.task_id: a.admitted for a in admissions} == {"bad-1": False, "right-1": True}
    assert len(path.read_text().splitlines()) == 2


async def test_s41_the_controls_are_told_and_an_oracle_makes_it_proven() -> None:
    (admission,), _ = await verdicts(oracles(BOTH))
    assert admission.proven and not admission.crashed and not admission.lost
    assert admission.controls == Controls(noop=False, done=False, fail=False)


async def test_g02_an_imported_task_without_an_oracle_enters_as_unproven() -> None:
    made = task(oracle=Oracle(), channels=frozenset({"gui", "terminal"}))
    (admission,), sandboxes = await verdicts(made, oracle_needed=False)
    assert admission.admitted and not admission.proven and len(sandboxes.opened) == 1


async def test_an_imported_task_with_an_oracle_for_one_channel_must_pass_it() -> None:
    wrong = Oracle(terminal=(TerminalStep(summary="No.", command="true"),))
    made = task(oracle=wrong, channels=frozenset({"gui", "terminal"}))
    made = made.model_copy(update={"hash": task_hash(made)})
    (admission,), _ = await verdicts(made, oracle_needed=False)
    assert admission.reasons == ("oracle (terminal) does not succeed: done is 0 (judged)",)


def on_empty(value: float | None) -> Callable[[bytes, int], float | None]:
    return lambda state, asked: value if state == home_tar({}) else right(state, asked)


def with_a_file() -> FakeSandbox:
    sandbox = machine()
    sandbox.files["/home/user/kept.txt"] = b"x"
    sandbox.otherwise = lambda fake, command: Ran(0, "")
    return sandbox


async def test_s40_a_checker_that_crashes_on_an_empty_home_is_told_as_crashed() -> None:
    made = task(oracle=Oracle())
    (admission,), _ = await verdicts(made, judge=on_empty(None), make=with_a_file, oracle_needed=False)
    assert admission.crashed and "on an empty home, criterion done is unscored" in admission.reasons[0]


async def test_a_task_that_an_empty_home_solves_is_refused() -> None:
    made = task(oracle=Oracle())
    (admission,), _ = await verdicts(made, judge=on_empty(1.0), make=with_a_file, oracle_needed=False)
    assert admission.reasons == ("an empty home succeeds",) and not admission.crashed


async def test_s46_a_state_that_giving_up_does_not_leave_untouched_is_refused() -> None:
    made = oracles(Oracle(), feasible=False)
    (admission,), _ = await verdicts(made, judge=lambda state, asked: 0.0)
    assert "giving up with a reason does not succeed: done is 0" in admission.reasons[0]
    assert admission.controls == Controls(noop=False, done=False, fail=False)


async def test_verdicts_that_stand_are_not_made_again(tmp_path: Path) -> None:
    path, one = tmp_path / "a.jsonl", oracles(BOTH)
    await verdicts(one, path=path)
    with path.open("a") as lines:
        lines.write('{"task_id": "cut o')
    (again,), sandboxes = await verdicts(one, path=path)
    assert again.admitted and sandboxes.opened == []
    changed = oracles(BOTH, instruction="Another one.")
    (anew,), sandboxes = await verdicts(changed, path=path)
    assert anew.task_hash == changed.hash and len(sandboxes.opened) == 3
    assert read_admissions(path)[one.id] == anew


async def test_g44_a_lost_machine_is_no_verdict_and_the_task_is_run_again(tmp_path: Path) -> None:
    class Lost(FakeSandbox):
        async def freeze(self) -> bytes:
            raise SandboxLost("the host went away")

    path, one = tmp_path / "a.jsonl", oracles(BOTH)
    (lost,), _ = await verdicts(one, path=path, make=lambda: Lost(screen=(1920, 1080)))
    assert lost.lost and not lost.admitted
    (again,), _ = await verdicts(one, path=path)
    assert again.admitted and not again.lost


async def test_the_table_counts_per_split_and_category(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [
        oracles(BOTH, split="dev"),
        oracles(BOTH, id="right-2", split="dev", category="office"),
        oracles(Oracle(gui=(CLICK,), terminal=(TerminalStep(summary="No.", command="true"),)), id="bad-1"),
    ]
    admissions, _ = await verdicts(*tasks)
    table(tasks, admissions)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:-4] for line in shown if line[0] in ("dev", "no", "all")] == [
        ["dev", "office", "1", "1", "1", "0"],
        ["dev", "os", "1", "1", "1", "0"],
        ["no", "split", "os", "1", "0", "0", "1"],
        ["all", "3", "2", "2", "1"],
    ]
