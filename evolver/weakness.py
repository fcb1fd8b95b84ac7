"""What a student fails at and its teacher does not, cell by cell, and what the next round of forged tasks is made of.

A cell is a skill, at a place in a task of several skills, by a channel: the one that the teacher took on the task.
Success of a skill within a task is that of its own criteria. Attempts that failed on our side say nothing and are
counted apart. A cell's gap is shrunk towards the mean gap of its app, which a few attempts can't outweigh.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from devset.forge.settings import Settings, Shares, Target
from evolver.intervals import DIFFERENCE, mean_interval
from evolver.population import final_cards, per_task
from evolver.records import Channel, Interval, Scorecard

WEIGHT = 8.0  # attempts that the mean of the app counts for beside those of a cell
HARD = 0.2  # a student that succeeds less often in a cell gets easier tasks there
_NUMBER = re.compile(r"_(\d+)$")


@dataclass(frozen=True, order=True)
class CellKey:
    """`position` counts from 0; `size` skills make up the task."""

    app: str
    skill: str
    channel: Channel
    position: int


@dataclass
class Tally:
    """Attempts that were scored, and those of them that succeeded; `sizes` are skills per task."""

    solved: int = 0
    scored: int = 0
    sizes: Counter[int] = field(default_factory=Counter)

    @property
    def rate(self) -> float | None:
        return self.solved / self.scored if self.scored else None


@dataclass(frozen=True)
class Gap:
    """One cell. `raw` is teacher minus student, None where either has no scored attempt; `gap` is what is gone by."""

    key: CellKey
    teacher: float | None
    student: float | None
    n_teacher: int
    n_student: int
    raw: float | None
    gap: float
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Weakness:
    """The cells, the widest gap first. `infra` counts attempts that were left out since they failed on our side."""

    cells: tuple[Gap, ...]
    infra: int
    attempts: int


def weakness(
    cards: Sequence[Scorecard],
    skills: Mapping[str, Sequence[str]],
    is_student: Callable[[str], bool],
    app_of: Callable[[str], str],
) -> Weakness:
    """From the cards of teachers and students. `skills` maps task id → its skills in their order; what it lacks is left
    out. `is_student` says of a model id whose it is, `app_of` of a skill to which app it belongs."""
    known = [card for card in final_cards(cards) if card.key.task_id in skills]
    scored = [card for card in known if card.success is not None]
    took = channels_of([card for card in scored if not is_student(card.key.model_id)])
    tallies: dict[bool, dict[CellKey, Tally]] = {True: defaultdict(Tally), False: defaultdict(Tally)}
    for card in scored:
        names, channel = skills[card.key.task_id], took.get(card.key.task_id, card.channel)
        for position, skill in enumerate(names):
            solved = skill_solved(card, position, len(names))
            if solved is not None:
                key = CellKey(app_of(skill), skill, channel, position)
                cell = tallies[is_student(card.key.model_id)][key]
                cell.scored, cell.solved = cell.scored + 1, cell.solved + solved
                cell.sizes[len(names)] += 1
    return Weakness(tuple(_gaps(tallies[False], tallies[True])), len(known) - len(scored), len(known))


def channels_of(cards: Iterable[Scorecard]) -> dict[str, Channel]:
    """Task id → the channel that was taken most often; tasks on which nobody acted are left out."""
    counted: dict[str, Counter[Channel]] = defaultdict(Counter)
    for card in cards:
        if card.channel != "none":
            counted[card.key.task_id][card.channel] += 1
    return {task: used.most_common(1)[0][0] for task, used in counted.items()}


def skill_solved(card: Scorecard, position: int, size: int) -> bool | None:
    """Whether the criteria of the skill at `position` hold; of a skill by itself, whether the task was solved. None
    where one of them is unscored."""
    if size == 1:
        return card.success
    own = [s for s in card.scores if (m := _NUMBER.search(s.criterion)) and int(m[1]) == position + 1 and s.required]
    values = [score.value for score in own]
    if not card.scores and card.success is False:
        return False
    if not values or None in values:
        return None
    return all(value == 1 for value in values)


def _gaps(teacher: Mapping[CellKey, Tally], student: Mapping[CellKey, Tally]) -> list[Gap]:
    raw: dict[CellKey, float | None] = {}
    keys = sorted({*teacher, *student})
    for key in keys:
        above, below = teacher.get(key, Tally()).rate, student.get(key, Tally()).rate
        raw[key] = None if above is None or below is None else above - below
    everywhere = _mean([value for value in raw.values() if value is not None])
    by_app = {
        app: _mean([v for key, v in raw.items() if key.app == app and v is not None], everywhere)
        for app in {key.app for key in keys}
    }
    found = [_gap(key, teacher.get(key, Tally()), student.get(key, Tally()), by_app[key.app]) for key in keys]
    return sorted(found, key=lambda gap: (-gap.gap, gap.key))


def _gap(key: CellKey, teacher: Tally, student: Tally, of_app: float) -> Gap:
    above, below = teacher.rate, student.rate
    raw = None if above is None or below is None else above - below
    n = min(teacher.scored, student.scored)  # the side with fewer attempts says how much is known
    shrunk = of_app if raw is None else (n * raw + WEIGHT * of_app) / (n + WEIGHT)
    sizes = tuple(sorted(student.sizes or teacher.sizes))
    return Gap(key, above, below, teacher.scored, student.scored, raw, shrunk, sizes)


def _mean(values: Sequence[float], otherwise: float = 0.0) -> float:
    return sum(values) / len(values) if values else otherwise


# --- the next round ----------------------------------------------------------------------------------------------


def next_settings(found: Weakness, before: Settings, skills: Sequence[str], shares: Shares = Shares()) -> Settings:
    """Settings of the next round: targets by gap, easier where the student hardly ever succeeds, the rest even and new.

    `skills` are those that may be drawn; what no attempt has touched yet is fresh. The seed moves on by one.
    """
    targets = [target for gap in found.cells if gap.key.skill in skills and (target := _target(gap))]
    tried = {gap.key.skill for gap in found.cells if gap.n_student}
    return before.model_copy(
        update={
            "seed": before.seed + 1,
            "targets": tuple(targets),
            "fresh": tuple(skill for skill in skills if skill not in tried),
            "shares": shares,
        }
    )


def uniform_settings(before: Settings) -> Settings:
    """The control of a round: the same budget, mix and seed as `next_settings`, and nothing that a student failed
    at."""
    return before.model_copy(update={"seed": before.seed + 1, "targets": (), "fresh": ()})


def _target(gap: Gap) -> Target | None:
    """None where the student is not behind."""
    if gap.gap <= 0:
        return None
    largest = max(gap.sizes, default=1)
    hard = gap.student is not None and gap.student < HARD
    sizes = (largest - 1,) if hard and largest > 1 else (largest,)
    channel = gap.key.channel if gap.key.channel in ("gui", "terminal") else None
    return Target(skill=gap.key.skill, weight=round(gap.gap, 6), sizes=sizes, channel=channel)


# --- when to stop ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """What a round was worth on skills that it never trained: success after minus before, paired by task. `stop` says
    that the interval includes 0, or that there is none."""

    before: str
    after: str
    tasks: int
    unscored: int
    gain: Interval
    stop: bool


def gain(cards: Sequence[Scorecard], held_out: Callable[[str], bool], before: str, after: str) -> Gain:
    """`before` and `after` are model ids; `held_out` says of a task id whether no skill of it was trained on."""
    known = [card for card in final_cards(cards) if held_out(card.key.task_id)]
    arms = [[card for card in known if card.key.model_id == model] for model in (before, after)]
    one, other = (per_task(arm, lambda c: None if c.success is None else float(c.success)) for arm in arms)
    both = sorted(one.keys() & other.keys())
    interval = mean_interval([other[task] - one[task] for task in both], 0, DIFFERENCE)
    unscored = sum(card.success is None for arm in arms for card in arm)
    return Gain(before, after, len(both), unscored, interval, interval.low is None or interval.low <= 0)
