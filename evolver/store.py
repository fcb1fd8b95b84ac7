"""The run directory: every record of a run, each appended once to the log of its kind, and blobs by content.

    RUN/run.json            schema version, run id, config
    RUN/rollouts.jsonl ...  one line = one record, in the order of writing
    RUN/blobs/ab/<sha256>   screenshots and other bytes

Several processes may write at the same time. A crash loses at most the record that was being written, a power loss
also the last ones for which nobody has waited until they were on the disk (`append`, `settled`).
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from pydantic import JsonValue, ValidationError

from evolver.audit import Calibration, Judgement, Opening, SelfCheck
from evolver.config import RunConfig, changed_fields, parse_config
from evolver.disk import locked, make_folder, on_disk, replace, sync, write_all
from evolver.errors import UsageError
from evolver.records import (
    SCHEMA_VERSION,
    Annotation,
    Candidate,
    Crossing,
    Decision,
    Distillation,
    Ending,
    Evaluation,
    FailedProposal,
    Final,
    Freeze,
    Frozen,
    Gap,
    Learnability,
    LedgerEntry,
    Record,
    Release,
    Rollout,
    Scorecard,
    Stage,
)

R = TypeVar("R", bound=Record)

LOGS: dict[type[Record], str] = {
    Annotation: "annotations",
    Calibration: "calibrations",
    Candidate: "candidates",
    Crossing: "crossings",
    Decision: "decisions",
    Distillation: "distillations",
    Ending: "endings",
    Evaluation: "evaluations",
    FailedProposal: "failed_proposals",
    Final: "finals",
    Freeze: "freezes",
    Frozen: "frozen",
    Gap: "gaps",
    Judgement: "judgements",
    Learnability: "learnability",
    LedgerEntry: "ledger",
    Opening: "openings",
    Release: "releases",
    Rollout: "rollouts",
    Scorecard: "scorecards",
    SelfCheck: "checks",
    Stage: "stages",
}


class DuplicateRecord(ValueError):
    """A record's id is taken by a different record."""


class TornLine(UserWarning):
    """The last line of a log was cut off by a crash; it is ignored, and removed before the next record."""


@dataclass
class _Log:
    """What this process has read of one log so far."""

    path: Path
    offset: int = 0
    lines: int = 0
    records: list[Record] = field(default_factory=list)
    by_id: dict[str, Record] = field(default_factory=dict)


def record_id(record: Record) -> str:
    """The id by which a record is one of a kind within its log (a scorecard has its rollout's)."""
    name = "rollout_id" if isinstance(record, Scorecard) else "id"
    return str(getattr(record, name))


