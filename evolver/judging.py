"""What a judge is worth: its agreement with the check programs on cases whose outcome is known, and whether that is
enough for it to decide a promotion.

A case is a frozen state that a check program has passed or failed. Cases of one task are alike, so intervals resample
tasks, never cases. Everything here is a pure function of judgements, settings and a seed.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from devset.task import Task
from evolver.audit import BLANKS, Agreement, Calibration, Judgement
from evolver.config import JudgeConfig
from evolver.intervals import DIFFERENCE, RESAMPLES, SHARE, Span, alike_interval, nothing
from evolver.records import Interval, Scorecard

MAX_UNSCORED = 0.1  # share of the cases that may stay without an answer
LENGTHS = ((0, "0 turns"), (5, "1-5 turns"), (15, "6-15 turns"), (10**9, "16 and more turns"))
Counts = NDArray[np.float64]  # (..., checked 0|1, judged 0|1)
Measure = Callable[[Counts], NDArray[np.float64]]


def final_judgements(judgements: Iterable[Judgement], judge: str) -> list[Judgement]:
    """This judge's last judgement of each case, in the order in which the cases were first judged."""
    return list({j.case: j for j in judgements if j.judge == judge}.values())


def calibration(judged: Sequence[Judgement], rules: JudgeConfig, seed: int, at: float) -> Calibration:
    """What these judgements (one a case, all of one judge, at least one) say of the judge.

    Blank controls show whether it sees what is not there; they are known failures and count in nothing but that and
    the table of kinds. Families of models are those of the models that played the cases.
    """
    cases = [j for j in judged if j.kind not in BLANKS]
    table = _tables(cases)
    kinds = strata(judged, lambda j: j.kind, seed)
    channels = strata(cases, lambda j: j.channel, seed)
    lengths = strata(cases, lambda j: length_of(j.turns), seed)
    families = strata(cases, lambda j: family_of(j.model_id), seed)
    kappa = _interval(table, cohens_kappa, seed, DIFFERENCE)
    false_accepts = _accepted(table, 0, seed)
    ids = "|".join(sorted(j.id for j in judged))
    return Calibration(
        id=f"cal-{hashlib.sha256(f'{judged[0].judge}|{rules.model_dump_json()}|{ids}'.encode()).hexdigest()[:16]}",
        judge=judged[0].judge,
        model_id=rules.model.model,
        accuracy=_interval(table, accuracy, seed, SHARE),
        kappa=kappa,
        true_accepts=_accepted(table, 1, seed),
        false_accepts=false_accepts,
        kinds=kinds,
        channels=channels,
        lengths=lengths,
        families=families,
        faults=(
            *_controls(judged, rules),
            *_agreement(kappa, false_accepts, rules),
            *_bias((*channels, *lengths), rules),
        ),
        at=at,
    )


def judge_fault(judge: str | None, calibrations: Iterable[Calibration]) -> str | None:
    """Why this judge may not decide a promotion, after its newest calibration; None when it may."""
    if judge is None:
        return "the run has no judge: start a new run with [judge] in its config"
    found = [c for c in calibrations if c.judge == judge]
    if not found:
        return f"{judge} was never calibrated in this run"
    if found[-1].faults:
        return f"{judge} failed its calibration: {'; '.join(found[-1].faults)}"
    return None


def decided_by_judge(tasks: Iterable[Task]) -> str | None:
    """Names the first task, with the criterion, whose success a judge decides; None when programs decide them all."""
    for task in tasks:
        for criterion in task.rubric.criteria:
            if criterion.grader == "judge" and criterion.required:
                return f"task {task.id!r}, criterion {criterion.id!r}"
    return None


def judges_of(cards: Iterable[Scorecard]) -> list[str]:
    """The judges whose values decided the success of these attempts."""
    return sorted(
        {
            s.grader
            for c in cards
            for s in c.scores
            if s.required and s.value is not None and s.grader.startswith("judge:")
        }
    )


# --- measures --------------------------------------------------------------------------------------------------------


def accuracy(counts: Counts) -> NDArray[np.float64]:
    """The share of cases on which judge and check program agree."""
    return _ratio(counts[..., 0, 0] + counts[..., 1, 1], counts.sum(axis=(-2, -1)))


def cohens_kappa(counts: Counts) -> NDArray[np.float64]:
    """Agreement beyond chance (Cohen 1960): (observed - expected) / (1 - expected). NaN where chance alone would make
    them agree always (one of two outcomes never occurs for either)."""
    n = counts.sum(axis=(-2, -1))
    expected = _ratio((counts.sum(axis=-1) * counts.sum(axis=-2)).sum(axis=-1), n * n)
    return _ratio(accuracy(counts) - expected, 1 - expected)


def judge_bias(counts: Counts) -> NDArray[np.float64]:
    """The judge's success rate minus the check programs'; above 0 the judge is lenient."""
    return _ratio(counts[..., 0, 1] - counts[..., 1, 0], counts.sum(axis=(-2, -1)))


def _accepted(tables: Counts, checked: int, seed: int) -> Interval:
    """How many of the known successes (1) or failures (0) the judge passes."""
    about = tables[tables[:, checked].sum(axis=-1) > 0]
    return _interval(about, lambda c: _ratio(c[..., checked, 1], c[..., checked, :].sum(axis=-1)), seed, SHARE)


