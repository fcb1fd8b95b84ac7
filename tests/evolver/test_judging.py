"""Agreement of a judge with check programs: worked examples, an independent library, and what is demanded."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from evolver.audit import Calibration, Judgement, Kind
from evolver.config import JudgeConfig, OpenAISpec, RunConfig
from evolver.judging import (
    accuracy,
    calibration,
    cohens_kappa,
    decided_by_judge,
    family_of,
    final_judgements,
    judge_bias,
    judge_fault,
    judges_of,
    length_of,
)
from evolver.opening import record_opening
from evolver.records import Score
from evolver.report import audit_lines, report
from evolver.store import Store
from tests.evolver.cards import a_card, a_task
from tests.evolver.judged_task import NEAT, POLITE, judged

RULES = JudgeConfig(model=OpenAISpec(kind="openai", model="judge-4"), min_cases=10)
JUDGE = "judge:judge-4:v1-abc"


def a_judgement(
    task: int, checked: bool, judged: bool | None, kind: Kind | None = None, **changes: object
) -> Judgement:
    named: Kind = kind or ("oracle" if checked else "noop")
    fields: dict[str, object] = {
        "id": f"{named}-{task}-{checked}-{changes.get('channel', '')}", "judge": JUDGE, "kind": named,
        "case": f"{named}-{task}-{checked}-{changes.get('channel', '')}", "task_id": f"t{task:03d}", "task_hash": "h",
        "rollout_id": "r", "model_id": "demonstrator", "channel": "terminal", "turns": 3, "checked": checked,
        "judged": judged, "why": "", "at": 0.0,
    }  # fmt: skip
    return Judgement.model_validate({**fields, **changes})


def good(tasks: int = 30, wrong: int = 0) -> list[Judgement]:
    """A success and a failure of each task, all seen rightly but the failures of the first `wrong`, and blanks."""
    cases = [a_judgement(n, True, True) for n in range(tasks)]
    cases += [a_judgement(n, False, n < wrong) for n in range(tasks)]
    return cases + [a_judgement(n, False, False, kind) for n in range(3) for kind in ("blank_screen", "empty_home")]


def of(cases: list[Judgement]) -> Calibration:
    return calibration(cases, RULES, 0, 0.0)


def test_a_worked_example_of_kappa() -> None:
    """Two readers and 50 proposals: both yes 20, both no 15, 5 and 10 apart: observed 0.7, by chance 0.5, so 0.4."""
    counts = np.array([[15.0, 10.0], [5.0, 20.0]])
    assert accuracy(counts) == pytest.approx(0.7)
    assert cohens_kappa(counts) == pytest.approx(0.4)
    assert judge_bias(counts) == pytest.approx(0.1), "yes 30 times where the other said it 25 times, of 50"
    assert np.isnan(cohens_kappa(np.array([[9.0, 0.0], [0.0, 0.0]]))), "chance alone explains an agreement on one word"


def test_kappa_is_what_scikit_learn_computes() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn comes with mlflow")
    rng = random.Random(3)
    for _ in range(20):
        pairs = [(rng.random() < 0.5, rng.random() < 0.4) for _ in range(40)]
        counts = np.zeros((2, 2))
        for checked, seen in pairs:
            counts[int(checked), int(seen)] += 1
        theirs = metrics.cohen_kappa_score([a for a, _ in pairs], [b for _, b in pairs])
        assert cohens_kappa(counts) == pytest.approx(theirs)


def test_a_judge_that_agrees_is_fit_and_its_figures_have_intervals_and_n() -> None:
    found = of(good())
    assert found.faults == () and judge_fault(JUDGE, [found]) is None
    assert (found.accuracy.point, found.kappa.point) == (1.0, 1.0)
    assert found.accuracy.low is not None and 0.8 < found.accuracy.low < 1, "30 tasks alike are no certainty"
    assert (found.true_accepts.point, found.false_accepts.point, found.false_accepts.n) == (1.0, 0.0, 30)
    assert [(g.name, g.n, g.n_tasks) for g in found.kinds] == [
        ("blank_screen", 3, 3), ("empty_home", 3, 3), ("noop", 30, 30), ("oracle", 30, 30),
    ]  # fmt: skip


def test_intervals_resample_tasks_not_cases() -> None:
    """Ten cases of one task are no ten tasks: the interval of few tasks is wide however many cases each has."""

    def interval(tasks: int, each: int) -> float:
        cases = [
            a_judgement(n, True, (n % 3 != 0), case=f"{n}-{m}", id=f"{n}-{m}")
            for n in range(tasks)
            for m in range(each)
        ] + [a_judgement(0, False, False)]
        found = of(cases).true_accepts
        assert found.n == tasks and found.low is not None and found.high is not None
        return found.high - found.low

    assert interval(6, 20) > 1.5 * interval(120, 1)


@pytest.mark.parametrize(
    ("cases", "fault"),
    [
        (good(9), "only 9 known successes were judged, 10 are needed"),
        (good(30, wrong=20), "67 % of the known failures passed, at most 10 % may"),
        (good(30, wrong=10), "Cohen's kappa is 0.67, its lower end 0"),
        ([c for c in good() if c.kind != "blank_screen"], "no blank_screen control was judged"),
        ([c for c in good() if c.kind != "empty_home"], "no empty_home control was judged"),
        ([*good(), a_judgement(9, False, True, "blank_screen")], "1 of 4 blank_screen controls passed"),
        ([*good(), *(a_judgement(n, True, None, "solved") for n in range(30))], "30 of 96 cases have no readable"),
        ([a_judgement(n, n % 2 == 0, n % 2 == 1) for n in range(60)], "Cohen's kappa is -1.00"),
    ],
)
def test_s44_a_judge_that_fails_its_controls_is_unfit(cases: list[Judgement], fault: str) -> None:
    found = of(cases)
    assert any(fault in one for one in found.faults), found.faults
    assert "failed its calibration" in (judge_fault(JUDGE, [found]) or "")


def test_s44_a_judge_that_sees_success_on_blank_screens_is_unfit_however_well_it_agrees() -> None:
    lenient = [c.model_copy(update={"judged": True}) if c.kind == "blank_screen" else c for c in good(100)]
    assert of(lenient).kappa.point == 1.0
    assert of(lenient).faults == ("3 of 3 blank_screen controls passed, where there is nothing to see",)


def test_bias_by_channel_length_and_family_is_measured_and_bounded() -> None:
    cases = good(60)
    for n in range(40):
        cases.append(
            a_judgement(
                n, False, n < 16, "failed", channel="gui", turns=20, model_id="org/Qwen3-9b", case=f"g{n}", id=f"g{n}"
            )
        )
    found = of(cases)
    channels = {g.name: g for g in found.channels}
    assert channels["gui"].bias.point == pytest.approx(0.4) and channels["terminal"].bias.point == 0
    assert channels["gui"].bias.low is not None and channels["gui"].bias.low > 0.2 and channels["gui"].bias.n == 40
    assert [g.name for g in found.lengths] == ["1-5 turns", "16 and more turns"]
    assert {g.name: g.bias.point for g in found.families} == {"demonstrator": 0, "qwen": pytest.approx(0.4)}
    assert any("lenient by 40 points on gui" in fault for fault in found.faults)
    assert any("16 and more turns" in fault for fault in found.faults)


def test_an_unscored_case_counts_in_no_rate() -> None:
    silent = [a_judgement(n, False, None, "failed", case=f"s{n}", id=f"s{n}") for n in range(3)]
    found = of([*good(), *silent])
    assert found.accuracy.point == 1.0 and found.faults == ()
    assert [(g.n, g.n_unscored, g.judged_rate) for g in found.kinds if g.name == "failed"] == [(3, 3, None)]


def test_names_of_families_and_lengths() -> None:
    assert [family_of(m) for m in ("gpt-5.4-mini", "Qwen/Qwen3.6-27B", "student-0a1b", "7b")] == [
        "gpt", "qwen", "student", "other",
    ]  # fmt: skip
    assert [length_of(n) for n in (0, 1, 5, 6, 15, 16, 500)] == [
        "0 turns", "1-5 turns", "1-5 turns", "6-15 turns", "6-15 turns", "16 and more turns", "16 and more turns",
    ]  # fmt: skip


def test_the_newest_calibration_of_this_very_judge_counts() -> None:
    fit, unfit = of(good()), of(good(9))
    assert judge_fault(JUDGE, [unfit, fit]) is None and judge_fault(JUDGE, [fit, unfit]) is not None
    assert judge_fault("judge:other:v1-abc", [fit]) == "judge:other:v1-abc was never calibrated in this run"
    assert judge_fault(None, [fit]) == "the run has no judge: start a new run with [judge] in its config"


def test_a_case_that_was_asked_again_counts_once() -> None:
    first = a_judgement(1, True, None)
    again = first.model_copy(update={"id": "later", "judged": True})
    foreign = first.model_copy(update={"id": "x", "judge": "judge:other:v1-abc", "judged": False})
    assert final_judgements([first, again, foreign], JUDGE) == [again]


def test_what_a_judge_decides() -> None:
    assert decided_by_judge([a_task(), judged(POLITE)]) is None, "a criterion that is not required decides nothing"
    assert decided_by_judge([a_task(), judged(NEAT)]) == "task 'right-1', criterion 'neat'"
    scores = [
        Score(criterion=str(n), weight=1, required=n != 2, value=v, explanation="", grader=g)
        for n, (g, v) in enumerate([("judge:a", 1.0), ("program", 1.0), ("judge:b", 0.0), ("judge:c", None)])
    ]
    assert judges_of([a_card("h", 0, None, scores=tuple(scores))]) == ["judge:a"]


def test_reports_say_what_the_judge_is_worth_and_who_looked_at_test(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig(judge=RULES, allow_unpriced=True))
    assert audit_lines(store) == ["judge judge-4: not calibrated, it decides no promotion"]
    store.append(of(good()))
    record_opening(store, "test", "gap", flagged=False)
    record_opening(store, "test", "what failed?", flagged=True)
    fit, looked = audit_lines(store)
    assert fit.startswith(f"{JUDGE}: kappa 1.00 [0.77, 1.00] against check programs, 30 tasks; fit")
    assert looked.startswith("test was opened by ") and looked.endswith("to look at: what failed?")
    store.append(of(good(9)))
    assert "UNFIT, it decides no promotion: only 9 known successes" in audit_lines(store)[0]
    assert set(audit_lines(store)) <= set(report(store).lines)
