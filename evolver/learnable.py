"""What a harness looks like to a learner before any student plays, and how well that told which students do better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from evolver.gap import cards_on_test
from evolver.population import cards_of, per_task, success_value
from evolver.records import Distillation, Learnability

if TYPE_CHECKING:
    from evolver.store import Store

FEWEST_ARMS = 3  # with two there is no rank to be wrong about but one
EXACT_ARMS = 7  # up to so many, every order is tried


@dataclass(frozen=True)
class Learned:
    """The figures of one harness, means over its students; `success` is theirs on the test split (0..1).

    Losses are nats per token. `task_loss` is that of a whole task: exp(-task_loss) is the chance that a student, drawn
    token by token, writes all of the teacher's turns.
    """

    harness_id: str
    students: int
    rollouts: int
    loss_before: float | None
    loss_after: float | None
    tokens_per_turn: float | None
    turns_per_task: float | None
    switches_per_task: float | None
    success: float | None

    @property
    def task_loss(self) -> float | None:
        if self.loss_after is None or self.tokens_per_turn is None or self.turns_per_task is None:
            return None
        return self.loss_after * self.tokens_per_turn * self.turns_per_task


@dataclass(frozen=True)
class Prediction:
    """How the ranks of a figure agree with those of the students' success over `n` harnesses: Spearman's `rho`, with
    the exact two-sided `p` of all orders; and in how many of `pairs` it named the better students. Figures should
    be small and are turned round, so that 1 is a good prediction. None where there are too few harnesses."""

    figure: str
    n: int
    rho: float | None
    p: float | None
    right: int
    pairs: int


FIGURES = ("loss_before", "loss_after", "task_loss", "tokens_per_turn", "turns_per_task", "switches_per_task")


def learned(store: Store) -> list[Learned]:
    """One entry a harness that has students with figures, in the order of their first ones."""
    known = store.all(Learnability)
    return [
        _learned(store, h, [k for k in known if k.harness_id == h]) for h in dict.fromkeys(k.harness_id for k in known)
    ]


def _learned(store: Store, harness_id: str, figures: Sequence[Learnability]) -> Learned:
    made = {d.student_model for d in store.all(Distillation) if d.teacher_harness == harness_id}
    cards = cards_on_test(store)
    means = [per_task(cards_of(cards, harness_id, "test", student), success_value) for student in sorted(made)]
    each = [sum(found.values()) / len(found) for found in means if found]
    last = figures[-1]
    return Learned(
        harness_id=harness_id,
        students=len(figures),
        rollouts=last.rollouts,
        loss_before=last.loss_before,
        loss_after=_mean([f.loss_after for f in figures if f.loss_after is not None]),
        tokens_per_turn=last.tokens / last.turns if last.turns else None,
        turns_per_task=last.turns / last.rollouts if last.rollouts else None,
        switches_per_task=last.switches / last.rollouts if last.rollouts else None,
        success=_mean(each),
    )


def predictions(arms: Sequence[Learned]) -> list[Prediction]:
    """How well each figure told the order of the arms' students."""
    return [_prediction(figure, arms) for figure in FIGURES]


def _prediction(figure: str, arms: Sequence[Learned]) -> Prediction:
    pairs = [
        (-value, arm.success)  # the less the better
        for arm in arms
        if (value := getattr(arm, figure)) is not None and arm.success is not None
    ]
    said, came = [one for one, _ in pairs], [other for _, other in pairs]
    told = [(x - y) * (u - v) for (x, u), (y, v) in combinations(pairs, 2) if u != v]
    rho = _spearman(said, came) if len(pairs) >= FEWEST_ARMS else None
    p = None if rho is None or len(pairs) > EXACT_ARMS else _exact_p(rho, said, came)
    return Prediction(figure, len(pairs), rho, p, sum(one > 0 for one in told), len(told))


def _spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Correlation of ranks, ties at their mean; None where one side is all alike."""
    from scipy.stats import rankdata

    x, y = rankdata(one), rankdata(other)
    x, y = x - x.mean(), y - y.mean()
    norm = float((x @ x) * (y @ y)) ** 0.5
    return float(x @ y) / norm if norm else None


def _exact_p(rho: float, one: Sequence[float], other: Sequence[float]) -> float:
    """Share of all orders that agree as much, either way."""
    found = [_spearman(one, list(order)) or 0.0 for order in permutations(other)]
    return sum(abs(r) >= abs(rho) - 1e-9 for r in found) / len(found)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
