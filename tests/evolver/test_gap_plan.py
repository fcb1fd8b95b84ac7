"""The plan of a gap experiment: which students it wants, what that takes, and what of it is done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evolver.commands.gap import _measured
from evolver.config import RunConfig, load_config, parse_config
from evolver.errors import UsageError
from evolver.gap_plan import RecipeFacts, plan, plan_table
from evolver.looks import LookConfig
from evolver.opening import own_tasks
from evolver.records import Gap
from evolver.store import Store
from evolver.students import Measure, Order, ensure_students, measure_gaps, measures, missing
from harnesses.library import Library
from tests.evolver.cards import a_task
from tests.evolver.sample_run import sample_run
from tests.evolver.test_cli import ROOT, called, snapshot
from tests.evolver.test_gap import played, student_of
from tests.evolver.test_loop import Coin, Students, coin_lab, shell_helps

TASKS = [a_task(n, "test") for n in range(8)]
FACTS = RecipeFacts(n_rollouts=10, epochs=2, concurrency=4)


def config(seeds: tuple[int, ...] = (0, 1, 2, 3), **gap: object) -> RunConfig:
    return parse_config({"distil": {"seeds": seeds}, "gap": gap, "allow_unpriced": True}, "test")


def orders(config: RunConfig, pairs: list[tuple[str, str]]) -> list[list[tuple[Order, ...]]]:
    return [[one.orders for one in looks] for looks in measures(config, pairs, TASKS)]


def test_each_look_takes_its_seeds_and_tasks_of_both_arms() -> None:
    wanted = config(looks=[{"seeds": 2, "tasks": 4}, {"seeds": 3, "tasks": 8}])
    [[first, last]] = orders(wanted, [("a", "b")])
    assert first == tuple(Order(h, seed, 4) for h in "ab" for seed in (0, 1))
    assert last == tuple(Order(h, seed, 8) for h in "ab" for seed in (0, 1, 2))


def test_an_aa_arm_takes_the_seeds_of_both_its_sides() -> None:
    wanted = config(looks=[{"seeds": 2, "tasks": 4}])
    [[only]] = orders(wanted, [("a", "a")])
    assert only == tuple(Order("a", seed, 4) for seed in (0, 1, 2, 3))
    assert config(seeds=(0, 1, 2)).gap.seeds_of(("a", "a"), (0, 1, 2), LookConfig(seeds=2, tasks=4)) == (0, 1, 2)


def test_variants_have_students_of_their_own_and_only_the_first_plays_crossed() -> None:
    wanted = config(seeds=(0, 1), equal=["budget", "accepted"], crossed={"seeds": 1, "tasks": 3})
    pairs = [("a", "b"), ("b", "c")]
    found = {
        o.harness_id: o for looks in orders(wanted, pairs) for one in looks for o in one if o.seed == 0 and o.under
    }
    assert {h: (o.under, o.under_tasks, o.equal) for h, o in found.items()} == {
        "a": (("b",), 3, "budget"), "b": (("a", "c"), 3, "budget"), "c": (("b",), 3, "budget"),
    }  # fmt: skip
    all_orders = [o for looks in orders(wanted, pairs) for one in looks for o in one]
    assert {o.equal for o in all_orders} == {"budget", "accepted"}
    assert not any(o.under for o in all_orders if o.seed == 1 or o.equal == "accepted")


def test_an_order_is_told_to_the_child_as_options() -> None:
    order = Order("a", 2, 100, "budget", ("b", "c"), 40)
    assert order.options == [
        "--seed", "2", "--test-tasks", "100", "--equal", "budget", "--test-tasks", "40@b", "--test-tasks", "40@c",
    ]  # fmt: skip


def measure(order: Order, pair: tuple[str, str] = ("a", "b")) -> Measure:
    return Measure(pair, order.equal, None, (order,), tuple(TASKS))


def test_a_plan_counts_shared_work_once_and_knows_what_is_done(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    wanted = [measure(Order("a", 0, 8, None, ("b",), 2)), measure(Order("b", 0, 8)), measure(Order("b", 0, 8))]
    by_name = {work.what: (work.total, work.done) for work in plan(store, wanted, FACTS)}
    assert by_name == {
        "teacher's train rollouts": (20, 0), "teacher's test rollouts": (16, 0), "students trained": (2, 0),
        "students' test rollouts": (8 + 2 + 8, 0), "untrained controls' test rollouts": (16, 0),
    }  # fmt: skip
    store.append(student_of("a", 0))
    for card in played("a", "student-a-0", "11110000") + played("b", "student-a-0", "1") + played("a", "base", "0000"):
        store.append(card)
    works = {work.what: work for work in plan(store, wanted, FACTS)}
    assert (works["students trained"].done, works["students' test rollouts"].done) == (1, 9)
    assert works["untrained controls' test rollouts"].done == 4
    assert works["students trained"].seconds == pytest.approx(9.0)  # one is left, and the first took 9 s


def test_a_plan_takes_the_variant_into_account(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    store.append(student_of("a", 0))
    for equal, done in (("accepted", 1), ("budget", 0), (None, 1)):
        works = {w.what: w for w in plan(store, [measure(Order("a", 0, 8, equal))], FACTS)}  # type: ignore[arg-type]
        assert works["students trained"].done == done, equal


def test_the_table_adds_the_times_up(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    table = plan_table(plan(store, [measure(Order("a", 0, 8))], FACTS), "first")
    assert table.rows[-1][0] == "together" and table.rows[0][1:4] == ("10", "0", "10")


async def test_more_crossed_tasks_than_there_are_is_refused(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(crossed={"tasks": 9}), Coin(shell_helps))
    with pytest.raises(UsageError, match=r"gap\.crossed wants 9 test tasks, there are 8"):
        await measure_gaps(lab, [("a", "b")], TASKS, Students(lab))


def test_a_dry_run_says_what_the_experiment_takes_and_begins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = ROOT / "docs" / "experiments" / "gap.toml", tmp_path / "run"
    code, said, err = called(capsys, "gap", "run", str(config), "--out", str(out), "--dry-run")
    if code == 3:
        pytest.skip(err.strip())
    assert code == 0 and "What the first look takes" in said and "What all looks take" in said
    assert not out.exists()


def test_a_dry_run_writes_nothing_to_a_run_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, config = 'lineage = "l"\n[gap]\npairs = [["beta1", "beta2"]]\n', tmp_path / "gap.toml"
    config.write_text(text)
    store = Store.create(tmp_path / "run", load_config(config))
    library = Library(store.path / "library")
    harness = library.add_seed("beta1")  # the other one is still to be added
    library.close()
    for record in (student_of(harness, 0), *played(harness, "student", "01")):
        store.append(record)
    config.write_text(text + "[caps]\nrollouts = 9\n")  # may differ, and is taken over by a real run
    before = snapshot(store.path)
    words = ("gap", "run", str(config), "--out", str(store.path), "--dry-run")
    code, said, err = called(capsys, *words)
    if code == 3:
        pytest.skip(err.strip())
    assert code == 0 and "What the first look takes" in said and snapshot(store.path) == before
    config.write_text(text.replace('"l"', '"other"'))
    code, _, err = called(capsys, *words)
    assert code == 2 and f"{store.path} was started with other settings" in err and snapshot(store.path) == before


def test_a_pair_is_measured_when_every_variant_has_had_its_last_look(tmp_path: Path) -> None:
    looks = [{"seeds": 2, "tasks": 4}, {"seeds": 3, "tasks": 8}]
    store = Store.create(tmp_path / "run", config(looks=looks, equal=["accepted", "budget"]))
    [known] = sample_run(tmp_path / "sample").all(Gap)
    pair = known.harness_a, known.harness_b

    def look(number: int, equal: str, p: float) -> None:
        changes = {"id": f"g-{equal}-{number}", "equal": equal, "look": number, "student_p": p}
        store.append(known.model_copy(update=changes))

    look(0, "accepted", 0.5)
    look(0, "budget", 0.001)
    assert _measured(store, *pair) == []
    look(1, "accepted", 0.5)
    assert [(g.equal, g.look) for g in _measured(store, *pair)] == [("accepted", 1), ("budget", 0)]


def test_only_a_student_that_the_gap_takes_and_that_has_played_its_tasks_is_made(tmp_path: Path) -> None:
    store, orders = Store.create(tmp_path / "run", RunConfig()), [Order("a", 0, 2), Order("b", 0, 2)]
    for record in (
        student_of("a", 0), student_of("b", 0, rate=1e-3), *played("a", "student-a-0", "11"),
        *played("b", "student-b-0", "10"),
    ):  # fmt: skip
        store.append(record)
    assert missing(store, "teacher", orders, TASKS) == []
    assert missing(store, "teacher", orders, TASKS, ("a", "b")) == orders[:1]  # of another recipe than the newest
    store.append(student_of("a", 0, rate=1e-3))
    assert missing(store, "teacher", orders, TASKS, ("a", "b")) == []
    assert missing(store, "another teacher", orders, TASKS, ("a", "b")) == orders
    more = [replace(order, test_tasks=3) for order in orders]
    assert missing(store, "teacher", more, TASKS, ("a", "b")) == more
    crossed = replace(orders[0], under=("b",), under_tasks=1)
    assert missing(store, "teacher", [crossed], TASKS, ("a", "b")) == [crossed]


async def test_a_student_of_a_recipe_that_the_other_arm_lacks_is_made_anew(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    lab.store.append(student_of("b", 0).model_copy(update={"teacher_model": Coin.id}))
    students = Students(lab)
    await ensure_students(lab, [Order("b", 0), Order("a", 0)], students, (), ("a", "b"))
    assert students.asked == [("a", 0), ("b", 0)]


def test_a_gap_with_students_still_to_come_is_not_shown_as_measured_where_its_tasks_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"distil": {"seeds": [0, 1]}, "tasks": {"test": 2}}
    store = Store.create(tmp_path / "run", parse_config(settings, "test"))
    ids = [task.id for task in own_tasks(store.config, "test", 2)]

    def student(harness: str, seed: int) -> None:
        made = student_of(harness, seed).model_copy(update={"teacher_model": "demonstrator"})
        store.append(made)
        for model in ("demonstrator", "base", made.student_model):
            for card, task_id in zip(played(harness, model, "10"), ids, strict=True):
                store.append(card.model_copy(update={"key": card.key.model_copy(update={"task_id": task_id})}))

    for harness, seed in (("a", 0), ("b", 0), ("a", 1)):
        student(harness, seed)
        assert _measured(store, "a", "b") == []
    assert [found.student_seeds for found in _measured(store, "a", "b", whole=False)] == [(0, 1)]
    gone = {"imported": store.config.tasks.imported.model_copy(update={"test": (str(tmp_path / "gone"),)})}
    elsewhere = Store.open(store.path)
    elsewhere.config = store.config.model_copy(update={"tasks": store.config.tasks.model_copy(update=gone)})
    assert [found.student_seeds for found in _measured(elsewhere, "a", "b")] == [(0, 1)]
    assert "can't be told" in capsys.readouterr().err
    student("b", 1)
    assert [found.student_seeds for found in _measured(store, "a", "b")] == [(0, 1)]


def test_an_experiment_without_pairs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text("seed = 1")
    code, _, err = called(capsys, "gap", "run", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run"))
    assert code == 2 and "nothing to measure" in err and not (tmp_path / "run").exists()
