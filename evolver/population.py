"""Views over the records of a run: lineage, parents, what is pending and what was decided. Never stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from evolver.errors import UsageError
from evolver.records import Candidate, Decision, Interval, Purpose, RolloutKey, Scorecard

if TYPE_CHECKING:
    from evolver.store import Store


@dataclass(frozen=True)
class Population:
    """All candidates and decisions of a run, in the order of writing. The root is the candidate without parents.

    Of a candidate that was heard after it had waited, the last decision stands and the first is left out.
    """

    candidates: Sequence[Candidate]
    decisions: Sequence[Decision]

    def __post_init__(self) -> None:
        heard = {decision.candidate_id for decision in self.decisions if decision.heard}
        if heard:
            standing = [d for d in self.decisions if d.heard or d.candidate_id not in heard]
            object.__setattr__(self, "decisions", standing)

    @property
    def root(self) -> Candidate | None:
        return next((c for c in self.candidates if not c.parents), None)

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The ids of the candidates that are edits which can't matter: judged like others, never in the lineage."""
        return frozenset(candidate.id for candidate in self.candidates if candidate.hidden_neutral)

    @property
    def neutrals(self) -> list[Decision]:
        """What was decided on edits that can't matter; a verdict of promote is a false accept."""
        return [decision for decision in self.decisions if decision.candidate_id in self.hidden]

    @property
    def promotions(self) -> list[Decision]:
        return [d for d in self.decisions if d.verdict == "promote" and d.candidate_id not in self.hidden]

    @property
    def lineage(self) -> list[str]:
        """Harness ids from the root to the incumbent."""
        return ([self.root.harness_id] if self.root else []) + [d.candidate_harness for d in self.promotions]

    @property
    def incumbent(self) -> str | None:
        return self.lineage[-1] if self.lineage else None

    @property
    def pending(self) -> list[Candidate]:
        """Proposed and not yet decided, oldest first."""
        return [c for c in self.candidates if c.parents and c.id not in self.decision_of]

    def waiting(self, teacher: str) -> list[Decision]:
        """On candidates whose small lead over the present incumbent, played by `teacher`, waits for its confirmation;
        hidden edits first."""
        against = self.incumbent, teacher
        found = [d for d in self.decisions if d.waits and (d.incumbent_harness, d.teacher) == against]
        return sorted(found, key=lambda decision: decision.candidate_id not in self.hidden)

    @property
    def was_heard(self) -> bool:
        """Whether a waiting candidate was confirmed, or not, and no other has been raced since (hidden edits apart)."""
        last = next((d for d in reversed(self.decisions) if d.candidate_id not in self.hidden), None)
        return last is not None and last.heard

    @property
    def since_promotion(self) -> int:
        """How many candidates in a row were decided without a promotion; one that waits is one of them."""
        verdicts = [decision.verdict for decision in self.decisions if decision.candidate_id not in self.hidden]
        return next((n for n, verdict in enumerate(reversed(verdicts)) if verdict == "promote"), len(verdicts))

    @cached_property
    def decision_of(self) -> dict[str, Decision]:
        """Candidate id → its decision."""
        return {decision.candidate_id: decision for decision in self.decisions}

    @property
    def harness_ids(self) -> set[str]:
        """Every tree that was ever proposed: proposing one of them again costs nothing and brings nothing."""
        return {candidate.harness_id for candidate in self.candidates}

    def candidate(self, harness_id: str) -> Candidate | None:
        return next((c for c in self.candidates if c.harness_id == harness_id), None)

    def parents(self, harness_id: str) -> tuple[str, ...]:
        found = self.candidate(harness_id)
        return found.parents if found else ()

    def children(self, harness_id: str) -> list[Candidate]:
        return [c for c in self.candidates if harness_id in c.parents]

    def settled_attempts(self, harness_id: str, teacher: str) -> int:
        """Attempts a task, on average, that `harness_id` had on dev, played by `teacher`, when its last decision fell
        (a root, and any incumbent under a new teacher, starts with one).

        A race pools these and no later ones, so that a race cut off half-way is repeated to the same verdict.
        """
        return max((attempts for attempts, _ in self._looks_at(harness_id, teacher)), default=1)

    def settled_spread(self, harness_id: str, teacher: str, tasks: Iterable[str]) -> dict[str, int]:
        """The same for each of these tasks, which need not have as many."""
        looks = self._looks_at(harness_id, teacher)
        return {task: max((spread.get(task, mean) for mean, spread in looks), default=1) for task in tasks}

    def _looks_at(self, harness_id: str, teacher: str) -> list[tuple[int, Mapping[str, int]]]:
        """Attempts a task by each look of a finished race, on average and where they differ by task."""
        found: list[tuple[int, Mapping[str, int]]] = []
        for decision in self.decisions:
            for look in decision.looks if decision.teacher in ("", teacher) else ():
                if harness_id == decision.candidate_harness:
                    found.append((look.attempts, look.spread))
                elif harness_id == decision.incumbent_harness:
                    found.append((max(look.attempts, look.pool), look.pool_spread))
        return found

    def confirmations(self) -> int:
        """How often `select` was played, to confirm or against the root: each time takes fresh attempt numbers."""
        return sum((d.confirmation is not None) + (d.cumulative is not None) for d in self.decisions)

    @property
    def alpha_spent(self) -> float:
        """The lineage's ledger of errors; what a promoted candidate was charged passes on to those after it, and one
        that can't enter the lineage is charged nothing."""
        charged = [d for d in self.decisions if d.verdict != "promote" and d.candidate_id not in self.hidden]
        return sum(decision.alpha_spent for decision in charged)


