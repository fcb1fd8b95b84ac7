"""Two harnesses side by side, of one run or of two: which attempts pair, why others do not, and what the pairs say.

All figures come from evolver.compare and evolver.intervals; here it is only chosen what they are asked about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evolver.audit import SelfCheck
from evolver.compare import Arms, Comparison, attempts_in_common, compare, flip_rates
from evolver.config import changed_fields
from evolver.errors import UsageError
from evolver.intervals import DIFFERENCE, Tail, bound, mean_interval, nothing
from evolver.population import by_task, per_task, success_value
from evolver.records import Interval, Scorecard
from evolver.story import Records
from harnesses.diff import ORDER, Diff
from harnesses.harness import Component

DOTS = 20
CELLS = {
    "both": "both solve it",
    "only_a": "only A solves it",
    "only_b": "only B solves it",
    "neither": "neither solves it",
}
Kind = tuple[str, str, str]  # split, purpose, model id
_PARTS: dict[str, Component] = {"scaffold": "F", "tools": "T", "prompt": "P", "environment": "E"}


@dataclass(frozen=True)
class Side:
    """One harness of one run, with its attempts of one kind (one card each), and task id → the apps that it is over."""

    records: Records
    harness_id: str
    cards: tuple[Scorecard, ...]
    apps: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Pairing:
    """B against A. `gap` and whatever rests on it is a line that says why there is none when nothing pairs."""

    a: Side
    b: Side

    @cached_property
    def unpaired(self) -> Counter[str]:
        """Why a task does not pair → how many tasks."""
        return Counter(why for why in self._reasons.values() if why)

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that pair, by id."""
        return sorted(task for task, why in self._reasons.items() if not why)

    @cached_property
    def _reasons(self) -> dict[str, str]:
        a, b = by_task(self.a.cards), by_task(self.b.cards)
        return {task: _why_not(a.get(task, []), b.get(task, [])) for task in a.keys() | b.keys()}

    def arms(self, tasks: Iterable[str] | None = None) -> Arms:
        """The cards of both on some of the tasks that pair (all of them if None)."""
        kept = set(self.tasks) if tasks is None else set(tasks) & set(self.tasks)
        ours, theirs = ([c for c in s.cards if c.key.task_id in kept] for s in (self.b, self.a))
        n_tasks = len(kept) if tasks is not None else len(self._reasons)
        return Arms(ours, theirs, n_tasks, attempts_in_common(ours, theirs))

    def versus(self, tasks: Iterable[str] | None = None) -> Comparison | str:
        """B minus A, or why there is no such thing."""
        arms = self.arms(tasks)
        if not arms.candidate or not arms.incumbent:
            scored = self.a.cards and self.b.cards
            return "no task pairs" if scored else "one of the two was never scored on these tasks"
        rules, seed = self.b.records.config.race, self.b.records.config.seed
        try:
            found = compare(arms, rules, rules.alpha, seed)
        except UsageError as error:
            return str(error)
        return found if found.tasks else "no attempt was scored in both arms with the same number and seed"

    @cached_property
    def gap(self) -> Comparison | str:
        return self.versus()

    def by_app(self) -> dict[str, Comparison]:
        """App → B minus A on the tasks that are over it, the largest effect first; a task over two apps is in both."""
        apps = {**self.a.apps, **self.b.apps}
        over: dict[str, list[str]] = {}
        for task in self.tasks:
            for app in apps.get(task, ()):
                over.setdefault(app, []).append(task)
        found = {app: made for app, some in over.items() if isinstance(made := self.versus(some), Comparison)}
        return dict(sorted(found.items(), key=lambda row: -(row[1].effect.point or 0.0)))

    @cached_property
    def pairs(self) -> list[tuple[Scorecard, Scorecard]]:
        """(A's card, B's card) of each attempt that both have scored, by task and number."""
        theirs = {c.key.pair: c for c in self.a.cards if c.success is not None}
        kept = set(self.tasks)
        found = [(theirs[c.key.pair], c) for c in self.b.cards if c.success is not None and c.key.pair in theirs]
        return sorted((p for p in found if p[1].key.task_id in kept), key=lambda p: p[1].key.pair)

    def cell(self, name: str) -> list[tuple[Scorecard, Scorecard]]:
        """The pairs of one cell of the concordance table."""
        return [pair for pair in self.pairs if _cell(pair) == name]

    def concordance(self) -> dict[str, int]:
        counted = Counter(_cell(pair) for pair in self.pairs)
        return {name: counted[name] for name in CELLS}

    def draws(self) -> list[float]:
        """The gap at `DOTS` even steps of its bootstrap distribution over tasks: each is as likely as the others."""
        lead = list(self._leads().values())
        levels = ((n + 0.5) / DOTS for n in range(DOTS))
        found = [bound(lead, Tail("lower", level), self.b.records.config.seed, DIFFERENCE) for level in levels]
        return [value for value in found if value is not None]

    def _leads(self) -> dict[str, float]:
        """Task id → B's share solved minus A's, from the attempts that `compare` takes."""
        ours = [pair[1] for pair in self.pairs]
        common = {card.key.task_id for card in ours}
        a = per_task([c for c in self.a.cards if c.key.task_id in common], success_value)
        return {task: share - a[task] for task, share in per_task(ours, success_value).items()}

    def flips(self) -> tuple[Interval, Interval]:
        """The share of attempts that turn out differently, averaged over tasks: A against itself, and A against B."""
        return flip_rates(self.arms(), self.b.records.config.seed)

    def noise(self) -> tuple[Interval, str]:
        """What chance alone does, and how it was seen: A's odd attempts minus its even ones by task, or what the check
        before the run found when its original played beside itself."""
        kept = set(self.tasks)
        own = [c for c in self.a.cards if c.key.task_id in kept]
        even, odd = (per_task([c for c in own if c.key.attempt % 2 == n], success_value) for n in (0, 1))
        common = sorted(even.keys() & odd.keys())
        if common:
            found = mean_interval([odd[t] - even[t] for t in common], self.a.records.config.seed, DIFFERENCE)
            return found, f"A against itself on {len(common)} tasks"
        checked = next((c.effect for c in self.a.records.all(SelfCheck) if c.check == "a_a"), None)
        if checked is not None:
            return checked, "the original against itself before the run"
        return nothing("A has no repeated attempt"), "no grey band: A was never played twice, so chance is not seen"

    def cautions(self) -> list[str]:
        """What else differs between the two than their harnesses."""
        if self.a.records.path == self.b.records.path:
            return []
        return changed_fields(self.a.records.config, self.b.records.config)


