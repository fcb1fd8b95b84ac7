"""The worker of a real round, on machines and with models that are fakes: rows, refusals, deadlines, exports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from devset.splits import TASKS as TASKS_DIR
from devset.task import Criterion, Task, task_hash
from evolver.budget import Budget
from evolver.capsules import Drifted, open_capsule
from evolver.config import OpenAISpec
from evolver.controls import NoopModel
from evolver.errors import BudgetSpent, JudgeSilent, ProviderFailed, UsageError
from evolver.executors.local import LocalCrew
from evolver.models.endpoint import limiter_for
from evolver.protocols import UNKNOWN_USAGE, Lease, Model, Planned, Privileged, Request
from evolver.records import Completion, Rollout, Score, Usage
from evolver.rounds.attempts import Attempts
from evolver.rounds.bench import Bench
from evolver.rounds.book import Cost
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.folder import Plan, Round
from evolver.rounds.plan import TaskRef
from evolver.rounds.play import RolloutSpec, RolloutWorker
from evolver.rounds.reader import trajectories
from evolver.rounds.settling import Came, settlement
from evolver.rounds.start import LOCK, Wanted, _keep_capsule
from evolver.rounds.tasks import source_of
from evolver.rounds.view import read_round
from evolver.rounds.watch import Schedule, Watch
from evolver.score import score_of
from evolver.store import Store
from evolver.testing import FailingModel, FakeSandbox, FakeSandboxes
from tests.evolver.graded_task import task
from tests.evolver.round_capsule import PRICE, write_made_capsule
from training.cli import export

MADE = (task(id=f"t-{n}", split="train", instruction=f"Write {n} into out.txt.") for n in range(3))
TASKS = [t.model_copy(update={"hash": task_hash(t)}) for t in MADE]
REFS = tuple(TaskRef(t.id, t.hash) for t in TASKS)


class Listed:
    name = "listed"

    def refs(self) -> list[TaskRef]:
        return list(REFS)

    def task(self, ref: TaskRef) -> Task:
        return next(t for t in TASKS if t.id == ref.id)


class Lenient:
    """Passes everything but what it is told to fail, or to leave unscored."""

    name = "program"

    def __init__(self, values: dict[str, float | None]) -> None:
        self.values = values

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        return [score_of(c, self.values.get(task.id, 1.0), "said so", self.name) for c in criteria]

    async def aclose(self) -> None:
        return None


class Slow(NoopModel):
    """Answers its first call and never its second."""

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        if self.calls > 1:
            await asyncio.sleep(60)
        return Completion(text="thinking", usage=Usage(input_tokens=100, output_tokens=10, counted_by="tokenizer"))


def machines(digest: str = "sha256:fake") -> FakeSandboxes:
    def make() -> FakeSandbox:
        box = FakeSandbox(screen=(64, 48))
        box.image_digest = digest
        return box

    return FakeSandboxes(make)


def worker(
    path: Path, model: Model | Privileged | None = None, values: dict[str, float | None] | None = None,
    boxes: FakeSandboxes | None = None,
) -> RolloutWorker:  # fmt: skip
    """A worker of the round in `path`/round, whose capsule lies beside it."""
    capsule, out = path / "capsule", path / "round"
    if not capsule.exists():
        write_made_capsule(capsule, "beta1", "local")
    opened = open_capsule(capsule)
    store = Store.create(out, opened.config)
    (out / "attempts").mkdir(exist_ok=True)
    spec = RolloutSpec(capsule, opened.id, out, "listed", REFS)
    graders = (Lenient(values or {}),)
    return RolloutWorker(
        spec, Bench(opened, store, boxes or machines(), graders, model or NoopModel(), Listed()), "w-0"
    )


def lease(number: int = 1, deadline_s: float = 60.0) -> Lease:
    units = tuple(Planned(n, f"{n:064x}", n, 0) for n in range(3))
    return Lease(number, units, deadline_s=deadline_s)


def rows(found: RolloutWorker, one: Lease) -> list[dict[str, object]]:
    asyncio.run(found.work(one))
    listed: list[dict[str, object]] = Attempts.of(found._spec.round_dir).rows(one.id).to_pylist()
    return listed


def test_a_unit_becomes_one_row_that_says_where_it_came_from(tmp_path: Path) -> None:
    found = rows(worker(tmp_path, values={"t-1": 0.0, "t-2": None}), lease())
    assert [(r["verdict"], r["reason"], r["success"]) for r in found] == [
        ("accepted", "", True), ("rejected", "state", False), ("rejected", "infra", None),
    ]  # fmt: skip
    first = found[0]
    assert (first["task_id"], first["task_hash"], first["skills"]) == ("t-0", REFS[0].hash, [TASKS[0].family])
    assert (first["worker"], first["fence"], first["calls"]) == ("w-0", 1, 1)
    rollout = Rollout.model_validate_json(str(first["rollout"]))
    assert (rollout.key.purpose, rollout.key.attempt, rollout.id) == ("train", 0, f"r-{0:016x}")
    assert found[2]["again"] == "try" and found[0]["again"] == ""


def test_the_same_unit_says_the_same_whoever_plays_it(tmp_path: Path) -> None:
    one, other = rows(worker(tmp_path), lease(1)), rows(worker(tmp_path), lease(2))
    assert [r["content_sha256"] for r in one] == [r["content_sha256"] for r in other]
    assert {str(r["attempt"]) for r in one}.isdisjoint(str(r["attempt"]) for r in other)


def test_g40_a_unit_that_was_played_on_another_image_refuses_the_lease(tmp_path: Path) -> None:
    with pytest.raises(Drifted, match=r"machine\.image\.digest: sha256:fake → sha256:other"):
        rows(worker(tmp_path, boxes=machines("sha256:other")), lease())


def test_g42_a_unit_whose_tools_change_while_it_plays_fails_closed(tmp_path: Path) -> None:
    """The request that was sent is not the one that harness and log make: nothing is kept of the unit."""

    class Meddler(NoopModel):
        notes: dict[str, str]

        async def complete(self, request: Request) -> Completion:
            self.notes["computer_use"] = "It does something else now."
            return await super().complete(request)

    found = worker(tmp_path, model := Meddler())
    model.notes = found.bench.harness.prompt.notes
    row = rows(found, Lease(1, lease().units[:1]))[0]
    assert (row["verdict"], row["reason"], row["again"], row["rollout"]) == ("rejected", "infra", "try", "")
    assert "prompt or tools changed while it was played" in str(row["why"])


async def test_a_worker_tells_what_its_endpoint_asks_for_now_and_not_what_it_once_did(tmp_path: Path) -> None:
    class Busy(NoopModel):
        """Is turned away once by each call, and told to wait so long."""

        asks: list[float] = []  # noqa: RUF012

        async def complete(self, request: Request) -> Completion:
            if self.asks:
                limiter.throttled += 1
                limiter.hold(self.asks.pop(0))
            return await super().complete(request)

    spec = OpenAISpec(kind="openai", model="gpt-x", base_url="http://localhost:9/v1")
    limiter = limiter_for("http://localhost:9/v1", spec.concurrency)
    write_made_capsule(tmp_path / "capsule", "beta1", "local", teacher=spec)
    busy = worker(tmp_path, Busy())
    told = []
    for number, asks in enumerate(([0.02], [0.0], [60.0], []), 1):
        Busy.asks = asks
        report = await busy.work(Lease(number, lease().units[:1]))
        told.append((report.throttled, report.asked_s))
        await asyncio.sleep(0.02)
    assert [n for n, _ in told] == [1, 1, 1, 0]
    assert told[1][1] == 0.0 and 0.0 < told[2][1] <= 60.0 and told[3][1] == 0.0


def test_g38_a_unit_over_its_deadline_is_ended_billed_and_tried_again(tmp_path: Path) -> None:
    one = Lease(1, lease().units[:1], deadline_s=0.5)
    found = worker(tmp_path, Slow())
    row = rows(found, one)[0]
    assert (row["reason"], row["again"], row["why"]) == ("infra", "try", "not done within 0.5 s")
    assert (row["calls"], row["tokens"], row["nusd"]) == (2, None, None)  # the call that was under way is unknown
    spent = found._attempts.spent(1)
    assert (spent.calls, spent.tokens, spent.unknown) == (2, 110, 1)
    came = Came.of(found._attempts.summary(1), spent)
    assert settlement(came, {one.units[0].id: 0}, 3).spent == {"lost": spent}  # and the one before it is not


def test_g44_an_outage_of_the_endpoint_is_no_failure_of_the_agent(tmp_path: Path) -> None:
    found = rows(worker(tmp_path, FailingModel(ProviderFailed("down"))), lease())
    assert {(r["reason"], r["again"], r["success"]) for r in found} == {("infra", "outage", None)}


class Spoils(NoopModel):
    """Each of its calls has a try that times out; `down`: none is answered."""

    def __init__(self, *, down: bool = False) -> None:
        self.down = down

    async def complete(self, request: Request) -> Completion:
        request.spoiled.append(UNKNOWN_USAGE)
        if self.down:
            raise ProviderFailed("ReadTimeout")
        return await super().complete(request)


def test_e13_g36_a_try_that_timed_out_is_booked_as_a_call_of_unknown_cost(tmp_path: Path) -> None:
    one = Lease(1, lease().units[:1])
    found = worker(tmp_path, Spoils())
    row, spent = rows(found, one)[0], found._attempts.spent(1)
    assert (row["verdict"], row["calls"], row["nusd"]) == ("accepted", 2, None)
    assert (spent.calls, spent.unknown) == (2, 1) and spent.tokens > 0
    assert Rollout.model_validate_json(str(row["rollout"])).spoiled == (UNKNOWN_USAGE,)
    down = worker(tmp_path, Spoils(down=True))
    again = rows(down, replace(one, id=2))[0]
    assert (again["again"], down._attempts.spent(2)) == ("outage", Cost(calls=1, unknown=1))
    made = settlement(Came.of(down._attempts.summary(2), Cost(calls=1, unknown=1)), {one.units[0].id: 2}, 3, down=True)
    assert made.done == [] == made.again and made.spent == {"lost": Cost(calls=1, unknown=1)}


def test_a_request_that_is_refused_is_the_unit_s_and_a_key_that_is_refused_stops_the_round(tmp_path: Path) -> None:
    class Filtered(NoopModel):
        async def complete(self, request: Request) -> Completion:
            if TASKS[0].instruction in str(request.messages):
                raise UsageError("HTTP 400: filtered")
            return await super().complete(request)

    found = rows(worker(tmp_path, Filtered()), lease())
    assert (found[0]["reason"], found[0]["again"]) == ("infra", "try")
    assert found[0]["why"] == "refused (provider): HTTP 400: filtered"
    assert [r["verdict"] for r in found[1:]] == ["accepted", "accepted"]
    with pytest.raises(UsageError, match="HTTP 401"):
        rows(worker(tmp_path, FailingModel(UsageError("HTTP 401: check the key"))), lease(2))


class PaidJudge(Lenient):
    """Charges the ledger for each criterion, and may never come to an end."""

    def __init__(self, path: Path, *, hangs: bool = False) -> None:
        super().__init__({})
        self.store, self.hangs = Store.open(path / "round"), hangs

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        usage = Usage(input_tokens=1_000, output_tokens=100, counted_by="provider")
        budget = Budget(self.store, self.store.config.caps)
        budget.charge(budget.call_entry("judge", "gpt-x", usage, 1.0, rollout.id))
        if self.hangs:
            await asyncio.sleep(60)
        return await super().grade(criteria, task, rollout, state)


def test_g36_a_judge_is_paid_once_for_each_attempt_also_for_one_that_is_cut_short(tmp_path: Path) -> None:
    """Three workers on the same unit, one after the other: each bills what its own attempt cost, and the last one only
    judges what the second one played."""
    bills = []
    for number, hangs in enumerate((False, True, False), 1):
        one = worker(tmp_path)
        judge = PaidJudge(tmp_path, hangs=hangs)
        made = RolloutWorker(one._spec, replace(one.bench, graders=(judge,)), f"w-{number}")
        row = rows(made, Lease(number, lease().units[:1], deadline_s=3.0 if hangs else 60.0))[0]
        bills.append((row["reason"], row["calls"], row["nusd"], made._attempts.spent(number).calls))
    nusd = round((1_000 * PRICE.input + 100 * PRICE.output) / 1e6 * 1e9)
    assert bills == [("", 2, nusd, 2), ("infra", 2, nusd, 2), ("", 1, nusd, 1)]


class Silent(Lenient):
    """A judge whose endpoint is down."""

    def __init__(self, error: Exception = JudgeSilent("the judge does not answer")) -> None:
        super().__init__({})
        self.error = error

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        raise self.error


def test_g44_what_was_played_while_the_judge_was_silent_is_graded_later_and_paid_once(tmp_path: Path) -> None:
    unit = lease().units[:1]
    first, later = worker(tmp_path), worker(tmp_path, FailingModel(AssertionError("it is played again")))
    silent = RolloutWorker(first._spec, replace(first.bench, graders=(Silent(),)), "w-0")
    down = [rows(silent, Lease(n, unit))[0] for n in (1, 2)]
    assert [(r["reason"], r["again"], r["calls"]) for r in down] == [("infra", "outage", 1), ("infra", "outage", 0)]
    assert down[0]["why"] == "not graded yet: the judge does not answer"
    [row] = rows(later, Lease(3, unit))
    assert (row["verdict"], row["calls"], row["nusd"]) == ("accepted", 0, 0)
    spent = [first._attempts.spent(n).calls for n in (1, 2, 3)]
    assert spent == [1, 0, 0] and not list((tmp_path / "round" / "ungraded").iterdir())


def played(path: Path, make: Callable[[], RolloutWorker]) -> Round:
    """A whole round of six units under the capsule, with its copy of it."""

    class Spec:
        async def open(self, name: str) -> RolloutWorker:
            return make()

    opened = make().bench.opened
    _keep_capsule(Wanted(path / "capsule", "listed", path / "round"), opened)
    plan = Plan(opened.id, "capsule", opened.harness.id, opened.config.teacher_id, "listed", REFS, 6, 4)
    round_ = Round.open(path / "round", plan)

    async def drive() -> None:
        crew = LocalCrew(Spec(), 2)
        try:
            await Driver(round_, crew, Rules(), Watch(round_.book, Schedule(), 6)).run()
        finally:
            await crew.aclose()

    asyncio.run(drive())
    return round_


@pytest.mark.parametrize("error", [UsageError("start the judge's endpoint"), BudgetSpent("judge.cost_usd is spent")])
def test_g36_what_was_played_when_grading_stopped_the_round_is_not_played_again(
    tmp_path: Path, error: Exception
) -> None:
    unit, first = lease().units[:1], worker(tmp_path)
    stopped = RolloutWorker(first._spec, replace(first.bench, graders=(Silent(error),)), "w-0")
    with pytest.raises(type(error)):
        rows(stopped, Lease(1, unit))
    [row] = rows(worker(tmp_path, FailingModel(AssertionError("it is played again"))), Lease(2, unit))
    assert (row["verdict"], row["calls"]) == ("accepted", 0)


def test_what_was_left_ungraded_goes_with_the_round(tmp_path: Path) -> None:
    one = worker(tmp_path)
    silent = RolloutWorker(one._spec, replace(one.bench, graders=(Silent(),)), "w-0")
    rows(silent, Lease(99, lease().units[:1]))
    assert list((tmp_path / "round" / "ungraded").iterdir())
    played(tmp_path, lambda: worker(tmp_path)).close()
    assert not (tmp_path / "round" / "ungraded").exists()


def test_a_round_is_read_and_exported_like_a_run(tmp_path: Path) -> None:
    make = lambda: worker(tmp_path, values={"t-1": 0.0})  # noqa: E731
    played(tmp_path, make).close()
    view = read_round(tmp_path / "round")
    assert (view.state, view.accepted, dict(view.rejections)) == ("complete", 2, {"state": 2, "duplicate": 2})
    kept = list(trajectories(tmp_path / "round"))
    assert [t.rollout.key.task_id for t in kept] == sorted(
        {"t-0", "t-2"}, key=[t.rollout.key.task_id for t in kept].index
    )
    assert all(t.capsule_id == view.capsule_id and t.worker == "w-0" for t in kept)
    export(tmp_path / "round", "capsule", "trl", tmp_path / "rows")
    written = pq.read_table(next((tmp_path / "rows").glob("*.parquet"))).to_pylist()
    assert len(written) == 2 and TASKS[0].instruction in json.dumps(written, default=str)


def test_a_round_s_copy_of_its_capsule_is_never_half_written(tmp_path: Path) -> None:
    """It is put in the old one's place, not written over it: whoever has that open reads it to its end."""
    opened = open_capsule(write_made_capsule(tmp_path / "capsule", "beta1", "local"))
    out = tmp_path / "round"
    out.mkdir()
    (out / LOCK).write_text("before")
    (tmp_path / "held").hardlink_to(out / LOCK)
    _keep_capsule(Wanted(tmp_path / "capsule", "train", out), opened)
    assert (out / LOCK).read_bytes() == (tmp_path / "capsule" / LOCK).read_bytes()
    assert (tmp_path / "held").read_text() == "before"


def test_a_worker_makes_a_task_of_a_split_alone_and_refuses_another_version() -> None:
    source = source_of("dev")
    ref = next(ref for ref in source.refs() if not (TASKS_DIR / ref.id).is_dir())
    assert source.task(ref).hash == ref.hash and source.task(ref).split == "dev"
    with pytest.raises(UsageError, match=f"dev: task '{ref.id}' hashes to"):
        source.task(ref._replace(hash="0" * 64))
    for elsewhere in ("nothing-0001", source_of("train").refs()[0].id):
        with pytest.raises(UsageError, match="is gone"):
            source.task(ref._replace(id=elsewhere))
