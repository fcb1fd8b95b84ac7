"""Looks at the endpoint, whose baseline is whole; at the judge: its cases are units that it failed and that it passed,
and each kind tells of its own drift; and at what is installed on the machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from devset.task import Criterion, Task
from evolver.budget import Budget
from evolver.capsules import open_capsule
from evolver.config import JudgeConfig, OpenAISpec
from evolver.controls import NoopModel
from evolver.errors import JudgeSilent, ProviderFailed
from evolver.graders.judge import ASKS
from evolver.protocols import Finding, Model, Request
from evolver.records import Completion, Rollout, Score, Usage
from evolver.rounds.attempts import Attempts
from evolver.rounds.bench import Bench
from evolver.rounds.book import NANO
from evolver.rounds.meter import Meter
from evolver.rounds.plan import TaskRef
from evolver.rounds.probes import CASES, keep_case, most_tokens, probe
from evolver.rounds.start import probes_usd, worst_usd
from evolver.rounds.watch import LENIENT, STRICT
from evolver.score import score_of
from evolver.store import Store
from evolver.testing import FakeSandboxes
from harnesses.capsule import ImagePin
from tests.evolver.frozen_run import PACKAGES, machines
from tests.evolver.graded_task import rollout
from tests.evolver.judged_task import NEAT, judged
from tests.evolver.round_capsule import write_made_capsule

TASK = judged(NEAT)
REF = TaskRef(TASK.id, TASK.hash)


class Source:
    name = "one"

    def refs(self) -> list[TaskRef]:
        return [REF]

    def task(self, ref: TaskRef) -> Task:
        return TASK


class Judge:
    """Gives what it is told to whatever it sees; None: it does not answer."""

    name = "judge"

    def __init__(self, value: float | None) -> None:
        self.value = value

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        if self.value is None:
            raise JudgeSilent("down")
        return [score_of(c, self.value, "said so", "judge:m:v1") for c in criteria]

    async def aclose(self) -> None:
        return None


def opened(path: Path) -> tuple[Bench, Judge]:
    capsule, judge = write_made_capsule(path / "capsule", "beta1", "local"), Judge(1.0)
    found = open_capsule(capsule)
    store = Store.create(path / "round", found.config)
    (path / "round" / "attempts").mkdir()
    return Bench(found, store, FakeSandboxes(), (judge,), NoopModel(), Source()), judge


def looked(bench: Bench, path: Path) -> dict[tuple[str, bool], int]:
    """(chart, whether it is off) → looks of the judge's cases."""
    journal = Attempts.of(path / "round").journal(1)
    findings = asyncio.run(probe("judge", bench, [REF], Meter(journal, lambda *of: 0.0)))
    journal.close()
    keys = [(one.chart, one.off) for one in findings]
    return {key: keys.count(key) for key in dict.fromkeys(keys)}


def test_g41_a_lenient_judge_shows_on_what_it_failed_and_a_strict_one_on_what_it_passed(tmp_path: Path) -> None:
    bench, judge = opened(tmp_path)
    played = rollout(TASK).model_copy(update={"state_sha256": bench.store.put_blob(b"state")})
    for number in range(100):  # nine of ten pass: even so, all that failed are kept, up to so many
        value = 0.5 if number % 10 == 0 else 1.0
        one = played.model_copy(update={"id": f"r-{number}"})
        keep_case(bench, f"{number:064d}"[::-1], REF, one, [score_of(NEAT, value, "first", "judge:m:v1")])
    judge.value = 1.0
    assert looked(bench, tmp_path) == {(LENIENT, True): 10, (STRICT, False): CASES["passed"]}
    judge.value = 0.5
    assert looked(bench, tmp_path) == {(LENIENT, False): 10, (STRICT, True): CASES["passed"]}
    judge.value = None
    assert looked(bench, tmp_path) == {}, "what does not answer says nothing"


def endpoint_looked(bench: Bench, path: Path, model: Model) -> list[bool]:
    """Whether each answer of the endpoint was off."""
    journal = Attempts.of(path / "round").journal(1)
    look = probe("endpoint", replace(bench, model=model), [REF], Meter(journal, lambda *of: 0.0))
    findings = asyncio.run(look)
    journal.close()
    return [one.off for one in findings]


class Says(NoopModel):
    """Answers all but the first `silent` calls."""

    def __init__(self, text: str, silent: int = 0) -> None:
        self.text, self.silent = text, silent

    async def complete(self, request: Request) -> Completion:
        self.silent -= 1
        if self.silent >= 0:
            raise ProviderFailed("down")
        return Completion(text=self.text, usage=Usage(input_tokens=9, output_tokens=1, counted_by="provider"))


