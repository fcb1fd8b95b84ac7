"""Picks the back end: Docker when a daemon answers, else bubblewrap on this machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from evolver.errors import NotReady
from evolver.protocols import Sandboxes
from evolver.sandboxes.egress import INTERNET, Outside
from evolver.sandboxes.rootfs import Say, old_trees

Kind = Literal["auto", "docker", "local"]


def say_to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def open_backend(
    kind: Kind = "auto", spares: int = 1, say: Say = say_to_stderr, outside: Outside = INTERNET
) -> Sandboxes:
    """A back end (close it with `aclose`). `auto` falls back to local without a Docker daemon and says why.

    `outside` is what sandboxes with an allow-list reach.
    Raises NotReady when the back end asked for can't be had on this machine.
    """
    if kind != "local":
        try:
            from evolver.sandboxes.docker import DockerSandboxes, connect, reap

            client = connect()
            reap(client)
            return DockerSandboxes(client, spares=spares, say=say, outside=outside)
        except NotReady as error:
            if kind == "docker":
                raise
            say(f"sandboxes: {error}; using bubblewrap")
    from evolver.sandboxes.local import LocalSandboxes

    return LocalSandboxes(spares=spares, say=say, outside=outside)


def old_versions(remove: bool = False) -> dict[str, tuple[int, str]]:
    """What images and root file systems of other versions take: name → (bytes, why it could not be removed).

    Removes them if told so; other versions build theirs again when they need them.
    """
    from evolver.sandboxes.docker import connect, old_images, remove_image

    found = {}
    try:
        client = connect()
    except NotReady:
        pass  # no daemon, no images
    else:
        for name, size in sorted(old_images(client).items(), reverse=True):  # sandbox images before their bases
            found[name] = size, remove_image(client, name) if remove else ""
    for path, size in old_trees().items():
        found[str(path)] = size, _removed(path) if remove else ""
    return found


def _removed(path: Path) -> str:
    try:
        shutil.rmtree(path)
    except OSError as error:
        return str(error)
    return ""


def reap() -> int:
    """Removes what dead or expired runs left behind; 0 without a daemon (local sandboxes die with their owner)."""
    from evolver.sandboxes.docker import connect
    from evolver.sandboxes.docker import reap as reap_containers

    try:
        client = connect()
    except NotReady:
        return 0
    return reap_containers(client)
