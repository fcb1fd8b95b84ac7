"""Generation rounds for the pages: where they are, and how each stands, read anew only when it has changed."""

from __future__ import annotations

import sqlite3
import time
from functools import lru_cache
from pathlib import Path

from dashboards.logs import Stamp
from evolver.errors import UsageError
from evolver.rounds.folder import BOOK
from evolver.rounds.manifest import FILE as MANIFEST
from evolver.rounds.view import STALE_S, RoundView, read_round

PLACES = ("", "*/", "*/*/", "rounds/*/", "*/rounds/*/")
FILES = (MANIFEST, BOOK, f"{BOOK}-wal")


def find_rounds(root: Path) -> list[Path]:
    """The rounds at, under or beside the runs of a folder, the one that was heard of last first."""
    found = {path.parent for place in PLACES for path in root.glob(f"{place}{MANIFEST}")} if root.is_dir() else set()
    return sorted((path for path in found if (path / BOOK).is_file()), key=_changed, reverse=True)


def stamp_of(path: Path) -> Stamp:
    """Changes whenever the round has gone on. To read the book leaves an empty file beside it, which says nothing."""
    seen = [(name, (path / name).stat()) for name in FILES if (path / name).exists()]
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in seen if status.st_size)


def view_of(path: Path, now: float | None = None) -> RoundView | str:
    """How a round stands, or why that can't be said. One that is silent is looked at again: its driver may be gone."""
    return _view(path, stamp_of(path), int((time.time() if now is None else now) / STALE_S))


def _changed(path: Path) -> int:
    return max((moment for _, moment, _ in stamp_of(path)), default=0)


@lru_cache(maxsize=32)
def _view(path: Path, stamp: Stamp, moment: int) -> RoundView | str:
    try:
        return read_round(path)
    except UsageError as error:
        return str(error)
    except (sqlite3.Error, ValueError) as error:  # a book of another version, or one that is damaged
        return f"its book can't be read by this program ({error}): use the program that made it"
