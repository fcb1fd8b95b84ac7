"""Imported tasks on disk: reads their directories, and counts per source what was offered, admitted and why not."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue, ValidationError

from devset.directory import TaskError, read_task_dir
from devset.importers import harbor, miniwob, officebench, osworld
from devset.importers.offer import MANIFEST, ImportFailed, Offer
from devset.task import Task
from evolver.admission import read_admissions
from evolver.errors import UsageError
from evolver.records import Record, Unit
from evolver.sandboxes import open_backend
from evolver.sandboxes.recipe import DESKTOP_PACKAGES, TERMINAL_PACKAGES
from evolver.sandboxes.rootfs import pip_layer
from harnesses.harness import Environment

EVALUATORS = "desktop-env==1.0.2"  # OSWorld's metrics; only their source is read, nothing of it runs here
MINIWOB = "miniwob==1.1.0"  # likewise: its pages are read, and run in the sandbox
ASKING_S = 300.0
VERDICTS = "admissions.jsonl"
REPOSITORY = Path(__file__).parents[1]


class Offered(Record):
    """One line of the manifest: what a source offered, and why it was not imported (or the hash of what was)."""

    id: str
    origin: str
    reasons: tuple[str, ...]
    hash: str | None


class Imported(Record):
    """The manifest that an import leaves beside its task directories."""

    source: str
    offered: tuple[Offered, ...]


class SourceReport(Record):
    """What became of one source, imported into `folder`. Rates are over the tasks that were run (None before any was);
    an infeasible task is one that always giving up passes. The reasons count tasks by kind of reason."""

    source: str
    folder: str
    offered: int
    imported: int
    admitted: int
    proven: int
    quarantined: int
    not_run: int
    noop_passes: Unit | None
    fail_passes: Unit | None
    checker_crashes: Unit | None
    seconds: float
    refused_reasons: dict[str, int]
    quarantine_reasons: dict[str, int]
    quarantine: dict[str, tuple[str, ...]]


def offers(source: str, path: Path | None) -> Iterator[Offer]:
    """What the importer of this name makes of `path`. OSWorld's evaluators are downloaded the first time, and so is
    MiniWoB++ when there is no path; only that source can do without one."""
    if source == "miniwob":
        return miniwob.offers(path or pip_layer((MINIWOB,), alone=True), lambda files: asyncio.run(_asked(files)))
    if path is None:
        raise UsageError(f"PATH is missing: where the published tasks of {source} lie")
    if source == "officebench":
        return officebench.offers(path)
    if source == "osworld":
        return osworld.offers(path, pip_layer((EVALUATORS,), alone=True) / "desktop_env/evaluators/metrics")
    return harbor.offers(path, frozenset(TERMINAL_PACKAGES + DESKTOP_PACKAGES))


async def _asked(files: Mapping[str, bytes]) -> Mapping[str, Mapping[str, JsonValue]]:
    """What each page says when it begins, from a browser in a sandbox: page → what it asks, and its error."""
    sandboxes = open_backend(spares=0)
    try:
        sandbox = await sandboxes.open(Environment(image="terminal"), run_id="import", ttl_s=2 * ASKING_S)
        for name, data in files.items():
            await sandbox.write(f"/tmp/pages/{name}", data)
        ran = await sandbox.exec(
            f"cd /tmp/pages && python3 {miniwob.SHOW} {miniwob.ALL} headless > said; tail -c 300 said; exit",
            timeout_s=ASKING_S,
        )
        lines = [json.loads(line) for line in (await sandbox.read("/tmp/pages/said")).splitlines()]
    finally:
        await sandboxes.aclose()
    if not any("end" in said for said in lines):
        raise ImportFailed(f"the browser in the sandbox did not show all pages: {ran.output}")
    return miniwob.by_page(lines)


def outside(folder: Path) -> Path:
    """`folder`, which must not lie in this repository: copies of published tasks never enter it."""
    if folder.resolve().is_relative_to(REPOSITORY):
        raise UsageError(
            f"--out {folder}: lies inside the repository, which holds no copied task; give a place outside"
        )
    return folder


def read_tasks(folder: Path) -> list[Task]:
    """Every task directory in `folder`, by name; raises UsageError when there is none or one can't be read."""
    found = [p for p in sorted(folder.iterdir()) if (p / "task.toml").is_file()] if folder.is_dir() else []
    if not found:
        raise UsageError(f"{folder}: no task directories in it; `evolver tasks import` writes them")
    try:
        return [read_task_dir(path) for path in found]
    except TaskError as error:
        raise UsageError(str(error)) from error


def read_manifest(folder: Path) -> Imported:
    path = folder / MANIFEST
    try:
        return Imported.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: missing; `evolver tasks import` writes it when it has come to its end") from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no manifest of an import: {str(error).splitlines()[0]}; import again") from None


def source_report(folder: Path) -> SourceReport:
    """Counts over the manifest and the verdicts of one imported directory."""
    manifest, verdicts = read_manifest(folder), read_admissions(folder / VERDICTS)
    hashes = {one.id: one.hash for one in manifest.offered if one.hash is not None}
    known = [v for v in verdicts.values() if hashes.get(v.task_id) == v.task_hash]
    run = [v for v in known if not v.lost]
    held = [v for v in run if not v.admitted]
    return SourceReport(
        source=manifest.source,
        folder=str(folder),
        offered=len(manifest.offered),
        imported=len(hashes),
        admitted=sum(v.admitted for v in run),
        proven=sum(v.proven for v in run),
        quarantined=len(held),
        not_run=len(hashes) - len(run),
        noop_passes=_share([v.controls.noop or v.controls.done for v in run if v.controls is not None]),
        fail_passes=_share([v.controls.fail for v in run if v.controls is not None]),
        checker_crashes=_share([v.crashed for v in run]),
        seconds=round(sum(v.seconds for v in run), 1),
        refused_reasons=_kinds(one.reasons for one in manifest.offered if one.hash is None),
        quarantine_reasons=_kinds(v.reasons for v in held),
        quarantine={v.task_id: v.reasons for v in sorted(held, key=lambda v: v.task_id)},
    )


def _share(outcomes: Sequence[bool | None]) -> float | None:
    known = [outcome for outcome in outcomes if outcome is not None]
    return sum(known) / len(known) if known else None


def _kinds(every: Iterator[tuple[str, ...]]) -> dict[str, int]:
    """How many tasks have each kind of reason, the commonest first."""
    counted = Counter(kind for reasons in every for kind in {_kind(reason) for reason in reasons})
    return dict(counted.most_common())


def _kind(reason: str) -> str:
    """A reason without what is special about one task: its words up to the first value, path, or quote."""
    return re.split(r":\s|\s['\"]|\s/|\s\(|\d", reason.replace("malformed: ", "malformed "), maxsplit=1)[0].strip()
