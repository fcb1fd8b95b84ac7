"""Attempts run so many at once, come as they finish, and stop together."""

from __future__ import annotations

import asyncio

import pytest

from evolver.errors import BudgetSpent
from evolver.executors.local import LocalExecutor


class Work:
    """Counts how many run at once and how many were cut off."""

    def __init__(self, fails_at: int = -1) -> None:
        self.running = self.most = self.cut = 0
        self.started: list[int] = []
        self._fails_at = fails_at

    async def __call__(self, item: int) -> int:
        self.started.append(item)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.01 * (item % 3 + 1))
            if item == self._fails_at:
                raise BudgetSpent(f"at {item}")
            return item * 10
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            self.running -= 1


@pytest.mark.parametrize("workers", [1, 3, 50])
async def test_every_item_comes_once_and_never_more_than_workers_run(workers: int) -> None:
    work = Work()
    results = [result async for result in LocalExecutor(workers).map(work, range(20))]
    assert sorted(results) == [item * 10 for item in range(20)] and work.most == min(workers, 20)
    assert [result async for result in LocalExecutor(workers).map(work, [])] == []


async def test_results_come_as_they_finish() -> None:
    results = [result async for result in LocalExecutor(3).map(Work(), [2, 1, 0])]
    assert results == [0, 10, 20]


async def test_a_failing_item_stops_the_rest_and_is_raised_as_it_is() -> None:
    work, got = Work(fails_at=4), []
    with pytest.raises(BudgetSpent, match="at 4"):
        async for result in LocalExecutor(2).map(work, range(100)):
            got.append(result)
    assert work.running == 0 and len(work.started) < 10 and 0 in got


async def test_a_consumer_that_is_cancelled_leaves_nothing_running() -> None:
    work = Work()

    async def consume() -> None:
        async for _ in LocalExecutor(2).map(work, range(100)):
            await asyncio.sleep(0)

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.05)
    assert work.running == 0 and work.cut > 0 and len(work.started) < 20


def test_no_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        LocalExecutor(0)
