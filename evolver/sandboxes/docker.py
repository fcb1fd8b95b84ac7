"""Sandboxes as hardened Docker containers: no network, no mounts, control over the container's own stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import struct
import subprocess
import tarfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol, cast

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound, NotFound

from evolver.errors import NotReady, SandboxLost
from evolver.protocols import Sandbox
from evolver.sandboxes import recipe, rootfs
from evolver.sandboxes.egress import INTERNET, Egress, Outside
from evolver.sandboxes.machine import Machine, Wire
from evolver.sandboxes.pool import Pool, log
from harnesses.harness import Environment

BASE, DERIVED = "evolver/base", "evolver/sandbox"
LABEL = "evolver.run"
STDERR = 2
EXPIRY_SLACK_S = 60.0


def connect(timeout_s: float = 60.0) -> docker.DockerClient:
    """A client whose daemon has answered; raises NotReady with the reason."""
    try:
        client = docker.from_env(timeout=timeout_s, max_pool_size=32)
        client.ping()
    except (DockerException, OSError) as error:
        raise NotReady(f"no Docker daemon answers ({str(error)[:160]}): start it, or use the local back end") from error
    return client


def boot_id() -> str:
    """Names the boot and the process namespace, within which pids and the monotonic clock mean the same."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"


def process_mark(pid: int) -> str:
    """`pid:start time`, so that a reused pid is another process; empty if there is none."""
    try:
        return f"{pid}:{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""


def reap(client: docker.DockerClient, now: float | None = None) -> int:
    """Removes containers whose owner is dead, or, where that can't be known (another boot, another machine's daemon),
    whose time is over; returns how many. On this boot the wall clock has no say: it jumps when a laptop sleeps, while
    each container ends by the monotonic clock of its own PID 1."""
    gone, boot, at = 0, boot_id(), time.time() if now is None else now
    for found in client.api.containers(all=True, filters={"label": LABEL}):
        labels: dict[str, str] = found["Labels"]
        mark = labels.get("evolver.pid", "")
        if labels.get("evolver.boot") == boot:
            over = mark != process_mark(int(mark.partition(":")[0] or 0))
        else:
            over = float(labels.get("evolver.expiry", "0")) < at
        if over:
            remove(client, found["Id"])
            gone += 1
    return gone


def remove(client: docker.DockerClient, container_id: str) -> None:
    """Removes a container and waits until it is gone; one that is gone already is fine."""
    for attempt in range(3):
        try:
            client.api.remove_container(container_id, force=True, v=True)
            return
        except NotFound:
            return
        except APIError as error:
            if error.status_code != 409 and attempt == 2:
                raise
            time.sleep(0.05)  # its own --rm is at work
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            client.api.inspect_container(container_id)
        except NotFound:
            return
        time.sleep(0.05)
    raise DockerException(f"container {container_id[:12]} is not removed after 10 s")


