"""The taxonomy of skills: app, object, verb. Its cells are what the skills are, and what `taxonomy.toml` wants
besides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devset.families.skill import Family
from devset.forge.workflow import SEEDS
from devset.task import Channel, Oracle

WANTED = Path(__file__).parent / "taxonomy.toml"


@dataclass(frozen=True)
class Cell:
    """One atomic skill of an app; without `skills` it is wanted, and `note` says what it should be about."""

    app: str
    object: str
    verb: str
    skills: tuple[str, ...] = ()
    channels: tuple[Channel, ...] = ()
    held_out: bool = False
    note: str = ""

    @property
    def path(self) -> tuple[str, str, str]:
        return (self.app, self.object, self.verb)


def taxonomy(families: Mapping[str, Family]) -> list[Cell]:
    """The cells in order: those that have skills, and those that `taxonomy.toml` wants."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for name, family in families.items():
        names.setdefault(family.path, []).append(name)
    found = [_cell(path, [families[name] for name in skills]) for path, skills in names.items()]
    return sorted([*found, *(cell for cell in wanted() if cell.path not in names)], key=lambda cell: cell.path)


def wanted() -> list[Cell]:
    """What the file asks for, whether there is a skill by now or not."""
    table = tomllib.loads(WANTED.read_text(encoding="utf-8"))
    return [
        Cell(app, *key.split("."), note=note)  # type: ignore[misc]
        for app, cells in table.items()
        for key, note in cells.items()
    ]


def _cell(path: tuple[str, str, str], families: list[Family]) -> Cell:
    bindings = [family.binding(SEEDS) for family in families]
    channels = {c for made in bindings for c in Oracle(terminal=made.terminal, gui=made.gui).channels}
    return Cell(
        *path,
        skills=tuple(family.name for family in families),
        channels=tuple(sorted(channels)),
        held_out=all(family.held_out for family in families),
    )