def new_run_id() -> str:
    """Sortable by time, and unique however many are made in one second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


class Store:
    """An open run directory. Use `Store.create` or `Store.open`; nothing stays open between calls."""

    def __init__(self, path: Path, run_id: str, config: RunConfig) -> None:
        self.path = path
        self.run_id = run_id
        self.config = config
        self._logs = {kind: _Log(path / f"{name}.jsonl") for kind, name in LOGS.items()}
        self._unsynced: set[Path] = set()
        self._written = self._synced = 0
        self._syncing = asyncio.Lock()

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> Store:
        """A new run directory, or the existing one if it was made with the same config (resume = the same command).

        Settings that change no result (caps, prices, workers) may differ and are taken over, a teacher that the newest
        stage names, and any teacher until something was played; a run without a record takes any setting.
        Raises `UsageError` for a directory of another config or version, or one that holds other files.
        """
        if not (path / "run.json").exists():
            cls._start(path, config)
        store = cls.open(path)
        changed = changed_fields(store.config, config)
        stages, played = store.all(Stage), store._logs[Rollout].path.exists()
        if not played or (stages and stages[-1].teacher == config.teacher_id != store.config.teacher_id):
            changed = [field for field in changed if not field.startswith("teacher.")]
        if changed and any(log.path.exists() for kind, log in store._logs.items() if kind is not Ending):
            raise UsageError(
                f"{path} was started with other settings ({'; '.join(changed)}): "
                "give them back, choose another --out, or start over with --fresh" + _swap_hint(path, changed)
            )
        if store.config != config:
            with on_disk(path):
                replace(path / "run.json", _run_json(store.run_id, config))
            store.config = config
        return store

    @staticmethod
    def _start(path: Path, config: RunConfig) -> None:
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file, not a run directory: choose another --out")
        if path.is_dir() and any(not p.name.startswith(("run.json", ".run.")) for p in path.iterdir()):
            raise UsageError(f"{path} holds files but no run.json, so it is no run directory: choose another --out")
        with on_disk(path):
            make_folder(path)
            replace(path / "run.json", _run_json(new_run_id(), config), only_new=True)

    @classmethod
    def open(cls, path: Path) -> Store:
        """An existing run directory; touches nothing. Raises `UsageError` if it is none, or of another version."""
        file = path / "run.json"
        try:
            raw = json.loads(file.read_text())
            version, run_id, config = raw["schema_version"], raw["run_id"], raw["config"]
        except FileNotFoundError:
            raise UsageError(
                f"no run at {path} (no run.json): start one with `evolver run CONFIG --out {path}`"
            ) from None
        except OSError as error:
            raise UsageError(f"can't read {file}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file} is broken ({error!r}): restore it or choose another --out") from error
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{path} was written by schema version {version}, this program reads version {SCHEMA_VERSION}: "
                "use the program that made it, or choose another --out"
            )
        return cls(path, run_id, parse_config(config, str(file)))

    def append(self, record: Record) -> None:
        """Makes a record durable before it returns. The same record again is no change.

        Raises `DuplicateRecord` for a taken id, `ValueError` for NaN or infinity, `UsageError` for a full disk.
        """
        self.write(record)
        path = self._log(type(record)).path
        if path in self._unsynced:
            with on_disk(path):
                sync((path, self.path))
            self._unsynced.discard(path)

    def write(self, record: Record) -> None:
        """`append` without the wait for the disk: `settled` ends it."""
        log = self._log(type(record))
        line = _line(record, log.path)
        with on_disk(log.path), locked(log.path, fcntl.LOCK_EX) as fd:
            self._follow(log, type(record), fd)
            known = log.by_id.get(record_id(record))
            if known == record:
                return
            if known is not None:
                raise DuplicateRecord(f"{log.path}: id {record_id(record)} is taken by a different record")
            if os.fstat(fd).st_size > log.offset:
                os.ftruncate(fd, log.offset)
            try:
                write_all(fd, line)
            except OSError:
                os.ftruncate(fd, log.offset)
                raise
            self._take(log, record, len(line))
        self._unsynced.add(log.path)
        self._written += 1

    async def settled(self) -> None:
        """Returns when everything written so far is on the disk; those who wait together share one sync of each log."""
        mine = self._written
        async with self._syncing:
            if self._synced >= mine:
                return
            upto, paths = self._written, (*self._unsynced, self.path)  # the latter for the names of new logs
            with on_disk(self.path):
                await asyncio.to_thread(sync, paths)
            self._synced = upto
            if self._written == upto:
                self._unsynced.clear()

    def all(self, kind: type[R]) -> list[R]:
        """Every record of a kind in the order of writing, with what other processes have written meanwhile."""
        return self.since(kind, 0)

    def since(self, kind: type[R], number: int) -> list[R]:
        """`all` without its first `number` records, for those who follow a log."""
        log = self._log(kind)
        try:
            size = log.path.stat().st_size
        except FileNotFoundError:
            size = log.offset
        if size != log.offset:
            with locked(log.path, fcntl.LOCK_SH) as fd:
                self._follow(log, kind, fd)
        return cast(list[R], log.records[number:])

    def get(self, kind: type[R], record_id: str) -> R | None:
        """The record of a kind with an id."""
        self.since(kind, len(self._log(kind).records))
        return cast(R | None, self._log(kind).by_id.get(record_id))

    def put_blob(self, data: bytes) -> str:
        """Keeps bytes under their sha256 (64 hex digits), which it returns. Raises `UsageError` for a full disk."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.blob_path(sha256)
        if not path.exists():
            with on_disk(path):
                make_folder(path.parent)
                replace(path, data)
        return sha256

    def blob(self, sha256: str) -> bytes:
        """The bytes kept under a sha256. Raises `UsageError` when they are missing or damaged."""
        path = self.blob_path(sha256)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise UsageError(f"{self.path} lacks blob {sha256}") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise UsageError(f"{path} is damaged: its bytes do not have the sha256 of its name")
        return data

    def blob_path(self, sha256: str) -> Path:
        return self.path / "blobs" / sha256[:2] / sha256

    @contextmanager
    def working(self) -> Iterator[None]:
        """Held by the one process that drives the run. Raises `UsageError` when another one is at it."""
        with self.lock(self.path):
            yield

    @staticmethod
    @contextmanager
    def lock(path: Path, *, for_parent: bool = False) -> Iterator[None]:
        """`working` for a run directory that may be of any version. `for_parent`: a process whose parent holds it works
        for that one, and needs none of its own."""
        with on_disk(path):
            fd = os.open(path / ".run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = os.pread(fd, 32, 0).decode().strip() or "unknown"
                if not for_parent or who != str(os.getppid()):
                    raise UsageError(f"{path} is being worked on by process {who}: wait for it or stop it") from None
            else:
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(fd)

    def free_bytes(self) -> int:
        """Free space on the run's disk."""
        return shutil.disk_usage(self.path).free

    def _log(self, kind: type[Record]) -> _Log:
        if kind not in self._logs:
            raise TypeError(f"{kind.__name__} has no log; logs are kept for {', '.join(k.__name__ for k in LOGS)}")
        return self._logs[kind]

    def _follow(self, log: _Log, kind: type[Record], fd: int) -> None:
        """Reads what was appended since; needs a lock on `fd`, so that an unfinished line is a torn one."""
        size = os.fstat(fd).st_size
        if size < log.offset:
            raise UsageError(f"{log.path} is shorter than it was: something cut it; restore it from a copy")
        data = os.pread(fd, size - log.offset, log.offset) if size > log.offset else b""
        *whole, rest = data.split(b"\n")
        for line in whole:
            try:
                record = kind.model_validate_json(line)
            except ValidationError as error:
                place = f"{log.path}:{log.lines + 1}"
                raise UsageError(f"{place} is no {kind.__name__} ({_first(error)}): mend or remove that line") from None
            self._take(log, record, len(line) + 1)
        if rest:
            warnings.warn(f"{log.path}:{log.lines + 1} was cut off by a crash and is ignored", TornLine, stacklevel=3)

    @staticmethod
    def _take(log: _Log, record: Record, size: int) -> None:
        log.records.append(record)
        log.by_id[record_id(record)] = record
        log.offset += size
        log.lines += 1


def _swap_hint(path: Path, changed: list[str]) -> str:
    if not any(field.startswith("teacher.") for field in changed):
        return ""
    return f"; another teacher is a stage of its own: evolver stage {path} NAME --teacher MODEL --why WHY"


def _run_json(run_id: str, config: RunConfig) -> bytes:
    data: dict[str, JsonValue] = {
        "schema_version": SCHEMA_VERSION,
        "created_by": "evolver",
        "run_id": run_id,
        "config": config.model_dump(mode="json"),
    }
    return json.dumps(data, indent=1, allow_nan=False).encode() + b"\n"


def _line(record: Record, path: Path) -> bytes:
    line = record.model_dump_json().encode() + b"\n"
    if b"NaN" in line or b"Infinity" in line:  # as a number, or as a word in some text
        try:
            json.dumps(record.model_dump(mode="python"), allow_nan=False)
        except ValueError as error:
            raise ValueError(f"{path.name}: record {record_id(record)} holds NaN or infinity") from error
    return line


def _first(error: ValidationError) -> str:
    one = error.errors()[0]
    return ": ".join([".".join(str(p) for p in one["loc"]) or "line", one["msg"]])