def test_g41_an_outage_at_the_first_look_leaves_the_endpoint_s_chart_alive(tmp_path: Path) -> None:
    bench, _ = opened(tmp_path)
    lines = len(most_tokens())
    for silent in (lines, 1):
        assert endpoint_looked(bench, tmp_path, Says("one", silent)) == []
    assert endpoint_looked(bench, tmp_path, Says("one")) == []  # every answer is there: the first look
    assert endpoint_looked(bench, tmp_path, Says("one", 1)) == [False] * (lines - 1)
    assert endpoint_looked(bench, tmp_path, Says("another")) == [True] * lines


class Full(NoopModel):
    """Bills the most that a request of the endpoint's look can come to."""

    id = "gpt-x"

    def __init__(self) -> None:
        self.left = most_tokens()

    async def complete(self, request: Request) -> Completion:
        most = Usage(input_tokens=self.left.pop(0), output_tokens=request.sampling.max_tokens, counted_by="provider")
        return Completion(text="42", usage=most)


def test_the_most_that_a_look_can_cost_is_known_before_it(tmp_path: Path) -> None:
    teacher = OpenAISpec(kind="openai", model="gpt-x")
    found = open_capsule(write_made_capsule(tmp_path / "capsule", "beta1", "local", teacher=teacher))
    store = Store.create(tmp_path / "round", found.config)
    (tmp_path / "round" / "attempts").mkdir()
    budget = Budget(store, found.config.caps)
    most = probes_usd(found, budget)
    journal = Attempts.of(tmp_path / "round").journal(1)
    meter = Meter(journal, budget.price)
    asyncio.run(probe("endpoint", Bench(found, store, FakeSandboxes(), (), Full(), Source()), [REF], meter))
    journal.close()
    assert set(most) == {"endpoint"} and meter.total.nusd == round(most["endpoint"] * NANO) > 0
    judge = JudgeConfig(model=teacher, allow_teacher_model=True)
    judged = probes_usd(replace(found, config=found.config.model_copy(update={"judge": judge})), budget)
    window = found.harness.scaffold.window_tokens
    each = budget.price("gpt-x", window, judge.max_tokens) or 0.0
    assert judged["judge"] == pytest.approx(each * ASKS * sum(CASES.values())) and each > 0


def test_e13_a_worst_case_has_every_try_that_can_time_out(tmp_path: Path) -> None:
    def worst(name: str, **times: float) -> tuple[float, float]:
        asked = OpenAISpec.model_validate({"kind": "openai", "model": "gpt-x", **times})
        found = open_capsule(write_made_capsule(tmp_path / name, "beta1", "local", teacher=asked))
        budget = Budget(Store.create(tmp_path / f"{name}-round", found.config), found.config.caps)
        return worst_usd(found, budget, 1_800) or 0.0, probes_usd(found, budget)["endpoint"]

    once, look = worst("once", timeout_s=120, retry_for_s=60)
    assert worst("thrice", timeout_s=10, retry_for_s=29) == pytest.approx((3 * once, 3 * look)) and once > 0 < look
    steps = open_capsule(tmp_path / "once").harness.scaffold.max_steps
    patient, _ = worst("patient", timeout_s=120, retry_for_s=3_600)  # the deadline leaves time for 15 that time out
    assert patient == pytest.approx(once * (steps + 15) / steps)


def test_what_no_judge_scored_is_no_case(tmp_path: Path) -> None:
    bench, _ = opened(tmp_path)
    played = rollout(TASK).model_copy(update={"state_sha256": bench.store.put_blob(b"state")})
    keep_case(bench, "0" * 64, REF, played, [score_of(NEAT, None, "no answer", "judge:m:v1")])
    keep_case(bench, "1" * 64, REF, played, [score_of(NEAT, 1.0, "compared", "program")])
    assert looked(bench, tmp_path) == {}


def test_g40_what_is_installed_is_asked_of_a_new_machine_at_every_look(tmp_path: Path) -> None:
    image = ImagePin(digest="sha256:fake", **PACKAGES)
    capsule = open_capsule(write_made_capsule(tmp_path / "capsule", "beta1", "local", (image, image)))
    store = Store.create(tmp_path / "round", capsule.config)
    (tmp_path / "round" / "attempts").mkdir()
    journal = Attempts.of(tmp_path / "round").journal(1)

    def environment(boxes: FakeSandboxes) -> list[Finding]:
        bench = Bench(capsule, store, boxes, (), NoopModel(), Source())
        return list(asyncio.run(probe("environment", bench, [], Meter(journal, lambda *of: 0.0))))

    assert [(one.name, one.off) for one in environment(machines())] == [("image", False)]
    [changed] = environment(machines({**PACKAGES, "pip": {"lxml": "0.1"}}))
    assert changed.off and changed.at_once and "machine.image.pip.lxml: 6.1.3 → 0.1" in changed.detail
    [rebuilt] = environment(machines(digest="sha256:rebuilt"))
    assert rebuilt.off and "machine.image.digest: sha256:fake → sha256:rebuilt" in rebuilt.detail
    assert environment(FakeSandboxes()) == []  # a machine that can't say
    journal.close()
