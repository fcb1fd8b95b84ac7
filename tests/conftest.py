"""Skips, with a reason, the tests whose mark asks for something that this machine lacks."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import socket

import pytest


@functools.cache
def _docker_answers() -> bool:
    """Whether a daemon takes connections on the socket that the docker client would use."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        return True  # a remote daemon: let the test say what is wrong with it
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(host.removeprefix("unix://"))
        except OSError:
            return False
    return True


def _lacking(mark: str) -> str | None:
    """What a test with this mark misses here, or None."""
    if mark == "docker" and not _docker_answers():
        return "no Docker daemon answers"
    if mark == "desktop" and not _docker_answers() and not (shutil.which("Xvfb") and shutil.which("bwrap")):
        return "no sandbox with a screen: neither a Docker daemon, nor Xvfb and bwrap"
    if mark == "browser" and not (shutil.which("chromium") or shutil.which("google-chrome")):
        return "no Chromium (Debian: apt-get install chromium)"
    modules = {"ray": ("ray",), "train": ("torch", "transformers", "trl")}.get(mark, ())
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)} (extra '{mark}')" if absent else None


def pytest_configure() -> None:
    # Started in the background of a shell, pytest ignores SIGINT, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers():
        reason = _lacking(mark.name)
        if reason is not None:
            pytest.skip(f"{mark.name}: {reason}")
