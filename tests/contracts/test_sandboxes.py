"""The Sandbox contract on every back end that this machine has, and on the fake."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evolver.protocols import Ran, Sandbox, Sandboxes
from evolver.sandboxes import open_backend
from evolver.sandboxes.local import FIRST_UID, WEAKER, own_user
from evolver.testing import FakeSandbox, MachineContract, SandboxContract
from harnesses.harness import Environment, Limits


class TestFake(SandboxContract):
    async def open(self) -> Sandbox:
        return FakeSandbox(
            {
                "echo hi; exit 3": Ran(3, "hi\n"),
                "sleep 60": Ran(None, "", timed_out=True),
                "cd /tmp": Ran(0, ""),
                "pwd": Ran(0, "/tmp\n"),
            }
        )


class OnBackend(MachineContract):
    backend: Sandboxes

    async def open(self) -> Sandbox:
        return await self.backend.open(Environment(image="terminal"), run_id="contract", ttl_s=120)

    async def open_desktop(self) -> Sandbox:
        return await self.backend.open(Environment(image="desktop"), run_id="contract", ttl_s=120)

    async def small(self) -> Sandbox:
        bounded = Environment(image="terminal", limits=Limits(memory_mb=256))
        return await self.backend.open(bounded, run_id="contract", ttl_s=120)


@pytest.mark.docker
class TestDocker(OnBackend):
    @pytest.fixture(autouse=True)
    async def opened(self) -> AsyncIterator[None]:
        self.backend = open_backend("docker", spares=0)
        yield
        await self.backend.aclose()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap (Debian: apt-get install bubblewrap)")
class TestLocal(OnBackend):
    weaker = frozenset(WEAKER)

    @pytest.fixture(autouse=True)
    async def opened(self) -> AsyncIterator[None]:
        self.backend = open_backend("local", spares=0)
        yield
        await self.backend.aclose()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each sandbox a user of its own")
    async def test_its_user_is_that_of_no_sandbox_of_another_process(self) -> None:
        taken, held = own_user()  # as another process would
        with held:
            machine = await self.open()
            users = {_user(int(child)) for child in Path("/proc/thread-self/children").read_text().split()}
            await machine.close()
        assert {user for user in users if user >= FIRST_UID} and taken not in users


def _user(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))
