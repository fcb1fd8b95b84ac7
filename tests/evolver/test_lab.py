"""Attempts and their records: scored once, run again only when unscored, every call on the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue

from devset.task import Criterion, Task
from evolver.config import RunConfig
from evolver.errors import JudgeSilent, ProviderFailed, UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import TRIES, Attempt, Lab
from evolver.protocols import UNKNOWN_USAGE, Model, Ran, Request
from evolver.records import Completion, LedgerEntry, Record, Rollout, Score, Scorecard, Usage
from evolver.store import Store
from evolver.testing import FailingModel, FakeGrader, FakeSandbox, FakeSandboxes, ScriptedModel
from harnesses.library import Library, UnknownHarness
from harnesses.tree import read_tree, tree_files
from tests.evolver.test_rollout import DONE, LIST, SCREEN, task


def lab(path: Path, model: Model, grader: FakeGrader | None = None) -> Lab:
    store = Store.create(path, RunConfig(allow_unpriced=True))
    machines = FakeSandboxes(lambda: FakeSandbox({"ls": Ran(0, "a.txt")}, SCREEN))
    return Lab(
        store, Library(path / "library"), machines, [grader or FakeGrader({"done": 1.0})], model, LocalExecutor(2)
    )


def root(lab: Lab) -> str:
    files = tree_files(read_tree(Path("harnesses/seeds/beta1")))
    return lab.library.add(files, name="beta1", parents=(), message="seed", branch="main")


def tasks(n: int) -> list[Task]:
    return [task(id=f"t-{i}", hash=f"h{i}") for i in range(n)]


async def test_scores_come_in_the_order_asked_and_e18_nothing_runs_twice(tmp_path: Path) -> None:
    model = ScriptedModel([DONE])
    first = lab(tmp_path, model)
    harness = root(first)
    wanted = [Attempt(harness, t, "race", n) for t in tasks(3) for n in (0, 1)]
    cards = await first.score(wanted)
    assert [(c.key.task_id, c.key.attempt) for c in cards] == [(a.task.id, a.number) for a in wanted]
    again = lab(tmp_path, model)
    assert await again.score(wanted) == cards
    assert len(model.requests) == len(wanted)


async def test_e19_another_purpose_split_or_task_version_is_another_attempt(tmp_path: Path) -> None:
    model = ScriptedModel([DONE])
    here = lab(tmp_path, model)
    harness = root(here)
    plain = tasks(1)[0]
    variants = [
        Attempt(harness, plain, "race"),
        Attempt(harness, plain, "confirm"),
        Attempt(harness, plain.model_copy(update={"hash": "other"}), "race"),
        Attempt(harness, plain.model_copy(update={"split": "dev"}), "race"),
        Attempt(harness, plain, "race", 1),
    ]
    await here.score(variants)
    assert len({c.rollout_id for c in await here.score(variants)}) == len(variants) == len(model.requests)


async def test_s49_only_what_is_unscored_runs_again_and_s52_retries_are_marked(tmp_path: Path) -> None:
    here = lab(tmp_path, FailingModel(ProviderFailed("down")))
    harness = root(here)
    [card] = await here.score([Attempt(harness, tasks(1)[0], "race")])
    assert card.success is None and card.error is not None
    rollouts = here.store.all(Rollout)
    assert len(rollouts) == TRIES
    assert [r.retry_of for r in rollouts] == [None, rollouts[0].id, rollouts[1].id]


async def test_an_outage_is_forgiven_at_the_next_start(tmp_path: Path) -> None:
    here = lab(tmp_path, FailingModel(ProviderFailed("down")))
    wanted = [Attempt(root(here), tasks(1)[0], "race")]
    assert [c.success for c in await here.score(wanted)] == [None]
    back = lab(tmp_path, ScriptedModel([DONE], model_id="failing"))
    assert [c.success for c in await back.score(wanted)] == [True]


class Unreliable(ScriptedModel):
    """Answers one call of each attempt, then the endpoint is down; from the third attempt on it is up."""

    async def complete(self, request: Request) -> Completion:
        if len(self.requests) in (1, 3):
            self.requests.append(request)
            raise ProviderFailed("down")
        return await super().complete(request)


async def test_s38_calls_of_attempts_that_failed_are_billed_once_each_beside_the_one_that_counts(
    tmp_path: Path,
) -> None:
    billed = Usage(input_tokens=10, output_tokens=2, counted_by="provider")
    replies = [reply.model_copy(update={"usage": billed}) for reply in (*[LIST] * 5, DONE)]
    here = lab(tmp_path, Unreliable(replies))
    [card] = await here.score([Attempt(root(here), tasks(1)[0], "race")])
    assert card.success is True and [len(r.turns) for r in here.store.all(Rollout)] == [1, 1, 2]
    assert [e.calls for e in here.store.all(LedgerEntry)] == [1, 1, 2] and card.tokens == 2 * 12
    for spent in (here.budget.spent(), lab(tmp_path, ScriptedModel([DONE])).budget.spent("teacher")):
        assert (spent.calls, spent.tokens) == (4, 4 * 12)


class Hanging(ScriptedModel):
    """Never answers its second call; `asked` is set when that comes."""

    def __init__(self, replies: Sequence[Completion]) -> None:
        super().__init__(replies)
        self.asked = asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        answer = await super().complete(request)
        if len(self.requests) == 2:
            self.asked.set()
            await asyncio.Event().wait()
        return answer


async def test_s38_what_a_stopped_attempt_was_billed_is_on_the_ledger_and_it_is_run_again(tmp_path: Path) -> None:
    model = Hanging([LIST])
    here = lab(tmp_path, model)
    wanted = [Attempt(root(here), tasks(1)[0], "race")]
    scoring = asyncio.create_task(here.score(wanted))
    await model.asked.wait()
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    [stopped] = Store.open(tmp_path).all(Rollout)
    assert stopped.error is not None and stopped.error.kind == "interrupted" and len(stopped.turns) == 1
    assert [e.calls for e in Store.open(tmp_path).all(LedgerEntry)] == [1]
    again = lab(tmp_path, ScriptedModel([LIST, DONE]))
    [card] = await again.score(wanted)
    assert card.success is True and again.budget.spent().calls == 3
    assert [r.retry_of for r in again.store.all(Rollout)] == [None, stopped.id]


async def test_s39_a_refused_key_ends_everything_at_the_first_call(tmp_path: Path) -> None:
    model = FailingModel(UsageError("HTTP 401: bad key"))
    here = lab(tmp_path, model)
    with pytest.raises(UsageError, match="bad key"):
        await here.score([Attempt(root(here), t, "race", n) for t in tasks(5) for n in range(4)])
    assert model.calls <= 4, "two workers, one call and one about something else each at most"
    assert here.store.all(Rollout) == []


class RefusesTheSecondCall(ScriptedModel):
    """And all that come after it, unless it `answers` what has nothing to do with the task."""

    answers = True

    async def complete(self, request: Request) -> Completion:
        if self.requests and (request.tools or not self.answers):
            self.requests.append(request)
            raise UsageError("HTTP 400: no")
        return await super().complete(request)


async def test_s39_a_refusal_half_way_is_charged_and_not_tried_again(tmp_path: Path) -> None:
    model = RefusesTheSecondCall([LIST, DONE])
    here = lab(tmp_path, model)
    [card] = await here.score([Attempt(root(here), tasks(1)[0], "race")])
    assert card.success is None and card.error is not None and card.error.kind == "refused"
    assert len(model.requests) == 3 and [e.calls for e in here.store.all(LedgerEntry)] == [1, 1]


async def test_s39_a_key_that_is_refused_half_way_stops_the_run_and_settles_nothing(tmp_path: Path) -> None:
    model = RefusesTheSecondCall([LIST])
    model.answers = False
    here, wanted = lab(tmp_path, model), [Attempt(root(lab(tmp_path, model)), tasks(1)[0], "race")]
    with pytest.raises(UsageError, match="HTTP 400: no"):
        await here.score(wanted)
    [left] = here.store.all(Rollout)
    assert left.error is not None and left.error.outage and len(left.turns) == 1
    [card] = await lab(tmp_path, ScriptedModel([DONE])).score(wanted)
    assert card.success is True


async def test_a_rollout_whose_card_was_lost_is_graded_again_not_run_again(tmp_path: Path) -> None:
    model = ScriptedModel([LIST, DONE])
    here = lab(tmp_path, model)
    harness = root(here)
    wanted = [Attempt(harness, tasks(1)[0], "race")]
    before = await here.score(wanted)
    calls = len(model.requests)
    (tmp_path / "scorecards.jsonl").unlink()
    after = lab(tmp_path, model)
    assert [c.rollout_id for c in await after.score(wanted)] == [c.rollout_id for c in before]
    assert len(model.requests) == calls and len(after.store.all(Scorecard)) == 1


class SilentGrader(FakeGrader):
    """A judge whose endpoint is down."""

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        raise JudgeSilent("the judge does not answer")


async def test_s44_what_a_silent_judge_left_ungraded_is_graded_at_the_next_start_and_played_once(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([DONE])
    here = lab(tmp_path, model, SilentGrader({}))
    wanted = [Attempt(root(here), tasks(1)[0], "race")]
    with pytest.raises(JudgeSilent):
        await here.score(wanted)
    assert here.store.all(Scorecard) == []
    [card] = await lab(tmp_path, model).score(wanted)
    assert card.success is True and len(model.requests) == len(here.store.all(Rollout)) == 1


async def test_s38_every_rollout_is_on_the_ledger_once_even_after_a_crash_before_it(tmp_path: Path) -> None:
    here = lab(tmp_path, ScriptedModel([DONE]))
    harness = root(here)
    await here.score([Attempt(harness, t, "race") for t in tasks(3)])
    (tmp_path / "ledger.jsonl").unlink()
    again = lab(tmp_path, ScriptedModel([DONE]))
    entries = again.store.all(LedgerEntry)
    assert sorted(e.rollout_id or "" for e in entries) == sorted(r.id for r in again.store.all(Rollout))


class Spoils(ScriptedModel):
    """Each of its calls has a try that times out."""

    async def complete(self, request: Request) -> Completion:
        request.spoiled.append(UNKNOWN_USAGE)
        return await super().complete(request)


async def test_e13_s38_tries_without_a_reply_are_on_the_ledger_beside_the_turns_also_after_a_crash(
    tmp_path: Path,
) -> None:
    here = lab(tmp_path, Spoils([LIST, DONE]))
    [card] = await here.score([Attempt(root(here), tasks(1)[0], "race")])
    entries = here.store.all(LedgerEntry)
    assert [(e.calls, e.input_tokens, e.spoiled) for e in entries] == [(2, None, True), (2, 2, False)]
    assert card.tokens == 4 and {e.rollout_id for e in entries} == {card.rollout_id}
    (tmp_path / "ledger.jsonl").unlink()
    again = lab(tmp_path, ScriptedModel([DONE], model_id="scripted"))
    assert again.store.all(LedgerEntry) == entries  # whoever finds it charges the very same


async def test_an_unknown_harness_is_named(tmp_path: Path) -> None:
    here = lab(tmp_path, ScriptedModel([DONE]))
    with pytest.raises(UnknownHarness, match="0000"):
        await here.score([Attempt("0" * 40, tasks(1)[0], "race")])


class Broken:
    """An observer that fails at everything."""

    def on_record(self, record: Record) -> None:
        raise OSError("the terminal is gone")

    def progress(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None:
        raise ValueError("no such bar")

    def close(self) -> None:
        return None


async def test_an_observer_that_fails_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    here = lab(tmp_path, ScriptedModel([DONE]))
    here.observers.append(Broken())
    with pytest.warns(UserWarning, match="Broken: OSError: the terminal is gone"):
        [card] = await here.score([Attempt(root(here), tasks(1)[0], "race")])
    assert card.success is True and here.store.all(Scorecard) == [card]
