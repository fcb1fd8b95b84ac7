"""What this process knows does not reach the machines that agents work on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from evolver.protocols import Sandbox

KEY = "sk-very-secret-0123456789"
LOOK = "env; for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\\0' '\\n' < $file; done 2>/dev/null; true"


@pytest.fixture(autouse=True)
def key_in_the_environment() -> Iterator[None]:
    """Before the back end and its machines are made."""
    os.environ["OPENAI_API_KEY"] = KEY
    yield
    del os.environ["OPENAI_API_KEY"]


async def test_s56_no_key_of_ours_is_in_the_environment_of_a_machine(terminal: Sandbox) -> None:
    seen = (await terminal.exec(LOOK, timeout_s=20)).output + (await terminal.bash(LOOK, timeout_s=20)).output
    assert "PATH=" in seen and KEY not in seen and "OPENAI" not in seen