class DockerSandboxes(Pool):
    """`protocols.Sandboxes` on a Docker daemon."""

    name: Literal["docker", "local"] = "docker"

    def __init__(
        self,
        client: docker.DockerClient,
        *,
        spares: int = 1,
        say: rootfs.Say = lambda text: None,
        outside: Outside = INTERNET,
    ) -> None:
        super().__init__(spares)
        self._client, self._say, self._outside, self.owner = client, say, outside, uuid.uuid4().hex
        self._cpus = float(client.info()["NCPU"])
        self._images: dict[str, str] = {}
        self._building = threading.Lock()

    async def prepare(self, environment: Environment) -> str:
        tag = recipe.environment_digest(environment)
        if tag not in self._images:
            self._images[tag] = await asyncio.to_thread(self._image, environment, tag)
        return self._images[tag]

    def _image(self, environment: Environment, tag: str) -> str:
        with self._building:
            return ensure_image(self._client, environment, tag, self._say)

    async def _start(self, environment: Environment, *, run_id: str, ttl_s: float) -> Machine:
        image = await self.prepare(environment)
        try:
            container, wire = await asyncio.to_thread(self._create, environment, image, run_id, ttl_s)
        except (DockerException, OSError) as error:
            raise SandboxLost(f"the container did not start: {str(error)[:300]}") from error
        stream = await Attached.open(wire, lambda: self._died(container))
        screen = environment.screen if environment.image == "desktop" else None
        egress = Egress(environment.allowlist, self._outside) if environment.network == "allowlist" else None

        async def end() -> None:
            stream.close()
            try:
                await asyncio.to_thread(remove, self._client, container)
            except (DockerException, OSError) as error:  # the score survives; aclose tries again
                log.warning("container %s was not removed: %s", container[:12], error)
            self._ended(machine)

        machine = Machine(container[:12], image, screen, Wire(stream.receive, stream.send, stream.died), end, egress)
        try:
            if egress is not None:
                relay = await asyncio.to_thread(self._relay, container)
                await egress.start(await Attached.open(relay, lambda: self._died(container)))
        except (DockerException, OSError) as error:
            await machine.close()
            raise SandboxLost(f"the sandbox's proxy did not start: {str(error)[:300]}") from error
        except BaseException:
            await machine.close()
            raise
        return machine

    async def open(self, environment: Environment, *, run_id: str, ttl_s: float, rollout_id: str = "") -> Sandbox:
        machine = await super().open(environment, run_id=run_id, ttl_s=ttl_s)
        if rollout_id:  # a label can't be changed when a spare is taken, a name can
            with contextlib.suppress(DockerException, OSError):
                await asyncio.to_thread(self._client.api.rename, machine.id, f"evolver-{rollout_id}")
        return machine

    def _create(self, environment: Environment, image: str, run_id: str, ttl_s: float) -> tuple[str, socket.socket]:
        api = self._client.api
        container: str = api.create_container(
            image, recipe.server_command(environment, ttl_s), user="0:0", working_dir="/", stdin_open=True,
            network_disabled=True, hostname="desk", host_config=api.create_host_config(**self._bounds(environment)),
            labels={LABEL: run_id, "evolver.pid": process_mark(os.getpid()), "evolver.boot": boot_id(),
                    "evolver.owner": self.owner, "evolver.expiry": f"{time.time() + ttl_s + EXPIRY_SLACK_S:.0f}"},
        )["Id"]  # fmt: skip
        try:
            raw = _own(api.attach_socket(container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}))
            api.start(container)
        except (DockerException, OSError):
            remove(self._client, container)
            raise
        return container, raw

    def _relay(self, container: str) -> socket.socket:
        """Starts the sandbox's end of its way out, as a user whom the agent can't signal."""
        command = ["/usr/bin/python3", "-I", "-S", f"{recipe.INSIDE}/relay.py", str(recipe.PROXY_PORT)]
        who = f"{recipe.RELAY_UID}:{recipe.RELAY_UID}"
        started = self._client.api.exec_create(container, command, stdin=True, user=who, workdir="/")
        return _own(self._client.api.exec_start(started["Id"], socket=True))

    def _bounds(self, environment: Environment) -> dict[str, object]:
        """Hardened, and bounded in memory, processes, CPU and disk. PID 1 keeps just what it takes to become the
        agent's and the screen's user and to kill the agent's processes; those users have no capability at all."""
        limits, own = environment.limits, f"rw,exec,nosuid,nodev,size={environment.limits.disk_mb}m"
        agent = f"uid={recipe.AGENT_UID},gid={recipe.AGENT_UID},mode=0755"
        screen = f"uid={recipe.SCREEN_UID},gid={recipe.SCREEN_UID},mode=0755"
        return {
            "network_mode": "none", "cap_drop": ["ALL"], "cap_add": ["SETUID", "SETGID", "KILL"],
            "security_opt": ["no-new-privileges"], "read_only": True, "ipc_mode": "private", "auto_remove": True,
            "log_config": {"Type": "none"}, "shm_size": "128m", "pids_limit": limits.pids,
            "mem_limit": f"{limits.memory_mb}m", "memswap_limit": f"{limits.memory_mb}m",
            "nano_cpus": int(min(limits.cpus, self._cpus) * 1e9),
            "tmpfs": {"/tmp": f"{own},mode=1777", "/home/user": f"{own},{agent}",
                      "/run/screen": f"rw,nosuid,nodev,size=256m,{screen}",
                      "/harness": f"{own},{agent}", "/evidence": f"{own},mode=0755"},
        }  # fmt: skip

    async def _died(self, container: str) -> str:
        try:
            state = (await asyncio.to_thread(self._client.api.inspect_container, container))["State"]
        except (DockerException, OSError):
            return "the container is gone (out of memory, its time was over, or it was removed from outside)"
        return f"exit code {state['ExitCode']}" + (", out of memory" if state["OOMKilled"] else "")

    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.to_thread(self._sweep)

    def _sweep(self) -> None:
        """Whatever carries this back end's label and is still there: removals that failed, starts that were cut off.
        What can't be removed now either is named; its server has ended with the connection, and `reap` finds it."""
        try:
            for found in self._client.api.containers(all=True, filters={"label": f"evolver.owner={self.owner}"}):
                remove(self._client, found["Id"])
        except (DockerException, OSError) as error:
            log.error("containers may be left over (%s): run `evolver sandbox reap`", str(error)[:300])


