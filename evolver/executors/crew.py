"""Workers that are handed leases: what is the same wherever they live. A worker has a slot, and a slot one worker."""

from __future__ import annotations

import abc
import asyncio
import time
from contextlib import suppress
from typing import Protocol

from evolver.errors import BudgetSpent, NotReady, UsageError
from evolver.protocols import Finished, Lease, Lost, Report, WorkerSpec

PATIENCE_S = 300.0  # without a worker, before a slot stays empty
BACKOFF_S, MAX_BACKOFF_S = 0.5, 10.0
FATAL = (UsageError, NotReady, BudgetSpent)


class WorkerDied(Exception):
    """The worker, or the machine it was on, is gone."""


class Hand(Protocol):
    """A hired worker, near or far. `work` raises WorkerDied when it is gone."""

    async def work(self, lease: Lease) -> Report: ...
    async def let_go(self) -> None: ...
    def kill(self) -> None: ...


class SlotCrew(abc.ABC):
    """`workers` slots, each of which hires a worker and gives it one lease after the other."""

    def __init__(self, spec: WorkerSpec, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers must be >= 1, got {workers}")
        self.spec = spec
        self._size = workers
        self._leases: asyncio.Queue[Lease] = asyncio.Queue()
        self._results: asyncio.Queue[Finished | Lost | BaseException] = asyncio.Queue()
        self._working: dict[int, tuple[Hand, asyncio.Task[Report]]] = {}
        self._ended: set[int] = set()
        self._idle = 0
        self._slots: list[asyncio.Task[None]] = []

    @abc.abstractmethod
    async def hire(self, name: str) -> Hand:
        """A worker that is ready. Raises WorkerDied where none can be had now, and what `WorkerSpec.open` raises."""

    @property
    def free(self) -> int:
        self._start()
        return self._idle - self._leases.qsize()

    @property
    def alive(self) -> int:
        self._start()
        return sum(not slot.done() for slot in self._slots)

    def submit(self, lease: Lease) -> None:
        if self.free < 1:
            raise RuntimeError("no worker is free")
        self._leases.put_nowait(lease)

    def end(self, lease_id: int) -> None:
        if lease_id in self._working and lease_id not in self._ended:  # once: what it cleans up takes its time
            hand, task = self._working[lease_id]
            self._ended.add(lease_id)
            hand.kill()
            task.cancel()

    async def next(self, timeout_s: float) -> Finished | Lost | None:
        self._start()
        try:
            async with asyncio.timeout(timeout_s):
                result = await self._results.get()
        except TimeoutError:
            return None
        if isinstance(result, BaseException):
            raise result
        return result

    async def aclose(self) -> None:
        for slot in self._slots:
            slot.cancel()
        if self._slots:
            await asyncio.wait(self._slots)

    def _start(self) -> None:
        if not self._slots:
            self._slots = [asyncio.create_task(self._slot(number)) for number in range(self._size)]

    async def _slot(self, number: int) -> None:
        hired, failures, last = 0, 0, time.monotonic()
        while time.monotonic() - last < PATIENCE_S:
            try:
                hand = await self.hire(f"worker-{number}" + (f".{hired}" if hired else ""))
            except WorkerDied:
                failures += 1
                await asyncio.sleep(min(MAX_BACKOFF_S, BACKOFF_S * 2**failures))
                continue
            except Exception as error:  # noqa: BLE001 - the round can't go on, whatever it is: told by `next`
                self._results.put_nowait(error)
                return
            hired, failures = hired + 1, 0
            try:
                await self._serve(hand, f"worker-{number}")
            finally:
                with suppress(WorkerDied):
                    await hand.let_go()
                last = time.monotonic()

    async def _serve(self, hand: Hand, name: str) -> None:
        """Until the worker is gone."""
        while True:
            self._idle += 1
            try:
                lease = await self._leases.get()
            finally:
                self._idle -= 1
            task = asyncio.create_task(hand.work(lease))
            self._working[lease.id] = hand, task
            try:
                await asyncio.wait([task])
                self._results.put_nowait(self._outcome(lease, name, task))
            finally:
                del self._working[lease.id]
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])
            if task.cancelled() or isinstance(task.exception(), WorkerDied):
                return

    def _outcome(self, lease: Lease, name: str, task: asyncio.Task[Report]) -> Finished | Lost | BaseException:
        if lease.id in self._ended:
            self._ended.discard(lease.id)
            return Lost(lease, name, f"ended after {lease.deadline_s:g} s", died=False)
        if task.cancelled():
            return Lost(lease, name, "cancelled", died=False)
        error = task.exception()
        if error is None:
            return Finished(lease, task.result())
        if isinstance(error, WorkerDied):
            return Lost(lease, name, str(error), died=True)
        if isinstance(error, FATAL):
            return error
        return Lost(lease, name, f"{type(error).__name__}: {error}", died=False)