def population_of(store: Store) -> Population:
    return Population(store.all(Candidate), store.all(Decision))


def standing(candidate: Candidate, decision: Decision | None) -> str:
    """The word that a candidate is shown under (evolver.marks): its verdict, or what it is instead of having one; a
    hidden edit that can't matter is "neutral" once it is judged, since it stands for nothing in the lineage."""
    if decision is None:
        return "undecided" if candidate.parents else "start"
    return "neutral" if candidate.hidden_neutral else decision.verdict


def cards_of(cards: Sequence[Scorecard], harness_id: str, purpose: Purpose, model_id: str) -> list[Scorecard]:
    """The cards of one harness under one model for one purpose."""
    return [c for c in cards if (c.key.harness_id, c.key.purpose, c.key.model_id) == (harness_id, purpose, model_id)]


def final_cards(cards: Sequence[Scorecard]) -> list[Scorecard]:
    """One card per attempt: its first scored card, else its last unscored one (an unscored attempt is re-run)."""
    kept: dict[RolloutKey, Scorecard] = {}
    for card in cards:
        if card.key not in kept or kept[card.key].success is None:
            kept[card.key] = card
    return list(kept.values())


def by_task(cards: Sequence[Scorecard]) -> dict[str, list[Scorecard]]:
    """Task id → its cards, in their order."""
    found: dict[str, list[Scorecard]] = defaultdict(list)
    for card in cards:
        found[card.key.task_id].append(card)
    return found


def tally(cards: Sequence[Scorecard]) -> tuple[int, int]:
    """(attempts solved, attempts)."""
    return sum(card.success is True for card in cards), len(cards)


def held(cards: Sequence[Scorecard], mean: int, spread: Mapping[str, int]) -> list[Scorecard]:
    """The cards of the first attempts at each task: as many as `spread` says, `mean` where it says nothing."""
    return [card for card in cards if card.key.attempt < spread.get(card.key.task_id, mean)]


def per_task(cards: Sequence[Scorecard], value: Callable[[Scorecard], float | None]) -> dict[str, float]:
    """Task id → mean of `value` over its attempts, by task id; attempts whose value is None are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    for card in cards:
        number = value(card)
        if number is not None:
            found[card.key.task_id].append(number)
    return {task: sum(found[task]) / len(found[task]) for task in sorted(found)}


def success_value(card: Scorecard) -> float | None:
    return None if card.success is None else float(card.success)


def point_of(interval: Interval | None) -> float | None:
    return None if interval is None else interval.point


def mean_success(cards: Sequence[Scorecard]) -> float:
    """Success (0..1) over tasks, the attempts of a task averaged first; 0 when nothing is scored."""
    means = per_task(final_cards(cards), success_value)
    return sum(means.values()) / len(means) if means else 0.0


def require_one_version(cards: Sequence[Scorecard]) -> None:
    """Raises UsageError when a task was scored in two versions, by two versions of its check, or by two graders."""
    known: dict[str, tuple[str, str]] = {}
    graders: dict[tuple[str, str], str] = {}
    for card in cards:
        version = (card.key.task_hash, card.checker_hash)
        if known.setdefault(card.key.task_id, version) != version:
            raise UsageError(
                f"task {card.key.task_id!r} was scored in two versions "
                f"({known[card.key.task_id][0][:12]}, {version[0][:12]}): start a new run for changed tasks"
            )
        for score in card.scores:
            if score.value is None:  # nobody scored it, whoever was asked
                continue
            first = graders.setdefault((card.key.task_id, score.criterion), score.grader)
            if first != score.grader:
                raise UsageError(
                    f"task {card.key.task_id!r}, criterion {score.criterion!r}, was scored by two graders ({first}, "
                    f"{score.grader}): a judge with another model or prompt is another judge; start a new run"
                )
