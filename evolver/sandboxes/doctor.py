"""Says what this machine has and lacks for sandboxes, one line per check, each with the command that mends it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from evolver.errors import NotReady
from evolver.sandboxes import recipe, rootfs

DISK_GB, MEMORY_GB = 6.0, 3.0
UP = "sudo evolver sandbox up"


@dataclass(frozen=True)
class Check:
    """`fix` is a command line; empty when there is nothing to mend."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def checks() -> list[Check]:
    """Quick (under two seconds) and without side effects."""
    return [*_docker(), _root_file_system(), *_bubblewrap(), _disk(), _memory()]


def _docker() -> list[Check]:
    client = shutil.which("docker")
    found = [
        Check(
            "docker client",
            client is not None,
            client or "not on the path",
            "" if client else "apt-get install docker.io",
        )
    ]
    try:
        from evolver.sandboxes.docker import connect, has_base

        daemon = connect(timeout_s=3)
        version, imported = str(daemon.version()["Version"]), has_base(daemon)
    except NotReady as error:
        return [
            *found,
            Check(
                "docker daemon",
                False,
                str(error),
                "systemctl start docker || nohup dockerd --storage-driver=overlay2 &",
            ),
        ]
    image = f"evolver/base:{recipe.base_digest()}"
    state = Check("docker image", imported, image if imported else f"{image} is not imported", "" if imported else UP)
    return [*found, Check("docker daemon", True, f"version {version}"), state]


def _root_file_system() -> Check:
    path = rootfs.rootfs_path()
    return Check(
        "root file system",
        path.is_dir(),
        str(path) if path.is_dir() else f"not built ({path})",
        "" if path.is_dir() else UP,
    )


def _bubblewrap() -> list[Check]:
    program = shutil.which("bwrap")
    if program is None:
        return [Check("bubblewrap", False, "not on the path", "apt-get install bubblewrap")]
    from evolver.sandboxes.local import FIRST_UID, WEAKER

    who = {"user": FIRST_UID, "group": FIRST_UID, "extra_groups": []} if os.geteuid() == 0 else {}
    argv = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", timeout=10, **who)  # type: ignore[call-overload]
    ok, fix = (
        done.returncode == 0,
        "sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0",
    )
    return [
        Check("bubblewrap", True, f"{program}; weaker than Docker: {'; '.join(WEAKER.values())}"),
        Check("user namespaces", ok, "work" if ok else str(done.stderr).strip()[:200], "" if ok else fix),
    ]


def _disk() -> Check:
    place = recipe.cache_dir()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 1e9
    return Check(
        "disk space",
        free >= DISK_GB,
        f"{free:.0f} GB free for {recipe.cache_dir()}",
        "" if free >= DISK_GB else "docker image prune",
    )


def _memory() -> Check:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) / 1e6
    return Check(
        "memory", free >= MEMORY_GB, f"{free:.1f} GB available", "" if free >= MEMORY_GB else "run with fewer workers"
    )