def _cell(pair: tuple[Scorecard, Scorecard]) -> str:
    a, b = pair
    return ("both" if a.success else "only_b") if b.success else ("only_a" if a.success else "neither")


def _why_not(a: Sequence[Scorecard], b: Sequence[Scorecard]) -> str:
    """Why a task does not pair; empty when it does."""
    if not a or not b:
        return "played by A alone" if a else "played by B alone"
    both = (*a, *b)
    if len({c.key.task_hash for c in both}) > 1:
        return "another version of the task under the same name"
    if len({c.checker_hash for c in both}) > 1:
        return "another version of its check"
    if any(len(graders) > 1 for graders in _graders(both).values()):
        return "scored by two graders"
    scored = [{c.key.pair for c in arm if c.success is not None} for arm in (a, b)]
    return "" if scored[0] & scored[1] else "no attempt of the same number and seed is scored in both"


def _graders(cards: Sequence[Scorecard]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for card in cards:
        for score in card.scores:
            if score.value is not None:
                found.setdefault(score.criterion, set()).add(score.grader)
    return found


def kinds_in_common(a: list[Kind], b: list[Kind]) -> list[Kind]:
    """What both were played for, races on dev first."""
    return sorted(set(a) & set(b), key=lambda kind: (kind[:2] != ("dev", "race"), kind))


def by_part(found: Diff) -> dict[Component, list[str]]:
    """The changes of a harness by the part that they belong to, in the order F, T, P, E."""
    parts: dict[Component, list[str]] = {part: [] for part in ORDER}
    programs: Component = "T" if "T" in found.components else "F"
    for change in found.changes:
        head = change.partition(":")[0].partition(".")[0].partition("/")[0]
        parts[_PARTS.get(head, programs)].append(change)
    return parts
