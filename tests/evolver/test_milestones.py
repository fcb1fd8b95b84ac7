"""The commands stage, finalize and ledger, what a report says of a run's own honesty, and caps of every role."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evolver.audit import SelfCheck
from evolver.budget import Budget, Need
from evolver.config import Cap, Caps, RunConfig
from evolver.ledger import ledger
from evolver.records import Final, Frozen, GuardResult, Stage
from evolver.report import report
from evolver.safeguards import ChecksConfig
from evolver.store import Store
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path, tree_files
from tests.evolver.sample_run import ALPHA, BETA1, candidate, ci, decision, sample_run
from tests.evolver.sample_run import ledger as an_entry
from tests.evolver.test_cli import called


def a_run(path: Path) -> Store:
    """A run with one real harness, promoted from nothing."""
    store = Store.create(path, RunConfig())
    seed = read_tree(seed_path("alpha"))
    Library(path / "library").add(tree_files(seed), name="alpha")
    store.append(candidate("alpha", seed.id, None))
    return store


def test_stage_names_a_step_and_tells_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, run = a_run(tmp_path / "run"), str(tmp_path / "run")
    code, out, _ = called(capsys, "stage", run, "alpha", "--why", "clicks alone", "--json")
    assert code == 0 and json.loads(out)["name"] == "alpha"
    code, _, err = called(capsys, "stage", run, "beta", "--teacher", "gpt-x", "--why", "a stronger one")
    assert code == 0 and "teacher demonstrator → gpt-x; tag stage-beta" in err and "[teacher] model = 'gpt-x'" in err
    assert [stage.kind for stage in store.all(Stage)] == ["harness", "teacher"]
    code, out, _ = called(capsys, "log", run)
    assert code == 0 and "stage-alpha" in out and "teacher gpt-x from stage beta on" in out
    code, _, err = called(capsys, "stage", run, "alpha", "--harness", "nothing", "--why", "w")
    assert code == 2 and "unknown harness 'nothing'" in err
    [_, swapped] = next(table for table in report(store).tables if table.title == "Stages").rows
    assert swapped[:2] == ("beta", "teacher swapped") and swapped[3] == "gpt-x"


def test_ledger_has_every_role_in_one_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = sample_run(tmp_path / "run")
    store.append(an_entry("led-5", role="judge", model_id="judge-1", cost_usd=0.5, seconds=2.5))
    code, out, _ = called(capsys, "ledger", str(store.path), "--json")
    lines = {(line["role"], line["model"]): line for line in json.loads(out)["ledger"]}
    assert code == 0 and {role for role, _ in lines} == {"author", "teacher", "judge", "annotator", "student", "total"}
    assert lines["judge", "judge-1"]["seconds"] == 2.5 and lines["student", "training"]["seconds"] == 60.0
    assert lines["author", "gpt-x"]["unknown_cost"] == 1
    total = lines["total", ""]
    assert (total["calls"], total["cost_usd"], total["seconds"]) == (12, 0.5, 62.5)
    assert total["unknown_seconds"] == 3  # no rollout of these is on record
    code, out, _ = called(capsys, "ledger", str(store.path))
    assert code == 0 and "1 min 02 s" in out


def test_a_role_that_spent_nothing_is_shown_with_nothing(tmp_path: Path) -> None:
    lines = ledger(Store.create(tmp_path / "run", RunConfig()))
    assert [(line.role, line.spent.calls) for line in lines] == [
        ("author", 0), ("teacher", 0), ("judge", 0), ("annotator", 0), ("student", 0), ("total", 0),
    ]  # fmt: skip


def test_finalize_shows_the_result_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = sample_run(tmp_path / "run")
    store.append(
        Frozen(
            id="frozen",
            teacher="m",
            arms={"original": ALPHA},
            attempts=1,
            best_of=1,
            first=0,
            alpha=0.1,
            tag="t",
            at=1.0,
        )
    )
    store.append(
        Final(
            id="final", frozen_id="frozen", arms=(), effect=ci(0.2, 0.1, 0.3), p_better=0.01, mcnemar_p=0.02,
            best_of=ci(0.5), k=1, against_best_of=ci(0.1), flip_rate=0.1, n_tasks=40, seed=0, tasks_sha256="t",
            notes=(), at=2.0,
        )
    )  # fmt: skip
    code, out, _ = called(capsys, "finalize", str(store.path), "--json")
    assert code == 0 and json.loads(out)["effect"]["point"] == 0.2


# --- what a report says of the run's honesty -------------------------------------------------------------------------


def test_checks_and_false_accepts_are_in_the_report_with_n(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    lines = "\n".join(report(store).lines)
    assert "checks before the run: not played yet" in lines and "one candidate in 20 is one" in lines
    store.append(
        SelfCheck(id="check-a_a", check="a_a", outcome="passed", effect=ci(0.0), p_value=0.5, reason="+0.0 pp", at=1.0)
    )
    for number, lead in enumerate((0.4, -0.1)):
        hidden = candidate(f"hidden-{number}", str(number) * 40, BETA1).model_copy(update={"hidden_neutral": True})
        store.append(hidden)
        store.append(decision(10 + number, hidden, ci(lead, lead - 0.05, lead + 0.05)))
    lines = "\n".join(report(store).lines)
    assert "checks before the run: a a passed (+0.0 pp)" in lines
    assert "false accepts: 50.0 % [9.5, 90.5] of 2 hidden edits that can't matter; 100.0 %" in lines


def test_a_run_without_checks_or_hidden_edits_says_so(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig(checks=ChecksConfig(tasks=0, neutral_every=0)))
    lines = "\n".join(report(store).lines)
    assert "checks before the run: none (checks.tasks = 0)" in lines and "(checks.neutral_every = 0)" in lines


def test_guards_that_stopped_or_could_not_judge_are_in_the_report(tmp_path: Path) -> None:
    store = sample_run(tmp_path / "run")
    dear = candidate("dear", "d" * 40, BETA1)
    results = [
        GuardResult(guard="tokens", outcome=outcome, interval=ci(2.0), limit=1.0, reason=reason)
        for outcome, reason in (("tripped", "+200 %"), ("held", "+0 %"))
    ]
    results += [
        GuardResult(guard="app", subject=app, outcome="unmeasured", interval=ci(0.0), limit=0.1, reason="2 attempts")
        for app in ("calc", "files")
    ]
    store.append(dear)
    store.append(decision(9, dear, ci(0.1, 0.05, 0.2), guards=tuple(r.model_dump() for r in results)))
    table = next(table for table in report(store).tables if table.title == "Guards")
    assert table.rows == (
        ("dear", "tokens", "", "stopped it", "+200 %"),
        ("dear", "app", "calc, files", "not judged", "2 attempts"),
    )
    assert "Held: 1." in table.caption


# --- caps of every role ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caps", "bought"),
    [
        (Caps(cost_usd=50.0), (2, "caps.cost_usd = 50.0")),  # 10 rollouts at $1 for the teacher and $1 for the judge
        (Caps(teacher=Cap(cost_usd=50.0)), (5, "caps.teacher.cost_usd = 50.0")),
        (Caps(judge=Cap(cost_usd=20.0)), (2, "caps.judge.cost_usd = 20.0")),
        (Caps(judge=Cap(tokens=350)), (3, "caps.judge.tokens = 350")),
        (Caps(author=Cap(rollouts=2)), (2, "caps.author.rollouts = 2")),
        (Caps(rollouts=33), (3, "caps.rollouts = 33")),  # 10 of a race and one of the author's
    ],
)
def test_e16_e14_what_caps_buy_counts_teacher_judge_and_author(
    tmp_path: Path, caps: Caps, bought: tuple[int, str]
) -> None:
    budget = Budget(Store.create(tmp_path / "run", RunConfig(caps=caps)), caps)
    need = Need(10, tokens=100, cost_usd=1.0, judge_tokens=10, judge_cost_usd=1.0, authored=1)
    assert budget.proposals(need) == bought
