"""Builds the one Debian root file system that every sandbox runs on; both back ends share it."""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from evolver.errors import NotReady, UsageError
from evolver.sandboxes import recipe

Say = Callable[[str], None]
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_SETTINGS = 'APT::Install-Recommends "false";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
UNREACHABLE = re.compile(
    r"Failed to fetch|Could not resolve|Temporary failure|Unable to connect|Retrying \(Retry|Network is unreachable"
)
APT_CLEAN = "rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt"
NO_DOCS = "".join(f"path-exclude=/usr/share/{part}/*\n" for part in ("doc", "man", "info", "locale", "help"))


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One builder at a time per name; the lock goes with the process, however it ends."""
    folder = recipe.cache_dir() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def rootfs_path() -> Path:
    """Where the root file system of today's recipe lies once built; the rename that puts it there is the last step."""
    places = [folder / "rootfs" / recipe.base_digest() for folder in (recipe.cache_dir(), recipe.SHARED_CACHE)]
    return next((place for place in places if place.is_dir()), places[0])


def host_mirror(etc_apt: Path = Path("/etc/apt")) -> str | None:
    """The Debian mirror of this machine, from sources.list or *.sources; None (Ubuntu): debootstrap knows one."""
    texts = [p.read_text(errors="replace") for p in [etc_apt / "sources.list"] if p.is_file()]
    folder = etc_apt / "sources.list.d"
    names = sorted(p for p in folder.iterdir() if p.suffix in (".list", ".sources")) if folder.is_dir() else []
    texts += [p.read_text(errors="replace") for p in names]
    for text in texts:
        for line in text.splitlines():
            match = re.match(r"\s*(?:deb\s+(?:\[[^]]*]\s*)?|URIs:\s*)(https?://\S+)", line)
            if match and re.search(r"/debian/?$", match[1]):
                return match[1].rstrip("/")
    return None


