"""Runs attempts in this process, so many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from evolver.executors.crew import Hand, SlotCrew
from evolver.protocols import Item, Lease, Report, Result, Worker


class LocalExecutor:
    """At most `workers` calls of `fn` at a time; results in the order in which they finish.

    The first failing item cancels the others, waits until they have cleaned up, and is raised as it is. So does
    leaving the loop early or cancelling it (Ctrl-C). Results that were ready before the failure still come out.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers must be >= 1, got {workers}")
        self._workers = workers

    async def map(self, fn: Callable[[Item], Awaitable[Result]], items: Sequence[Item]) -> AsyncIterator[Result]:
        ready: asyncio.Queue[tuple[Result] | None] = asyncio.Queue()
        waiting = iter(items)

        async def work() -> None:
            for item in waiting:
                ready.put_nowait((await fn(item),))

        async def work_all() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._workers, len(items))):
                    group.create_task(work())

        # The group lives in a task of its own: a TaskGroup across `yield` would cancel the consumer's code instead.
        task = asyncio.create_task(work_all())
        task.add_done_callback(lambda _: ready.put_nowait(None))
        try:
            while (result := await ready.get()) is not None:
                yield result[0]
            if not task.cancelled() and (error := task.exception()) is not None:
                raise _first(error)
        finally:
            task.cancel()
            await asyncio.wait([task])


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


class LocalCrew(SlotCrew):
    """Workers of a generation round in this process: no death but its own."""

    async def hire(self, name: str) -> Hand:
        return _Here(await self.spec.open(name))


class _Here:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def work(self, lease: Lease) -> Report:
        return await self._worker.work(lease)

    async def let_go(self) -> None:
        await self._worker.aclose()

    def kill(self) -> None:  # its task is cancelled
        return None
