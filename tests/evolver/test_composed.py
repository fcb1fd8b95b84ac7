"""The gate of composed tasks: gate after gate, cheap first; proofs are kept; on real machines it lets sound ones in."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from devset.families.skill import lines_post, steps
from devset.forge.sampler import Composed
from evolver.admission import Bench
from evolver.composed import GATES, Proof, admission_of, gate_table, prove, read_proofs
from evolver.errors import SandboxLost
from evolver.executors.local import LocalExecutor
from evolver.graders.program import ProgramGrader
from evolver.models.demonstrator import Demonstrator
from evolver.protocols import Ran, Sandboxes
from evolver.sandboxes import open_backend
from evolver.testing import FakeSandbox, FakeSandboxes
from harnesses.tree import read_tree, seed_path
from tests.devset.tiny_skills import composed, node

A, B = "apple", "bread"
LEAKING = composed(node(A, nonces={"bread": "Desktop/apple.md"}), node(B))
ELSEWHERE = composed(node(A), node("cream", post=(lines_post("seen", "Elsewhere.", "Desktop/passing.txt", ["x"]),)))
SOUND = composed(node(A), node(B))


def bench(sandboxes: Sandboxes, *graders: ProgramGrader) -> Bench:
    return Bench(
        sandboxes=sandboxes,
        graders=graders,
        executor=LocalExecutor(2),
        demonstrator=Demonstrator(),
        gui=read_tree(seed_path("alpha")),
        terminal=read_tree(seed_path("beta1")),
        oracle_runs=2,
    )


def machine(answer: Callable[[FakeSandbox, str], Ran]) -> FakeSandboxes:
    def make() -> FakeSandbox:
        sandbox = FakeSandbox()
        sandbox.otherwise = answer
        return sandbox

    return FakeSandboxes(make)


async def proofs(sandboxes: FakeSandboxes, *made: Composed, path: Path | None = None) -> list[Proof]:
    return [proof async for proof in prove(made, bench(sandboxes), path)]


async def test_what_static_rules_refuse_costs_no_machine() -> None:
    for made, gates, rule in ((ELSEWHERE, ["static"], "C8"), (LEAKING, ["static", "leak"], "leak")):
        sandboxes = machine(lambda sandbox, command: Ran(0, ""))
        (proof,) = await proofs(sandboxes, made)
        assert sandboxes.opened == [] and not proof.admitted and not proof.lost
        assert [gate.name for gate in proof.gates] == gates and proof.broken == (rule,)
        assert not proof.gates[-1].passed and all(gate.passed for gate in proof.gates[:-1])
        assert proof.reasons[0].startswith(f"{rule}: ")
        assert admission_of(proof).reasons == proof.reasons and not admission_of(proof).admitted


async def test_a_trial_that_breaks_down_is_refused_and_one_that_is_lost_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "out/proofs.jsonl"
    broken = machine(lambda sandbox, command: Ran(1, "Traceback"))
    (proof,) = await proofs(broken, SOUND)
    assert not proof.lost and proof.gates[-1].name == "build" and "Traceback" in proof.reasons[0]
    assert all(sandbox.closed for sandbox in broken.opened)

    def lose(sandbox: FakeSandbox, command: str) -> Ran:
        raise SandboxLost("gone")

    (proof,) = await proofs(machine(lose), SOUND, path=path)
    assert proof.lost and not proof.admitted and gate_table([proof])[2].came == 0
    (proof,) = await proofs(broken, SOUND, path=path)
    assert not proof.lost


async def test_proofs_that_stand_are_not_made_again(tmp_path: Path) -> None:
    path, nothing = tmp_path / "proofs.jsonl", machine(lambda sandbox, command: Ran(0, ""))
    (first,) = await proofs(nothing, LEAKING, path=path)
    with path.open("a") as lines:
        lines.write('{"task_id": "cut o')
    both = await proofs(nothing, LEAKING, ELSEWHERE, path=path)
    assert both[0] == first and len(both) == 2
    lines = path.read_text().splitlines()
    assert len(lines) == 3 and read_proofs(path).keys() == {LEAKING.id, ELSEWHERE.id}  # the half line was ended
    changed = composed(node(A, nonces={"bread": "Desktop/apple.md"}, setup="true"), node(B))
    assert changed.id == LEAKING.id
    (again,) = await proofs(nothing, changed, path=path)
    assert again.task_hash == changed.task.hash


async def test_gates_are_counted_in_and_out() -> None:
    made = await proofs(machine(lambda sandbox, command: Ran(1, "")), LEAKING, ELSEWHERE, SOUND)
    rows = gate_table(made)
    assert [row.name for row in rows] == list(GATES)
    assert [(row.came, row.passed) for row in rows[:4]] == [(3, 2), (2, 1), (1, 0), (0, 0)]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap (Debian: apt-get install bubblewrap)")
async def test_real_machines_let_sound_compositions_in_and_no_other(tmp_path: Path) -> None:
    undoing = steps(("Write", f"echo {B} > ~/Desktop/{B}.txt; echo > ~/Desktop/{A}.txt"))
    chocolate = "chocolate"
    cases = {
        "sound": SOUND,
        "undone": composed(node(A), node(B, terminal=undoing)),
        "wrong": composed(node(A), node(chocolate, mutants={"right": f"echo {chocolate} > ~/Desktop/{chocolate}.txt"})),
        "right": composed(node(B), node(chocolate, equivalents={"wrong": "true"})),
        "broken": composed(node(A), node("dates", setup="exit 3")),
    }
    sandboxes = open_backend("local", spares=0)
    grader = ProgramGrader(sandboxes)
    try:
        found = {p.task_hash: p async for p in prove(list(cases.values()), bench(sandboxes, grader))}
    finally:
        await grader.aclose()
        await sandboxes.aclose()
    said = {name: found[made.task.hash] for name, made in cases.items()}
    assert said["sound"].reasons == () and said["sound"].admitted
    assert [gate.name for gate in said["sound"].gates] == list(GATES)
    assert said["sound"].admission is not None and said["sound"].admission.proven
    assert said["sound"].mutants == 9 and said["sound"].equivalents == 2 and not said["sound"].survivors
    assert said["undone"].broken[0] == "C2" and said["undone"].gates[-1].name == "rules"
    assert said["wrong"].survivors == ("2: right",) and said["wrong"].gates[-1].name == "mutants"
    assert said["right"].rejected == ("2: wrong",) and said["right"].gates[-1].name == "equivalents"
    assert said["broken"].gates[-1].name == "build" and "setup" in said["broken"].reasons[0]
    assert not any(proof.lost for proof in said.values())
