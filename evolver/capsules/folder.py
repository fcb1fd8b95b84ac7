"""A capsule as a directory: written whole or not at all, and read only while every byte is as it was pinned.

NAME/capsule.json   the lock: everything that a round depends on; its hash is the capsule's id
     config.toml    models, seed and sandbox of the round; keys by the name of their variable
     prices.json    the prices, and the day that they are of
     tasks.json     ids and hashes of the tasks that the harness was confirmed on, and how they went
     tasks/ID/      those of them that this program does not have itself
     harness/       the tree
     release.json   the sign-off, once its re-evaluation came out as the lock says
"""

from __future__ import annotations

import dataclasses
import shutil
import tomllib
from pathlib import Path
from typing import TypeVar

import tomlkit
from pydantic import BaseModel, JsonValue, ValidationError

from devset.directory import read_task_dir, write_task_dir
from devset.splits import UnknownTask, find_task
from devset.task import Task
from evolver.capsules.contents import (
    Contents,
    pinned,
)
from evolver.capsules.program import folder_digests
from evolver.config import RunConfig, parse_config
from evolver.disk import make_folder, on_disk, replace, sync
from evolver.errors import UsageError
from evolver.records import Release
from harnesses.capsule import Capsule, PriceList, TaskPin
from harnesses.tree import write_tree

LOCK, CONFIG, PRICES, TASKS, RELEASE = "capsule.json", "config.toml", "prices.json", "tasks.json", "release.json"
HARNESS, CARRIED = "harness", "tasks"
APART = (LOCK, RELEASE)
SETTINGS = {"seed", "teacher", "judge", "sandbox", "stalled_s", "allow_unpriced"}

Read = TypeVar("Read", bound=BaseModel)


# --- writing -------------------------------------------------------------------------------------------------------


def round_settings(config: RunConfig, backend: str) -> dict[str, JsonValue]:
    """What of a run's settings a round depends on; the back end is the one that attempts were played on."""
    settings: dict[str, JsonValue] = config.model_dump(mode="json", include=SETTINGS, exclude_none=True)
    return settings | {"sandbox": {"backend": backend, "ttl_s": config.sandbox.ttl_s}}


def write_capsule(contents: Contents, path: Path) -> Capsule:
    """Writes a capsule to `path`, which must not exist: beside it first, then by one rename. Returns what it pins.

    `contents.files` is not read: the digests are those of what is written.
    """
    if path.exists():
        raise UsageError(f"{path} is there already: choose another name, or remove it")
    partial = path.with_name(f".{path.name}.partial")
    with on_disk(path):
        shutil.rmtree(partial, ignore_errors=True)  # what a stop left
        make_folder(partial)
        _write_parts(contents, partial)
        capsule = pinned(dataclasses.replace(contents, files=own_files(partial)))
        (partial / LOCK).write_bytes(document(capsule))
        sync([*(p for p in partial.rglob("*") if p.is_file()), *(p for p in partial.rglob("*") if p.is_dir()), partial])
        partial.rename(path)
        sync((path.parent,))
    return capsule


def release_capsule(aside: Path, place: Path, release: Release) -> None:
    """Puts the sign-off into a capsule and the capsule in its place; again is no change."""
    if (place / RELEASE).is_file():
        if read_part(place / RELEASE, Release) == release:
            return
        raise UsageError(f"{place} is another capsule than {release.name!r} of this run: move it away")
    if not (aside / LOCK).is_file():
        raise UsageError(f"capsule {release.name!r} was released, but is neither in {place} nor in {aside}: restore it")
    with on_disk(aside):
        replace(aside / RELEASE, document(release))
        aside.rename(place)
        sync((place.parent,))


def discard(path: Path) -> None:
    """Removes a capsule that was never released, if there is one."""
    with on_disk(path):
        shutil.rmtree(path, ignore_errors=True)


def _write_parts(contents: Contents, folder: Path) -> None:
    (folder / CONFIG).write_text(tomlkit.dumps(contents.settings), encoding="utf-8")
    (folder / PRICES).write_bytes(document(contents.prices))
    (folder / TASKS).write_bytes(document(contents.task_list))
    write_tree(contents.harness, folder / HARNESS)
    for pin, task in zip(contents.task_list.tasks, contents.tasks, strict=True):
        if pin.carried:
            write_task_dir(task, folder / CARRIED / task.id)


def document(record: BaseModel) -> bytes:
    """The one way in which a record is written to a file of a capsule."""
    return record.model_dump_json(indent=1).encode() + b"\n"


def is_own(task: Task) -> bool:
    """Whether this program makes the very same task by itself."""
    try:
        return find_task(task.id, unsealed=True).hash == task.hash
    except UnknownTask:
        return False


# --- reading -------------------------------------------------------------------------------------------------------


def is_released(path: Path) -> bool:
    """Whether it was signed off; a sign-off that can't be read, or says anything else, is none."""
    try:
        release = read_release(path)
    except UsageError:
        return False
    return release is not None and release.verdict == "released"


def read_release(path: Path) -> Release | None:
    """The sign-off; None while there is none. Raises `UsageError` for one that can't be read."""
    return read_part(path / RELEASE, Release) if (path / RELEASE).is_file() else None


def read_lock(path: Path) -> Capsule:
    """What a capsule pins, checked against nothing. Raises `UsageError` when `path` is no capsule."""
    if not (path / LOCK).is_file():
        raise UsageError(f"no capsule at {path} (no {LOCK}): `evolver freeze RUN HARNESS --name NAME` writes one")
    return read_part(path / LOCK, Capsule)


def read_part(path: Path, kind: type[Read]) -> Read:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{path}: {place}: {first['msg']}, got {first['input']!r:.80}") from None


def read_settings(path: Path) -> dict[str, JsonValue]:
    file = path / CONFIG
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from error


def config_of(settings: dict[str, JsonValue], prices: PriceList, file: Path) -> RunConfig:
    table = {model: price.model_dump() for model, price in prices.prices.items()}
    return parse_config({**settings, "prices": table}, str(file))


def own_files(path: Path) -> dict[str, str]:
    """The digests of every file of a capsule but the harness's, the lock and the sign-off."""
    found = folder_digests(path, (".",))
    return {name: digest for name, digest in found.items() if name not in APART and not name.startswith(f"{HARNESS}/")}


def task_of(path: Path, pin: TaskPin) -> Task:
    """The task as it is now. Raises `UnknownTask` or `TaskError` when there is none."""
    found = read_task_dir(path / CARRIED / pin.id) if pin.carried else find_task(pin.id, unsealed=True)
    return found.model_copy(update={"split": pin.split, "seen_in_training": pin.seen_in_training})
