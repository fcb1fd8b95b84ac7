"""Sandboxes as bubblewrap namespaces on this machine: the same programs, weaker bounds than Docker's."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evolver.errors import NotReady, SandboxLost
from evolver.sandboxes import recipe, rootfs
from evolver.sandboxes.egress import INTERNET, Egress, Outside
from evolver.sandboxes.machine import Machine, Wire
from evolver.sandboxes.pool import Pool
from harnesses.harness import Environment

FIRST_UID, USERS = 361_000, 4_096  # started by root, each sandbox runs as a user of its own, see `own_user`
WEAKER = {
    "memory": "memory is bounded per process, not in all",
    "cpu": "no CPU bound",
    "screen": "control, screen and agent share one user: the agent can end its own screen, though not control",
    "witness": "a task's witness shares the agent's user: it can be ended, and its memory read",
    "apt": "apt packages beyond the base need root",
}


@dataclass(frozen=True)
class Built:
    """What an environment runs on: a root file system, and directories that lie in it read-only (place → directory)."""

    root: Path
    layers: Mapping[str, Path]


def bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise NotReady("bubblewrap is missing: apt-get install bubblewrap")
    return found


@functools.cache
def _nested() -> tuple[str, ...]:
    """What forbids namespaces within the sandbox, where the installed bubblewrap can (0.8)."""
    known = subprocess.run([bwrap(), "--help"], capture_output=True, text=True, check=False).stdout
    return ("--unshare-user", "--disable-userns") if "--disable-userns" in known else ()


def command_line(built: Built, environment: Environment, program: list[str]) -> list[str]:
    """The bubblewrap call."""
    limits = environment.limits
    argv = [
        "prlimit", f"--nproc={limits.pids}", f"--data={limits.memory_mb << 20}", "--core=0", bwrap(),
        "--unshare-all", *_nested(), "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv",
        "--cap-drop", "ALL", "--hostname", "desk", "--uid", str(recipe.AGENT_UID), "--gid", str(recipe.AGENT_UID),
        "--ro-bind", str(built.root), "/",
    ]  # fmt: skip
    for place, folder in built.layers.items():
        argv += ["--ro-bind", str(folder), place]
    argv += ["--proc", "/proc", "--dev", "/dev", "--size", str(128 << 20), "--tmpfs", "/dev/shm"]
    for place in ("/tmp", "/home/user", "/harness", "/evidence"):
        argv += ["--size", str(limits.disk_mb << 20), "--tmpfs", place]
    return [*argv, "--chdir", "/", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--", *program]


def own_user() -> tuple[int, socket.socket]:
    """A user that owns nothing here and that no other sandbox of this machine has while the socket is open, whichever
    process started it: the kernel bounds processes by user, so two sandboxes of one user would share one bound.

    What is claimed is the socket's name, which the kernel takes back from a process that dies. Raises NotReady when all
    are taken.
    """
    for uid in range(FIRST_UID, FIRST_UID + USERS):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0evolver-sandbox-{uid}")
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return uid, held
    raise NotReady(f"all {USERS:,} users of local sandboxes are taken: end some of the runs on this machine")


class LocalSandboxes(Pool):
    """`protocols.Sandboxes` without a daemon. What it can't bound stands in `WEAKER`, and doctor prints it."""

    name: Literal["docker", "local"] = "local"

    def __init__(self, *, spares: int = 1, say: rootfs.Say = lambda text: None, outside: Outside = INTERNET) -> None:
        super().__init__(spares)
        bwrap()
        self._say, self._outside = say, outside
        self._built: dict[str, Built] = {}

    async def prepare(self, environment: Environment) -> str:
        tag = recipe.environment_digest(environment)
        if tag not in self._built:
            self._built[tag] = await asyncio.to_thread(self._build, environment)
        return f"rootfs:{tag}"

    def _build(self, environment: Environment) -> Built:
        root = rootfs.build_rootfs(self._say)
        if set(environment.apt) - installed(root):
            self._say(f"environment: apt {', '.join(environment.apt)}")
            root = rootfs.extended_rootfs(root, environment.apt)
        layers = {recipe.INSIDE: rootfs.inside_layer()}
        if environment.pip:
            layers[recipe.AGENT_SITE] = rootfs.pip_layer(environment.pip)
        return Built(root, layers)

    async def _start(self, environment: Environment, *, run_id: str, ttl_s: float) -> Machine:
        digest = await self.prepare(environment)
        built = self._built[recipe.environment_digest(environment)]
        screen = environment.screen if environment.image == "desktop" else None
        way_out = socket.socketpair() if environment.network == "allowlist" else None
        relay_fd = None if way_out is None else way_out[1].fileno()
        argv = command_line(built, environment, recipe.server_command(environment, ttl_s, relay_fd))
        errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the machine
        uid, held = own_user() if os.geteuid() == 0 else (None, None)
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            env={"PATH": os.environ["PATH"]}, cwd="/", limit=1 << 22, user=uid, group=uid,
            extra_groups=None if uid is None else [], pass_fds=() if relay_fd is None else (relay_fd,),
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
            if held is not None:
                held.close()
            self._ended(machine)

        egress = None if way_out is None else Egress(environment.allowlist, self._outside)
        wire = Wire(reader.readexactly, send, died)
        machine = Machine(uuid.uuid4().hex[:12], digest, screen, wire, end, egress)
        if egress is not None and way_out is not None:
            way_out[1].close()
            try:
                await egress.start(Link(*await asyncio.open_connection(sock=way_out[0])))
            except BaseException:
                await machine.close()
                raise
        return machine


class Link:
    """The relay's connection: this end of a pair of sockets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.receive, self._writer = reader.readexactly, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


def installed(root: Path) -> set[str]:
    """Names of the Debian packages of the root file system."""
    names, status = set(), (root / "var/lib/dpkg/status").read_text(errors="replace")
    for block in status.split("\n\n"):
        if "\nStatus: install ok installed" in block:
            names.add(block.partition("\n")[0].removeprefix("Package: "))
    return names
