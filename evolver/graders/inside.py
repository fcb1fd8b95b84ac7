"""Runs one check program beside a frozen home, inside a clean sandbox; prints one JSON object about what came of it.

Usage: inside.py CHECK_SHA256 TIMEOUT_S, in a folder that holds check.py, gt/, lib/ and home.tar. Standard library only.
The home was written by whoever is graded: its archive is unpacked without ever leaving or following anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

MAX_PRINTED = 12_000
LIVE = "/home/user"  # what an absolute link of the agent means by its home


def unpack(archive: Path, home: Path) -> list[str]:
    """Unpacks into the new folder `home`; returns what was left out: devices, and links or names that lead outside.

    Modes and times are kept, since tasks ask for them (tarfile's own filters change modes), without set-id bits and
    never less than the owner needs to read. Symbolic links come last, so nothing is ever written through one, and keep
    their text, since tasks ask for that, too.
    """
    home.mkdir(mode=0o700)
    links: list[tarfile.TarInfo] = []
    folders: list[tuple[Path, tarfile.TarInfo]] = []
    dropped: list[str] = []
    with tarfile.open(archive, "r:") as tar:
        for member in tar:
            path = _below(home, member.name)
            if path == home:
                continue
            if path is None or not (member.isdir() or member.isreg() or member.islnk() or member.issym()):
                dropped.append(member.name)
            elif member.issym():
                links.append(member)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.isdir():
                    path.mkdir(exist_ok=True)
                    folders.append((path, member))
                elif not _copy(tar, member, path, home):
                    dropped.append(member.name)
    for member in links:
        path = _below(home, member.name)
        if path is None or os.path.lexists(path) or not _stays(home, path, PurePosixPath(member.linkname)):
            dropped.append(member.name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(member.linkname)
    for path, member in reversed(folders):
        path.chmod((member.mode & 0o777) | 0o700)
        os.utime(path, (member.mtime, member.mtime))
    return dropped


def _below(home: Path, name: str) -> Path | None:
    pure = PurePosixPath(name)
    return None if pure.is_absolute() or ".." in pure.parts else home.joinpath(*pure.parts)


def _stays(home: Path, path: Path, target: PurePosixPath) -> bool:
    """Whether the link `path` leads into the home or to a program of the system, whatever the other links are: its `..`
    stand in front and are no more than the real folders that it lies in."""
    if any(folder.is_symlink() for folder in path.parents if folder != home and folder.is_relative_to(home)):
        return False
    if target.is_absolute():
        return ".." not in target.parts and any(target.is_relative_to(place) for place in (LIVE, "/usr"))
    rest = list(target.parts)
    up = next((n for n, part in enumerate(rest) if part != ".."), len(rest))
    return ".." not in rest[up:] and up < len(path.relative_to(home).parts)


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, home: Path) -> bool:
    """Writes a regular file, or the copy that a hard link stands for; False when there is nothing to copy from."""
    if member.islnk():
        origin = _below(home, member.linkname)
        if origin is None or not (os.path.lexists(origin) and stat.S_ISREG(os.lstat(origin).st_mode)):
            return False
        with origin.open("rb") as source, path.open("xb") as target:
            shutil.copyfileobj(source, target)
    else:
        packed = tar.extractfile(member)
        if packed is None or os.path.lexists(path):
            return False
        with packed, path.open("xb") as target:
            shutil.copyfileobj(packed, target)
    path.chmod((member.mode & 0o777) | 0o400)
    os.utime(path, (member.mtime, member.mtime))
    return True


def state_of(folder: Path) -> str:
    """A hash over names, types, modes, sizes and times of everything below `folder`."""
    sha = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            found = os.lstat(Path(root, name))
            sha.update(
                f"{root}/{name}\0{found.st_mode} {found.st_size} {found.st_mtime_ns}\0".encode("utf-8", "replace")
            )
    return sha.hexdigest()


def run(folder: Path, check_sha256: str, timeout_s: float) -> dict[str, object]:
    """Unpacks, makes sure that check.py still is the one that was asked for, runs it, and looks whether it was pure."""
    home, check = folder / "home", folder / "check.py"
    dropped = unpack(folder / "home.tar", home)
    (folder / "home.tar").unlink()
    (folder / "cwd").mkdir()
    before = state_of(home)
    if hashlib.sha256(check.read_bytes()).hexdigest() != check_sha256:
        return {"failed": "check.py is not the program that the task names"}
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "cwd"),
        "PYTHONPATH": f"{folder / 'lib'}:/opt/evolver/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    argv = [sys.executable, "-s", str(check), str(home), str(folder / "gt")]
    try:
        ran = subprocess.run(
            argv, env=environment, cwd=folder / "cwd", stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no verdict within {timeout_s:g} s"}
    said = ran.stderr.decode("utf-8", "replace")[-380:]  # an explanation has room for this
    if ran.returncode != 0:
        return {"failed": f"exit code {ran.returncode}: {said.strip()}"}
    if len(ran.stdout) > MAX_PRINTED:
        return {"failed": f"printed {len(ran.stdout)} bytes, more than {MAX_PRINTED}"}
    if state_of(home) != before:
        return {"failed": "the check changed the state that it grades"}
    return {"printed": ran.stdout.decode("utf-8", "replace"), "dropped": len(dropped)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path.cwd(), sys.argv[1], float(sys.argv[2]))))
