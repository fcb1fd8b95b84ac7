"""Rounds of units that play nothing: each kept once, whatever is killed, late, doubled or tampered with."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import JsonValue

from evolver.errors import BudgetSpent, UsageError
from evolver.protocols import Lease, Planned
from evolver.rounds.attempts import Attempts
from evolver.rounds.book import Book, Cost
from evolver.rounds.driver import Rules
from evolver.rounds.folder import BOOK, PLAN, Round
from evolver.rounds.manifest import FILE, Closed, Manifest, Opened, Shard, closing
from evolver.rounds.plan import TaskRef, planned, unit_id
from evolver.rounds.reader import check_round, files
from evolver.rounds.rows import Limits
from evolver.rounds.settling import Came, settlement
from evolver.rounds.shards import Compactor
from evolver.rounds.view import read_round
from evolver.testing.rounds import COST, noop_rows
from tests.evolver.round_killed import start
from tests.evolver.rounds import CAPSULE, TASKS, Spec, a_plan, changed, claimed, driven, opened, settled

N = 40
BEAT: JsonValue = {"at": 5_100.0, "out": 0, "paused": False}


def units_in(path: Path) -> list[str]:
    return [unit for file in files(path, suspect=True) for unit in pq.read_table(file)["unit"].to_pylist()]


def test_a_round_keeps_every_planned_unit_once_and_says_what_it_took(tmp_path: Path) -> None:
    closed = driven(tmp_path)
    assert (closed.rows, closed.accepted) == (N, N)
    units = units_in(tmp_path)
    assert sorted(units) == units == sorted(u.id for chunk in planned(CAPSULE, TASKS, N) for u in chunk)
    view = read_round(tmp_path)
    assert (view.state, view.done, view.accepted, view.usable) == ("complete", N, N, N)
    assert view.spent_usd == pytest.approx(N * COST.nusd / 1e9) and view.wasted_usd == 0
    assert view.channels == {"terminal": N} and view.root == closed.root
    assert not list((tmp_path / "attempts").iterdir())
    assert driven(tmp_path) == closed


def test_g26_of_two_workers_on_one_unit_one_is_kept_and_both_are_paid(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    late = claimed(round_)
    round_.book.settle(late.id, settlement(Came.of(noop_rows(late, CAPSULE, "w").slice(0, 0)), {}, 3), "lost")
    early = Lease(round_.book.claim_these(late.units), late.units)
    assert early.id > late.id
    for lease in (late, early):
        round_.attempts.write(lease.id, noop_rows(lease, CAPSULE, f"worker-{lease.id}"))
    assert settled(round_, late) == 0
    assert settled(round_, early) == 4
    assert settled(round_, late) == 0  # once more changes nothing
    each = Cost(calls=4, tokens=4 * COST.tokens, nusd=4 * COST.nusd)
    assert (round_.book.cost("kept"), round_.book.cost("superseded")) == (each, each)
    round_.close()
    driven(tmp_path)
    table = pq.read_table(files(tmp_path)[0])
    workers = dict(zip(table["unit"].to_pylist(), table["worker"].to_pylist(), strict=True))
    assert all(workers[unit.id] == f"worker-{early.id}" for unit in early.units)


def test_g27_a_unit_is_what_it_plays_and_not_where_it_stands() -> None:
    def ids(tasks: list[TaskRef]) -> dict[str, tuple[str, int]]:
        return {u.id: (tasks[u.task].hash, u.replica) for chunk in planned(CAPSULE, tasks, 14) for u in chunk}

    shuffled = random.Random(0).sample(TASKS, len(TASKS))
    assert ids(TASKS) == ids(shuffled) == ids([*shuffled, TaskRef("another name", TASKS[2].hash)])
    assert unit_id(CAPSULE, TASKS[0].hash, 0) != unit_id("d" * 64, TASKS[0].hash, 0)


def test_g28_a_round_is_not_opened_as_another_one(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(UsageError, match=r"capsule_id: c+ → d+; units: 40 → 41"):
        opened(tmp_path, a_plan(capsule_id="d" * 64, units=41))
    with pytest.raises(UsageError, match=r"max_turns: None → 20; max_tokens: None → 9000"):
        opened(tmp_path, a_plan(limits=Limits(20, 9_000)))
    with pytest.raises(UsageError, match="tasks: 2 of them are other versions"):
        opened(tmp_path, a_plan(tasks=[*TASKS[:-1], TaskRef("task-6", "f" * 64)]))


@pytest.mark.slow
def test_g30_g31_a_driver_killed_anywhere_ends_with_the_same_data_set(tmp_path: Path) -> None:
    """`kill -9` while it plans, settles, writes shards and manifest, again and again until it comes to its end."""
    whole = driven(tmp_path / "whole")
    clean = multiprocessing.get_context("forkserver")
    clean.set_forkserver_preload(["tests.evolver.round_killed"])
    rng, kills = random.Random(0), 0
    for number in range(200):
        after_s = rng.uniform(0.01, 0.2) if number % 3 == 0 else 0.0
        child = clean.Process(target=start, args=(tmp_path / "cut", rng.randint(1, 20), after_s))
        child.start()
        child.join(120)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        kills += 1
    assert child.exitcode == 0 and kills >= 8
    closed = check_round(tmp_path / "cut")
    assert closed is not None and closed.root == whole.root
    assert len(set(units_in(tmp_path / "cut"))) == N
    book = Book.read(tmp_path / "cut" / BOOK)
    assert book.cost("kept").nusd == N * COST.nusd
    book.close()
    assert not list((tmp_path / "cut" / "attempts").iterdir())


def test_g31_a_truncated_shard_that_is_not_listed_is_made_anew_and_a_listed_one_is_named(tmp_path: Path) -> None:
    driven(tmp_path)
    manifest = Manifest.of(tmp_path)
    first = tmp_path / "shards" / manifest.shards[0].file
    data = first.read_bytes()
    (tmp_path / "shards" / "part-00000-torn.parquet").write_bytes(data[:40])
    round_ = Round(tmp_path)
    round_.compactor.recover()
    assert not (tmp_path / "shards" / "part-00000-torn.parquet").exists()
    first.write_bytes(data[:-4])
    with pytest.raises(UsageError, match=r"shard 0 .* can't be read"):
        round_.compactor.recover()
    first.write_bytes(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])
    with pytest.raises(UsageError, match=r"shard 0 .* other bytes"):
        check_round(tmp_path)
    round_.close()


def test_g31_a_worker_s_broken_file_is_played_again(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    lease = claimed(round_)
    round_.attempts.write(lease.id, noop_rows(lease, CAPSULE, "w"))
    path = tmp_path / "attempts" / f"{lease.id:09d}.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    round_.close()
    assert driven(tmp_path).accepted == N and len(units_in(tmp_path)) == N


def test_g32_no_two_writers_share_a_file_and_nothing_is_overwritten(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    leases = [claimed(round_) for _ in range(5)]
    for lease in leases:
        round_.attempts.write(lease.id, noop_rows(lease, CAPSULE, "w"))
    assert len(list((tmp_path / "attempts").iterdir())) == len({lease.id for lease in leases}) == 5
    round_.close()
    driven(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "shards").iterdir()}
    driven(tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "shards").iterdir()} == before


def test_g33_rows_that_were_written_before_the_driver_heard_of_them_count_once(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    lease = claimed(round_)
    round_.attempts.write(lease.id, noop_rows(lease, CAPSULE, "w"))
    round_.close()  # as if killed before it was settled
    spec = Spec(tmp_path)
    assert driven(tmp_path, spec).rows == N
    assert lease.id not in spec.worked and len(units_in(tmp_path)) == len(set(units_in(tmp_path))) == N
    assert read_round(tmp_path).spent_usd == pytest.approx(N * COST.nusd / 1e9)


def test_g34_what_an_old_driver_left_behind_commits_nothing(tmp_path: Path) -> None:
    """Rows of a lease that was given up are superseded, also when they turn up after the round was closed."""
    round_ = opened(tmp_path)
    old = claimed(round_)
    round_.close()
    closed = driven(tmp_path)
    Attempts.of(tmp_path).write(old.id, noop_rows(old, CAPSULE, "old"))
    round_ = Round(tmp_path)
    assert settled(round_, old) == 0
    round_.close()
    assert driven(tmp_path) == closed
    assert "old" not in {w for file in files(tmp_path) for w in pq.read_table(file)["worker"].to_pylist()}


def test_g36_what_lost_attempts_cost_is_booked_call_by_call(tmp_path: Path) -> None:
    """Three of the leases bill their calls and die before they leave a row."""
    bills, dead = [], set()

    def dies(lease: Lease) -> None:
        bills.append(len(lease.units))
        if len(dead) < 3 and lease.id not in dead:
            dead.add(lease.id)
            journal = Attempts.of(tmp_path).journal(lease.id)
            for _ in lease.units:
                journal.asked()
                journal.answered(COST)
            journal.close()
            raise RuntimeError("died")

    assert driven(tmp_path, Spec(tmp_path, dies)).rows == N
    book = Book.read(tmp_path / BOOK)
    assert book.cost().calls == sum(bills) and book.cost("kept").calls == N
    assert book.cost("lost") == Cost(calls=12, tokens=12 * COST.tokens, nusd=12 * COST.nusd)
    book.close()


def test_a_call_that_was_never_answered_is_unknown_and_not_free(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    journal = round_.attempts.journal(1)
    journal.asked()
    journal.answered(COST)
    journal.asked()
    journal.close()
    assert round_.attempts.spent(1) == COST + Cost(calls=1, unknown=1)
    round_.close()


def test_the_time_left_is_told_by_the_present_start(tmp_path: Path) -> None:
    opened(tmp_path).close()
    book = Book(tmp_path / BOOK)
    for key, value in (("committed", 30), ("start", {"at": 5_000.0, "done": 10}), ("beat", BEAT)):
        book.put(key, value)  # a round that stood still for long, with 20 units done in 100 s since
    assert read_round(tmp_path, now=5_100.0).left_s == pytest.approx(50.0)
    book.put("start", {"at": 5_000.0, "done": 30})
    assert read_round(tmp_path, now=5_100.0).left_s is None
    book.close()


def test_a_start_is_noted_with_what_was_done_before_it(tmp_path: Path) -> None:
    rules = Rules(lease_units=4, unit_nusd=COST.nusd, cap_nusd=17 * COST.nusd)
    with pytest.raises(BudgetSpent):
        driven(tmp_path, rules=rules)
    driven(tmp_path)
    book = Book.read(tmp_path / BOOK)
    start = book.get("start")
    book.close()
    assert isinstance(start, dict) and start["done"] == 17


def test_a_book_of_another_format_is_shown_and_not_gone_on_with(tmp_path: Path) -> None:
    opened(tmp_path).close()
    sqlite3.connect(tmp_path / BOOK).execute("PRAGMA user_version = 0").connection.close()
    with pytest.raises(UsageError, match=r"book of format 0, and this version writes 1.*start another round"):
        opened(tmp_path)
    assert read_round(tmp_path).planned == N


def test_a_round_s_path_may_hold_what_a_uri_may_not(tmp_path: Path) -> None:
    path = tmp_path / "r#1?mode=ro%20"
    opened(path).close()
    book = Book.read(path / BOOK)
    assert book.waiting() == N
    book.close()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_g29_g44_infra_is_played_again_then_set_apart_and_no_failure_of_the_agent(tmp_path: Path) -> None:
    played: list[str] = []

    def ends(unit: Planned) -> bool | None:
        played.append(unit.id)
        return None if unit.position == 5 else unit.position % 2 == 0

    spec = Spec(tmp_path, success=ends)
    closed = driven(tmp_path, spec, Rules(lease_units=1, tries=3))
    view = read_round(tmp_path)
    assert closed.rows == N and view.rejections == {"state": 19, "infra": 1}
    assert view.success.n == N - 1 and view.success.point == pytest.approx(20 / 39)
    assert len(played) == N  # rows that ask for no further try are done, zeros included


def test_g44_a_unit_that_fails_on_our_side_is_tried_so_often_and_no_more(tmp_path: Path) -> None:
    round_ = opened(tmp_path, a_plan(units=1))
    table = changed(noop_rows(lease := claimed(round_, 1), CAPSULE, "w", lambda unit: None), "again", ["try"])
    for number in range(3):
        came = Came.of(table)
        made = settlement(came, round_.book.held(lease.id), 3)
        assert (len(made.done), len(made.again)) == ((0, 1) if number < 2 else (1, 0))
        round_.book.settle(lease.id, made)
        lease = claimed(round_, 1) if number < 2 else lease
    round_.close()


def test_a_unit_over_which_workers_die_is_set_apart_alone(tmp_path: Path) -> None:
    """Its company gets smaller with every death, until only it is given up."""
    from evolver.executors.crew import WorkerDied

    def dies(lease: Lease) -> None:
        if any(unit.position == 7 for unit in lease.units):
            raise WorkerDied("killed")

    closed = driven(tmp_path, Spec(tmp_path, dies), Rules(lease_units=4, deaths=4))
    assert (closed.rows, closed.accepted) == (N, N - 1)
    assert read_round(tmp_path).rejections == {"infra": 1}


def test_g38_g44_a_unit_that_no_worker_gets_through_is_set_apart_alone_after_its_tries(tmp_path: Path) -> None:
    """Nobody knows which of four it is: only what fails alone fails by itself."""
    tried: list[int] = []

    def fails(lease: Lease) -> None:
        if any(unit.position == 7 for unit in lease.units):
            tried.append(len(lease.units))
            raise OSError("too many processes")

    closed = driven(tmp_path, Spec(tmp_path, fails), Rules(lease_units=4, tries=3))
    assert (closed.rows, closed.accepted) == (N, N - 1) and tried == [4, 2, 1, 1, 1]
    assert read_round(tmp_path).rejections == {"infra": 1}
    table = pq.read_table(files(tmp_path)[0])
    assert table["why"].to_pylist()[7] == "given up, the last time: OSError: too many processes"


def test_g43_no_more_shards_are_open_than_a_few_however_slow_one_unit_is(tmp_path: Path) -> None:
    round_ = opened(tmp_path, a_plan(units=400, shard_units=10))
    compactor: Compactor = round_.compactor
    slow = round_.book.claim(1, compactor.frontier(0), 0)
    assert slow is not None
    while (found := round_.book.claim(4, compactor.frontier(compactor.next), 0)) is not None:
        lease = Lease(*found)
        round_.attempts.write(lease.id, noop_rows(lease, CAPSULE, "w"))
        settled(round_, lease)
        compactor.compact()
    assert round_.book.committed() == compactor.frontier(0) - 1 == 39
    assert len(list((tmp_path / "attempts").iterdir())) <= 40
    round_.close()


def test_duplicates_are_found_across_shards_and_the_first_is_kept(tmp_path: Path) -> None:
    round_ = opened(tmp_path)
    while (found := round_.book.claim(10, N, 0)) is not None:
        lease = Lease(*found)
        table = noop_rows(lease, CAPSULE, "w")
        same = [f"{unit.position % 15:064x}" for unit in lease.units]  # three positions say the same
        round_.attempts.write(lease.id, changed(table, "sameness", same))
        settled(round_, lease)
    round_.close()
    assert driven(tmp_path).accepted == 15
    assert read_round(tmp_path).rejections == {"duplicate": 25}


@pytest.mark.parametrize("change", ["edit", "drop", "tear"])
def test_a_manifest_that_was_changed_is_refused_and_one_that_was_cut_off_goes_on(tmp_path: Path, change: str) -> None:
    closed = driven(tmp_path)
    path = tmp_path / "manifest.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if change == "tear":
        path.write_text("".join(lines[:-1]) + lines[-1][:50])
        assert Manifest.of(tmp_path).closed is None
        assert driven(tmp_path).root == closed.root
        return
    path.write_text("".join([*lines[:1], lines[1].replace('"accepted":10', '"accepted":9'), *lines[2:]]
                            if change == "edit" else [*lines[:1], *lines[2:]]))  # fmt: skip
    with pytest.raises(UsageError, match="does not follow"):
        Manifest.of(tmp_path)


Lines = list[Opened | Shard | Closed]


def last(update: dict[str, object], keep: int | None = None) -> Callable[[Lines], Lines]:
    """The first `keep` lines, of which the last says something else."""
    return lambda lines: [*lines[:keep][:-1], lines[:keep][-1].model_copy(update=update)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (last({"root": "0" * 64}), r"closing line does not fit the shards \(root\)"),
        (last({"rows": N - 1}), r"closing line does not fit the shards \(rows\)"),
        (last({"accepted": N - 1}), r"closing line does not fit the shards \(accepted\)"),
        (last({"accepted": 9}, keep=-1), "shard 3 .* other bytes than the manifest says"),
        (last({"plan_sha256": "0" * 64}, keep=1), "plan.parquet is not the plan that the manifest names"),
        (lambda lines: [*lines[:2], *lines[3:]], "expected shard 1, found shard 2"),
        (lambda lines: [*lines[:3], *lines[2:]], "expected shard 2, found shard 1"),
        (lambda lines: [*lines[:-2], closing(lines[1:-2])], r"does not fit the shards \(units\)"),
    ],
)
def test_a_manifest_whose_seals_are_in_order_must_fit_plan_and_shards(
    tmp_path: Path, change: Callable[[Lines], Lines], said: str
) -> None:
    closed = driven(tmp_path)
    assert check_round(tmp_path) == closed
    lines = Manifest.of(tmp_path).lines
    (tmp_path / FILE).unlink()
    manifest = Manifest.of(tmp_path)
    for line in change(lines):
        manifest.append(line)
    with pytest.raises(UsageError, match=said):
        check_round(tmp_path)


def test_a_plan_that_was_changed_is_found(tmp_path: Path) -> None:
    driven(tmp_path)
    with (tmp_path / PLAN).open("ab") as file:
        file.write(b"more")
    with pytest.raises(UsageError, match=r"plan\.parquet is not the plan"):
        check_round(tmp_path)
    (tmp_path / PLAN).unlink()
    with pytest.raises(UsageError, match=r"plan\.parquet is not the plan"):
        check_round(tmp_path)
