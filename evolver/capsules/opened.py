"""Opens a capsule, or says exactly what keeps it shut.

The lock is compared with the capsule's own bytes, the tasks and this program, part by part: what can't be read is one
difference with its reason, and hides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from devset.directory import TaskError
from devset.splits import UnknownTask
from devset.task import Task, checker_hash
from evolver.capsules import contents as now
from evolver.capsules import folder
from evolver.capsules.program import sha256
from evolver.config import RunConfig
from evolver.errors import UsageError
from harnesses.capsule import Capsule, Drift, Pin, PriceList, TaskList, TaskPin, drifts
from harnesses.harness import Harness
from harnesses.tree import HarnessError, harness_from_files, read_files

UNREADABLE = (UsageError, HarnessError, TaskError, UnknownTask, ValueError, OSError)
FINER = {  # file → the fields that say what changed in it
    folder.CONFIG: ("settings", "teacher", "judge", "seed", "machine"),
    folder.PRICES: ("prices", "prices_on"),
    folder.TASKS: ("tasks",),
}
SHOWN = 12  # drifts in a message

P = TypeVar("P")


class Drifted(UsageError):
    """A capsule that is not what it pins: `drifts` has every difference."""

    def __init__(self, path: Path, found: Sequence[Drift]) -> None:
        lines = [str(drift) for drift in found[:SHOWN]]
        more = [f"and {len(found) - SHOWN} more (evolver capsule verify {path})"] if len(found) > SHOWN else []
        super().__init__(f"{path} is not what was frozen: {'; '.join([*lines, *more])}")
        self.drifts = tuple(found)


@dataclass(frozen=True)
class OpenedCapsule:
    """A capsule whose bytes, tasks and program are as they were pinned. `config` is that of a round under it."""

    capsule: Capsule
    path: Path
    harness: Harness
    config: RunConfig
    task_list: TaskList

    @property
    def id(self) -> str:
        return self.capsule.id

    def tasks(self) -> Sequence[Task]:
        """The tasks that the harness was confirmed on, in their order."""
        return [folder.task_of(self.path, pin) for pin in self.task_list.tasks]


def open_capsule(path: Path, *, released: bool = True) -> OpenedCapsule:
    """The capsule in `path`. Raises `Drifted` when anything differs from what it pins, and `UsageError` when there is
    none, or one that was never released (unless `released` is False)."""
    capsule = folder.read_lock(path)
    found = verify(path)
    if found:
        raise Drifted(path, found)
    if released and not folder.is_released(path):
        raise UsageError(f"{path} was never released: run its `evolver freeze` again, which says why")
    prices = folder.read_part(path / folder.PRICES, PriceList)
    return OpenedCapsule(
        capsule=capsule,
        path=path,
        harness=harness_from_files(read_files(path / folder.HARNESS)),
        config=folder.config_of(folder.read_settings(path), prices, path / folder.CONFIG),
        task_list=folder.read_part(path / folder.TASKS, TaskList),
    )


def verify(path: Path) -> list[Drift]:
    """Everything in which the capsule's bytes, its tasks and this program differ from what it pins, by field; the
    image is `verify_machine`'s. Raises `UsageError` when there is no lock to compare with."""
    return _Comparison(path, folder.read_lock(path)).made()


