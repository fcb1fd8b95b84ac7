"""Runs attempts and keeps their records: what is scored stays scored, what is missing is run, nothing runs twice."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from devset.task import Task
from evolver.budget import Budget
from evolver.config import RunConfig
from evolver.errors import NotReady
from evolver.live import watched
from evolver.protocols import Executor, Grader, Held, Model, Observer, Privileged, Sandboxes
from evolver.records import LedgerEntry, Purpose, Record, Role, Rollout, RolloutKey, Scorecard
from evolver.redact import keys_in
from evolver.refusals import answer_to, neutral_request
from evolver.rollout import Interrupted, Job, run_rollout
from evolver.score import grades, scorecard
from evolver.store import Store
from evolver.sums import total
from harnesses.harness import Harness
from harnesses.library import Library

TRIES = 3  # an unscored attempt (our failure) is run at most this often; an outage is forgiven at the next start
PATIENCE = 3  # starts at which nobody answers an attempt, before that can be the harness's own failure like others


@dataclass(frozen=True)
class Attempt:
    """One attempt that is wanted: `number` counts from 0 within (purpose, harness, model, task, seed)."""

    harness_id: str
    task: Task
    purpose: Purpose
    number: int = 0


class Lab:
    """Holds what attempts need (sandboxes, graders, teacher) and the run's records. Use `open_lab`."""

    def __init__(
        self,
        store: Store,
        library: Library,
        sandboxes: Sandboxes,
        graders: Sequence[Grader],
        model: Model | Privileged,
        executor: Executor,
    ) -> None:
        self.store = store
        self.config: RunConfig = store.config
        self.library = library
        self.sandboxes = sandboxes
        self.graders = tuple(graders)
        self.model = model
        self.executor = executor
        self.budget = Budget(store, store.config.caps)
        self.observers: list[Observer] = []
        self._harnesses: dict[str, Harness] = {}
        self.keys = keys_in(store.config.key_names)
        self._read = 0
        self._rollouts: dict[RolloutKey, list[Rollout]] = {}
        self._charge_what_a_crash_left_out()

    def record(self, record: Record) -> None:
        """Makes a record durable, then tells the observers."""
        self.store.append(record)
        self._show(lambda observer: observer.on_record(record))

    async def _keep(self, record: Record) -> None:
        """`record` for many at once: they share their waits for the disk."""
        self.store.write(record)
        await self.store.settled()
        self._show(lambda observer: observer.on_record(record))

    def tell(self, text: str, done: int, total: int, detail: Mapping[str, JsonValue]) -> None:
        """Tells the observers how far something has come."""
        self._show(lambda observer: observer.progress(text, done, total, detail))

    def _show(self, show: Callable[[Observer], None]) -> None:
        for observer in self.observers:
            try:
                show(observer)
            except Exception as error:  # noqa: BLE001 - a view of the run must not end it
                warnings.warn(f"{type(observer).__name__}: {type(error).__name__}: {error}", stacklevel=2)

    def harness(self, harness_id: str) -> Harness:
        if harness_id not in self._harnesses:
            self._harnesses[harness_id] = self.library.get(harness_id)
        return self._harnesses[harness_id]

    def adopt(self, harness: Harness) -> None:
        """Plays this very copy of a harness from now on, such as one that was read from an archive."""
        self._harnesses[harness.id] = harness

    async def score(
        self,
        attempts: Sequence[Attempt],
        *,
        model: Model | Privileged | None = None,
        role: Role = "teacher",
        label: str = "",
        executor: Executor | None = None,
    ) -> list[Scorecard]:
        """Scorecards in the order asked. Attempts already scored in the store are not run again; those that failed
        on our side are run again, up to `TRIES` in all, and then stay unscored (`success` is None).
        `executor` overrides how many run at once (a batched student likes many)."""
        player = model or self.model
        cards: dict[int, Scorecard] = {}
        todo: list[tuple[int, RolloutKey, Task]] = []
        by_key = self._cards_by_key()
        for position, attempt in enumerate(attempts):
            key = self._key(attempt, player.id)
            done = by_key.get(key)
            if done is not None and (done.success is not None or sum(map(tried, self._earlier(key))) >= TRIES):
                cards[position] = done
            else:
                todo.append((position, key, attempt.task))
        tally = _Tally(list(cards.values()))

        async def one(item: tuple[int, RolloutKey, Task]) -> tuple[int, Scorecard]:
            return item[0], await self._score_one(item[1], item[2], player, role)

        self.tell(label, tally.cards, len(attempts), tally.detail)
        async for position, card in (executor or self.executor).map(one, todo):
            cards[position] = card
            tally.add(card)
            self.tell(label, tally.cards, len(attempts), tally.detail)
        return [cards[position] for position in range(len(attempts))]

    def _key(self, attempt: Attempt, model_id: str) -> RolloutKey:
        task = attempt.task
        return RolloutKey(
            purpose=attempt.purpose,
            harness_id=attempt.harness_id,
            model_id=model_id,
            task_id=task.id,
            task_hash=task.hash,
            split=task.split,
            attempt=attempt.number,
            seed=self.config.seed,
        )

    def _cards_by_key(self) -> dict[RolloutKey, Scorecard]:
        return {card.key: card for card in self.store.all(Scorecard)}

    def _earlier(self, key: RolloutKey) -> list[Rollout]:
        """The rollouts of a key so far, in the order of writing."""
        for rollout in self.store.since(Rollout, self._read):
            self._rollouts.setdefault(rollout.key, []).append(rollout)
            self._read += 1
        return list(self._rollouts.get(key, ()))

    async def require_answers(self, cards: Sequence[Scorecard], enough: Callable[[], bool]) -> None:
        """Raises NotReady where the endpoint left some of the teacher's attempts unanswered (a refusal is an answer)
        and not `enough` is scored to conclude anything: the next start asks again.

        When some attempt got no answer at `PATIENCE` starts, and the endpoint answers something else, it is the harness
        that gets none, which nobody has to wait for.
        """
        silent = [(card.key, card.error) for card in cards if card.error is not None and card.error.outage]
        if not silent or enough():
            return
        waited = any(self._unanswered(key) >= PATIENCE * TRIES for key, _ in silent)
        if waited and await self.answers(self.model, "teacher"):
            return
        raise NotReady(
            f"{len(silent)} of {len(cards)} attempts got no answer from {self.model.id}, too many to go on "
            f"({silent[0][1].message}): mend it and run it again"
        )

    def _unanswered(self, key: RolloutKey) -> int:
        """How often an attempt was run and an outage of the endpoint left it unscored."""
        return sum(1 for rollout in self._earlier(key) if rollout.error is not None and rollout.error.outage)

    async def _score_one(self, key: RolloutKey, task: Task, player: Model | Privileged, role: Role) -> Scorecard:
        """One attempt until it is scored: an ungraded frozen state is graded, else the attempt is run (again)."""
        earlier = self._earlier(key)
        card: Scorecard | None = None
        if earlier and self.store.get(Scorecard, earlier[-1].id) is None:
            card = await self._grade(earlier[-1], task, self._state(earlier[-1]))
        tries = sum(map(tried, earlier))
        while card is None or (card.success is None and tries < TRIES):
            tries += 1
            self.budget.check(role)
            job = Job(
                key=key,
                rollout_id=rollout_id(key, len(earlier)),
                harness=self.harness(key.harness_id),
                task=task,
                model=player,
                run_id=self.store.run_id,
                retry_of=earlier[-1].id if earlier else None,
                ttl_s=self.config.sandbox.ttl_s,
                keys=self.keys,
                answers=partial(self.answers, player, role),
            )
            rollout, card = await self.play(job, role)
            earlier.append(rollout)
            if rollout.error is not None and rollout.error.kind == "refused":
                break  # the same request would be refused, and paid for, again
        return card

    async def play(self, job: Job, role: Role) -> tuple[Rollout, Scorecard]:
        """Runs one attempt, keeps its record, charges it to `role` and grades what it left."""
        rollout, state = await self.run(job, role)
        return rollout, await self._grade(rollout, job.task, state)

    async def run(self, job: Job, role: Role) -> tuple[Rollout, bytes | None]:
        """`play` without the grading: the rollout and the frozen home."""
        try:
            with watched(self.store.path, job) as shown:
                rollout, state = await run_rollout(shown, self.sandboxes, self.store.put_blob)
        except Interrupted as stop:
            self.record(stop.rollout)
            self._charge(stop.rollout, role)
            raise
        await self._keep(rollout)
        self._charge(rollout, role)
        return rollout, state

    async def answers(self, player: Model | Privileged, role: Role) -> bool:
        """Whether a model that refuses an attempt, or leaves it, answers something else; that call is charged to `role`
        too."""
        request, began = neutral_request(), time.monotonic()
        try:
            answer = await answer_to(player, request)
        finally:
            self.budget.charge_spoiled(role, player.id, request.spoiled)
        if answer is None:
            return False
        self.budget.charge(self.budget.call_entry(role, player.id, answer.usage, time.monotonic() - began))
        return True

    def _state(self, rollout: Rollout) -> bytes | None:
        return None if rollout.state_sha256 is None else self.store.blob(rollout.state_sha256)

    async def _grade(self, rollout: Rollout, task: Task, state: bytes | None) -> Scorecard:
        scores = [] if state is None else await grades(self.graders, task, rollout, state, self.keys)
        card = scorecard(rollout, task, scores, self._cost(rollout))
        await self._keep(card)
        return card

    def _cost(self, rollout: Rollout) -> float | None:
        return self.budget.price(rollout.key.model_id, *_tokens(rollout))

    def _charge(self, rollout: Rollout, role: Role) -> None:
        for entry in self._billed(rollout, role):
            self.budget.charge(entry)

    def _billed(self, rollout: Rollout, role: Role) -> list[LedgerEntry]:
        """What a rollout is charged: tries without a reply, where there were any, and its turns. The same in whichever
        process, for two may find it at once."""
        tokens_in, tokens_out = _tokens(rollout)
        turns = LedgerEntry(
            id=f"led-{rollout.id}",
            role=role,
            model_id=rollout.key.model_id,
            calls=len(rollout.turns),
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            cost_usd=self._cost(rollout),
            rollout_id=rollout.id,
            at=rollout.finished_at,
            seconds=max(0.0, rollout.finished_at - rollout.started_at),
        )
        return [self.budget.spoiled(turns, rollout.spoiled), turns] if rollout.spoiled else [turns]

    def _charge_what_a_crash_left_out(self) -> None:
        rollouts = self.store.all(Rollout)  # before the ledger: what ends meanwhile is charged by whoever played it
        charged = {entry.id for entry in self.store.all(LedgerEntry)}
        for rollout in rollouts:
            for entry in self._billed(rollout, self._role_of(rollout)):
                if entry.id not in charged:
                    self.budget.charge(entry)

    def _role_of(self, rollout: Rollout) -> Role:
        by_purpose: dict[Purpose, Role] = {"author": "author", "check": "teacher", "calibrate": "judge"}
        if rollout.key.purpose in by_purpose:
            return by_purpose[rollout.key.purpose]
        return "teacher" if rollout.key.model_id == self.model.id else "student"


