"""Warm spares: a started sandbox per environment waits, so that a rollout does not pay for its start."""

from __future__ import annotations

import abc
import asyncio
import logging
import time
from dataclasses import dataclass

from evolver.errors import Blamed
from evolver.protocols import Sandbox
from evolver.sandboxes.machine import Machine
from harnesses.harness import Environment

SPARE_LIFE_S = 3_600.0  # how long a spare's own clock runs; one that has too little left is thrown away
log = logging.getLogger("evolver.sandboxes")


@dataclass(frozen=True)
class _Spare:
    machine: Machine
    until: float


class Pool(abc.ABC):
    """Opens machines, keeps `spares` per environment, and ends all of them in `aclose`. One event loop only."""

    def __init__(self, spares: int) -> None:
        self._spares, self._shelf = spares, dict[str, list[_Spare]]()
        self._filling: dict[str, set[asyncio.Task[None]]] = {}
        self._open: set[Machine] = set()
        self._aclosed = False

    @abc.abstractmethod
    async def prepare(self, environment: Environment) -> str:
        """Builds what is missing; returns the digest that records carry."""

    @abc.abstractmethod
    async def _start(self, environment: Environment, *, run_id: str, ttl_s: float) -> Machine:
        """A started machine; whatever fails leaves nothing behind."""

    async def open(self, environment: Environment, *, run_id: str, ttl_s: float, rollout_id: str = "") -> Sandbox:
        await self.prepare(environment)
        key = environment.model_dump_json()
        machine = await self._from_shelf(key, ttl_s)
        if machine is None:
            machine = await self._begin(environment, run_id=run_id, ttl_s=ttl_s)
            await machine.hello(ttl_s)
        self._refill(key, environment, run_id)
        return machine

    async def _begin(self, environment: Environment, *, run_id: str, ttl_s: float) -> Machine:
        machine = await self._start(environment, run_id=run_id, ttl_s=ttl_s)
        self._open.add(machine)
        return machine

    async def _from_shelf(self, key: str, ttl_s: float) -> Machine | None:
        while shelf := self._shelf.get(key):
            spare = shelf.pop(0)
            if spare.until - time.monotonic() > ttl_s:
                try:
                    await spare.machine.hello(ttl_s)
                    return spare.machine
                except Blamed as error:
                    log.warning("a spare sandbox had died: %s", error)
            await spare.machine.close()
        return None

    def _refill(self, key: str, environment: Environment, run_id: str) -> None:
        tasks = self._filling.setdefault(key, set())
        wanted = self._spares - len(self._shelf.get(key, [])) - len(tasks)
        for _ in range(max(wanted, 0) if not self._aclosed else 0):
            task = asyncio.create_task(self._fill(key, environment, run_id))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _fill(self, key: str, environment: Environment, run_id: str) -> None:
        until = time.monotonic() + SPARE_LIFE_S
        try:
            machine = await self._begin(environment, run_id=run_id, ttl_s=SPARE_LIFE_S)
            await machine.hello(SPARE_LIFE_S)
        except Blamed as error:
            log.warning("a spare sandbox did not start: %s", error)
            return
        self._shelf.setdefault(key, []).append(_Spare(machine, until))

    def _ended(self, machine: Machine) -> None:
        self._open.discard(machine)

    async def aclose(self) -> None:
        """Ends every sandbox that this back end started, spares included."""
        self._aclosed = True
        tasks = [task for group in self._filling.values() for task in group]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._shelf.clear()
        for machine in list(self._open):
            await machine.close()