def _ratio(part: Counts, whole: Counts) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 1e-12)
    return shares


def strata(cases: Sequence[Judgement], name: Callable[[Judgement], str], seed: int) -> tuple[Agreement, ...]:
    """Agreement and bias in each group of cases, by the groups' names."""
    groups: dict[str, list[Judgement]] = defaultdict(list)
    for case in cases:
        groups[name(case)].append(case)
    return tuple(_stratum(group, groups[group], seed) for group in sorted(groups))


def family_of(model_id: str) -> str:
    """The family that a model's name begins with: `gpt` of "gpt-5.4-mini", `qwen` of "Qwen/Qwen3.6-27B"."""
    letters = re.match(r"[a-z]+", model_id.rsplit("/", 1)[-1].lower())
    return letters.group() if letters else "other"


def length_of(turns: int) -> str:
    return next(name for most, name in LENGTHS if turns <= most)


def _stratum(name: str, cases: Sequence[Judgement], seed: int) -> Agreement:
    known = [(j.checked, j.judged) for j in cases if j.judged is not None]
    table = _tables(cases)
    return Agreement(
        name=name,
        n=len(cases),
        n_tasks=len({j.task_id for j in cases}),
        n_unscored=len(cases) - len(known),
        checked_rate=sum(checked for checked, _ in known) / len(known) if known else None,
        judged_rate=sum(bool(judged) for _, judged in known) / len(known) if known else None,
        accuracy=_interval(table, accuracy, seed, SHARE),
        bias=_interval(table, judge_bias, seed, DIFFERENCE),
    )


def _tables(cases: Sequence[Judgement]) -> Counts:
    """One table of counts a task, (tasks, checked, judged); cases without an answer are in none."""
    tables: dict[str, Counts] = defaultdict(lambda: np.zeros((2, 2)))
    for case in cases:
        if case.judged is not None:
            tables[case.task_id][int(case.checked), int(case.judged)] += 1
    return np.stack([tables[task] for task in sorted(tables)]) if tables else np.zeros((0, 2, 2))


def _interval(tables: Counts, measure: Measure, seed: int, span: Span) -> Interval:
    """The measure of all cases together; 95 % percentile bootstrap over tasks, Wilson's bound where all are alike."""
    point = float(measure(tables.sum(axis=0)))
    if not np.isfinite(point):
        return nothing("no case, or all of one outcome")
    n = len(tables)
    if n == 1:
        return Interval(point=point, low=None, high=None, n=1, method="one task: no interval")
    drawn = np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))
    values = measure(tables[drawn].sum(axis=1))
    values = values[np.isfinite(values)]
    if np.ptp(values) == 0:
        return alike_interval(point, n, span)
    low, high = (float(bound) for bound in np.quantile(values, (0.025, 0.975)))
    return Interval(point=point, low=low, high=high, n=n, method="percentile bootstrap over tasks")


# --- what is demanded ------------------------------------------------------------------------------------------------


def _controls(judged: Sequence[Judgement], rules: JudgeConfig) -> list[str]:
    faults = []
    for checked, what in ((True, "known successes"), (False, "known failures")):
        n = sum(j.judged is not None and j.kind not in BLANKS and j.checked is checked for j in judged)
        if n < rules.min_cases:
            faults.append(f"only {n} {what} were judged, {rules.min_cases} are needed")
    for kind in BLANKS:
        answers = [j.judged for j in judged if j.kind == kind and j.judged is not None]
        if not answers:
            faults.append(f"no {kind} control was judged")
        elif any(answers):
            faults.append(f"{sum(answers)} of {len(answers)} {kind} controls passed, where there is nothing to see")
    silent = sum(j.judged is None for j in judged)
    if silent > MAX_UNSCORED * len(judged):
        faults.append(f"{silent} of {len(judged)} cases have no readable answer")
    return faults


def _agreement(kappa: Interval, false_accepts: Interval, rules: JudgeConfig) -> list[str]:
    faults = []
    if kappa.low is None or kappa.low < rules.min_kappa:
        shown = "undefined" if kappa.point is None else f"{kappa.point:.2f}, its lower end {kappa.low or 0:.2f}"
        faults.append(f"Cohen's kappa is {shown}; the lower end must reach {rules.min_kappa:g}")
    if false_accepts.point is not None and false_accepts.point > rules.max_false_accept:
        faults.append(
            f"{100 * false_accepts.point:.0f} % of the known failures passed, at most "
            f"{100 * rules.max_false_accept:g} % may"
        )
    return faults


def _bias(groups: Sequence[Agreement], rules: JudgeConfig) -> list[str]:
    """Groups with enough cases in which the judge is measurably lenient, or strict, beyond what is allowed."""
    faults = []
    for group in groups:
        low, point, high = group.bias.low, group.bias.point, group.bias.high
        if point is None or low is None or high is None or group.n - group.n_unscored < rules.min_cases:
            continue
        if abs(point) > rules.max_bias and (low > 0 or high < 0):
            word = "lenient" if point > 0 else "strict"
            faults.append(f"{word} by {100 * abs(point):.0f} points on {group.name} ({group.n} cases)")
    return faults
