"""What an author left, read from the tar of its frozen home and from nowhere else; nothing is unpacked or run."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass

from harnesses.tree import MAX_BYTES, MAX_DEPTH, MAX_FILES, Tree

FOLDER = "harness"  # of the home: the tree that is proposed
MANIFEST = "manifest.json"
MANIFEST_BYTES = 200_000
MOST_FAULTS = 10


@dataclass(frozen=True)
class Home:
    """The files of `harness/` (every one, but a top-level `.git`, as harnesses are read everywhere), the manifest's
    bytes (None without one), and what can't be part of a harness, a line each."""

    tree: Tree
    manifest: bytes | None
    faults: tuple[str, ...] = ()


def read_home(state: bytes) -> Home:
    """Reads the tar of a home. What is too large or too much is a fault, and then the tree is empty."""
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    manifest: bytes | None = None
    faults: list[str] = []
    size = 0
    with tarfile.open(fileobj=io.BytesIO(state)) as tar:
        for entry in tar:
            name = entry.name.removeprefix("./")
            if name == MANIFEST:
                fault = _fault(entry) or (
                    f"larger than {MANIFEST_BYTES:,} bytes" if entry.size > MANIFEST_BYTES else ""
                )
                faults += [f"{MANIFEST}: expected a plain file, got one that is {fault}"] if fault else []
                manifest = None if fault else _content(tar, entry)
            top, _, path = name.partition("/")
            if top != FOLDER or path.partition("/")[0] == ".git" or (path and entry.isdir()):
                continue
            fault = ("" if entry.isdir() else "no folder") if not path else _fault(entry)
            if fault:
                faults.append(f"{name[:120]!r}: expected a plain file, got one that is {fault}")
            elif path:
                size += entry.size
                if len(files) >= MAX_FILES or size > MAX_BYTES:
                    return Home(Tree({}), manifest, (f"harness/: expected at most {MAX_FILES} files and {MAX_BYTES:,} "
                                                     "bytes; it is back to what it was before",))  # fmt: skip
                files[path] = _content(tar, entry)
                executable |= {path} if entry.mode & 0o100 else set()
    return Home(Tree(files, executable), manifest, tuple(faults[:MOST_FAULTS]))


def _fault(entry: tarfile.TarInfo) -> str:
    """Why an entry is no plain file; empty when it is one."""
    if entry.issym():
        return "a symbolic link"
    if entry.islnk():
        return "a hard link (copy it instead)"
    if not entry.isreg():
        return "a folder or a special file"
    if not entry.name.isprintable():
        return "named with characters that can't be printed"
    return f"more than {MAX_DEPTH} folders deep" if entry.name.count("/") > MAX_DEPTH else ""


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    held = tar.extractfile(entry)
    return held.read() if held is not None else b""
