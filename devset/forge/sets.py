"""A set of forged tasks on disk: task directories, and one line per task in the order in which they were drawn.

    OUT/settings.toml   what was asked for (devset.forge.settings)
    OUT/tasks.jsonl     a row per task: skills, edges, seed, fingerprints; it is written after the directory
    OUT/<task id>/      a task directory (devset.directory)
    OUT/import.json     written last: what any directory of tasks has

The rows hold all that a sampler and its duplicate gate know, so that whoever is cut off goes on from the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from devset.families import families as own_families
from devset.families.skill import Family
from devset.forge.duplicates import Duplicates, Print
from devset.forge.lanes import Lane
from devset.forge.sampler import Composed, Sampler, Source
from devset.forge.settings import Settings, read_settings, settings_text
from devset.forge.skills import SHIPPED, read_skills
from devset.forge.workflow import Edge, Workflow, bound, task_of
from devset.importers.offer import write_manifest, write_whole
from devset.task import Strict, Task

SETTINGS, ROWS, SOURCE = "settings.toml", "tasks.jsonl", "forge"


class SetError(ValueError):
    """A folder that holds no forged set, or another one; the message says which and what to do."""


class Row(Strict):
    """One task of a set: how to make it again, what it was drawn for, and what was refused on the way to it."""

    id: str
    hash: str
    path: str
    skills: tuple[str, ...]
    edges: tuple[tuple[int, int, str], ...]
    seed: int
    lane: Lane
    source: Source
    seen_in_training: bool
    draw: int
    refused: dict[str, int]
    print: Print


@dataclass(frozen=True)
class Forge:
    """Everything that a set is drawn with."""

    settings: Settings
    families: Mapping[str, Family]
    sampler: Sampler
    duplicates: Duplicates
    prints: dict[str, Print]


def skills_of(settings: Settings) -> dict[str, Family]:
    """Name → skill: the families, the skill directories that come with the program, and those that the settings name.

    Raises SkillError for a broken directory and SetError for a name that is taken.
    """
    known = dict(own_families())
    for folder in (SHIPPED, *map(Path, settings.skills)):
        for family in read_skills(folder):
            if family.name in known:
                raise SetError(f"{folder}: skill {family.name!r} is there already: give it another name")
            known[family.name] = family
    return known


def forge_of(settings: Settings, held: Iterable[Task] = ()) -> Forge:
    """`held` are tasks that must not be found again."""
    families = skills_of(settings)
    named = {target.skill for target in settings.targets} | {*settings.fresh, *settings.retired}
    if unknown := sorted(named - set(families)):
        raise SetError(f"the settings name the skill {unknown[0]!r}, which is not there; known: {', '.join(families)}")
    duplicates, prints = Duplicates(families, held), dict[str, Print]()

    def refuses(flow: Workflow, task: Task) -> str | None:
        made, twin = duplicates.twin(flow, task)
        if twin is not None:
            return twin.level
        duplicates.add(task.id, flow.path, made)
        prints[task.id] = made
        return None

    return Forge(settings, families, Sampler(families, settings, refuses), duplicates, prints)


def write_set(forge: Forge, n: int, out: Path) -> Iterator[Row]:
    """Draws until the set has `n` tasks or nothing new comes; yields what is there already first. Raises SetError for a
    folder of other settings."""
    start(forge.settings, out)
    listed = []
    for row in read_rows(out)[:n]:
        _known(forge, row)
        listed.append(_offer(row))
        yield row
    _trim(out / ROWS)
    sampler, before = forge.sampler, forge.sampler.draws.refused.copy()
    with (out / ROWS).open("a", encoding="utf-8") as lines:
        drawn = iter(sampler)
        while len(listed) < n and (made := next(drawn, None)) is not None:
            write_whole(made.task, out)
            row = _row(made, forge.prints.pop(made.id), sampler.draws.refused - before)
            before = sampler.draws.refused.copy()
            lines.write(row.model_dump_json() + "\n")
            lines.flush()
            listed.append(_offer(row))
            yield row
    write_manifest(SOURCE, listed, out)


def start(settings: Settings, out: Path) -> None:
    path, text = out / SETTINGS, settings_text(settings)
    if path.is_file():
        if read_settings(path) != settings:
            raise SetError(f"{path}: was started with other settings; give them back, or choose another folder")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SetError(f"{out}: is there and holds no forged set: choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def read_rows(folder: Path) -> list[Row]:
    """The rows of a set in the order in which they were drawn; a last line that was cut off is left out."""
    path = folder / ROWS
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    try:
        return [Row.model_validate_json(line) for line in lines[:-1]]
    except ValidationError as error:
        raise SetError(f"{path}: holds a line that is no task of a set: {str(error).splitlines()[0]}") from error


def remade(row: Row, families: Mapping[str, Family]) -> Composed:
    """The workflow and task of a row. Raises SetError where the skills no longer make this very task."""
    if lacking := [name for name in row.skills if name not in families]:
        raise SetError(f"task {row.id}: its skill {lacking[0]!r} is not there")
    changed = f"task {row.id}: its skills no longer make this task; forge the set again"
    try:
        flow = bound([families[name] for name in row.skills], [Edge(*edge) for edge in row.edges], row.seed)
        task = task_of(flow)
    except (ValueError, LookupError) as error:
        raise SetError(f"{changed} ({error})") from error
    if task.hash != row.hash:
        raise SetError(changed)
    return Composed(flow, task, row.lane, row.source, row.draw)


def _known(forge: Forge, row: Row) -> None:
    sampler = forge.sampler
    sampler.counts.add(row.id, row.path, row.skills, (row.lane, row.source))
    sampler.draws.drawn = row.draw
    sampler.draws.refused += Counter(row.refused)
    forge.duplicates.add(row.id, row.path, row.print)


def _row(made: Composed, found: Print, refused: Mapping[str, int]) -> Row:
    flow = made.flow
    return Row(
        id=made.id,
        hash=made.task.hash,
        path=flow.path,
        skills=flow.skills,
        edges=tuple((e.source, e.target, e.slot) for e in flow.edges),
        seed=flow.seed,
        lane=made.lane,
        source=made.source,
        seen_in_training=made.task.seen_in_training,
        draw=made.draw,
        refused=dict(refused),
        print=found,
    )


def _offer(row: Row) -> dict[str, object]:
    return {"id": row.id, "origin": f"{SOURCE}: {' + '.join(row.skills)}", "reasons": [], "hash": row.hash}


def _trim(path: Path) -> None:
    """Removes a last line that was cut off."""
    if path.is_file() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        with path.open("r+b") as lines:
            lines.truncate(data.rfind(b"\n") + 1)