def _apt_settings() -> str:
    """Ours, and those of the host that decide whether its mirror answers (proxies, clock checks)."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    wanted = re.compile(r"^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date)\b")
    return APT_SETTINGS + "".join(f"{line}\n" for line in dump.splitlines() if wanted.match(line))


def build_rootfs(say: Say = lambda text: None) -> Path:
    """The root file system's directory, built first if it is missing (root only; 2 to 5 minutes, 1.5 GB).

    Safe under two builders (file lock) and under kill -9 (a half-built tree has another name and is swept next time).
    """
    final = rootfs_path()
    if final.is_dir():
        return final
    if os.geteuid() != 0:
        raise NotReady(f"the sandbox's root file system is not built ({final}): run `sudo evolver sandbox up`")
    for program in ("debootstrap", "chroot", "unshare"):
        if not recipe.on_path(program):
            raise NotReady(f"{program} is missing: apt-get install debootstrap util-linux")
    if not KEYRING.is_file():
        raise NotReady(f"Debian's keyring is missing ({KEYRING}): apt-get install debian-archive-keyring")
    with locked("rootfs"):
        if final.is_dir():
            return final
        final.parent.mkdir(parents=True, exist_ok=True)
        for left in final.parent.glob("*.partial"):
            shutil.rmtree(left)
        partial = final.with_suffix(".partial")
        _build(partial, say)
        partial.rename(final)
    return final


def _build(root: Path, say: Say) -> None:
    mirror = host_mirror()
    say(f"root file system: Debian {recipe.SUITE} from {mirror or 'the mirror that debootstrap knows'}")
    _run(["debootstrap", "--variant=minbase", f"--keyring={KEYRING}", "--include=ca-certificates",
          recipe.SUITE, str(root), *([mirror] if mirror else [])])  # fmt: skip
    (root / "etc/apt/apt.conf.d/90evolver").write_text(_apt_settings())
    (root / "etc/dpkg/dpkg.cfg.d/90evolver").write_text(NO_DOCS)
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    if mirror:  # without one, debootstrap has written the mirror that it used
        (root / "etc/apt/sources.list").write_text(f"deb {mirror} {recipe.SUITE} main\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    packages = recipe.TERMINAL_PACKAGES + recipe.DESKTOP_PACKAGES
    say(f"root file system: {len(packages)} packages (about two minutes)")
    chroot(root, "apt-get update -qq")
    chroot(root, "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq " + " ".join(packages))
    say("root file system: grader libraries and settings")
    download_wheels(recipe.GRADER_WHEELS, root / recipe.SITE.lstrip("/"))
    chroot(root, f"cd /tmp && apt-get download -qq {' '.join(recipe.GRADER_DEBS)}"
           " && for deb in *.deb; do dpkg -x $deb unpacked; done"
           f" && cp -r unpacked/usr/lib/python3/dist-packages/. {recipe.SITE}/")  # fmt: skip
    shutil.copy(Path(__file__).parent / "finish.sh", root / "tmp/finish.sh")
    chroot(root, "bash /tmp/finish.sh")


def extended_rootfs(base: Path, packages: Sequence[str]) -> Path:
    """The root file system with these Debian packages added, built once (root only; seconds to minutes).

    apt works in an overlay, so that no script of a package can change the base; what it left alone becomes hard links
    to the base's files. Raises UsageError that names a package which does not exist.
    """
    final = recipe.cache_dir() / "extended" / base.name / recipe.digest_of(*sorted(packages))
    if final.is_dir():
        return final
    if os.geteuid() != 0:
        raise UsageError(
            f"environment.apt: {', '.join(packages)}: adding to the base needs root, or the Docker back end"
        )
    if not recipe.on_path("rsync"):
        raise NotReady("rsync is missing: apt-get install rsync")
    with locked(f"extended-{final.name}"):
        if not final.is_dir():
            scratch = final.with_suffix(".partial")
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed builder left
            scratch.mkdir(parents=True)
            try:
                _extend(base, packages, scratch)
                (scratch / "tree").rename(final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return final


def _extend(base: Path, packages: Sequence[str], scratch: Path) -> None:
    install = f"apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {' '.join(packages)}"
    try:
        _run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", EXTEND, "-",
              str(base), str(scratch), f"{install} && {APT_CLEAN}"])  # fmt: skip
    except NotReady as error:
        raise why_no_package(packages, str(error)) from error


EXTEND = """
mkdir "$2/upper" "$2/work" "$2/merged"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/merged"
mount -t proc proc "$2/merged/proc"
chroot "$2/merged" /bin/sh -c "$3"
umount "$2/merged/proc"
rsync --archive --hard-links --numeric-ids --link-dest="$1" "$2/merged/" "$2/tree/"
"""


def old_trees() -> dict[Path, int]:
    """Directory → bytes of what the cache holds of other versions; hard links count once."""
    cache, used = recipe.cache_dir(), recipe.base_digest()
    old = [path for name in ("rootfs", "extended") for path in sorted(cache.glob(f"{name}/*")) if path.name != used]
    if not old:
        return {}
    argv = ["du", "--summarize", "--block-size=1", *map(str, [*cache.glob(f"rootfs/{used}"), *old])]
    sizes = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    by_path = {Path(path): int(size) for size, _, path in (line.partition("\t") for line in sizes)}
    return {path: by_path.get(path, 0) for path in old}


def why_no_package(packages: Sequence[str], text: str) -> UsageError | NotReady:
    """The error for a failed apt-get install, from what it printed: a mirror that does not answer says nothing about
    the packages."""
    if UNREACHABLE.search(text):
        return NotReady(f"the package mirror does not answer, so {', '.join(packages)} can't be had: try again later")
    unknown = re.findall(r"Unable to locate package (\S+)|Package '?(\S+?)'? has no installation candidate", text)
    names = sorted({name for pair in unknown for name in pair if name})
    if names:
        return UsageError(f"environment.apt: Debian {recipe.SUITE} has no package {', '.join(names)}")
    return UsageError(f"environment.apt {', '.join(packages)}: the packages were not installed: {text[-400:].strip()}")


def chroot(root: Path, command: str) -> None:
    """Runs a shell command in the tree, in mount and process namespaces of its own: nothing stays mounted."""
    _run(["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc",
          "chroot", str(root), "/bin/sh", "-c", command])  # fmt: skip


def _run(argv: list[str]) -> None:
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, env=env)
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-800:].strip()
        raise NotReady(f"building the root file system failed (exit {done.returncode}): {' '.join(argv)[:200]}\n{tail}")


def download_wheels(names: tuple[str, ...], target: Path, *, alone: bool = False) -> None:
    """Unpacks wheels and what they depend on into `target`, for the sandbox's Python 3.11; runs none of their code.
    `alone` leaves out what they depend on.

    Raises `UsageError` with pip's own reason when a package can't be had, NotReady when the index does not answer.
    """
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(target), "--no-compile",
            "--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp",
            *(["--no-deps"] if alone else []), *names]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        if UNREACHABLE.search(done.stderr):
            raise NotReady(f"the package index does not answer, so {', '.join(names)} can't be had: try again later")
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-3:]
        raise UsageError(f"pip packages {', '.join(names)}: {' '.join(errors)[:500]}")


def inside_layer() -> Path:
    """The directory with the programs that run in the sandbox, compiled, in the cache."""
    final = recipe.cache_dir() / "inside" / recipe.inside_digest()
    if final.is_dir():
        return final
    with locked("inside"):
        if not final.is_dir():
            partial = final.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for path in recipe.inside_files():
                shutil.copy(path, partial)
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(
                partial, quiet=2, stripdir=str(partial), prependdir=recipe.INSIDE, invalidation_mode=mode
            )
            partial.rename(final)
    return final


def pip_layer(names: tuple[str, ...], *, alone: bool = False) -> Path:
    """The directory that holds exactly these pip packages (and what they need, unless `alone`), downloaded once."""
    final = recipe.cache_dir() / "pip" / recipe.digest_of(*sorted(names), *(["alone"] if alone else []))
    if final.is_dir():
        return final
    with locked(f"pip-{final.name}"):
        if not final.is_dir():
            partial = final.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            download_wheels(tuple(sorted(names)), partial, alone=alone)
            partial.rename(final)
    return final
