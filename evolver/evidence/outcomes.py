"""How the parent does on dev: its scorecard, its tasks one by one, and its failures grouped by what they share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evolver.compare import Arms, detectable_effect, flip_rates, tokens_per_solved
from evolver.decide import steps
from evolver.evidence.material import Material, error_kind, failed, main_channel, mean, said
from evolver.evidence.sheet import Cell, Column, Sheet
from evolver.intervals import SHARE, mean_interval, success_interval
from evolver.population import per_task
from evolver.records import Scorecard

FARMED = 0.1  # partial credit that exceeds success by more than this is pointed out
EXAMPLES = 3


def scorecard(seen: Material) -> Sheet:
    """One row for each harness of the lineage, the parent first: what it solves, how far that is certain, the cost."""
    lineage = dict.fromkeys([seen.parent.id, *reversed(seen.population.lineage)])
    columns = (
        Column("harness", "harness"), Column("success", "success [95 %]", "percent"),
        Column("rubric", "rubric [95 %]", "percent"), Column("rubric_minus_success", "rubric - success", "pp"),
        Column("tasks_scored", "tasks scored", "count"), Column("tasks", "of", "count"),
        Column("attempts_scored", "attempts scored", "count"), Column("attempts", "of", "count"),
        Column("tokens_per_task", "tokens/task", "count"), Column("tokens_per_solved", "tokens/solved", "count"),
        Column("seconds_per_task", "s/task", "count"), Column("flip_rate", "flips A/A", "percent"),
    )  # fmt: skip
    rows = [_card_row(seen, harness_id) for harness_id in lineage if seen.cards.get(harness_id)]
    text = (
        "Success: every required criterion met. Rubric: weighted share of criteria met (partial credit). An attempt "
        "that is not scored (our failure) is in no mean. Flips A/A: how often one task turns out differently in two "
        "attempts of the same harness; a change of that size is noise."
    )
    if warning := _farmed(seen):
        text += f"\n\n**{warning}**"
    return Sheet("scorecard", "Scorecard", text, columns, rows)


def _card_row(seen: Material, harness_id: str) -> tuple[Cell, ...]:
    cards, seed = seen.cards[harness_id], seen.store.config.seed
    done = [card for card in cards if card.success is not None]
    rates = list(seen.rates(harness_id).values())
    rubric = per_task(done, lambda card: card.rubric)
    success = success_interval(rates, seed)
    known = list(rubric.values())
    gap = mean(known)
    missing = len(seen.tasks) - len({card.key.task_id for card in cards})
    tokens = per_task(done, lambda card: card.tokens) if all(card.tokens is not None for card in done) else {}
    seconds = list(per_task(done, lambda card: card.seconds).values())
    label = "parent: " if harness_id == seen.parent.id else "before: "
    return (
        label + seen.name(harness_id),
        success,
        mean_interval(known, seed, SHARE),
        None if gap is None or success.point is None else gap - success.point,
        len(rates),
        len(seen.tasks),
        len(done),
        len(cards) + missing,
        mean(list(tokens.values())),
        tokens_per_solved(cards).point,
        mean(seconds),
        flip_rates(Arms((), cards, len(seen.tasks), 1))[0].point,
    )


def _farmed(seen: Material) -> str:
    """Says so when the parent collects partial credit without solving (or its checks give it away)."""
    gap = _card_row(seen, seen.parent.id)[3] if seen.own else None
    if not isinstance(gap, float) or gap <= FARMED:
        return ""
    return (
        f"The rubric is {100 * gap:.0f} pp above success: much is nearly done and not finished. Only success counts; "
        "an edit that raises the rubric alone is not promoted."
    )


def detectable(seen: Material) -> Sheet:
    """What a race at this size can see."""
    rules = seen.store.config.race
    rates = list(seen.rates(seen.parent.id).values())
    success = min(0.95, max(0.05, sum(rates) / len(rates))) if rates else 0.5
    plan = steps(rules, seen.population.settled_attempts(seen.parent.id, seen.teacher))
    rows = [
        (step.attempts, step.pool, detectable_effect(len(seen.tasks), step.attempts, rules.screen_alpha, 0.8, success))
        for step in plan
    ]
    text = (
        f"The lead in success that a race on {len(seen.tasks)} tasks finds with 80 % power. An edit that moves fewer "
        "tasks than this is likely to end as inconclusive: aim at failures that many tasks share."
    )
    columns = (
        Column("attempts", "attempts a task", "count"), Column("pool", "parent's", "count"),
        Column("lead", "detectable lead", "pp"),
    )  # fmt: skip
    return Sheet("detectable", "Detectable effect", text, columns, rows)


def task_table(seen: Material) -> Sheet:
    """One row a dev task: unstable ones first, then those never solved, then those always solved."""
    by_task: dict[str, list[Scorecard]] = defaultdict(list)
    for card in seen.own:
        by_task[card.key.task_id].append(card)
    rows = [_task_row(seen, task, by_task[task]) for task in sorted(by_task)]
    order = {"unstable": 0, "never": 1, "unscored": 2, "always": 3}
    columns = (
        Column("task", "task"), Column("apps", "apps"), Column("stability", "solved"),
        Column("solved", "solved", "count"), Column("attempts", "of", "count"),
        Column("unscored", "unscored", "count"), Column("rubric", "rubric", "number"),
        Column("criteria_failed", "criteria failed"), Column("check_said", "check said"),
        Column("stops", "ended by"), Column("channels", "channel"), Column("turns", "turns", "number"),
        Column("tokens", "tokens", "count"), Column("rollouts", "rollouts"),
    )  # fmt: skip
    text = (
        "Every dev task as the parent plays it. `…` stands for what a check found or expected: no answer is shown. "
        "Rollouts named here may be read under rollouts/ when they are there."
    )
    return Sheet("tasks", "Tasks", text, columns, sorted(rows, key=lambda row: (order[str(row[2])], row[0])))


def _task_row(seen: Material, task: str, cards: Sequence[Scorecard]) -> tuple[Cell, ...]:
    done = [card for card in cards if card.success is not None]
    solved = sum(card.success is True for card in done)
    played = [seen.rollout(card) for card in cards]
    stability = "unscored"
    if done:
        stability = "always" if solved == len(done) else "never" if not solved else "unstable"
    lost = [card for card in done if not card.success]
    return (
        task,
        played[0].apps,
        stability,
        solved,
        len(done),
        len(cards) - len(done),
        mean([card.rubric for card in done]),
        _counted(criterion for card in lost for criterion in failed(card)),
        _counted(_check_words(lost)),
        _counted(rollout.stop_reason for rollout in played),
        _counted(main_channel(rollout) for rollout in played),
        mean([len(rollout.turns) for rollout in played]),
        mean([card.tokens for card in done]),
        tuple(card.rollout_id for card in sorted(cards, key=lambda card: card.success is True))[:4],
    )


@dataclass(frozen=True)
class Cluster:
    """Failed attempts that share `key`: how they ended, the last error, the channel most used, and what they missed
    (empty where that is no part of it)."""

    key: tuple[str, str, str, str]
    cards: Sequence[Scorecard]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(card.key.task_id for card in self.cards))


def clusters(seen: Material, by_criteria: bool) -> list[Cluster]:
    """The parent's failures by stop reason x last error x main channel (x criteria), that of most tasks first."""
    groups: dict[tuple[str, str, str, str], list[Scorecard]] = defaultdict(list)
    for card in seen.own:
        if card.success is False:
            rollout = seen.rollout(card)
            missed = ("+".join(failed(card)) or "none named") if by_criteria else ""
            groups[rollout.stop_reason, error_kind(rollout), main_channel(rollout), missed].append(card)
    found = [Cluster(key, cards) for key, cards in groups.items()]
    return sorted(found, key=lambda one: (-len(one.tasks), -len(one.cards), one.key))