class _Comparison:
    def __init__(self, path: Path, capsule: Capsule) -> None:
        self._path, self._capsule = path, capsule
        self._pinned: dict[str, JsonValue] = capsule.model_dump(mode="json")
        self._found: list[Drift] = []

    def made(self) -> list[Drift]:
        harness, config = self._harness(), self._config()
        self._tasks()
        self._part("retry", now.retry_pin())
        self._part("program", now.program_of(config))
        if config is not None:
            self._part("seed", config.seed)
            self._part("judge", None if config.judge is None else now.judge_pin(config.judge))
        if config is not None and harness is not None:
            images = self._capsule.machine.image, self._capsule.machine.grading
            teacher = self._readable("teacher", lambda: now.teacher_pin(config.teacher, harness))
            machine = self._readable("machine", lambda: now.machine_pin(config, harness, images))
            for name, pin in (("teacher", teacher), ("machine", machine)):
                if pin is not None:  # else it is said already why it could not be read
                    self._part(name, pin)
        self._lock_and_sign_off()
        self._files()
        return sorted(self._found, key=lambda drift: drift.field)

    def _part(self, name: str, found: Pin | JsonValue) -> None:
        value = found.model_dump(mode="json") if isinstance(found, Pin) else found
        self._found += drifts(self._pinned[name], value, name)

    def _readable(self, field: str, read: Callable[[], P]) -> P | None:
        try:
            return read()
        except UNREADABLE as error:
            self._differs(field, "readable", str(error))
            return None

    def _differs(self, field: str, pinned: JsonValue, found: JsonValue) -> None:
        self._found.append(Drift(field=field, pinned=pinned, found=found))

    def _harness(self) -> Harness | None:
        tree = self._readable("harness", lambda: read_files(self._path / folder.HARNESS))
        if tree is None:
            return None
        self._part("harness", now.harness_pin(tree))
        return self._readable("harness", lambda: harness_from_files(tree))

    def _config(self) -> RunConfig | None:
        settings = self._readable("settings", lambda: folder.read_settings(self._path))
        prices = self._readable("prices", lambda: folder.read_part(self._path / folder.PRICES, PriceList))
        if settings is not None:
            self._part("settings", now.other_settings(settings))
        if prices is not None:
            self._part("prices", {model: price.model_dump(mode="json") for model, price in prices.prices.items()})
            self._part("prices_on", prices.prices_on)
        if settings is None or prices is None:
            return None
        return self._readable("settings", lambda: folder.config_of(settings, prices, self._path / folder.CONFIG))

    def _tasks(self) -> None:
        listed = self._readable("tasks", lambda: folder.read_part(self._path / folder.TASKS, TaskList))
        if listed is None:
            return
        before = len(self._found)
        found = [self._task(pin) for pin in listed.tasks]
        tasks = [task for task in found if task is not None]
        pin = now.task_set_pin(listed.name, tasks)
        # a changed task changes the hash of the set, one that is gone the rest too; it has been named
        left_out = {"sha256", "n"} if len(self._found) > before else set[str]()
        left_out |= {"rubrics_sha256"} if None in found else set()
        fields: dict[str, JsonValue] = pin.model_dump(mode="json", exclude=left_out)
        pinned = self._capsule.tasks.model_dump(mode="json", exclude=left_out)
        self._found += drifts(pinned, fields, "tasks")

    def _task(self, pin: TaskPin) -> Task | None:
        field = f"tasks.{pin.id}"
        task = self._readable(field, lambda: folder.task_of(self._path, pin))
        if task is not None:
            self._found += drifts(pin.checker, checker_hash(task.check), f"{field}.checker")
            self._found += drifts(pin.hash, task.hash, f"{field}.hash")
        return task

    def _lock_and_sign_off(self) -> None:
        written = (self._path / folder.LOCK).read_bytes()
        self._found += drifts(sha256(folder.document(self._capsule)), sha256(written), folder.LOCK)
        release = self._readable(folder.RELEASE, lambda: folder.read_release(self._path))
        if release is not None:
            self._found += drifts(release.capsule_id, self._capsule.id, f"{folder.RELEASE}.capsule_id")
            self._found += drifts("released", release.verdict, f"{folder.RELEASE}.verdict")

    def _files(self) -> None:
        named = {drift.field.partition(".")[0] for drift in self._found}
        for drift in drifts(dict(self._capsule.files), dict(folder.own_files(self._path)), "files"):
            name = drift.field.removeprefix("files.")
            finer = FINER[folder.TASKS] if name.startswith(f"{folder.CARRIED}/") else FINER.get(name, ())
            if not named & set(finer):
                self._found.append(drift)
