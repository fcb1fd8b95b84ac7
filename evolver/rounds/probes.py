"""Looks at a round's instruments, made by a worker between its units: whether they still are what they were.

What the first look at endpoint and judge found is kept in the round's folder; every later look is compared with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from devset.task import Task
from evolver.capsules import verify_machine
from evolver.controls import NoopModel
from evolver.disk import make_folder, replace
from evolver.errors import Blamed, JudgeSilent, NotReady, SandboxLost
from evolver.models.demonstrator import Demonstrator
from evolver.protocols import Finding, Model, Privileged, Probe
from evolver.records import Record, Rollout, RolloutKey, Score
from evolver.refusals import answer_to, neutral_request, short_request
from evolver.rollout import Job, run_rollout
from evolver.rounds.bench import RUN, Bench
from evolver.rounds.meter import Meter
from evolver.rounds.plan import TaskRef
from evolver.rounds.watch import LENIENT, STRICT
from evolver.score import grades, scorecard

REQUESTS = Path(__file__).with_name("endpoint_probes.md")
FOLDER, FIRST_ANSWERS = "instruments", "endpoint.json"
ENVIRONMENT_TASKS, ANSWER_TOKENS = 3, 16
TEMPLATE_TOKENS = 1_000  # at most what an endpoint puts around a message
CASES = {"failed": 20, "passed": 10}
SHOWN = 3  # drifts in a finding


class Case(Record):
    """A frozen trajectory with what the judge said of it first: criterion → value."""

    unit: str
    task: TaskRef
    rollout: Rollout
    values: dict[str, float]


async def probe(which: Probe, bench: Bench, tasks: Sequence[TaskRef], meter: Meter) -> list[Finding]:
    """One look at an instrument. What our machines lose says nothing, and is no finding."""
    match which:
        case "endpoint":
            return await _endpoint(bench, meter)
        case "environment":
            return await _environment(bench, tasks)
        case "judge":
            return await _judge(bench, meter)


# --- endpoint ------------------------------------------------------------------------------------------------------


async def _endpoint(bench: Bench, meter: Meter) -> list[Finding]:
    """Fixed short requests at temperature 0: another tokenizer, model or quantisation answers some of them otherwise.
    The first answers are the baseline; a scripted teacher has no endpoint."""
    model = meter.around(bench.model)
    if isinstance(model, Privileged):
        return []
    path = bench.store.path / FOLDER / FIRST_ANSWERS
    before = json.loads(path.read_text()) if path.is_file() else {}
    answers = {}
    for line in _lines():
        if said := await _answer(model, line):
            answers[line] = said
    if not before:
        if len(answers) == len(_lines()):  # what an outage cuts short is no baseline
            make_folder(path.parent)
            replace(path, json.dumps(answers, ensure_ascii=False, indent=1).encode(), only_new=True)
        return []
    return [
        Finding("endpoint", line[:60], before[line] != said, f"{said}, at the start {before[line]}")
        for line, said in answers.items()
        if line in before
    ]


def most_tokens() -> list[int]:
    """The input tokens that each of the requests can count as: no token is shorter than a byte."""
    return [len(line.encode()) + TEMPLATE_TOKENS for line in _lines()]


async def endpoint_answers(model: Model | Privileged, meter: Meter) -> bool:
    """Whether the endpoint answers a request that has nothing to do with any task."""
    return await answer_to(meter.around(model), neutral_request()) is not None


def _lines() -> list[str]:
    return REQUESTS.read_text(encoding="utf-8").splitlines()


async def _answer(model: Model, line: str) -> str | None:
    """What shows who answers: the tokens that the request counts as, and the beginning of the reply. None for none."""
    try:
        completion = await model.complete(short_request(line, ANSWER_TOKENS))
    except Blamed:
        return None
    said = " ".join((completion.text or completion.reasoning).split()).lower().strip(".")
    return f"{completion.usage.input_tokens} tokens: {said[:40]}"


# --- environment ---------------------------------------------------------------------------------------------------


async def _environment(bench: Bench, tasks: Sequence[TaskRef]) -> list[Finding]:
    """What is installed is what is pinned; and on a few tasks of the round, always the same, the known solution
    succeeds, doing nothing does not."""
    findings = await _image(bench)
    for ref in sorted(tasks, key=lambda ref: ref.hash)[:ENVIRONMENT_TASKS]:
        task = bench.source.task(ref)
        idle = await _succeeds(bench, task, NoopModel())
        if idle is not None:
            findings.append(Finding("environment", f"idle agent on {task.id}", idle))
        if task.oracle.channels & set(bench.harness.channels):
            solved = await _succeeds(bench, task, Demonstrator(0.0))
            if solved is not None:
                findings.append(Finding("environment", f"known solution of {task.id}", not solved))
    return findings


async def _image(bench: Bench) -> list[Finding]:
    """Asked of new machines: those of the local back end stand on folders of this machine, which can change."""
    try:
        drifts = await verify_machine(bench.opened.capsule, bench.harness.environment, bench.sandboxes)
    except (SandboxLost, NotReady):  # they can't be had, or can't say
        return []
    detail = "; ".join(map(str, drifts[:SHOWN]))
    return [Finding("environment", "image", bool(drifts), detail, at_once=True)]


async def _succeeds(bench: Bench, task: Task, model: Model | Privileged) -> bool | None:
    key = RolloutKey(
        purpose="check",
        harness_id=bench.harness.id,
        model_id=model.id,
        task_id=task.id,
        task_hash=task.hash,
        split=task.split,
        attempt=0,
        seed=0,
    )
    job = Job(key, f"probe-{task.hash[:12]}-{model.id}", bench.harness, task, model, RUN, ttl_s=600.0)
    rollout, state = await run_rollout(job, bench.sandboxes, _not_kept)
    programs = [grader for grader in bench.graders if grader.name == "program"]
    scores = [] if state is None else await grades(programs, task, rollout, state)
    return scorecard(rollout, task, scores, None).success


def _not_kept(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- judge ---------------------------------------------------------------------------------------------------------


def keep_case(bench: Bench, unit: str, task: TaskRef, rollout: Rollout, scores: Sequence[Score]) -> None:
    """The first units of a round that the judge failed, and some that it passed, are its frozen cases: most units of a
    good harness pass, and on those a lenient judge looks as it should."""
    values = {s.criterion: s.value for s in scores if s.grader.startswith("judge:") and s.value is not None}
    if not values or not rollout.state_sha256:
        return
    kind = "passed" if min(values.values()) == 1 else "failed"
    folder = bench.store.path / FOLDER / kind
    if not folder.is_dir() or len(list(folder.iterdir())) < CASES[kind]:
        make_folder(folder)
        case = Case(unit=unit, task=task, rollout=rollout, values=dict(values))
        replace(folder / f"{unit[:16]}.json", case.model_dump_json().encode(), only_new=True)


async def _judge(bench: Bench, meter: Meter) -> list[Finding]:
    """The frozen cases, judged again: off is a value that was below 1 and is higher, or was 1 and is lower."""
    judges = [grader for grader in bench.graders if grader.name == "judge"]
    findings = []
    folder = bench.store.path / FOLDER
    for path in sorted(path for kind in CASES for path in (folder / kind).glob("*.json")) if judges else ():
        case = Case.model_validate_json(path.read_bytes())
        # A name of its own: what judging costs here is the probe's, not the unit's.
        rollout = case.rollout.model_copy(update={"id": f"probe-{case.rollout.id}"})
        state = bench.store.blob(case.rollout.state_sha256 or "")
        try:
            with meter.charged(bench.store, rollout.id):
                scores = await grades(judges, bench.source.task(case.task), rollout, state)
        except JudgeSilent:  # so would it be for the others
            break
        for score in scores:
            was = case.values.get(score.criterion)
            if score.value is not None and was is not None:
                what = f"{case.rollout.key.task_id}, {score.criterion}"
                off, chart = (score.value > was, LENIENT) if was < 1 else (score.value < was, STRICT)
                findings.append(Finding("judge", what, off, f"{score.value:g}, first {was:g}", chart=chart))
    return findings
