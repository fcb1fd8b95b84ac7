"""Grades `program` criteria: the task's check program, run beside the frozen home in a clean sandbox of its own.

The agent is dead and its machine gone by then. Our own checks execute nothing that it wrote; those of imported tasks
may (their tests and commands), so such a check names packages of its own and has a sandbox to itself. Whatever goes
wrong with the check itself (crash, timeout, output that is no verdict) leaves the criteria unscored; it is never a 0.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

import devset
from devset.task import Criterion, Task, task_hash
from evolver.errors import CheckerFailed, SandboxLost
from evolver.protocols import Sandbox, Sandboxes
from evolver.records import Rollout, Score
from evolver.score import score_of
from harnesses.harness import Environment

CLEAN = Environment(image="terminal")
UNPACK_S = 30.0
TTL_S = 3_600.0
MAX_EXPLANATION = 500


class ProgramGrader:
    """Keeps one clean sandbox per grading that runs at the same time, uses it again, and replaces one that is lost."""

    name = "program"

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._idle: list[Sandbox] = []  # clean ones; a task's own libraries (`check_pip`) are never among them
        self._verified: set[str] = set()

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        """One score per criterion, in order; value None and the reason where the check program failed."""
        try:
            verdicts = await self._verdicts(task, state)
        except (CheckerFailed, SandboxLost) as error:
            return [self._score(c, None, f"unscored, {error.kind}: {error}") for c in criteria]
        return [self._score(c, *verdicts[c.id]) for c in criteria]

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    def _score(self, criterion: Criterion, value: float | None, explanation: str) -> Score:
        return score_of(criterion, value, explanation[:MAX_EXPLANATION], self.name)

    async def _verdicts(self, task: Task, state: bytes) -> dict[str, tuple[float, str]]:
        if task.hash not in self._verified:
            if task_hash(task) != task.hash:
                raise CheckerFailed(f"task {task.id}: its bytes are not those of hash {task.hash[:12]}")
            self._verified.add(task.hash)
        bundle = _bundle(task, state)
        try:
            report = await self._run(task, bundle)
        except SandboxLost:  # once more on a fresh machine; what fails there is told
            report = await self._run(task, bundle)
        failed, printed = report.get("failed"), report.get("printed")
        if failed is not None or not isinstance(printed, str):
            raise CheckerFailed(f"task {task.id}: {failed or 'no report'}")
        return verdicts_in(printed, task)

    async def _run(self, task: Task, bundle: bytes) -> Mapping[str, JsonValue]:
        sandbox = self._idle.pop() if self._idle and not task.check_pip else await self._open(task)
        reusable = False
        try:
            report = await _graded(sandbox, task, bundle)
            reusable = not task.check_pip
            return report
        finally:
            if reusable:
                self._idle.append(sandbox)
            else:
                await sandbox.close()

    async def _open(self, task: Task) -> Sandbox:
        place = CLEAN.model_copy(update={"pip": task.check_pip})
        return await self._sandboxes.open(place, run_id=f"grader-{uuid.uuid4().hex[:8]}", ttl_s=TTL_S)


async def _graded(sandbox: Sandbox, task: Task, bundle: bytes) -> Mapping[str, JsonValue]:
    """One write, one command; the folder of this grading is gone afterwards."""
    folder = f"/tmp/grading-{uuid.uuid4().hex}"
    await sandbox.write(f"{folder}/bundle.tar", bundle)
    timeout_s = task.limits.check_timeout_s
    sha = hashlib.sha256(task.check.encode()).hexdigest()
    ran = await sandbox.exec(
        f"cd {folder} && tar -xf bundle.tar && rm bundle.tar && python3 -I inside.py {sha} {timeout_s:g}; "
        f"code=$?; cd / && chmod -R u+rwX {folder} && rm -rf {folder}; exit $code",
        timeout_s=timeout_s + UNPACK_S,
    )
    if ran.exit_code is None:
        raise SandboxLost(f"grading of task {task.id} was killed after {timeout_s + UNPACK_S:g} s")
    report = _last_object(ran.output)
    if ran.exit_code != 0 or report is None:
        raise CheckerFailed(f"task {task.id}: the grading program ended with {ran.exit_code}: {ran.output[-400:]}")
    return report


def _bundle(task: Task, state: bytes) -> bytes:
    """Everything that one grading needs, as a tar: the frozen home, ground truth, check, and the checks library."""
    files = {
        "home.tar": state,
        "check.py": task.check.encode(),
        "inside.py": (Path(__file__).parent / "inside.py").read_bytes(),
        **{f"gt/{path}": data for path, data in task.gt_files.items()},
        **_library(),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        folder = tarfile.TarInfo("gt")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


@functools.cache
def _library() -> Mapping[str, bytes]:
    """`devset.checks` as files below lib/ (check programs may import it, and nothing else of the platform)."""
    root = Path(devset.__file__).parent
    found = {"lib/devset/__init__.py": b""}
    for path in sorted((root / "checks").rglob("*.py")):
        found[f"lib/devset/{path.relative_to(root)}"] = path.read_bytes()
    return found


def verdicts_in(printed: str, task: Task) -> dict[str, tuple[float, str]]:
    """Criterion → (value, explanation) from what the check printed; its last JSON object counts. Raises CheckerFailed
    unless it names exactly the rubric's program criteria, each with a finite number in 0..1."""
    verdict = _last_object(printed)
    if verdict is None:
        raise CheckerFailed(f"task {task.id}: expected one JSON object, got {printed[-200:]!r}")
    wanted = {c.id for c in task.rubric.criteria if c.grader == "program"}
    if set(verdict) != wanted:
        raise CheckerFailed(f"task {task.id}: expected criteria {sorted(wanted)}, got {sorted(verdict)}")
    found: dict[str, tuple[float, str]] = {}
    for criterion, said in verdict.items():
        value = said.get("value") if isinstance(said, dict) else None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not (math.isfinite(value) and 0 <= value <= 1)
        ):
            raise CheckerFailed(f"task {task.id}: the value of {criterion!r} must be a number in 0..1, got {value!r}")
        explanation = said.get("explanation", "") if isinstance(said, dict) else ""
        found[criterion] = (float(value), explanation if isinstance(explanation, str) else json.dumps(explanation))
    return found


def _last_object(text: str) -> dict[str, JsonValue] | None:
    """The last line that is a JSON object (or the whole text, when the object spans lines); None without one."""
    for candidate in (*reversed(text.strip().splitlines()), text):
        try:
            value = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None
