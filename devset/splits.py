"""Which task is in which split: seed ranges per family and one hash per split, kept in `splits.toml`.

A split is generated, checked against its hash and handed out in a fixed order that is spread over seen and unseen
families, groups and families, so that any prefix is balanced. `python -m devset.splits --renew` writes the file anew
after a deliberate change of a generator, unless two splits would then share a task (devset.overlap).

`test` is sealed: who loads it must say so, and evolver.opening, which does, keeps a record of who opened it and why.
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from devset.directory import read_task_dir
from devset.families import families
from devset.overlap import items_of, overlaps
from devset.task import SPLITS, Split, Task

FILE = Path(__file__).parent / "splits.toml"
TASKS = Path(__file__).parent / "tasks"
RENEW = "python -m devset.splits --renew"
SEALED: tuple[Split, ...] = ("test",)
# split → first seed, instances of families that train sees, instances of families that it never sees
SIZES: dict[Split, tuple[int, int, int]] = {
    "train": (0, 1008, 0),
    "dev": (1000, 63, 21),
    "select": (2000, 48, 16),
    "test": (3000, 111, 37),
}

Item = TypeVar("Item")


class SplitsChanged(Exception):
    """The generators no longer make the tasks that `splits.toml` was written for."""


class SplitsOverlap(Exception):
    """Two splits would share a task."""


class UnknownTask(LookupError):
    """No task has this id."""


class Sealed(Exception):
    """A task of a sealed split was asked for without saying so."""


def load_split(split: Split, limit: int | None = None, *, unsealed: bool = False) -> list[Task]:
    """The tasks of a split in their fixed order, the first `limit` of them when given.

    Raises `Sealed` for a sealed split unless `unsealed`, and `SplitsChanged` when a generator or a task directory has
    changed since the file was written.
    """
    if split not in SPLITS:
        raise UnknownTask(f"unknown split {split!r}: expected one of {', '.join(SPLITS)}")
    if split in SEALED and not unsealed:
        raise Sealed(f"split {split!r} is sealed: it is for final comparisons, and opening it is recorded")
    tasks = _checked(split)
    return list(tasks if limit is None else tasks[:limit])


def find_task(task_id: str, *, unsealed: bool = False) -> Task:
    """The task with this id: from its directory, or generated anew; `split` is set when it belongs to one.

    Raises `UnknownTask`, and `Sealed` for a task of a sealed split unless `unsealed`.
    """
    task = _found(task_id)
    if task.split in SEALED and not unsealed:
        raise Sealed(f"task {task_id!r} belongs to split {task.split!r}, which is sealed: opening it is recorded")
    return task


def _found(task_id: str) -> Task:
    table = _table()
    if task_id in (listed := table["tasks"]):
        return _placed(read_task_dir(TASKS / task_id), listed[task_id])
    name, _, number = task_id.rpartition("-")
    family = families().get(name)
    if family is None or not number.isdigit() or f"{int(number):04d}" != number:
        raise UnknownTask(
            f"unknown task {task_id!r}: expected an id such as 'files.rename-0003', or a folder in {TASKS.name}/"
        )
    return family.instance(int(number)).model_copy(update={"split": split_of(task_id)})


def split_of(task_id: str) -> Split | None:
    """The split of one of our own tasks, by its id alone; None for ids that are in none."""
    table = _table()
    if task_id in table["tasks"]:
        listed: Split = table["tasks"][task_id]
        return listed
    name, _, number = task_id.rpartition("-")
    ranges: dict[Split, tuple[int, int]] = table["families"].get(name, {}) if number.isdecimal() else {}
    return next((split for split, (start, stop) in ranges.items() if start <= int(number) < stop), None)


def listed_tasks() -> list[str]:
    """Ids of the tasks that are in a split by themselves and not as an instance of a family."""
    return list(_table()["tasks"])


def unseen_families() -> list[str]:
    """Names of the families that no training task comes from."""
    return [name for name, family in families().items() if family.held_out]


def _placed(task: Task, split: Split) -> Task:
    return task.model_copy(update={"split": split})


@cache
def _table() -> dict[str, dict[str, Any]]:  # parsed TOML
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@cache
def _checked(split: Split) -> tuple[Task, ...]:
    return tuple(checked(split, _table()))


def checked(split: Split, table: dict[str, dict[str, Any]]) -> list[Task]:
    """Generates the split that `table` (the parsed file) describes; raises `SplitsChanged` if the hash differs."""
    tasks = _generate(split, table)
    found, expected = split_hash(tasks), table["hashes"][split]
    if found != expected:
        raise SplitsChanged(
            f"split {split!r}: the tasks hash to {found[:12]}, {FILE.name} expects {expected[:12]}. "
            f"A generator or task changed: old results no longer compare. If that is meant, run `{RENEW}`."
        )
    return tasks


def _generate(split: Split, table: dict[str, dict[str, Any]]) -> list[Task]:
    known = families()
    if set(known) != set(table["families"]):
        difference = sorted(set(known) ^ set(table["families"]))
        raise SplitsChanged(f"{FILE.name} and the families differ in {difference}. Run `{RENEW}`.")
    made = [_placed(read_task_dir(TASKS / name), split) for name, where in table["tasks"].items() if where == split]
    for name, ranges in table["families"].items():
        if split in ranges:
            made += [_placed(known[name].instance(seed), split) for seed in range(*ranges[split])]
    return ordered(made)


def split_hash(tasks: Iterable[Task]) -> str:
    """sha256 over the sorted task hashes."""
    return hashlib.sha256("\n".join(sorted(task.hash for task in tasks)).encode()).hexdigest()


def ordered(tasks: Sequence[Task]) -> list[Task]:
    """Spread evenly over seen and unseen, then over the first word of the family, then over families."""

    def by(items: Sequence[Task], keys: Sequence[Callable[[Task], str]]) -> list[Task]:
        if not keys:
            return sorted(items, key=lambda t: t.id)
        groups: dict[str, list[Task]] = {}
        for task in items:
            groups.setdefault(keys[0](task), []).append(task)
        return spread([by(group, keys[1:]) for _, group in sorted(groups.items())])

    return by(tasks, [lambda t: str(t.seen_in_training), lambda t: t.family.split(".")[0], lambda t: t.family])


def spread(lists: Sequence[Sequence[Item]]) -> list[Item]:
    """One list that takes from each in proportion to its length, each in its own order."""
    keyed = [((i + 0.5) / len(items), n, item) for n, items in enumerate(lists) for i, item in enumerate(items)]
    return [item for _, _, item in sorted(keyed, key=lambda entry: entry[:2])]


def require_apart(splits: Mapping[Split, Sequence[Task]]) -> None:
    """Raises `SplitsOverlap` when two splits have a task in common, whole or nearly (devset.overlap)."""
    for one, other in combinations(splits, 2):
        pairs = overlaps(items_of(splits[one]), items_of(splits[other]))
        if pairs:
            shown = ", ".join(f"{p.a} and {p.b} ({p.similarity:.2f})" for p in pairs[:5])
            raise SplitsOverlap(f"splits {one!r} and {other!r} share {len(pairs)} tasks: {shown}; change the generator")


def renew() -> str:
    """The text of `splits.toml` for today's families and task directories. Raises `SplitsOverlap`."""
    known = families()
    seen, unseen = ([n for n, f in known.items() if f.held_out is held] for held in (False, True))
    ranges: dict[str, dict[str, list[int]]] = {name: {} for name in known}
    for split, (start, n_seen, n_unseen) in SIZES.items():
        for names, total in ((seen, n_seen), (unseen, n_unseen)):
            for index, name in enumerate(names):
                count = total // len(names) + (index < total % len(names))
                if count:
                    ranges[name][split] = [start, start + count]
    tasks = {path.name: "train" for path in sorted(TASKS.iterdir()) if path.is_dir()}
    table: dict[str, dict[str, Any]] = {"families": ranges, "tasks": tasks}
    made = {split: _generate(split, table) for split in SPLITS}
    require_apart(made)
    lines = [f"# family → [first seed, one past the last] per split. Written by `{RENEW}`.", "", "[hashes]"]
    lines += [f'{split} = "{split_hash(made[split])}"' for split in SPLITS]
    lines += ["", "[tasks]", *(f'"{name}" = "{split}"' for name, split in tasks.items()), "", "[families]"]
    for name, splits in ranges.items():
        lines.append(f'"{name}" = {{ {", ".join(f"{s} = {r}" for s, r in splits.items())} }}')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--renew"]:
        raise SystemExit(f"usage: {RENEW}")
    try:
        FILE.write_text(renew(), encoding="utf-8")
    except SplitsOverlap as error:
        raise SystemExit(str(error)) from None
    sys.stdout.write(f"wrote {FILE}\n")
