"""Every test of a sandbox runs on both back ends; on a fresh machine each time, but for the shared desktop."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Literal

import pytest
import pytest_asyncio

from evolver.protocols import Sandbox, Sandboxes
from evolver.sandboxes import open_backend
from harnesses.harness import Environment
from tests.sandboxes.desk import tidy

Kind = Literal["docker", "local"]
KINDS = [pytest.param("docker", marks=pytest.mark.docker), "local"]


def available(kind: str) -> Kind:
    if kind == "local" and shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap (apt-get install bubblewrap)")
    return "docker" if kind == "docker" else "local"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return available(request.param)


@pytest.fixture
async def backend(kind: Kind) -> AsyncIterator[Sandboxes]:
    found = open_backend(kind, spares=0)
    yield found
    await found.aclose()


@pytest.fixture
async def terminal(backend: Sandboxes) -> Sandbox:
    return await backend.open(Environment(image="terminal"), run_id="test", ttl_s=120)


@pytest.fixture
async def desktop(backend: Sandboxes) -> Sandbox:
    return await backend.open(Environment(image="desktop"), run_id="test", ttl_s=120)


@pytest.fixture(scope="session", params=KINDS)
def desk_kind(request: pytest.FixtureRequest) -> Kind:
    return available(request.param)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def one_desktop(desk_kind: Kind) -> AsyncIterator[Sandbox]:
    backend = open_backend(desk_kind, spares=0)
    yield await backend.open(Environment(image="desktop"), run_id="test", ttl_s=1_200)
    await backend.aclose()


@pytest_asyncio.fixture(loop_scope="session")
async def desk(one_desktop: Sandbox) -> AsyncIterator[Sandbox]:
    """A desktop that a whole session's tests share; applications and files of one test are gone for the next."""
    yield one_desktop
    await tidy(one_desktop)
