"""Reading a run directory: what is torn or not finite is counted and never a number, and lists stay light."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dashboards.queries import PAGE_ROWS, find_runs, open_run
from evolver.config import RunConfig
from evolver.opening import record_opening
from evolver.records import Decision, Evaluation, LedgerEntry, Rollout
from evolver.store import Store
from tests.dashboards.fixture_run import ROLLOUTS


def append(file: Path, text: str) -> None:
    with file.open("a") as opened:
        opened.write(text)


def test_the_list_agrees_with_the_store(whole_run: Path) -> None:
    run, store = open_run(whole_run), Store.open(whole_run)
    rows = [row for number in (1, 2, 3) for row in run.page(number)]
    assert [row.id for row in rows] == [r.id for r in reversed(store.all(Rollout))]
    assert len(rows) == ROLLOUTS == run.count() and len(run.page(1)) == PAGE_ROWS
    assert rows[0].outcome == "not graded" and rows[0].tokens is None
    assert [row.turns for row in rows] == [len(r.turns) for r in reversed(store.all(Rollout))]


def test_one_rollout_comes_back_whole(whole_run: Path) -> None:
    wanted = Store.open(whole_run).all(Rollout)[10]
    assert open_run(whole_run).rollout(wanted.id) == wanted
    assert open_run(whole_run).rollout("r-none") is None


def test_attempts_on_test_are_counted_and_not_listed_until_a_person_has_opened_it(run_copy: Path) -> None:
    store, before = Store.open(run_copy), open_run(run_copy).count()
    one = store.all(Rollout)[0]
    sealed = one.key.model_copy(update={"split": "test", "purpose": "test"})
    store.append(one.model_copy(update={"id": "r-sealed", "key": sealed}))
    record_opening(store, "test", "gap", flagged=False)
    run = open_run(run_copy)
    assert (run.count(), run.sealed, run.attempt("r-sealed")) == (before, 1, None)
    record_opening(store, "test", "what failed?", flagged=True)
    opened = open_run(run_copy)
    assert (opened.count(), opened.sealed) == (before + 1, 0) and opened.attempt("r-sealed") is not None


def test_u11_no_record_holds_an_image(whole_run: Path) -> None:
    logs = "".join(log.read_text() for log in whole_run.glob("*.jsonl"))
    assert "data:image" not in logs and not re.search(r"[A-Za-z0-9+/]{2000,}", logs)


@pytest.mark.parametrize("log", ["rollouts", "scorecards", "ledger", "decisions", "gaps"])
def test_a_torn_last_line_is_counted_and_the_rest_is_read(run_copy: Path, log: str) -> None:
    before = open_run(run_copy)
    append(run_copy / f"{log}.jsonl", '{"id": "half-a-line", "key": {"purp')
    after = open_run(run_copy)
    assert [(u.log, u.torn, u.broken) for u in after.unread()] == [(log, 1, 0)]
    assert after.page(1) == before.page(1) and after.spent() == before.spent()
    assert after.all(Decision) == before.all(Decision)


def test_a_line_that_is_no_record_is_counted_apart(run_copy: Path) -> None:
    for log in ("rollouts", "evaluations"):
        append(run_copy / f"{log}.jsonl", "not json\n")
    found = {u.log: (u.torn, u.broken) for u in open_run(run_copy).unread()}
    assert found == {"rollouts": (0, 1), "evaluations": (0, 1)}


def test_u23_what_is_not_finite_is_unknown_and_never_a_number(run_copy: Path) -> None:
    evaluations = run_copy / "evaluations.jsonl"
    first, *rest = evaluations.read_text().splitlines()
    record = json.loads(first)
    record["cost_usd"], record["seconds_per_task"], record["tokens_per_solved"] = float("inf"), float("nan"), 1.5
    evaluations.write_text("\n".join([json.dumps(record).replace("1.5", "1e999"), *rest]) + "\n")
    scorecards = run_copy / "scorecards.jsonl"
    scorecards.write_text(scorecards.read_text().replace('"seconds":30.0', '"seconds":NaN'))
    run = open_run(run_copy)
    read = run.all(Evaluation)[0]
    assert (read.cost_usd, read.seconds_per_task, read.tokens_per_solved) == (None, None, None)
    assert {u.log: u.not_finite for u in run.unread()} == {"evaluations": 3}
    assert {row.seconds for row in run.page(2)} == {None}


def test_unknown_tokens_are_counted_and_not_added_as_zero(whole_run: Path) -> None:
    (spent,) = open_run(whole_run).spent()
    known = [e for e in Store.open(whole_run).all(LedgerEntry) if e.input_tokens is not None]
    assert spent.unknown_tokens == spent.unknown_cost == 1 and spent.entries == ROLLOUTS
    assert spent.tokens == sum((e.input_tokens or 0) + (e.output_tokens or 0) for e in known)


def test_u20_what_is_appended_shows_without_a_restart(run_copy: Path) -> None:
    before = open_run(run_copy)
    assert before.count() == ROLLOUTS
    line = (run_copy / "rollouts.jsonl").read_text().splitlines()[0]
    append(run_copy / "rollouts.jsonl", line.replace("r-0000000000000000", "r-new") + "\n")
    after = open_run(run_copy)
    assert after.stamp != before.stamp and after.count() == ROLLOUTS + 1
    assert before.count() == ROLLOUTS, "a page goes on showing the state that it was opened with"


def test_u21_filters_come_from_the_run(run_copy: Path) -> None:
    assert open_run(run_copy).distinct("apps") == ["calc", "files"]
    rollouts = run_copy / "rollouts.jsonl"
    rollouts.write_text(rollouts.read_text().replace('"apps":["calc"]', '"apps":["gimp"]'))
    assert open_run(run_copy).distinct("apps") == ["calc", "files", "gimp"]


def test_a_filter_is_a_value_and_never_sql(whole_run: Path) -> None:
    run = open_run(whole_run)
    assert run.count({"purpose": "race' or '1'='1"}) == 0
    with pytest.raises(ValueError, match="no column"):
        run.count({"1=1 or purpose": "race"})


def test_reading_writes_nothing(whole_run: Path) -> None:
    def state() -> dict[Path, int]:
        return {p: p.stat().st_mtime_ns for p in whole_run.rglob("*")}

    before = state()
    run = open_run(whole_run)
    run.page(1), run.spent(), run.library_names(), run.unread(), run.rollout("r-0000000000000001")
    assert state() == before


def test_an_empty_run_has_no_rows_and_no_library(tmp_path: Path) -> None:
    Store.create(tmp_path / "new", RunConfig())
    run = open_run(tmp_path / "new")
    assert (run.count(), run.page(1), run.spent(), run.library_names(), run.unread()) == (0, [], [], {}, [])
    assert not (tmp_path / "new" / "library").exists()
    assert find_runs(tmp_path) == find_runs(tmp_path / "new") == [tmp_path / "new"]
