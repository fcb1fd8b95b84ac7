"""A model whose calls are noted in a lease's journal as they are asked and answered, so that none is ever lost."""

from __future__ import annotations

from collections.abc import Callable

from devset.task import Task
from evolver.errors import Blamed, UsageError
from evolver.protocols import Model, Privileged, Request, Sandbox
from evolver.records import Completion
from evolver.rounds.attempts import Journal
from evolver.rounds.book import NANO, Cost

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
        usage = completion.usage
        self.add(1, usage.total, self._price(model_id, usage.input_tokens, usage.output_tokens))

    def add(self, calls: int, tokens: int | None, usd: float | None, *, asked: int = 1) -> None:
        """Notes answered calls, of which `asked` had been noted before."""
        unknown = 0 if tokens is not None and usd is not None else calls
        cost = Cost(calls, tokens or 0, round((usd or 0.0) * NANO), unknown)
        self.total += cost
        self._journal.answered(cost, of=asked)

    def refused(self) -> None:
        """The call came to an end without an answer: nobody bills it."""
        self._journal.answered(Cost())


class MeteredModel:
    def __init__(self, model: Model, meter: Meter) -> None:
        self.id, self.declared = model.id, model.declared
        self._model, self._meter = model, meter
        if hasattr(model, "image_rule"):
            self.image_rule = model.image_rule

    @property
    def last_slip(self) -> str | None:
        slip: str | None = getattr(self._model, "last_slip", None)
        return slip

    async def complete(self, request: Request) -> Completion:
        self._meter.asked()
        try:
            completion = await self._model.complete(request)
        except (Blamed, UsageError):
            self._meter.refused()
            raise
        self._meter.answered(self.id, completion)
        return completion


class _MeteredPrivileged:
    def __init__(self, model: Privileged, meter: Meter) -> None:
        self.id, self.declared = model.id, model.declared
        self._model, self._meter = model, meter

    def bind(self, task: Task, sandbox: Sandbox, rollout_key: str, *, max_calls: int) -> Model:
        return MeteredModel(self._model.bind(task, sandbox, rollout_key, max_calls=max_calls), self._meter)
