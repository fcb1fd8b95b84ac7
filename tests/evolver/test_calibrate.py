"""Calibrating a judge end to end: controls on machines in memory, the judge behind a real HTTP endpoint."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from devset.families import families
from devset.task import Criterion, Oracle, Split, Task
from evolver.audit import Calibration, Judgement
from evolver.authors.human import enter
from evolver.calibrate import calibrate, controls, mutants_of, require_fit
from evolver.config import HumanAuthor, RunConfig
from evolver.controls import NoopModel
from evolver.errors import UsageError
from evolver.executors.local import LocalExecutor
from evolver.graders.judge import JudgeGrader, signature_of
from evolver.judging import calibration
from evolver.lab import Attempt, Lab, open_lab
from evolver.loop import run
from evolver.models.demonstrator import Demonstrator
from evolver.models.openai import OpenAIModel
from evolver.records import Decision, LedgerEntry, Rollout, Score, Scorecard
from evolver.store import Store
from evolver.testing import FakeSandboxes
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path
from tests.evolver.cards import Coin, ReadsTheReply, coin_lab, split_tasks
from tests.evolver.endpoint_server import Reply, chat, serving
from tests.evolver.graded_task import task
from tests.evolver.judged_task import NEAT, config
from tests.evolver.test_admission import BOTH, StateGrader, machine
from tests.evolver.test_judging import RULES, good
from tests.evolver.test_loop import Students, shell_helps
from tests.evolver.test_loop import config as experiment


class Idle(NoopModel):
    id = "student-idle"


def tasks(n: int = 4) -> list[Task]:
    return [task(id=f"right-{number}", oracle=BOTH, split="dev") for number in range(n)]


def shown(request: dict) -> str:  # type: ignore[type-arg]
    content = request["messages"][1]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def answering(choose: Callable[[str], str]) -> Reply:
    """A judge that takes one choice for all criteria, by what it is shown."""

    def body(request: dict) -> Reply:  # type: ignore[type-arg]
        ids = re.findall(r"^(\w+): .* Choices, from worst to best:$", shown(request), re.MULTILINE)
        choice = choose(shown(request))
        return chat({"content": json.dumps({i: {"why": "Seen.", "choice": choice} for i in ids})})

    return Reply(body=body)


def careful(text: str) -> str:
    return "met" if "--- a.txt (as it is now)\nright" in text else "not_met"


def believing(text: str) -> str:
    return "not_met" if "made no step" in text else "met"


def a_lab(path: Path, url: str, **changes: object) -> tuple[Lab, JudgeGrader]:
    store = Store.create(path / "run", config(url, **changes))
    assert store.config.judge is not None
    judge = JudgeGrader(store.config.judge, OpenAIModel(store.config.judge.model), store)
    program = StateGrader(lambda state, asked: float(b"right" in state))
    graders = [program, judge]
    lab = Lab(store, Library(path / "library"), FakeSandboxes(machine), graders, Demonstrator(), LocalExecutor(2))
    return lab, judge


async def test_s44_known_successes_failures_and_blanks_are_judged_and_the_calibration_is_kept(tmp_path: Path) -> None:
    with serving(answering(careful)) as endpoint:
        lab, judge = a_lab(tmp_path, endpoint.url)
        found = await calibrate(lab, judge, tasks(), [])
    assert {g.name: (g.n, g.checked_rate, g.judged_rate) for g in found.kinds} == {
        "blank_screen": (4, 0, 0), "empty_home": (4, 0, 0), "noop": (4, 0, 0), "oracle": (8, 1, 1),
    }  # fmt: skip
    assert {g.name for g in found.channels} == {"gui", "terminal", "none"}
    assert (found.accuracy.point, found.kappa.point, found.judge) == (1.0, 1.0, judge.signature)
    assert lab.store.all(Calibration) == [found]
    blank = [
        r for r in endpoint.requests if "made no step" in shown(r) and not isinstance(r["messages"][1]["content"], str)
    ]
    assert len(blank) == 4, "the black screens were really sent"


async def test_a_judge_that_believes_the_agent_is_found_out(tmp_path: Path) -> None:
    with serving(answering(believing)) as endpoint:
        lab, judge = a_lab(tmp_path, endpoint.url)
        found = await calibrate(lab, judge, tasks(), [])
    assert any("100 % of the known failures passed" in fault for fault in found.faults)
    with pytest.raises(UsageError, match=r"rests on a judge, and judge:judge-4.*failed its calibration.*calibrate"):
        require_fit(lab, judge.signature, "the promotion of 'x' rests on a judge")


async def test_what_was_judged_is_not_paid_for_again_and_what_was_not_is_asked_again(tmp_path: Path) -> None:
    choose = {"now": lambda text: "unsure" if "--- a.txt" in text else "not_met"}
    with serving(answering(lambda text: choose["now"](text))) as endpoint:
        lab, judge = a_lab(tmp_path, endpoint.url)
        first = await calibrate(lab, judge, tasks(), [])
        assert any("8 of 20 cases have no readable answer" in fault for fault in first.faults)
        played, asked = len(lab.store.all(Rollout)), len(endpoint.requests)
        choose["now"] = careful
        second = await calibrate(lab, judge, tasks(), [])
        assert len(endpoint.requests) == asked + 8 and second.kappa.point == 1.0
        assert await calibrate(lab, judge, tasks(), []) == second and len(endpoint.requests) == asked + 8
    assert len(lab.store.all(Rollout)) == played == 12
    entries = lab.store.all(LedgerEntry)
    assert {e.role for e in entries} == {"judge"}
    assert sum(e.calls for e in entries if e.model_id == "judge-4") == asked + 8
    assert len(lab.store.all(Calibration)) == 2 and len(lab.store.all(Judgement)) == 28


async def test_solved_and_failed_attempts_of_the_run_are_judged_too(tmp_path: Path) -> None:
    with serving(answering(careful)) as endpoint:
        lab, judge = a_lab(tmp_path, endpoint.url)
        harness = enter(lab.library, "beta1")
        known = [task(id=f"right-{n}", oracle=BOTH, split="train") for n in range(10, 16)]
        await lab.score([Attempt(harness, one, "train") for one in known])
        await lab.score([Attempt(harness, one, "train") for one in known[:3]], model=Idle(), role="student")
        sealed = [task(id="right-20", oracle=BOTH, split="test")]
        await lab.score([Attempt(harness, one, "test") for one in sealed])
        found = await calibrate(lab, judge, tasks(), known)
    counts = {g.name: g.n for g in found.kinds}
    assert (counts["solved"], counts["failed"]) == (4, 3), "as many of each as there are control tasks, at most"
    assert {g.name for g in found.families} == {"demonstrator", "student"}
    assert not any(j.task_id == "right-20" for j in lab.store.all(Judgement)), "a test task calibrates nothing"


@pytest.mark.parametrize(("says", "left"), [(0.0, {"noop", "blank_screen", "empty_home"}), (1.0, {"oracle"})])
async def test_g03_what_the_check_program_gets_wrong_on_a_known_state_no_judge_ever_sees(
    says: float, left: set[str], tmp_path: Path
) -> None:
    """A check that fails the oracle, and one that passes the untouched state, say nothing that could be agreed with."""
    with serving(answering(careful)) as endpoint:
        lab, judge = a_lab(tmp_path, endpoint.url)
        lab.graders = (StateGrader(lambda state, asked: says), judge)
        await calibrate(lab, judge, tasks(2), [])
        assert len(endpoint.requests) == len(lab.store.all(Judgement)) > 0
    assert {judgement.kind for judgement in lab.store.all(Judgement)} == left


async def test_controls_are_no_attempts_of_the_experiment(tmp_path: Path) -> None:
    with serving(answering(careful)) as endpoint:
        lab, judge = a_lab(tmp_path, endpoint.url)
        await calibrate(lab, judge, tasks(), [])
    assert {card.key.purpose for card in lab.store.all(Scorecard)} == {"calibrate"}


async def test_nothing_to_judge_is_said(tmp_path: Path) -> None:
    with serving(answering(careful)) as endpoint:
        lab, judge = a_lab(tmp_path, endpoint.url)
        with pytest.raises(UsageError, match="nothing to calibrate on"):
            await calibrate(lab, judge, [], [])


def test_controls_of_a_family_are_oracles_noop_and_its_mutants() -> None:
    made = families()["files.rename"].instance(1000)
    gui, terminal = (read_tree(seed_path(name)) for name in ("alpha", "beta1"))
    found = controls([made], gui, terminal)
    kinds = [control.kind for control in found]
    assert kinds.count("noop") == 1 and kinds.count("mutant") == 2 and kinds.count("oracle") >= 1
    scripts = [c.oracle.terminal[0].command for c in found if c.kind == "mutant" and c.oracle.terminal]
    assert scripts == mutants_of(made)[:2] and len({(c.harness.id, c.number) for c in found}) == len(found)
    assert next(c for c in found if c.kind == "noop").oracle == Oracle(terminal=())
    assert mutants_of(task()) == []


# --- the gate ---------------------------------------------------------------------------------------------------------


def with_a_judge(split: Split, limit: int | None = None) -> Sequence[Task]:
    made = split_tasks(split, limit)
    rubric = made[0].rubric.model_copy(update={"criteria": (*made[0].rubric.criteria, NEAT)})
    return [one.model_copy(update={"rubric": rubric}) for one in made]


async def test_s44_no_run_starts_whose_tasks_an_uncalibrated_judge_decides(tmp_path: Path) -> None:
    with serving(answering(careful)) as endpoint:
        lab, _ = a_lab(tmp_path, endpoint.url)
        with pytest.raises(
            UsageError,
            match=r"'dev-0', criterion 'neat' is decided by a judge, and judge:judge-4:.* was "
            r"never calibrated in this run: run `evolver judge calibrate",
        ):
            await run(lab, tasks=with_a_judge)
    assert not lab.store.all(Rollout) and not endpoint.requests, "nothing was spent"


async def test_a_run_without_a_judge_says_what_is_missing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    lab = Lab(store, Library(tmp_path / "l"), FakeSandboxes(machine), [], Demonstrator(), LocalExecutor(1))
    with pytest.raises(UsageError, match=r"the run has no judge"):
        await run(lab, tasks=with_a_judge)


async def test_after_a_good_calibration_the_gate_is_open(tmp_path: Path) -> None:
    with serving(answering(careful)) as endpoint:
        spec = config(endpoint.url).judge
        assert spec is not None
        lab, judge = a_lab(tmp_path, endpoint.url, judge=spec.model_dump(mode="json") | {"min_cases": 4})
        found = await calibrate(lab, judge, tasks(30), [])
        assert found.faults == () and found.judge == judge.signature == signature_of(spec)
        require_fit(lab, judge.signature, "the promotion of 'x' rests on a judge")
        with pytest.raises(UsageError, match="never calibrated"):
            require_fit(lab, judge.signature + "0", "the promotion of 'x' rests on a judge")


class Agreeing(ReadsTheReply):
    """A judge that sees what the program sees, under a signature of its own."""

    name = "judge"

    def __init__(self, signature: str) -> None:
        self.signature = signature

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        scores = await super().grade(criteria, task, rollout, state)
        return [score.model_copy(update={"grader": self.signature}) for score in scores]


async def test_s44_a_promotion_that_rests_on_another_judge_than_the_fit_one_is_withheld(tmp_path: Path) -> None:
    """The start of the run was let through by a calibration; the scores then name a judge that has none."""
    judged_by = config("http://127.0.0.1:1/v1", allow_unpriced=True).judge
    assert judged_by is not None
    settings = experiment(
        authors=(HumanAuthor(kind="human", harness="beta1", why="a shell"),), judge=judged_by, allow_unpriced=True
    )
    lab = coin_lab(tmp_path / "run", settings, Coin(shell_helps))
    fit = calibration(good(), RULES, 0, 0.0).model_copy(update={"judge": signature_of(judged_by)})
    lab.store.append(fit)
    lab.graders = (*lab.graders, Agreeing("judge:other:v1-0"))
    with pytest.raises(UsageError, match="promotion of 'beta1' rests on a judge, and judge:other:v1-0 was never"):
        await run(lab, tasks=with_a_judge, distil=Students(lab))
    assert not any(decision.verdict == "promote" for decision in lab.store.all(Decision))
    lab.store.append(fit.model_copy(update={"id": "cal-other", "judge": "judge:other:v1-0"}))
    before = len(lab.store.all(Rollout))
    await run(lab, tasks=with_a_judge, distil=Students(lab))
    assert [decision.verdict for decision in lab.store.all(Decision)] == ["promote"]
    assert len(lab.store.all(Rollout)) == before, "no attempt was played again"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap (Debian: apt-get install bubblewrap)")
async def test_controls_of_a_real_task_on_a_real_machine(tmp_path: Path) -> None:
    """Oracle, no-op and mutants played for real: the judge is shown what each really left."""
    made = families()["text.sort"].instance(1000).model_copy(update={"split": "dev"})
    wanted = next(iter(path for path in made.exec_files if path in made.check))
    with serving(answering(lambda text: "met" if f"changed: {wanted}" in text else "not_met")) as endpoint:
        store = Store.create(tmp_path / "run", config(endpoint.url, sandbox={"backend": "local", "spares": 0}))
        async with open_lab(store.path) as lab:
            judge = next(grader for grader in lab.graders if isinstance(grader, JudgeGrader))
            found = await calibrate(lab, judge, [made], [])
    assert {g.name: (g.n, g.checked_rate) for g in found.kinds} == {
        "blank_screen": (1, 0), "empty_home": (1, 0), "mutant": (2, 0), "noop": (1, 0), "oracle": (1, 1),
    }  # fmt: skip
    judged = {j.kind: j.judged for j in store.all(Judgement) if j.kind != "mutant"}
    assert judged == {"blank_screen": False, "empty_home": False, "noop": False, "oracle": True}