def cluster_sheet(seen: Material, found: Sequence[Cluster], by_criteria: bool) -> Sheet:
    scored = sum(card.success is not None for card in seen.own)
    rows: list[tuple[Cell, ...]] = [
        (
            *one.key[:3], one.key[3] if by_criteria else _counted(c for card in one.cards for c in failed(card)),
            len(one.tasks), len(one.cards), len(one.cards) / scored,
            _counted(app for card in one.cards for app in seen.rollout(card).apps),
            _counted(_check_words(one.cards)), one.tasks, tuple(card.rollout_id for card in one.cards[:EXAMPLES]),
        )
        for one in found
    ]  # fmt: skip
    columns = (
        Column("stop", "ended by"), Column("error", "last error"), Column("channel", "channel"),
        Column("criteria", "criteria failed"), Column("n_tasks", "tasks", "count"),
        Column("attempts", "attempts", "count"), Column("share", "of all attempts", "percent"), Column("apps", "apps"),
        Column("check_said", "check said"), Column("tasks", "which"), Column("examples", "examples"),
    )  # fmt: skip
    if by_criteria:
        text = "The same, apart for each set of criteria that was missed."
        return Sheet("clusters", "Failure groups by criterion", text, columns, rows)
    text = (
        "Failed attempts of the parent that share how they ended, the last error and the channel they used most. `of "
        "all attempts` is the most that success could gain if the group were mended. `…` stands for what a check found."
    )
    return Sheet("groups", "Failure groups", text, columns, rows)


def _check_words(cards: Sequence[Scorecard]) -> Iterator[str]:
    for card in cards:
        yield from (words for score in card.scores if score.value != 1 and (words := said(score)))


def unscored(seen: Material) -> Sheet:
    """Attempts without a score, by whose fault it was: nothing here is the parent's doing."""
    kinds = Counter(
        (card.error.kind, card.error.blame) if card.error else ("not graded", "grader")
        for card in seen.own
        if card.success is None
    )
    columns = (Column("kind", "what"), Column("blame", "whose fault"), Column("attempts", "attempts", "count"))
    rows = [(kind, blame, n) for (kind, blame), n in kinds.most_common()]
    return Sheet("unscored", "Unscored attempts", "Not the parent's fault, and in no mean.", columns, rows)


def _counted(words: Iterable[str]) -> tuple[str, ...]:
    """Each word with how often it occurs, the most frequent first."""
    found = Counter(words)
    return tuple(f"{word} x{n}" if n > 1 else word for word, n in found.most_common(6))
