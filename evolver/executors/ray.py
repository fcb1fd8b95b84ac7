"""Workers as Ray actors, on this machine or on a cluster that is there: they die alone, and with their node.

Ray is told to retry nothing: a lease that comes back lost is the driver's to hand out again. Leases and reports are all
that travels; results lie in the round's folder, which every node must see under the same path. Ray started here listens
on 127.0.0.1 alone, asks for a token of its own, has no dashboard, and reports its use to nobody.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import psutil

from evolver.errors import NotReady
from evolver.executors.crew import Hand, SlotCrew, WorkerDied
from evolver.protocols import Lease, Report, Worker, WorkerSpec

HOST = "127.0.0.1"
STORE_BYTES = 80 << 20  # the least that Ray takes: nothing large goes through it
LET_GO_S = 30.0
HIRE_S = 300.0
STARTS, START_S = 10, 300.0
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Read when Ray is imported: one that is for a single machine keeps all of its sockets on the loopback address.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
# Ports that are fixed beforehand: for one that is not, Ray gives the process that opens it 15 s, and then ends itself.
PORTS = (
    "gcs_server_port",
    "metrics_agent_port",
    "metrics_export_port",
    "runtime_env_agent_port",
    "dashboard_agent_listen_port",
)


class Hired:
    """What runs in the actor's process."""

    def __init__(self, spec: WorkerSpec, name: str) -> None:
        self._spec, self._name = spec, name
        self._worker: Worker | None = None

    async def open(self) -> None:
        self._worker = await self._spec.open(self._name)

    async def work(self, lease: Lease) -> Report:
        if self._worker is None:
            raise RuntimeError("not open yet")
        return await self._worker.work(lease)

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.aclose()


class RayCrew(SlotCrew):
    """`workers` actors of one CPU each, spread over the nodes. `address` is that of a cluster; None starts Ray here."""

    def __init__(self, spec: WorkerSpec, workers: int, address: str | None = None) -> None:
        super().__init__(spec, workers)
        stop = signal.getsignal(signal.SIGTERM)
        self._ray, self._processes = _started(workers, address)
        if stop is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stop)  # Ray takes it for itself
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(
            Hired
        )

    async def hire(self, name: str) -> Hand:
        hand = _Far(self._ray, self._actor.remote(self.spec, name))
        try:
            async with asyncio.timeout(HIRE_S):
                await hand.ask(hand.actor.open.remote())
        except TimeoutError:
            hand.kill()
            raise WorkerDied(f"no node had room for {name} within {HIRE_S:g} s") from None
        except BaseException:
            hand.kill()
            raise
        return hand

    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.to_thread(self._ray.shutdown)
        await asyncio.to_thread(_end, self._processes)


class _Far:
    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self.actor = actor

    async def ask(self, ref: Any) -> Any:  # what the actor's method returns
        try:
            return await asyncio.wrap_future(ref.future())
        except self._ray.exceptions.RayActorError as error:
            raise WorkerDied(" ".join(str(error).split())[:300]) from None
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, BaseException) else error) from None

    async def work(self, lease: Lease) -> Report:
        report: Report = await self.ask(self.actor.work.remote(lease))
        return report

    async def let_go(self) -> None:
        with suppress(TimeoutError, WorkerDied):
            async with asyncio.timeout(LET_GO_S):
                await self.ask(self.actor.close.remote())
        self.kill()

    def kill(self) -> None:
        self._ray.kill(self.actor, no_restart=True)


def _started(workers: int, address: str | None) -> tuple[Any, list[psutil.Process]]:
    """The module, connected, and the processes that were started for it."""
    os.environ.update(QUIET if address is not None else QUIET | ALONE)
    try:
        import ray
    except ImportError as error:
        raise NotReady(f"--executor ray needs Ray ({error}): pip install -e '.[ray]'") from None
    engine: Any = ray  # its options are typed too narrowly to be passed on
    # Ray tells of each dead worker on stdout, which is for data; the driver tells of them itself.
    engine._private.worker.print_to_stdstream = _unsaid
    logging.getLogger("ray").setLevel(logging.ERROR)
    quiet = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": False}
    if address is not None:
        try:
            engine.init(address=address, ignore_reinit_error=True, **quiet)
        except ConnectionError as error:
            raise NotReady(f"no Ray cluster at {address} ({error}): start one, or leave `address` out") from None
        return engine, []
    for start in range(STARTS):
        address, processes = _node(workers)
        try:
            _connect(engine, address, processes, quiet)
            break
        except Exception as error:  # Ray's own, or it is dead: where a machine is busy, the next start may do
            _end(processes)
            if start + 1 == STARTS:
                raise NotReady(f"Ray does not start here: {error}") from error
    return engine, processes


def _node(workers: int) -> tuple[str, list[psutil.Process]]:
    """Starts Ray on this machine, for this process alone and with no more processes than it needs; its address."""
    from ray.cluster_utils import Cluster

    with ExitStack() as bound:
        free = {}
        for name in PORTS:
            one = bound.enter_context(socket.socket())
            one.bind((HOST, 0))
            free[name] = one.getsockname()[1]
    less = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    node = {"node_ip_address": HOST, "num_cpus": workers, "object_store_memory": STORE_BYTES, **less, **free}
    before = psutil.Process().children()
    with suppress(Exception):  # it waits for half a minute only: Ray is there later, or `_connect` says why
        Cluster(initialize_head=True, connect=False, head_node_args=node)
    return f"{HOST}:{free['gcs_server_port']}", list(set(psutil.Process().children()) - set(before))


def _connect(engine: Any, address: str, processes: Sequence[psutil.Process], quiet: dict[str, Any]) -> None:
    """Waits until Ray answers. Raises what it says when it takes too long, and RuntimeError when a part of it is dead:
    where its agents took more than 15 s to start, it ends itself."""
    until = time.monotonic() + START_S
    while True:
        if not all(map(_runs, processes)):
            raise RuntimeError("a process of it ended; its logs are in /tmp/ray/session_latest/logs")
        try:
            engine.init(address=address, ignore_reinit_error=True, **quiet)
            return
        except Exception:  # Ray's own, of several kinds
            engine.shutdown()
            if time.monotonic() > until:
                raise
            time.sleep(1)


def _runs(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def _end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=LET_GO_S)


def _unsaid(data: object, ignore_prefix: bool) -> None:
    return None
