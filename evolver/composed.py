"""The gate of forged tasks: every composition rule by doing, cheap first, then the gate that every task goes through.

static → leaks → trial in one sandbox (built, C1 to C7, C9, C11, wrong and other right solutions) → nothing done, and
each oracle, on fresh machines (evolver.admission). The trial replays terminal oracles, and going back to an earlier
state is a copy of the home, so a composition costs one machine there.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Literal

import devset
from devset.forge.proof import broken, plan_of
from devset.forge.rules import Violation, violations
from devset.forge.sampler import Composed
from devset.forge.trial import Facts
from evolver.admission import Admission, Bench, admit
from evolver.controls import home_tar
from evolver.disk import append_line, records_in
from evolver.errors import Blamed, CheckerFailed, SandboxLost
from evolver.quality import without_screen
from evolver.records import Finite, Record
from evolver.rollout import HOME, set_up
from evolver.sandboxes.recipe import SITE

FOLDER = "/tmp/trial"
TRIAL_S = 600.0
TTL_S = 900.0
LIBRARY = ("__init__.py", "checks/*.py", "forge/__init__.py", "forge/trial.py")  # of devset: what a trial needs
GateName = Literal["static", "leak", "build", "rules", "mutants", "equivalents", "machines"]
GATES: tuple[GateName, ...] = ("static", "leak", "build", "rules", "mutants", "equivalents", "machines")


class Gate(Record):
    """One gate as one task went through it. `machines` is: nothing done scores 0, each oracle 1, on fresh machines."""

    name: GateName
    passed: bool
    seconds: Finite


class Proof(Record):
    """What the gate found out about one composed task.

    `gates` ends with the first that it did not pass. `broken` names the composition rules that don't hold. `mutants`
    and `equivalents` count solutions that were tried; `survivors` are wrong ones that succeed, `rejected` right ones
    that don't. `lost` is a failure of our own machines, which says nothing about the task.
    """

    task_id: str
    task_hash: str
    skills: tuple[str, ...]
    admitted: bool
    lost: bool
    gates: tuple[Gate, ...]
    broken: tuple[str, ...]
    reasons: tuple[str, ...]
    mutants: int
    equivalents: int
    survivors: tuple[str, ...]
    rejected: tuple[str, ...]
    admission: Admission | None


@dataclasses.dataclass(frozen=True)
class GateRow:
    """One gate over many tasks; `seconds` is the time spent in it, summed over them."""

    name: GateName
    came: int
    passed: int
    seconds: float


@dataclasses.dataclass
class _Case:
    gates: list[Gate] = dataclasses.field(default_factory=list)
    broken: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    facts: Facts = dataclasses.field(default_factory=Facts)
    lost: bool = False
    admission: Admission | None = None

    def gate(self, name: GateName, reasons: Iterable[str], seconds: float = 0.0) -> bool:
        """Notes the gate and returns whether it was passed."""
        found = list(reasons)
        self.reasons += found
        self.gates.append(Gate(name=name, passed=not found, seconds=round(seconds, 3)))
        return not found

    def rules(self, name: GateName, found: Sequence[Violation], seconds: float) -> bool:
        self.broken += dict.fromkeys(v.rule for v in found)
        return self.gate(name, (f"{v.rule}: {v.why}" for v in found), seconds)


async def prove(made: Sequence[Composed], bench: Bench, path: Path | None = None) -> AsyncIterator[Proof]:
    """One proof per composition, as they come; each is appended to `path` as a line of JSON before it is yielded.

    Proofs that `path` already has on the very same tasks come first and are not made again.
    """
    known = {} if path is None else read_proofs(path)
    hashes = {one.id: one.task.hash for one in made}
    stands = {i for i, p in known.items() if hashes.get(i) == p.task_hash and not p.lost}
    for task_id in sorted(stands):
        yield known[task_id]

    async def one(composed: Composed) -> Proof:
        return await _prove_one(composed, bench)

    async for proof in bench.executor.map(one, [m for m in made if m.id not in stands]):
        if path is not None:
            append_line(path, proof.model_dump_json())
        yield proof


def read_proofs(path: Path) -> dict[str, Proof]:
    """Task id → its last proof in `path`."""
    return {proof.task_id: proof for proof in records_in(path, Proof)}


def gate_table(proofs: Iterable[Proof]) -> list[GateRow]:
    """Per gate how many tasks came, how many passed, and the seconds; tasks that our machines lost are left out."""
    gates = [gate for proof in proofs if not proof.lost for gate in proof.gates]
    came, passed = Counter(g.name for g in gates), Counter(g.name for g in gates if g.passed)
    return [
        GateRow(name, came[name], passed[name], round(sum(g.seconds for g in gates if g.name == name), 1))
        for name in GATES
    ]


def admission_of(proof: Proof) -> Admission:
    """The verdict as the gate of single tasks says it: its own, or what refused the task before it came so far."""
    return proof.admission or Admission(
        task_id=proof.task_id,
        task_hash=proof.task_hash,
        admitted=False,
        proven=False,
        crashed=False,
        lost=proof.lost,
        controls=None,
        reasons=proof.reasons,
        seconds=round(sum(gate.seconds for gate in proof.gates), 3),
    )


async def _prove_one(made: Composed, bench: Bench) -> Proof:
    case = _Case()
    await _gates(made, bench, case)
    return Proof(
        task_id=made.id,
        task_hash=made.task.hash,
        skills=made.flow.skills,
        admitted=not case.reasons,
        lost=case.lost,
        gates=tuple(case.gates),
        broken=tuple(dict.fromkeys(case.broken)),
        reasons=tuple(dict.fromkeys(case.reasons)),
        mutants=len(case.facts.mutants),
        equivalents=len(case.facts.equivalents),
        survivors=_named(case.facts.mutants, True),
        rejected=_named(case.facts.equivalents, False),
        admission=case.admission,
    )


async def _gates(made: Composed, bench: Bench, case: _Case) -> None:
    """Gate after gate until one is not passed."""
    started = time.monotonic()
    found = violations(made.flow, made.task)
    seconds = time.monotonic() - started
    if not case.rules("static", [v for v in found if v.rule != "leak"], seconds):
        return
    if not case.rules("leak", [v for v in found if v.rule == "leak"], 0.0):
        return
    if _is_to_be_tried(made) and not await _tried(made, bench, case):
        return
    async for admission in admit([made.task], bench):
        case.admission, case.lost = admission, admission.lost
        case.gate("machines", admission.reasons, admission.seconds)


def _is_to_be_tried(made: Composed) -> bool:
    """Whether a trial can do it: a skill by itself may be for the GUI alone, or one that nobody can do."""
    return len(made.flow.nodes) > 1 or (made.task.feasible and "terminal" in made.task.oracle.channels)


async def _tried(made: Composed, bench: Bench, case: _Case) -> bool:
    """The gates from `build` to `equivalents`, by one trial; whether all were passed."""
    started = time.monotonic()
    try:
        case.facts = await _trial(made, bench)
    except Blamed as error:
        case.lost = isinstance(error, SandboxLost)
        return case.gate("build", [f"{error.kind}: {error}"], time.monotonic() - started)
    seconds = time.monotonic() - started
    case.gate("build", [])
    facts = case.facts
    wrong = [f"mutant succeeds: {name}" for name in _named(facts.mutants, True)]
    right = [f"equivalent solution fails: {name}" for name in _named(facts.equivalents, False)]
    return (
        case.rules("rules", broken(made.flow, facts), seconds)  # what follows was tried in the same sandbox
        and case.gate("mutants", wrong)
        and case.gate("equivalents", right)
    )


def _named(outcomes: dict[str, bool], value: bool) -> tuple[str, ...]:
    return tuple(name for name, outcome in outcomes.items() if outcome is value)


async def _trial(made: Composed, bench: Bench) -> Facts:
    """Sets the task up on the terminal harness's machine, without its screen, and tries its plan there."""
    place = without_screen(bench.terminal).environment
    plan = json.dumps(dataclasses.asdict(plan_of(made.flow)))
    sandbox = await bench.sandboxes.open(place, run_id=bench.run_id, ttl_s=TTL_S, rollout_id=made.id)
    try:
        await set_up(sandbox, bench.terminal, made.task.model_copy(update={"open": ()}))
        await sandbox.write(f"{FOLDER}/library.tar", _library())
        await sandbox.write(f"{FOLDER}/plan.json", plan.encode())
        ran = await sandbox.exec(
            f"cd {FOLDER} && tar -xf library.tar && PYTHONPATH={FOLDER}:{SITE} PYTHONPYCACHEPREFIX={FOLDER}/compiled "
            f"python3 -m devset.forge.trial plan.json {HOME} > facts.json",
            timeout_s=TRIAL_S,
        )
        if ran.exit_code != 0:
            raise CheckerFailed(f"the trial of {made.id} ended with {ran.exit_code}: {ran.output[-400:]}")
        return Facts(**json.loads(await sandbox.read(f"{FOLDER}/facts.json")))
    finally:
        await sandbox.close()


def _library() -> bytes:
    root = Path(devset.__file__).parent
    found = sorted(path for pattern in LIBRARY for path in root.glob(pattern))
    return home_tar({f"devset/{path.relative_to(root)}": path.read_bytes() for path in found})
