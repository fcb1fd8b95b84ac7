"""What was played and could not be graded yet, since the judge was silent or the round was stopped: whoever is handed
the unit next grades it, and nobody pays for it again.

ungraded/<unit>.json    gone once the unit's row is written, when nothing can come of what was played, or with the round
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from evolver.disk import make_folder, on_disk, replace
from evolver.records import Finite, Record, Rollout

FOLDER = "ungraded"


class Ungraded(Record):
    """A rollout whose frozen state nobody has graded. `usd` is what the unit has cost so far; None is unknown."""

    rollout: Rollout
    usd: Finite | None


@dataclass(frozen=True)
class Shelf:
    """The folder of a round's ungraded rollouts, by the ids of their units."""

    folder: Path

    @classmethod
    def of(cls, round_dir: Path) -> Shelf:
        return cls(round_dir / FOLDER)

    def put(self, unit: str, kept: Ungraded) -> None:
        path = self._path(unit)
        with on_disk(path):
            make_folder(self.folder)
            replace(path, kept.model_dump_json().encode())

    def get(self, unit: str) -> Ungraded | None:
        try:
            return Ungraded.model_validate_json(self._path(unit).read_bytes())
        except FileNotFoundError:
            return None

    def drop(self, unit: str) -> None:
        self._path(unit).unlink(missing_ok=True)

    def clear(self) -> None:
        """At the round's end: of units that were given up some are left."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, unit: str) -> Path:
        return self.folder / f"{unit}.json"