def tried(rollout: Rollout) -> bool:
    """Whether it counts as tried: one that the endpoint left or refused, or a stop of the program ended, does not."""
    error = rollout.error
    return error is None or (error.blame != "provider" and error.kind != "interrupted")


class _Tally:
    """What is told of attempts while they run, kept as they come."""

    def __init__(self, cards: Sequence[Scorecard]) -> None:
        self.cards = self._known = self._solved = self._tokens = 0
        for card in cards:
            self.add(card)

    def add(self, card: Scorecard) -> None:
        self.cards += 1
        self._tokens += card.tokens or 0
        if card.success is not None:
            self._known += 1
            self._solved += card.success

    @property
    def detail(self) -> dict[str, JsonValue]:
        share = round(self._solved / self._known, 3) if self._known else None
        return {"success": share, "tokens": self._tokens}


def rollout_id(key: RolloutKey, tries: int) -> str:
    """The id of the attempt that follows `tries` others of its key."""
    return "r-" + hashlib.sha256(f"{key.model_dump_json()}#{tries}".encode()).hexdigest()[:16]


def _tokens(rollout: Rollout) -> tuple[int | None, int | None]:
    """Input and output tokens of all calls; None as soon as one call's count is unknown."""
    usages = [turn.completion.usage for turn in rollout.turns]
    return total(u.input_tokens for u in usages), total(u.output_tokens for u in usages)


@asynccontextmanager
async def open_lab(run_dir: Path) -> AsyncIterator[Lab]:
    """Everything that a run directory's config names, opened, and closed again at the end."""
    from evolver.executors.local import LocalExecutor
    from evolver.graders.judge import JudgeGrader
    from evolver.graders.program import ProgramGrader
    from evolver.models import make_model
    from evolver.models.openai import OpenAIModel
    from evolver.sandboxes import open_backend, reap

    store = Store.open(run_dir)
    config = store.config
    reap()
    model = make_model(config.teacher)
    sandboxes = open_backend(config.sandbox.backend, spares=config.sandbox.spares)
    graders: list[Grader] = [ProgramGrader(sandboxes)]
    if config.judge is not None:
        graders.append(JudgeGrader(config.judge, OpenAIModel(config.judge.model), store))
    try:
        yield Lab(
            store=store,
            library=Library(run_dir / "library"),
            sandboxes=sandboxes,
            graders=graders,
            model=model,
            executor=LocalExecutor(config.sandbox.workers),
        )
    finally:
        if isinstance(model, Held):
            model.close()
        for grader in graders:
            await grader.aclose()
        await sandboxes.aclose()
