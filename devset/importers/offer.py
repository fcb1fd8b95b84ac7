"""What every importer yields: one offer per published task, imported as a `Task` or refused with every reason."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from devset.directory import write_task_dir
from devset.task import Task, task_hash

MANIFEST = "import.json"
HOME = "/home/user"
Parsed = TypeVar("Parsed", bound=BaseModel)


class ImportFailed(ValueError):
    """A published file that is not of its format; the message names file, field, value and what was expected."""


class Loose(BaseModel):
    """Base of what is read from a published file: frozen; fields that an importer has no use for are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True)
class Offer:
    """One published task. `task` is None exactly when there are `reasons` (a missing app, an evaluator we lack)."""

    id: str
    origin: str
    task: Task | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """What SOURCE says: where a task comes from, under which licence, the sha256 of its original files, and what the
    importer changed."""

    origin: str
    licence: str
    original: Mapping[str, bytes]
    changes: tuple[str, ...] = ()

    def text(self) -> str:
        sha = hashlib.sha256()
        for name, data in sorted(self.original.items()):
            sha.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
        lines = [f"origin: {self.origin}", f"licence: {self.licence}", f"original-sha256: {sha.hexdigest()}"]
        return "\n".join([*lines, *(f"changed: {change}" for change in self.changes)]) + "\n"


@dataclass
class Refusals:
    """Collects why one task can't be imported, without doubles and in the order in which they were found."""

    reasons: list[str] = field(default_factory=list)

    def add(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)


def made(task: Task) -> Task:
    """The task with its own hash."""
    return task.model_copy(update={"hash": task_hash(task)})


def parsed(model: type[Parsed], path: Path) -> Parsed:
    """The JSON file as `model`; raises `ImportFailed` with file, field and value."""
    try:
        return checked(model, json.loads(text_of(path)), path)
    except json.JSONDecodeError as error:
        raise ImportFailed(f"{path}: expected JSON: {error}") from error


def checked(model: type[Parsed], value: object, path: Path) -> Parsed:
    """`value`, which was read from `path`, as `model`; raises `ImportFailed` with file, field and value."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"])) or "the whole file"
        raise ImportFailed(f"{path}: {at}: got {first['input']!r:.120}: {first['msg']}") from error


def text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise ImportFailed(f"{path}: missing, expected a UTF-8 text file") from None
    except UnicodeDecodeError as error:
        raise ImportFailed(f"{path}: expected UTF-8 text: {error.reason} at byte {error.start}") from error


@contextmanager
def about(path: Path) -> Iterator[None]:
    """One odd file spoils one task: whatever reading it raises becomes an `ImportFailed` that names `path`."""
    try:
        yield
    except ImportFailed:
        raise
    except (ValueError, LookupError, TypeError, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise ImportFailed(f"{path}: can't be read: {type(error).__name__}: {said}") from error


def leads_out(path: Path, root: Path) -> bool:
    """Whether `path`, which is spelled below `root`, is led out of it by a link."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def own(path: Path, root: Path) -> Path:
    """`path`; raises `ImportFailed` when a link leads it out of `root`, the folder that is imported."""
    if leads_out(path, root):
        raise ImportFailed(f"{path}: leads out of {root}, expected a file or folder inside it")
    return path


def folder_of(path: Path, root: Path) -> dict[str, bytes]:
    """Every regular file below `path` (relative path → bytes); raises `ImportFailed` for a link, for a device, and when
    `path` itself is led out of `root`."""
    own(path, root)
    found = sorted(p for p in path.rglob("*") if not p.is_dir() or p.is_symlink()) if path.is_dir() else []
    for one in found:
        if one.is_symlink() or not one.is_file():
            raise ImportFailed(f"{one}: expected a regular file")
    return {one.relative_to(path).as_posix(): one.read_bytes() for one in found}


def licence_near(path: Path) -> str:
    """The licence that a LICENSE file in `path` or in one of its next three parents states, else `not stated`."""
    folder = path if path.is_dir() else path.parent
    for place in (folder, *list(folder.resolve().parents)[:3]):
        for name in ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE"):
            if (place / name).is_file():
                text = (place / name).read_text(encoding="utf-8", errors="replace")[:2_000]
                for words, known in (("Apache License", "Apache-2.0"), ("MIT License", "MIT"), ("BSD", "BSD")):
                    if words in text:
                        return known
                return f"see {name} of the original"
    return "not stated"


def identifier(*parts: str) -> str:
    """A task id made of these words: lower case, with `-` for whatever an id can't hold."""
    return re.sub(r"[^a-z0-9._]+", "-", "-".join(parts).lower()).strip("-._")


def write_offers(offers: Iterable[Offer], source: str, out: Path) -> Iterator[Offer]:
    """Writes what was imported below `out`, each directory in one step, and the manifest last; yields every offer.

    A directory of the same name is replaced, so an import that was cut off is simply run again; what an earlier import
    imported and this one does not is removed. An id is one task's alone: who comes second is refused.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ImportFailed(f"{out}: is or lies below a file, expected a folder or a place for a new one") from None
    stale = _taken_before(out)
    listed: list[dict[str, object]] = []
    taken: dict[str, str] = {}  # id of an imported task → its origin
    refused: set[str] = set()
    for offer in offers:
        if offer.task is not None and offer.id in taken:
            offer = replace(offer, task=None, reasons=(f"its id is taken: by {taken[offer.id]}",))
        if offer.task is None:
            offer = replace(offer, id=_free(offer.id, refused | taken.keys()))
            refused.add(offer.id)
        else:
            taken[offer.id] = offer.origin
            write_whole(offer.task, out)
            stale.discard(offer.id)
        sha = offer.task.hash if offer.task is not None else None
        listed.append({"id": offer.id, "origin": offer.origin, "reasons": list(offer.reasons), "hash": sha})
        yield offer
    write_manifest(source, listed, out)
    for folder in (out / name for name in stale):
        if (folder / "task.toml").is_file() and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)


def _free(name: str, used: Set[str]) -> str:
    """`name`, or with a number behind it that no id of a task has, so that every refusal is listed apart."""
    return next(one for one in (name, *(f"{name}~{number}" for number in range(2, len(used) + 3))) if one not in used)


def write_manifest(source: str, listed: Sequence[Mapping[str, object]], out: Path) -> None:
    """The manifest in one step: a row per offer with `id`, `origin`, `reasons` and `hash` (None: not imported)."""
    text = json.dumps({"source": source, "offered": listed}, indent=1, ensure_ascii=False)
    (out / f"{MANIFEST}.partial").write_text(text + "\n", encoding="utf-8")
    (out / f"{MANIFEST}.partial").replace(out / MANIFEST)


def _taken_before(out: Path) -> set[str]:
    """Ids that the manifest in `out` lists as imported; what can't be an id, such as a path, is left out."""
    if not (out / MANIFEST).is_file():
        return set()
    try:
        listed = [one["id"] for one in json.loads(text_of(out / MANIFEST))["offered"] if one["hash"] is not None]
        return {name for name in listed if name and name == identifier(name)}
    except (ValueError, KeyError, TypeError) as error:
        raise ImportFailed(f"{out / MANIFEST}: is no manifest of an import ({error!r}); give another folder") from error


def write_whole(task: Task, out: Path) -> None:
    """The task's directory below `out`, in one step, in place of an earlier one."""
    partial, final = out / f".{task.id}.partial", out / task.id
    shutil.rmtree(partial, ignore_errors=True)
    write_task_dir(task, partial)
    if final.exists():
        shutil.rmtree(final)
    partial.rename(final)
