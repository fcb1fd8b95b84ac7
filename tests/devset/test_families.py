"""Every family on three seeds: untouched and mutants fail, oracle and equivalents pass, the checker is pure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devset.checks import evaluate
from devset.families import Binding, Family, families, generic_mutants
from devset.families.skill import check_program, fields_of
from tests.devset.trial import make_home, passes, run_check, run_script

FAMILIES = list(families().values())
SEEDS = (0, 1001, 3002)
by_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
few_seeds = pytest.mark.parametrize("seed", (SEEDS[0], *(pytest.param(s, marks=pytest.mark.slow) for s in SEEDS[1:])))
by_seed = pytest.mark.parametrize("seed", SEEDS)


def values(made: Binding, home: Path) -> dict[str, float]:
    return {p.criterion: evaluate(home, [(c.name, c.slots) for c in p.checks])[0] for p in made.post}


@by_seed
@by_family
def test_untouched_fails_and_pre_holds(family: Family, seed: int, tmp_path: Path) -> None:
    task, made = family.instance(seed), family.binding(seed)
    home = make_home(task, tmp_path / "home")
    assert passes(task, home) is not task.feasible, "what is right on an infeasible task is to change nothing"
    for check in made.pre:
        assert evaluate(home, [(check.name, check.slots)]) == (1.0, evaluate(home, [(check.name, check.slots)])[1])


@few_seeds
@by_family
def test_terminal_oracle_passes(family: Family, seed: int, tmp_path: Path) -> None:
    task, made = family.instance(seed), family.binding(seed)
    if task.oracle.terminal is None:
        assert family.gui_only, "a family without a terminal oracle says why"
        pytest.skip(f"solvable through the GUI only: {family.gui_only}")
    home = make_home(task, tmp_path / "home")
    for step in task.oracle.terminal:
        done = run_script(home, step.command)
        assert done.returncode == 0, done.stderr
    assert passes(task, home), values(made, home)


@few_seeds
@by_family
def test_mutants_fail_and_equivalents_pass(family: Family, seed: int, tmp_path: Path) -> None:
    task, made = family.instance(seed), family.binding(seed)
    assert len(made.mutants) >= 2 and len(made.equivalents) >= 1
    wrong = {**made.mutants, **generic_mutants(made)}
    assert len(wrong) == len(made.mutants) + len(generic_mutants(made))
    for number, (name, script) in enumerate(wrong.items()):
        home = make_home(task, tmp_path / f"mutant{number}")
        run_script(home, script)
        assert not passes(task, home), f"mutant {name!r} passes"
    for number, (name, script) in enumerate(made.equivalents.items()):
        home = make_home(task, tmp_path / f"equivalent{number}")
        done = run_script(home, script)
        assert passes(task, home), f"equivalent {name!r} fails: {values(made, home)} {done.stderr}"


@by_family
def test_g15_check_program_is_pure_and_agrees_with_itself(family: Family, tmp_path: Path) -> None:
    task, made = family.instance(1), family.binding(1)
    home = make_home(task, tmp_path / "home")
    solution = (
        "\n".join(s.command for s in task.oracle.terminal)
        if task.oracle.terminal
        else next(iter(made.equivalents.values()))
    )
    run_script(home, solution)
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    first, second = run_check(task, home, tmp_path), run_check(task, home, tmp_path)
    assert first == second
    assert {name: verdict["value"] for name, verdict in first.items()} == {c.id: 1.0 for c in task.rubric.criteria}
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file()} == before


@by_family
def test_instances_are_deterministic_and_described(family: Family) -> None:
    made = family.binding(7)
    assert family.instance(7) == family.instance(7)
    assert family.instance(7).hash != family.instance(8).hash
    assert len(made.wordings) >= 3
    for wording in made.wordings:
        public = {name for name, slot in family.slots.items() if not slot.nonce}
        assert fields_of(wording) <= public, "a nonce may not be said in the instruction"
        assert 6 <= len(wording.format(**made.slots).split()) <= 45


@by_family
def test_g06_every_slot_of_the_instruction_matters_and_program_matches(family: Family) -> None:
    """What the check scores follows from slots; the program holds no logic beyond the chosen atomic checks."""
    task = family.instance(3)
    assert task.check.startswith("from devset.checks import grade\n\ngrade(")
    assert task.check == check_program_of(family, 3)
    assert {c.id for c in task.rubric.criteria} >= {p.criterion for p in family.binding(3).post}


def check_program_of(family: Family, seed: int) -> str:
    from devset.families.skill import frame

    made = family.binding(seed)
    return check_program((*made.post, *frame(made.files, made.writes)))


@by_family
def test_g07_nonces_are_only_where_they_must_be_read(family: Family) -> None:
    for seed in (*SEEDS, *range(20)):
        task, made = family.instance(seed), family.binding(seed)
        for nonce, home in made.nonces.items():
            word = re.compile(rf"(?<!\w){re.escape(nonce)}(?!\w)")
            assert not word.search(task.instruction), f"{nonce} is in the instruction of {task.id}"
            shown = [p for p, data in task.exec_files.items() if word.search(data.decode("utf-8", "ignore"))]
            assert set(shown) <= {home}, f"{nonce} of {task.id} is visible in {shown}"
            assert all(nonce not in value for value in (task.setup, *(o.command for o in task.open)))


def test_catalogue_has_what_was_promised() -> None:
    assert len(FAMILIES) >= 60
    tasks = {f.name: f.instance(0) for f in FAMILIES}
    assert {f.group for f in FAMILIES} == {"files", "text", "sheets", "documents", "crossing", "pages", "records"}
    assert {f.category for f in FAMILIES} == {"os", "office", "daily", "professional", "multi_app"}
    assert sum(f.group == "crossing" for f in FAMILIES) >= 4
    assert sum("gui" in t.channels for t in tasks.values()) >= 8
    assert sum(t.channels == {"gui"} for t in tasks.values()) >= 2
    one_command = [
        t for t in tasks.values() if t.oracle.terminal and len(t.oracle.terminal) == 1 and not t.requires_pip
    ]
    assert len(one_command) * 2 >= len(FAMILIES)
