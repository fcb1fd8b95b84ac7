"""A model whose calls are noted in a lease's journal as they are asked and answered, so that none is ever lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from devset.task import Task
from evolver.errors import Blamed, UsageError
from evolver.protocols import UNKNOWN_USAGE, Model, Privileged, Request, Sandbox
from evolver.records import Completion, LedgerEntry, Usage
from evolver.rounds.attempts import Journal
from evolver.rounds.book import NANO, Cost
from evolver.store import Store
from evolver.sums import total

Price = Callable[[str, int | None, int | None], float | None]


class Meter:
    """Adds up what the calls of one unit cost; `price` gives the $ of (model id, input tokens, output tokens)."""

    def __init__(self, journal: Journal, price: Price) -> None:
        self.total = Cost()
        self._journal, self._price = journal, price

    def around(self, model: Model | Privileged) -> Model | Privileged:
        return _MeteredPrivileged(model, self) if isinstance(model, Privileged) else MeteredModel(model, self)

    def asked(self) -> None:
        self._journal.asked()

    def answered(self, model_id: str, completion: Completion) -> None:
        self._add(model_id, completion.usage)

    def spoiled(self, model_id: str, tries: Sequence[Usage]) -> None:
        """Notes tries that no reply came of and that may be billed: one by one, and no answered call among them."""
        for usage in tries:
            self._add(model_id, usage, asked=0)

    def _add(self, model_id: str, usage: Usage, *, asked: int = 1) -> None:
        self.add(1, usage.total, self._price(model_id, usage.input_tokens, usage.output_tokens), asked=asked)

    def add(self, calls: int, tokens: int | None, usd: float | None, *, asked: int = 1) -> None:
        """Notes answered calls, of which `asked` had been noted before."""
        unknown = 0 if tokens is not None and usd is not None else calls
        cost = Cost(calls, tokens or 0, round((usd or 0.0) * NANO), unknown)
        self.total += cost
        self._journal.answered(cost, of=asked)

    def refused(self) -> None:
        """The call came to an end without an answer: it is billed no more than its spoiled tries."""
        self._journal.answered(Cost())

    @contextmanager
    def charged(self, store: Store, rollout_id: str) -> Iterator[None]:
        """Adds what the ledger is charged for a rollout meanwhile, whatever ends it."""
        before = len(store.all(LedgerEntry))
        try:
            yield
        finally:
            for entry in store.since(LedgerEntry, before):
                if entry.rollout_id == rollout_id:
                    tokens = total((entry.input_tokens, entry.output_tokens))
                    self.add(entry.calls, tokens, entry.cost_usd, asked=0)


class MeteredModel:
    def __init__(self, model: Model, meter: Meter) -> None:
        self.id, self.declared = model.id, model.declared
        self._model, self._meter = model, meter
        for name in ("image_rule", "dialect"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    @property
    def last_slip(self) -> str | None:
        slip: str | None = getattr(self._model, "last_slip", None)
        return slip

    async def complete(self, request: Request) -> Completion:
        self._meter.asked()
        before = len(request.spoiled)
        try:
            completion = await self._model.complete(request)
        except (Blamed, UsageError):
            self._meter.refused()
            raise
        except asyncio.CancelledError:
            self._meter.refused()
            if len(request.spoiled) == before:  # it may be billed, and nobody knows for how much
                request.spoiled.append(UNKNOWN_USAGE)
            raise
        finally:
            self._meter.spoiled(self.id, request.spoiled[before:])
        self._meter.answered(self.id, completion)
        return completion


class _MeteredPrivileged:
    def __init__(self, model: Privileged, meter: Meter) -> None:
        self.id, self.declared = model.id, model.declared
        self._model, self._meter = model, meter

    def bind(self, task: Task, sandbox: Sandbox, rollout_key: str, *, max_calls: int) -> Model:
        return MeteredModel(self._model.bind(task, sandbox, rollout_key, max_calls=max_calls), self._meter)
