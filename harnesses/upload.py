"""A harness that comes in through a browser: checked before a byte of it is kept, never unpacked onto the disk."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping

from harnesses.tree import MAX_FILES, HarnessError, Tree

MAX_UPLOAD = 1_000_000
PARTS = {"files", "prompt", "tools"}  # the folders of a harness itself
_UNIX = 3  # the system under which a zip entry carries a file mode
_ENCRYPTED = 0x1


def read_zip(data: bytes) -> Tree:
    """The files of a zipped harness directory. Raises `HarnessError` for what is no zip, is larger than `MAX_UPLOAD`
    (packed or unpacked), or holds a link, a locked entry or a path that leads out."""
    _check_size(len(data), "the zip")
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    left = MAX_UPLOAD
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = [entry for entry in packed.infolist() if not entry.is_dir()]
            if len(entries) > MAX_FILES:
                raise HarnessError(f"the zip: expected at most {MAX_FILES} files, got {len(entries):,}")
            for entry in entries:
                _check_entry(entry, files)
                with packed.open(entry) as opened:
                    files[entry.filename] = opened.read(left + 1)  # what an entry says of its own size may be a lie
                left -= len(files[entry.filename])
                _check_size(MAX_UPLOAD - left, "the unpacked files")
                if entry.create_system == _UNIX and (entry.external_attr >> 16) & 0o100:
                    executable.add(entry.filename)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError) as error:
        if isinstance(error, HarnessError):
            raise
        raise HarnessError(f"the zip: can't be read: {error}") from error
    return _from_top(files, executable | {path for path, data in files.items() if data[:2] == b"#!"})


def read_folder(files: Mapping[str, bytes]) -> Tree:
    """The files of an uploaded directory, by their paths in it. Raises `HarnessError` as `read_zip` does."""
    if len(files) > MAX_FILES:
        raise HarnessError(f"the directory: expected at most {MAX_FILES} files, got {len(files):,}")
    _check_size(sum(map(len, files.values())), "the directory")
    for path in files:
        _check_path(path)
    return _from_top(files, Tree(files).executable)


def _check_size(size: int, what: str) -> None:
    if size > MAX_UPLOAD:
        raise HarnessError(f"{what}: expected at most {MAX_UPLOAD:,} bytes")


def _check_entry(entry: zipfile.ZipInfo, known: Mapping[str, bytes]) -> None:
    name = entry.filename
    _check_path(name)
    if name in known:
        raise HarnessError(f"{name}: expected each file once, got it twice")
    mode = entry.external_attr >> 16 if entry.create_system == _UNIX else 0
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        kind = "symbolic link" if stat.S_ISLNK(mode) else "special one"
        raise HarnessError(f"{name}: expected a plain file, got a {kind}")
    if entry.flag_bits & _ENCRYPTED:
        raise HarnessError(f"{name}: expected a file that can be read, got one behind a password")


def _check_path(path: str) -> None:
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise HarnessError(f"{path[:80]!r}: expected a relative path of plain names")


def _from_top(files: Mapping[str, bytes], executable: set[str] | frozenset[str]) -> Tree:
    """The tree without the one folder in which all of it lies, if there is such a folder, and without a `.git`."""
    tops = {path.partition("/")[0] for path in files}
    if len(tops) == 1 and not tops & PARTS and all("/" in path for path in files):
        cut = len(tops.pop()) + 1
        files = {path[cut:]: data for path, data in files.items()}
        executable = {path[cut:] for path in executable}
    if not files:
        raise HarnessError("expected the files of a harness, got none")
    kept = {path: data for path, data in files.items() if not path.startswith(".git/")}
    return Tree(kept, executable)
