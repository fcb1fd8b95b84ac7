"""The harness library of a run, for reading: trees, names, tags, what differs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from threading import Lock

from dashboards.logs import Stamp
from harnesses.diff import Diff, diff
from harnesses.harness import Harness
from harnesses.library import Library, UnknownHarness
from harnesses.tree import HarnessError

_ONE_READER = Lock()  # a Library is for one thread, and every open page is a thread


def harness(path: Path, harness_id: str) -> Harness | str:
    """A harness of the run at `path`, or one line that says why it can't be shown."""
    try:
        with _ONE_READER:
            library = _library(path)
            return "this run has no harness library" if library is None else library.get(harness_id)
    except (UnknownHarness, HarnessError) as error:
        return str(error)


def difference(old: Harness | str, new: Harness | str) -> Diff | str:
    """What changed between two harnesses, or the reason why one of them can't be shown."""
    if isinstance(old, str):
        return old
    return new if isinstance(new, str) else diff(old, new)


def names(path: Path, stamp: Stamp) -> dict[str, str]:
    """Harness id → name; empty when there is no library yet."""
    return _names(path, stamp, 0)[0]


def tags(path: Path, stamp: Stamp) -> dict[str, tuple[str, ...]]:
    """Harness id → its tags."""
    return _names(path, stamp, tagged(path))[1]


def tagged(path: Path) -> int:
    """Changes whenever a harness is tagged (which no log of the run needs to say)."""
    tags = path / "library" / "refs" / "tags"
    return tags.stat().st_mtime_ns if tags.is_dir() else 0


@lru_cache(maxsize=4)
def _opened(path: Path) -> Library:
    return Library(path)


def _library(path: Path) -> Library | None:
    at = path / "library"
    return _opened(at) if (at / "HEAD").is_file() else None  # opening an empty folder would make one


@lru_cache(maxsize=8)
def _names(path: Path, stamp: Stamp, tagged: int) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    try:
        with _ONE_READER:
            library = _library(path)
            if library is None:
                return {}, {}
            tags: dict[str, tuple[str, ...]] = {}
            for tag, tree in library.tags().items():
                tags[tree] = (*tags.get(tree, ()), tag)
            return {tree: name for name, tree in reversed(library.names().items())}, tags
    except HarnessError:
        return {}, {}
