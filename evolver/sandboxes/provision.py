"""Makes a fresh Debian or Ubuntu ready for sandboxes: packages, a daemon, the root file system, its image."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from typing import Literal

from evolver.errors import NotReady
from evolver.sandboxes import rootfs
from evolver.sandboxes.backend import Kind, open_backend
from harnesses.harness import Environment

PROGRAMS = {"debootstrap": "debootstrap", "bwrap": "bubblewrap", "rsync": "rsync"}
DAEMON_LOG = "/var/log/evolver-dockerd.log"


def provision(kind: Kind, say: rootfs.Say) -> Literal["docker", "local"]:
    """Everything that rollouts need, as root or with sudo; again is quick. Returns the back end that is ready.

    `auto` falls back to local when Docker can't be had, and says so. Raises NotReady when nothing can.
    """
    _install({name: package for name, package in PROGRAMS.items() if shutil.which(name) is None}, say)
    if not rootfs.KEYRING.is_file():
        _apt_get(["debian-archive-keyring"], say)
    if kind != "local":
        try:
            _daemon(say)
        except NotReady as error:
            if kind == "docker":
                raise
            say(f"no Docker ({error}); local sandboxes instead")
            kind = "local"
    return asyncio.run(_prepare(kind, say))


async def _prepare(kind: Kind, say: rootfs.Say) -> Literal["docker", "local"]:
    backend = open_backend(kind, 0, say)
    try:
        for image in ("desktop", "terminal"):
            await backend.prepare(Environment(image="desktop" if image == "desktop" else "terminal"))
        say(f"sandboxes: {backend.name} is ready")
        return backend.name
    finally:
        await backend.aclose()


def _as_root(argv: list[str]) -> list[str]:
    if os.geteuid() == 0:
        return argv
    if shutil.which("sudo") is None:
        raise NotReady(f"this needs root: run `{' '.join(argv)}` as root")
    return ["sudo", "-n", *argv]


def _install(missing: dict[str, str], say: rootfs.Say) -> None:
    if missing:
        _apt_get(sorted(missing.values()), say)


def _apt_get(packages: list[str], say: rootfs.Say) -> None:
    if shutil.which("apt-get") is None:
        raise NotReady(f"this is no Debian or Ubuntu: install {', '.join(packages)} by hand")
    say(f"apt-get install {' '.join(packages)}")
    install = [
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        *packages,
    ]
    for argv in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(_as_root(argv), capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise NotReady(f"`{' '.join(argv)}` failed: {done.stderr.strip()[-300:]}")


def _daemon(say: rootfs.Say) -> None:
    """A Docker daemon that answers; starts one when the machine's own does not."""
    from evolver.sandboxes.docker import connect

    try:
        connect(timeout_s=5)
        return
    except NotReady:
        if os.environ.get("DOCKER_HOST"):
            raise  # someone pointed elsewhere on purpose: starting a daemon here would not answer there
    if shutil.which("dockerd") is None:
        _apt_get(["docker.io"], say)
    say("starting the Docker daemon")
    service = subprocess.run(_as_root(["service", "docker", "start"]), capture_output=True, check=False)
    if service.returncode != 0 or not _answers(10):
        with open(DAEMON_LOG, "ab") as log:
            subprocess.Popen(
                _as_root(["dockerd", "--storage-driver=overlay2"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if not _answers(30):
            raise NotReady(f"dockerd does not answer; see {DAEMON_LOG}")


def _answers(limit_s: float) -> bool:
    from evolver.sandboxes.docker import connect

    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            connect(timeout_s=2)
            return True
        except NotReady:
            time.sleep(0.3)
    return False
