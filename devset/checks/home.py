"""The frozen home as the checks see it: hostile bytes, read with bounds and without ever following a link.

The state was written by whoever the task was given to, so a path may be a link out of the home, a device, or far too
large. Everything that is wrong with *their* bytes is a `Wrong` (value 0 with an explanation); any other exception is a
bug of the checker and ends the program with a traceback (unscored).
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MAX_BYTES = 8 * 2**20
MAX_ENTRIES = 20_000
LOCK_FILE = ".~lock.*#"


class Wrong(Exception):
    """The state does not satisfy the check; the message says what was found."""


def _parts(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ValueError(f"a check's path must be relative to the home and inside it, got {path!r}")
    return pure.parts


def locate(home: Path, path: str) -> os.stat_result | None:
    """`lstat` of `path` below `home`, or None when it is missing or any part of it is a link."""
    here = home
    found: os.stat_result | None = None
    for part in _parts(path):
        if found is not None and not stat.S_ISDIR(found.st_mode):
            return None
        here = here / part
        try:
            found = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(found.st_mode):
            return None
    return found


def read_bytes(home: Path, path: str) -> bytes:
    """The bytes of a regular file of at most `MAX_BYTES`; raises `Wrong` for anything else."""
    found = locate(home, path)
    if found is None:
        raise Wrong(f"{path} is missing")
    if not stat.S_ISREG(found.st_mode):
        raise Wrong(f"{path} is not a regular file")
    if found.st_size > MAX_BYTES:
        raise Wrong(f"{path} has {found.st_size} bytes, more than {MAX_BYTES}")
    fd = os.open(home / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        return file.read(MAX_BYTES + 1)[:MAX_BYTES]


def read_text(home: Path, path: str) -> str:
    """UTF-8 text (a byte order mark is dropped) with `\\n` line ends; raises `Wrong` when it is not text."""
    try:
        text = read_bytes(home, path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Wrong(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def names(home: Path, path: str) -> list[str]:
    """Sorted names in a folder, without the lock files that office programs leave while a document is open."""
    found = locate(home, path)
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise Wrong(f"folder {path} is missing")
    return sorted(_entries(home / path))


def _entries(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= MAX_ENTRIES:
                raise Wrong(f"{folder.name} has more than {MAX_ENTRIES} entries")
            if not fnmatch.fnmatchcase(entry.name, LOCK_FILE):
                yield entry.name


def revive(home: Path, live: Path) -> None:
    """Puts a copy of the frozen home at `live`, where programs look for it; what lay there is removed."""
    for left in live.iterdir() if live.is_dir() else ():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    shutil.copytree(home, live, symlinks=True, dirs_exist_ok=True)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
