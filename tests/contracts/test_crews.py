"""The Crew contract: workers in this process, and Ray actors."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evolver.errors import UsageError
from evolver.executors.local import LocalCrew
from evolver.protocols import Crew, Finished, Lease, Lost, Report
from evolver.rounds.book import Book
from evolver.rounds.driver import Driver, Rules
from evolver.rounds.folder import BOOK, Round
from evolver.rounds.watch import Schedule, Watch
from evolver.testing.rounds import COST, NoopSpec
from tests.evolver.rounds import CAPSULE, a_plan, driven

FAILS, HANGS, DIES = 3, 5, 7  # leases


@dataclass(frozen=True)
class Spec:
    refuses: str = ""

    async def open(self, name: str) -> Worker:
        if self.refuses:
            raise UsageError(self.refuses)
        return Worker(name)


class Worker:
    def __init__(self, name: str) -> None:
        self.name = name

    async def work(self, lease: Lease) -> Report:
        if lease.id == FAILS:
            raise ValueError("lease 3 failed")
        if lease.id == HANGS:
            await asyncio.sleep(600)
        if lease.id == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.02)
        return Report(lease.id, f"{self.name} {os.getpid()}")

    async def aclose(self) -> None:
        return None


async def worked(crew: Crew, leases: Sequence[int], end: Sequence[int] = ()) -> list[Finished | Lost]:
    todo, found = list(leases), list[Finished | Lost]()
    out: set[int] = set()
    while len(found) < len(leases):
        while todo and crew.free > 0:
            out.add(todo[0])
            crew.submit(Lease(todo.pop(0)))
        came = await crew.next(0.5)
        if came is None:
            for lease in set(end) & out:
                crew.end(lease)
            continue
        out.discard(came.lease.id)
        found.append(came)
    assert crew.free <= 2
    return found


def summary(found: Sequence[Finished | Lost]) -> dict[int, str]:
    return {one.lease.id: "done" if isinstance(one, Finished) else "died" if one.died else one.why for one in found}


class CrewContract:
    def make(self, spec: Spec) -> Crew:
        raise NotImplementedError

    def test_every_lease_comes_back_once_and_nothing_is_retried(self) -> None:
        async def play() -> list[Finished | Lost]:
            crew = self.make(Spec())
            try:
                return await worked(crew, [1, 2, FAILS, 4, HANGS, 6], end=[HANGS])
            finally:
                await crew.aclose()

        said = summary(asyncio.run(play()))
        assert said.pop(FAILS) == "ValueError: lease 3 failed"
        assert said.pop(HANGS).startswith("ended after")
        assert said == dict.fromkeys((1, 2, 4, 6), "done")

    def test_a_worker_that_refuses_to_open_stops_the_round(self) -> None:
        async def play() -> None:
            crew = self.make(Spec(refuses="the capsule drifted: price 1 → 2"))
            try:
                while True:
                    assert await crew.next(0.5) is None
            finally:
                await crew.aclose()

        with pytest.raises(UsageError, match="price 1 → 2"):
            asyncio.run(play())


@dataclass(frozen=True)
class Tidy:
    """A worker that takes its time to clean up after a lease that is ended; `tidied` are those it has tidied up."""

    tidied: list[int]

    async def open(self, name: str) -> Tidy:
        return self

    async def work(self, lease: Lease) -> Report:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.2)
            self.tidied.append(lease.id)
        return Report(lease.id, "tidy")

    async def aclose(self) -> None:
        return None


class TestLocal(CrewContract):
    def make(self, spec: Spec) -> Crew:
        return LocalCrew(spec, 2)

    def test_what_a_worker_cleans_up_is_not_interrupted_by_asking_again(self) -> None:
        tidied: list[int] = []

        async def play() -> None:
            crew = LocalCrew(Tidy(tidied), 1)
            try:
                while crew.free < 1:
                    await crew.next(0.01)
                crew.submit(Lease(1))
                came = None
                while came is None:
                    came = await crew.next(0.05)
                    crew.end(1)
            finally:
                await crew.aclose()

        asyncio.run(play())
        assert tidied == [1]


@pytest.mark.ray
@pytest.mark.slow
class TestRay(CrewContract):
    def make(self, spec: Spec) -> Crew:
        from evolver.executors.ray import RayCrew

        return RayCrew(spec, 2)

    def test_g35_a_dead_worker_s_lease_is_lost_and_run_by_nobody_else(self) -> None:
        async def play() -> list[Finished | Lost]:
            crew = self.make(Spec())
            try:
                return await worked(crew, [1, DIES, 8, 9])
            finally:
                await crew.aclose()

        assert summary(asyncio.run(play())) == {1: "done", DIES: "died", 8: "done", 9: "done"}


def two_nodes() -> tuple[Any, Any]:
    """A cluster of two nodes, each with processes of its own, on this machine alone; the second node."""
    from evolver.executors.ray import ALONE, QUIET

    os.environ.update(QUIET | ALONE)
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args=node)
    return cluster, cluster.add_node(num_cpus=2, object_store_memory=80 << 20)


@pytest.mark.ray
@pytest.mark.slow
def test_g35_g38_a_node_dies_and_the_round_ends_complete(tmp_path: Path) -> None:
    """Two nodes; the second is killed with all that runs on it. No call was made twice behind the driver's back."""
    from evolver.executors.ray import RayCrew

    whole = driven(tmp_path / "whole", plan=a_plan(units=60))
    out, bills = tmp_path / "round", tmp_path / "bills"
    bills.mkdir()
    round_ = Round.open(out, a_plan(units=60))
    cluster, second = two_nodes()

    async def play() -> None:
        crew = RayCrew(NoopSpec(out, CAPSULE, 1.0, bills), 4, cluster.address)
        watch = Watch(round_.book, Schedule(), 60)

        async def kill_when_it_is_at_work() -> None:
            while len(list(bills.iterdir())) < 4:  # noqa: ASYNC110 - one file a worker: both nodes play
                await asyncio.sleep(0.2)
            await asyncio.to_thread(cluster.remove_node, second, False)

        async with asyncio.TaskGroup() as group:
            killing = group.create_task(kill_when_it_is_at_work())
            await Driver(round_, crew, Rules(lease_units=2, workers=4), watch).run()
            assert killing.done(), "the round was over before the node died"
        await crew.aclose()

    try:
        asyncio.run(play())
    finally:
        cluster.shutdown()
    closed = round_.manifest.closed
    assert closed is not None and closed.root == whole.root and closed.rows == 60
    book = Book.read(out / BOOK)
    billed = sum(int(line) for path in bills.iterdir() for line in path.read_text().split())
    assert book.cost("kept").calls == 60 and book.cost().calls == billed
    assert book.cost().nusd == billed * COST.nusd
    book.close()
    round_.close()
