"""Atomic checks of files, folders and archives."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from devset.checks.home import MAX_BYTES, Wrong, locate, names, read_bytes, sha256


def file_is(home: Path, *, path: str, sha256_is: str) -> str:
    """`path` is a regular file with exactly these bytes."""
    found = sha256(read_bytes(home, path))
    if found != sha256_is:
        raise Wrong(f"{path} has other content than expected")
    return f"{path} has the expected content"


def absent(home: Path, *, path: str) -> str:
    """Nothing lies at `path` (a link there counts as something)."""
    if (home / path).is_symlink() or locate(home, path) is not None:
        raise Wrong(f"{path} is still there")
    return f"{path} is gone"


def folder_exists(home: Path, *, path: str) -> str:
    found = locate(home, path)
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise Wrong(f"folder {path} is missing")
    return f"folder {path} exists"


def folder_lists(home: Path, *, path: str, expected: Sequence[str]) -> str:
    """The folder holds exactly these names (lock files aside)."""
    found = names(home, path)
    if found != sorted(expected):
        raise Wrong(f"{path} holds {found[:20]}, expected {sorted(expected)}")
    return f"{path} holds exactly the expected {len(expected)} entries"


def permissions(home: Path, *, path: str, needed: str, forbidden: str = "0") -> str:
    """The file or folder has all mode bits of `needed` and none of `forbidden` (both octal, as in `100`)."""
    found = locate(home, path)
    if found is None:
        raise Wrong(f"{path} is missing")
    mode = stat.S_IMODE(found.st_mode)
    if mode & int(needed, 8) != int(needed, 8) or mode & int(forbidden, 8):
        raise Wrong(f"{path} has mode {mode:o}, expected the bits {needed} and none of {forbidden}")
    return f"{path} has mode {mode:o}"


def link_is(home: Path, *, path: str, target: str) -> str:
    """`path` is a symbolic link that says exactly `target` (a trailing slash aside); it is read, never followed."""
    parent = PurePosixPath(path).parent
    if parent.parts and locate(home, str(parent)) is None:
        raise Wrong(f"{path} is missing")
    if not (home / path).is_symlink():
        raise Wrong(f"{path} is no symbolic link")
    found = os.readlink(home / path).removeprefix("./").rstrip("/")
    if found != target:
        raise Wrong(f"{path} points to {found[:80]!r}, expected {target!r}")
    return f"{path} points to {target}"


def unchanged(home: Path, *, files: Mapping[str, str]) -> str:
    """The frame: every given file (path → sha256) still has its bytes."""
    for path, digest in files.items():
        if sha256(read_bytes(home, path)) != digest:
            raise Wrong(f"{path} was changed and should not have been")
    return f"{len(files)} other file(s) unchanged"


def archive_holds(home: Path, *, path: str, members: Mapping[str, str]) -> str:
    """A tar (any compression) or zip archive holds exactly these regular files (name → sha256); folders are ignored."""
    found = _members(path, read_bytes(home, path))
    if set(found) != set(members):
        raise Wrong(f"{path} holds {sorted(found)[:20]}, expected {sorted(members)}")
    for name, digest in members.items():
        if found[name] != digest:
            raise Wrong(f"{name} in {path} has other content than expected")
    return f"{path} holds the expected {len(members)} file(s)"


def _members(path: str, data: bytes) -> dict[str, str]:
    read = _zip_members if data[:2] == b"PK" else _tar_members
    try:
        return {name.removeprefix("./"): sha256(content) for name, content in read(data).items()}
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError) as error:
        raise Wrong(f"{path} is not a readable archive: {error}") from error


def _tar_members(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        left = MAX_BYTES
        for member in archive:
            left -= member.size
            if left < 0 or len(found) > 1000:
                raise Wrong("the archive unpacks to too much")
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                found[member.name] = content.read()
    return found


def _zip_members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = [i for i in archive.infolist() if not i.is_dir()]
        if sum(i.file_size for i in infos) > MAX_BYTES or len(infos) > 1000:
            raise Wrong("the archive unpacks to too much")
        return {i.filename: archive.read(i) for i in infos}
