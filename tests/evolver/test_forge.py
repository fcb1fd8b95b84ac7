"""A forged set as commands make it, and as a sample lets it in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from devset.directory import read_task_dir
from devset.forge.sets import Row, forge_of, read_rows, write_set
from devset.forge.settings import Settings
from evolver.admission import Admission, read_admissions
from evolver.commands.forge import PROOFS
from evolver.composed import Gate, Proof
from evolver.config import RunConfig
from evolver.disk import append_line
from evolver.forged import sample_of, sampled, verdicts, write_verdicts
from evolver.ground import imported_tasks
from evolver.imports import VERDICTS, source_report
from tests.evolver.test_cli import called

N = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("forged") / "set"
    list(write_set(forge_of(Settings()), N, out))
    return out


def proof(row: Row, *, admitted: bool = True, lost: bool = False) -> Proof:
    return Proof(
        task_id=row.id,
        task_hash=row.hash,
        skills=row.skills,
        admitted=admitted,
        lost=lost,
        gates=(Gate(name="static", passed=True, seconds=0.5),),
        broken=() if admitted else ("C3",),
        reasons=() if admitted else ("C3: node 1 counts as done",),
        mutants=2,
        equivalents=1,
        survivors=(),
        rejected=(),
        admission=Admission(
            task_id=row.id, task_hash=row.hash, admitted=True, proven=True, crashed=False, lost=False, controls=None,
            reasons=(), seconds=1.0,
        ) if admitted else None,
    )  # fmt: skip


def test_the_sample_takes_every_skill_first_and_its_beginning_is_one_too(folder: Path) -> None:
    rows = read_rows(folder)
    skills = {skill for row in rows for skill in row.skills}
    whole = sample_of(rows, len(rows))
    assert sorted(row.id for row in whole) == sorted(row.id for row in rows)
    seen: set[str] = set()
    for row in whole:
        assert seen == skills or set(row.skills) - seen, f"{row.id} brings no new skill, and some are left"
        seen |= set(row.skills)
    assert [row.id for row in sample_of(rows, 5)] == [row.id for row in whole[:5]]
    assert [row.id for row in sample_of(rows, 5, seed=1)] != [row.id for row in whole[:5]]


def test_a_refused_task_takes_its_template_with_it_and_a_lost_one_says_nothing(folder: Path) -> None:
    rows = list({row.path: row for row in read_rows(folder)}.values())
    twin = rows[1].model_copy(update={"id": f"{rows[1].id}1", "path": rows[0].path})
    rows, proofs = [*rows, twin], [proof(rows[0], admitted=False), proof(rows[2]), proof(rows[3], lost=True)]
    given = {one.task_id: one for one in verdicts(rows, proofs)}
    assert not given[rows[0].id].admitted and given[rows[0].id].reasons == ("C3: node 1 counts as done",)
    assert not given[twin.id].admitted and rows[0].id in given[twin.id].reasons[0]
    assert given[rows[3].id].admitted and not given[rows[3].id].proven and given[rows[3].id].controls is None
    found = sampled(rows, proofs, list(given.values()))
    assert (found.sample, found.lost, found.quarantined, found.admitted) == (2, 1, 2, len(rows) - 2)
    assert found.refused.point == 0.5 and not found.let_in and found.rate == 2 / len(rows)
    nothing = sampled(rows, [], verdicts(rows, []))
    assert nothing.refused.point is None and not nothing.let_in and "unknown refused" in nothing.line()
    assert sampled(rows, [proof(row) for row in rows[:20]], []).let_in


def test_a_larger_sample_that_is_refused_takes_back_what_a_smaller_one_let_in(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set"
    shutil.copytree(folder, out)
    (out / VERDICTS).unlink(missing_ok=True)
    rows = sample_of(read_rows(out), N)
    for row in rows[:5]:
        append_line(out / PROOFS, proof(row).model_dump_json())
    code, _, err = called(capsys, "forge", "prove", str(out), "--sample", "5", "--backend", "local")
    assert code == 0 and f"{N} of {N} admitted, 5 of them proven" in err
    assert all(one.admitted for one in read_admissions(out / VERDICTS).values())
    for number, row in enumerate(rows[5:]):
        append_line(out / PROOFS, proof(row, admitted=number % 3 > 0).model_dump_json())
    code, _, err = called(capsys, "forge", "prove", str(out), "--backend", "local")
    assert code == 1 and f"nothing is let in: 0 of {N} admitted, 0 of them proven, {N} quarantined" in err
    found = read_admissions(out / VERDICTS)
    assert len(found) == N and not any(one.admitted for one in found.values())
    assert found[rows[0].id].reasons == ("its set is not let in: 29.2% of its sample are refused",)
    assert found[rows[5].id].reasons == ("C3: node 1 counts as done",)


def test_verdicts_are_what_a_run_goes_by(folder: Path, tmp_path: Path) -> None:
    rows = read_rows(folder)
    log = folder / VERDICTS
    log.write_text('{"cut o')
    for _ in range(2):
        write_verdicts(log, verdicts(rows, [proof(row) for row in rows[:3]]))
    assert len(log.read_text().splitlines()) == 1 + N
    assert all(one.admitted for one in read_admissions(log).values()) and len(read_admissions(log)) == N
    found = imported_tasks(RunConfig.model_validate({"tasks": {"imported": {"train": [str(folder)]}}}))
    assert {task.hash for task in found["train"]} == {row.hash for row in rows}
    report = source_report(folder)
    assert (report.source, report.offered, report.admitted, report.not_run) == ("forge", N, N, 0)


def test_make_goes_on_and_report_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "set"
    code, said, err = called(capsys, "forge", "make", str(out), "--n", "6", "--seed", "4", "--single", "0.5")
    assert code == 0 and "6 of 6 tasks forged" in err and "canonical paths" in said
    code, said, _ = called(capsys, "forge", "make", str(out), "--n", "10", "--seed", "4", "--single", "0.5", "--json")
    found = json.loads(said)
    assert code == 0 and (found["tasks"], found["single"], found["duplicate_rate"]) == (10, 0.5, 0.0)
    rows = read_rows(out)
    assert [read_task_dir(out / row.id).hash for row in rows] == [row.hash for row in rows] and len(rows) == 10
    code, said, _ = called(capsys, "forge", "report", str(out), "--json")
    assert code == 0 and json.loads(said) == {k: v for k, v in found.items() if k != "seconds"}
    code, _, err = called(capsys, "forge", "make", str(out), "--n", "10", "--seed", "5", "--single", "0.5")
    assert code == 2 and "other settings" in err
    code, said, _ = called(capsys, "forge", "skills", "--json")
    cells = json.loads(said)["cells"]
    assert code == 0 and any(not cell["skills"] for cell in cells) and len(cells) > 60


def test_what_is_no_set_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("prove",), ("report",)):
        code, _, err = called(capsys, "forge", *words, str(tmp_path))
        assert code == 2 and ("forge make" in err or "settings.toml" in err)
    append_line(tmp_path / "wrong.toml", "single = 7")
    code, _, err = called(capsys, "forge", "make", str(tmp_path / "x"), "--settings", str(tmp_path / "wrong.toml"))
    assert code == 2 and "single: got 7" in err
