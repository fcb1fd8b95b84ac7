"""Files of a run directory that survive crashes, power losses and other writers."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from evolver.errors import UsageError

Kind = TypeVar("Kind", bound=BaseModel)


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turns what a disk can refuse into one clear line (`UsageError`)."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UsageError(f"disk full at {path}: free some space and run the same command again") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            raise UsageError(f"can't write {path}: {error.strerror}") from error
        raise


def sync(paths: Iterable[Path]) -> None:
    """Returns when what files hold is on the disk, and which names folders hold."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def locked(path: Path, how: int) -> Iterator[int]:
    """A file's descriptor while it is locked by `how` (of fcntl); one that is locked alone may be new."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT if how == fcntl.LOCK_EX else os.O_RDONLY, 0o644)
    try:
        fcntl.flock(fd, how)
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Raises OSError when the disk has no room for all of it."""
    if os.write(fd, data) != len(data):  # a short write to a file means that the disk is full
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace(path: Path, data: bytes, *, only_new: bool = False) -> None:
    """Writes a file whole or not at all, and durably; `only_new` leaves one that exists meanwhile."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        if only_new:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return
        else:
            temporary.replace(path)
        sync((path.parent,))
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, so that a power loss leaves them."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync((path.parent,))


def append_line(path: Path, line: str) -> None:
    """Adds a line to a log, durably; folders are made, and half a line that a crash left is ended first."""
    make_folder(path.parent.resolve())
    cut = path.is_file() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as lines:
        lines.write(("\n" if cut else "") + line + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def records_in(path: Path, kind: type[Kind]) -> Iterator[Kind]:
    """What a log holds of this kind, in order; a line that a crash cut off, or of another version, is none.

    Only a newline ends a line: JSON may hold U+2028 and its like as they are.
    """
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []:
        with suppress(ValidationError):
            yield kind.model_validate_json(line)