class Attached:
    """The hijacked connection of an attached container: raw bytes in, stdout and stderr in 8-byte-headed frames out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, why: Died) -> None:
        self._reader, self._writer, self._why = reader, writer, why
        self._stdout, self._stderr = bytearray(), b""

    @classmethod
    async def open(cls, raw: socket.socket, why: Died) -> Attached:
        raw.setblocking(False)
        return cls(*await asyncio.open_connection(sock=raw, limit=1 << 22), why)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self, size: int) -> bytes:
        while len(self._stdout) < size:
            kind, length = struct.unpack(">BxxxI", await self._reader.readexactly(8))
            data = await self._reader.readexactly(length)
            if kind == STDERR:
                self._stderr = (self._stderr + data)[-2_000:]
            else:
                self._stdout += data
        data = bytes(self._stdout[:size])
        del self._stdout[:size]
        return data

    async def died(self) -> str:
        return self._stderr.decode(errors="replace").strip()[-300:] or await self._why()

    def close(self) -> None:
        self._writer.close()


class _Hijacked(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


def _own(connection: _Hijacked) -> socket.socket:
    """The socket under the client's wrapper."""
    raw = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    return raw


class Died(Protocol):
    async def __call__(self) -> str: ...


def has_base(client: docker.DockerClient) -> bool:
    """Whether today's root file system is imported."""
    try:
        client.api.inspect_image(f"{BASE}:{recipe.base_digest()}")
    except ImageNotFound:
        return False
    return True


def old_images(client: docker.DockerClient) -> dict[str, int]:
    """Name → bytes of the images that this version does not use; what they share with a base counts with the base."""
    found = {}
    for image in client.api.df()["Images"] or ():
        labels = image["Labels"] or {}
        for name in image["RepoTags"] or ():
            repository, _, tag = name.partition(":")
            if repository == BASE and tag != recipe.base_digest():
                found[name] = image["Size"]
            elif repository == DERIVED and {key: labels.get(key) for key in version()} != version():
                found[name] = image["Size"] - image["SharedSize"]
    return found


def remove_image(client: docker.DockerClient, name: str) -> str:
    """Empty, or why it stays."""
    try:
        client.api.remove_image(name)
    except APIError as error:
        return str(error.explanation or error)[:200]
    return ""


def version() -> dict[str, str]:
    """The labels of images that this version builds."""
    return {"evolver.base": recipe.base_digest(), "evolver.inside": recipe.inside_digest()}


# --- images ----------------------------------------------------------------------------------------------------


def ensure_image(client: docker.DockerClient, environment: Environment, tag: str, say: rootfs.Say) -> str:
    """The id of the environment's image; imports the base and builds the layer if they are missing."""
    try:
        return cast(str, client.api.inspect_image(f"{DERIVED}:{tag}")["Id"])
    except ImageNotFound:
        pass
    with rootfs.locked("image"):
        if not has_base(client):
            _import(client, rootfs.build_rootfs(say), say)
        _derive(client, environment, f"{BASE}:{recipe.base_digest()}", f"{DERIVED}:{tag}", say)
    return cast(str, client.api.inspect_image(f"{DERIVED}:{tag}")["Id"])


def _import(client: docker.DockerClient, root: Path, say: rootfs.Say) -> None:
    say("importing the root file system into Docker")
    left_out = [f"--exclude=./{name}/*" for name in ("proc", "sys", "dev")]
    argv = ["tar", "--create", "--file=-", "--numeric-owner", *left_out, f"--directory={root}", "."]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as tar:
        client.api.import_image_from_stream(tar.stdout, repository=BASE, tag=root.name)
    if tar.returncode != 0:
        raise NotReady(f"reading {root} failed (tar exit {tar.returncode})")


def _derive(client: docker.DockerClient, environment: Environment, base: str, tag: str, say: rootfs.Say) -> None:
    layers = {recipe.INSIDE: rootfs.inside_layer()}
    if environment.pip:
        say(f"environment: pip {', '.join(environment.pip)}")
        layers[recipe.AGENT_SITE] = rootfs.pip_layer(environment.pip)
    lines = [f"FROM {base}", *recipe.IMAGE_STEPS]
    if environment.apt:
        say(f"environment: apt {', '.join(environment.apt)}")
        lines.append(
            "RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
            f"{' '.join(sorted(environment.apt))} && {rootfs.APT_CLEAN}"
        )
    lines += [f"COPY layer{number}/ {target}/" for number, target in enumerate(layers)]
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        text = "\n".join(lines).encode()
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
        for number, folder in enumerate(layers.values()):
            tar.add(folder, f"layer{number}", filter=_owned_by_root)
    context.seek(0)
    try:
        client.images.build(fileobj=context, custom_context=True, tag=tag, labels=version(), rm=True, forcerm=True)
    except BuildError as error:
        raise rootfs.why_no_package(environment.apt, _log_text(error)) from error


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _log_text(error: BuildError) -> str:
    parts: Iterator[object] = iter(error.build_log)
    return "".join(str(part.get("stream", "")) for part in parts if isinstance(part, dict))
