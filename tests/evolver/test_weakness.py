"""What the next round is made of: gaps by cell, shrunk; infra says nothing; easier where it is hard; when to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from devset.families import families
from devset.forge.sets import forge_of, read_rows, write_set
from devset.forge.settings import Settings, read_settings
from evolver.config import RunConfig
from evolver.intervals import nothing
from evolver.records import Channel, Failure, Score, Scorecard
from evolver.store import Store
from evolver.weakness import WEIGHT, Gap, Weakness, gain, next_settings, skill_solved, uniform_settings, weakness
from tests.evolver.cards import a_card
from tests.evolver.test_cli import called

TEACHER, STUDENT = "demonstrator", "student-a"
LOST = Failure(kind="sandbox_lost", blame="sandbox", message="gone")
SKILLS = {"one": ("csv.sum",), "pair": ("csv.sum", "text.append"), "other": ("files.rename",)}


def card(
    model: str, task: str, solved: tuple[bool | None, ...], channel: Channel = "terminal", n: int = 0, **key: object
) -> Scorecard:
    """An attempt at a task whose skills came out as `solved` says; None: it failed on our side."""
    lost = None in solved
    scores = tuple(
        Score(
            criterion=f"c_{i}",
            weight=1,
            required=True,
            value=None if s is None else float(s),
            explanation="",
            grader="p",
        )
        for i, s in enumerate(solved, 1)
    )
    plain = a_card("h", 0, None if lost else all(solved), n)
    fields = {"model_id": model, "task_id": task, "task_hash": task, "split": None, "purpose": "adhoc", **key}
    return plain.model_copy(
        update={
            "key": plain.key.model_copy(update=fields), "rollout_id": f"{model}-{task}-{n}", "scores": scores,
            "channel": channel,
            "error": LOST if lost else None,
        }
    )  # fmt: skip


def found(*cards: Scorecard) -> Weakness:
    return weakness(cards, SKILLS, lambda m: m.startswith("student"), lambda skill: skill.partition(".")[0])


def by_key(*cards: Scorecard) -> dict[tuple[str, str, int], Gap]:
    return {(g.key.skill, g.key.channel, g.key.position): g for g in found(*cards).cells}


def test_a_cell_is_a_skill_at_its_place_by_the_teachers_channel() -> None:
    cells = by_key(
        card(TEACHER, "pair", (True, True), "gui"),
        card(STUDENT, "pair", (True, False), "terminal"),
        card(STUDENT, "pair", (True, False), "none", n=1),
        card(STUDENT, "other", (False,), "gui"),
    )
    assert set(cells) == {("csv.sum", "gui", 0), ("text.append", "gui", 1), ("files.rename", "gui", 0)}
    first, second, alone = (cells[k] for k in sorted(cells, key=lambda k: (k[0] == "files.rename", k[2])))
    assert (first.raw, second.raw, second.n_student) == (0.0, 1.0, 2)  # its first skill it can do
    assert alone.raw is None and alone.teacher is None and alone.student == 0.0


def test_few_attempts_do_not_outweigh_what_the_app_says() -> None:
    many = [
        card(model, "one", (model == TEACHER or n % 4 == 0,), n=n) for model in (TEACHER, STUDENT) for n in range(40)
    ]
    few = [card(TEACHER, "pair", (True, True)), card(STUDENT, "pair", (True, False))]
    cells = by_key(*many, *few)
    broad, narrow = cells["csv.sum", "terminal", 0], cells["text.append", "terminal", 1]
    # csv.sum stands at place 1 in both tasks: 10 of 40 and 1 of 1
    assert broad.raw == pytest.approx(1 - 11 / 41) and broad.gap == pytest.approx(broad.raw)
    assert narrow.raw == 1.0 and narrow.gap == pytest.approx(1.0)  # the only cell of its app
    other = by_key(*many, *few, card(TEACHER, "other", (True,)), card(STUDENT, "other", (True,)))
    assert other["files.rename", "terminal", 0].gap == 0.0
    two = weakness([*many, *few], SKILLS, lambda m: m.startswith("student"), lambda skill: "one app").cells
    shrunk = {g.key.skill: g for g in two}
    of_app = (shrunk["csv.sum"].raw + 1.0) / 2
    assert shrunk["text.append"].gap == pytest.approx((1.0 + WEIGHT * of_app) / (1 + WEIGHT))


def test_g44_what_failed_on_our_side_is_no_weakness() -> None:
    scored = [card(TEACHER, "one", (True,)), card(STUDENT, "one", (True,))]
    lost = [card(STUDENT, "one", (None,), n=n) for n in range(1, 30)]
    some = found(*scored, *lost)
    assert (some.infra, some.attempts) == (29, 31)
    assert some.cells == found(*scored).cells and some.cells[0].n_student == 1 and some.cells[0].gap == 0.0
    half = card(STUDENT, "pair", (True, False)).model_copy(update={"success": False})
    unscored = half.scores[1].model_copy(update={"value": None})
    half = half.model_copy(update={"scores": (half.scores[0], unscored)})
    assert (skill_solved(half, 0, 2), skill_solved(half, 1, 2)) == (True, None)
    gone = half.model_copy(update={"scores": ()})  # the harness's own failure left nothing to grade: that is a 0
    assert skill_solved(gone, 0, 2) is False and skill_solved(gone, 0, 1) is False
    assert skill_solved(gone.model_copy(update={"success": None}), 0, 2) is None


def test_the_next_round_goes_where_the_gap_is_and_gets_easier_where_it_is_hard() -> None:
    weak = found(
        *(card(TEACHER, "pair", (True, True), n=n) for n in range(10)),
        *(card(STUDENT, "pair", (n < 5, False), n=n) for n in range(10)),
        card(TEACHER, "other", (True,), "both"), card(STUDENT, "other", (True,)),
    )  # fmt: skip
    skills = ["csv.sum", "text.append", "files.rename", "web.form"]
    after = next_settings(weak, Settings(seed=4, single=0.5), skills)
    targets = {target.skill: target for target in after.targets}
    assert set(targets) == {"csv.sum", "text.append"} and after.fresh == ("web.form",)
    assert targets["text.append"].sizes == (1,), "never solved within two: alone next time"
    assert targets["csv.sum"].sizes == (2,) and targets["csv.sum"].channel == "terminal"
    assert targets["text.append"].weight > targets["csv.sum"].weight
    assert (after.seed, after.single) == (5, 0.5)
    shares = after.shares
    assert (shares.targets, shares.coverage, shares.fresh) == (0.6, 0.3, 0.1)
    control = uniform_settings(Settings(seed=4, single=0.5))
    assert (control.seed, control.single, control.targets, control.fresh) == (5, 0.5, (), ())
    gone = next_settings(weak, Settings(), ["csv.sum"])  # a retired skill leaves the sampler
    assert [target.skill for target in gone.targets] == ["csv.sum"]


def test_a_round_whose_gain_may_be_nothing_is_the_last() -> None:
    def arms(better: int) -> list[Scorecard]:
        before = [card("student-a", f"t{n}", (n < 4,)) for n in range(40)]
        return before + [card("student-b", f"t{n}", (n < 4 + better,)) for n in range(40)]

    assert gain(arms(20), lambda t: True, "student-a", "student-b").stop is False
    none = gain(arms(0), lambda t: True, "student-a", "student-b")
    assert none.stop and none.gain.point == 0 and none.tasks == 40
    empty = gain(arms(20), lambda t: False, "student-a", "student-b")
    assert empty.stop and empty.gain == nothing() and empty.tasks == 0
    lost = gain([*arms(20), card("student-b", "t99", (None,))], lambda t: True, "student-a", "student-b")
    assert lost.unscored == 1 and lost.tasks == 40


def test_commands_read_runs_and_leave_the_next_rounds_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged, run, out = tmp_path / "set", tmp_path / "run", tmp_path / "next.toml"
    list(write_set(forge_of(Settings()), 4, forged))
    store = Store.create(run, RunConfig())
    words = ("forge", "refine", str(forged), str(run), "--out", str(out))
    code, _, err = called(capsys, *words)
    assert code == 2 and "no scored attempt of a student" in err
    for row in read_rows(forged):
        store.append(card(STUDENT, row.id, (False,) * len(row.skills)))
    code, _, err = called(capsys, *words)
    assert code == 2 and "no skill that both teacher and student tried" in err and not out.exists()
    for row in read_rows(forged):
        store.append(card(TEACHER, row.id, (True,) * len(row.skills)))
    store.append(card(STUDENT, "files.rename-3000", (False,), split="test"))  # is not looked at
    code, said, err = called(capsys, *words)
    assert code == 0 and "the widest of" in said and "0 of them failed on our side" in err
    after = read_settings(out)
    assert {t.skill for t in after.targets} == {s for row in read_rows(forged) for s in row.skills} and after.seed == 1
    code, _, _ = called(capsys, *words, "--uniform")
    assert code == 0 and read_settings(out).targets == ()
    held = [name for name, family in families().items() if family.held_out][:12]
    for name in held:
        store.append(card("student-b", f"{name}-1000", (True,), split="dev"))
        store.append(card(STUDENT, f"{name}-1000", (False,), split="dev"))
    code, said, err = called(capsys, "forge", "gain", str(run), "--before", STUDENT, "--after", "student-b")
    assert code == 0 and "go on" in err and "12" in said
    code, _, err = called(capsys, "forge", "gain", str(run), "--before", STUDENT, "--after", STUDENT)
    assert code == 1 and "stop" in err
    (forged / "broken" / "odd").mkdir(parents=True)
    (forged / "broken" / "odd" / "skill.toml").write_text("name =")
    (forged / "settings.toml").write_text('skills = ["broken"]')
    code, _, err = called(capsys, *words)
    assert code == 2 and "broken/odd: can't be read" in err
