"""Sandboxes as bubblewrap namespaces on this machine: the same programs, weaker bounds than Docker's."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Literal

from evolver.errors import NotReady, SandboxLost, UsageError
from evolver.sandboxes import recipe, rootfs
from evolver.sandboxes.machine import Machine, Wire
from evolver.sandboxes.pool import Pool
from harnesses.harness import Environment

FIRST_UID = 361_000  # started by root, each sandbox runs as a user of its own that owns nothing on this machine
WEAKER = (
    "memory is bounded per process, not in all",
    "no CPU bound",
    "control, screen and agent share one user: the agent can end its own screen (control itself is out of its reach)",
    "apt packages beyond the base can't be added",
)
_uids = itertools.count()


def bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise NotReady("bubblewrap is missing: apt-get install bubblewrap")
    return found


def command_line(root: Path, environment: Environment, layers: dict[str, Path], program: list[str]) -> list[str]:
    """The bubblewrap call; `layers` maps a place in the sandbox to a directory that lies there read-only."""
    limits = environment.limits
    argv = [
        "prlimit", f"--nproc={limits.pids}", f"--data={limits.memory_mb << 20}", "--core=0", bwrap(),
        "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", "--cap-drop", "ALL",
        "--hostname", "desk", "--uid", str(recipe.AGENT_UID), "--gid", str(recipe.AGENT_UID),
        "--ro-bind", str(root), "/",
    ]  # fmt: skip
    for place, folder in layers.items():
        argv += ["--ro-bind", str(folder), place]
    argv += ["--proc", "/proc", "--dev", "/dev", "--size", str(128 << 20), "--tmpfs", "/dev/shm"]
    for place in ("/tmp", "/home/user", "/harness", "/evidence"):
        argv += ["--size", str(limits.disk_mb << 20), "--tmpfs", place]
    return [*argv, "--chdir", "/", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--", *program]


class LocalSandboxes(Pool):
    """`protocols.Sandboxes` without a daemon. What it can't bound stands in `WEAKER`, and doctor prints it."""

    name: Literal["docker", "local"] = "local"

    def __init__(self, *, spares: int = 1, say: rootfs.Say = lambda text: None) -> None:
        super().__init__(spares)
        bwrap()
        self._say, self._root = say, rootfs.rootfs_path()
        self._layers: dict[str, dict[str, Path]] = {}

    async def prepare(self, environment: Environment) -> str:
        tag = recipe.environment_digest(environment)
        if tag not in self._layers:
            self._layers[tag] = await asyncio.to_thread(self._build, environment)
        return f"rootfs:{tag}"

    def _build(self, environment: Environment) -> dict[str, Path]:
        self._root = rootfs.build_rootfs(self._say)
        lacking = sorted(set(environment.apt) - installed(self._root))
        if lacking:
            raise UsageError(
                f"environment.apt: {', '.join(lacking)} not in the base system; only the Docker back end can add it"
            )
        layers = {recipe.INSIDE: rootfs.inside_layer()}
        if environment.pip:
            layers[recipe.AGENT_SITE] = rootfs.pip_layer(environment.pip)
        return layers

    async def _start(self, environment: Environment, *, run_id: str, ttl_s: float) -> Machine:
        digest = await self.prepare(environment)
        program = ["/usr/bin/python3", "-I", "-S", f"{recipe.INSIDE}/server.py", str(ttl_s)]
        screen = environment.screen if environment.image == "desktop" else None
        if screen:
            program.append("x".join(map(str, screen)))
        argv = command_line(self._root, environment, self._layers[recipe.environment_digest(environment)], program)
        errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the machine
        uid = FIRST_UID + next(_uids) % 4_096 if os.geteuid() == 0 else None
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            env={"PATH": os.environ["PATH"]}, cwd="/", limit=1 << 22, user=uid, group=uid,
            extra_groups=None if uid is None else [],
        )  # fmt: skip
        reader, writer = process.stdout, process.stdin
        if reader is None or writer is None:
            raise SandboxLost("the sandbox has no pipes")

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        async def died() -> str:
            errors.seek(0)
            text = errors.read()[-300:].decode(errors="replace").strip()
            return text or f"exit code {process.returncode}"

        async def end() -> None:
            writer.close()
            if process.returncode is None:
                process.kill()
            await process.wait()
            while await reader.read(1 << 20):  # its end says that the last process inside is dead
                pass
            errors.close()
            self._ended(machine)

        machine = Machine(uuid.uuid4().hex[:12], digest, screen, Wire(reader.readexactly, send, died), end)
        return machine


def installed(root: Path) -> set[str]:
    """Names of the Debian packages of the root file system."""
    names, status = set(), (root / "var/lib/dpkg/status").read_text(errors="replace")
    for block in status.split("\n\n"):
        if "\nStatus: install ok installed" in block:
            names.add(block.partition("\n")[0].removeprefix("Package: "))
    return names
