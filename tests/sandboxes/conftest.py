"""Every test of a sandbox runs on both back ends, on a fresh machine each time."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from evolver.protocols import Sandbox, Sandboxes
from evolver.sandboxes import open_backend
from harnesses.harness import Environment

Kind = Literal["docker", "local"]


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "local"])
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "local" and shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap (apt-get install bubblewrap)")
    return "docker" if request.param == "docker" else "local"


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
