"""From graded criteria to the scorecard of a rollout, and from scorecards to the evaluation of a harness."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devset.task import Criterion, Split, Task, checker_hash
from evolver.channels import channel_table, union
from evolver.compare import tokens_per_solved
from evolver.errors import UsageError
from evolver.intervals import SHARE, mean_interval, nothing, success_interval
from evolver.population import final_cards, per_task, success_value
from evolver.protocols import Grader
from evolver.records import Evaluation, Interval, Rollout, RolloutKey, Score, Scorecard
from evolver.redact import redacted_record
from evolver.sums import total
from harnesses.harness import Harness


def success_of(scores: Sequence[Score]) -> bool | None:
    """True when every required criterion has value 1; None as soon as one required criterion is unscored."""
    required = [score.value for score in scores if score.required]
    if any(value is None for value in required):
        return None
    return all(value == 1 for value in required)


def rubric_of(scores: Sequence[Score]) -> float | None:
    """The weighted mean of all criteria, 0..1; None as soon as one is unscored (it is never counted as 0)."""
    total = 0.0
    for score in scores:
        if score.value is None:
            return None
        total += score.weight * score.value
    weight = sum(score.weight for score in scores)
    return min(1.0, total / weight) if weight > 0 else None


def scorecard(rollout: Rollout, task: Task, scores: Sequence[Score], cost_usd: float | None) -> Scorecard:
    """The one card of a rollout.

    A failure that is not the harness's own leaves everything unscored, with its error kept; the harness's own scores 0
    where it left nothing to grade. Giving up as infeasible scores 0 on a feasible task; on an infeasible one success
    needs a stated reason and an untouched state (which is what the criteria of such a task check), and any other end
    scores 0.
    """
    graded = _in_rubric_order(task, scores)
    ours = rollout.error is not None and rollout.error.blame != "harness"
    success, rubric = success_of(graded), rubric_of(graded)
    nothing_left = rollout.error is not None and not scores
    wrong_end = (rollout.stop_reason == "infeasible") == task.feasible or not (task.feasible or _reason(rollout))
    if ours:
        success = rubric = None
    elif nothing_left or wrong_end:
        success, rubric = False, 0.0
    return Scorecard(
        rollout_id=rollout.id,
        key=rollout.key,
        checker_hash=checker_hash(task.check),
        scores=graded,
        success=success,
        rubric=rubric,
        error=rollout.error,
        channel=union(turn.channel for turn in rollout.turns),
        tokens=tokens_of(rollout),
        cost_usd=cost_usd,
        seconds=max(0.0, rollout.finished_at - rollout.started_at),
    )


async def grades(
    graders: Sequence[Grader], task: Task, rollout: Rollout, state: bytes, keys: Sequence[str] = ()
) -> list[Score]:
    """What every grader says of a frozen state, each of the criteria of its own kind; `keys` are masked."""
    scores: list[Score] = []
    for grader in graders:
        criteria = [c for c in task.rubric.criteria if c.grader == grader.name]
        if criteria:
            found = await grader.grade(criteria, task, rollout, state)
            scores += [redacted_record(score, keys) for score in found]
    return scores


def tokens_of(rollout: Rollout) -> int | None:
    """Input and output tokens of all its model calls; None as soon as one is unknown."""
    return total(turn.completion.usage.total for turn in rollout.turns)


def _in_rubric_order(task: Task, scores: Sequence[Score]) -> tuple[Score, ...]:
    """One score per criterion of the rubric; what no grader answered is unscored, a foreign or double one an error."""
    given = {score.criterion: score for score in scores}
    foreign = set(given) - {criterion.id for criterion in task.rubric.criteria}
    if foreign or len(given) != len(scores):
        raise ValueError(f"task {task.id!r}: scores must be one per criterion of the rubric, got {sorted(given)}")
    return tuple(given.get(c.id) or score_of(c, None, "not graded", "none") for c in task.rubric.criteria)


def score_of(criterion: Criterion, value: float | None, explanation: str, grader: str) -> Score:
    """What a grader says of one criterion; a value of None is unscored."""
    return Score(
        criterion=criterion.id,
        weight=criterion.weight,
        required=criterion.required,
        value=value,
        explanation=explanation,
        grader=grader,
    )


def _reason(rollout: Rollout) -> str:
    """Why the model says that the task can't be done: the argument of its last terminate call, or what it wrote."""
    if not rollout.turns:
        return ""
    last = rollout.turns[-1].completion
    given = [call.arguments.get("reason") for call in last.calls]
    return next((text.strip() for text in (*given, last.text) if isinstance(text, str) and text.strip()), "")


# --- evaluations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """What an evaluation is made from: all cards of one harness x model x purpose on `tasks`, with their rollouts.

    `rollouts` maps rollout id → rollout; `seed` drives every bootstrap.
    """

    cards: Sequence[Scorecard]
    rollouts: Mapping[str, Rollout]
    tasks: Sequence[Task]
    harness: Harness
    seed: int


def without_retries(cards: Sequence[Scorecard], rollouts: Sequence[Rollout]) -> list[Scorecard]:
    """The cards of first tries only, to see what re-running unscored attempts did to a result."""
    again = {rollout.id for rollout in rollouts if rollout.retry_of is not None}
    return [card for card in cards if card.rollout_id not in again]


def evaluation(scored: Scored) -> Evaluation:
    """The figures of one harness x model x purpose; attempts are averaged per task first, then over tasks.

    `n_unscored` counts the attempts without a success out of tasks x attempts (never run included): they are in no
    mean. In a race, where tasks have different numbers of attempts, `attempts` is their mean, rounded, and a task that
    nobody attempted counts once. `tokens_per_solved` as in evolver.compare.

    Raises:
        UsageError: the cards are of several harnesses, models, purposes or task versions, or there are none.
    """
    cards = final_cards(scored.cards)
    key, split = _one_key(cards, scored.tasks)
    attempts, missing = _asked(cards, len(scored.tasks))
    done = [card for card in cards if card.success is not None]
    seen = {task.id for task in scored.tasks if task.seen_in_training}
    split_by_family = len(seen) not in (0, len(scored.tasks))
    seed = scored.seed
    seconds, costs = (per_task(done, value) for value in (lambda card: card.seconds, lambda card: card.cost_usd))
    billed = bool(done) and all(card.cost_usd is not None for card in done)

    def success(part: Sequence[Scorecard]) -> Interval:
        return success_interval(list(per_task(part, success_value).values()), seed)

    return Evaluation(
        id=evaluation_id(cards, scored.tasks, seed),
        purpose=key.purpose,
        harness_id=key.harness_id,
        model_id=key.model_id,
        split=split,
        seed=seed,
        attempts=attempts,
        n_tasks=len(scored.tasks),
        n_unscored=missing + len(cards) - len(done),
        success=success(done),
        success_seen=success([c for c in done if c.key.task_id in seen]) if split_by_family else None,
        success_unseen=success([c for c in done if c.key.task_id not in seen]) if split_by_family else None,
        rubric=mean_interval(list(per_task(done, lambda card: card.rubric).values()), seed, SHARE),
        tokens_per_task=_tokens_interval(done, seed),
        tokens_per_solved=tokens_per_solved(cards).point,
        cost_usd=total(card.cost_usd for card in cards),
        seconds_per_task=sum(seconds.values()) / len(seconds) if seconds else None,
        channels=channel_table(cards, scored.rollouts, scored.harness, seed),
        tasks_sha256=tasks_hash(scored.tasks),
        cost_per_task=sum(costs.values()) / len(costs) if billed else None,
    )


def _asked(cards: Sequence[Scorecard], tasks: int) -> tuple[int, int]:
    """Attempts a task, and how many of them were never run."""
    most = len({card.key.attempt for card in cards})
    if cards[0].key.purpose != "race":
        return most, tasks * most - len(cards)
    return max(1, round(len(cards) / tasks)), tasks - len({card.key.task_id for card in cards})


def evaluation_id(cards: Sequence[Scorecard], tasks: Sequence[Task], seed: int) -> str:
    """The same id for the same attempts on the same tasks, whenever they are evaluated."""
    parts = [tasks_hash(tasks), str(seed), *sorted(card.rollout_id for card in final_cards(cards))]
    return f"eval-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"


def tasks_hash(tasks: Sequence[Task]) -> str:
    """sha256 over the sorted (task id, task hash) pairs: what a set of tasks is known by."""
    return hashlib.sha256(json.dumps(sorted((task.id, task.hash) for task in tasks)).encode()).hexdigest()


def _one_key(cards: Sequence[Scorecard], tasks: Sequence[Task]) -> tuple[RolloutKey, Split]:
    if not cards:
        raise UsageError("nothing to evaluate: no scorecard of this harness, model and purpose; run its rollouts first")
    hashes = {task.id: task.hash for task in tasks}
    arms = {(c.key.purpose, c.key.harness_id, c.key.model_id, c.key.split) for c in cards}
    if len(arms) != 1:
        raise UsageError(f"an evaluation is of one harness, model, purpose and split, got {sorted(map(str, arms))}")
    for card in cards:
        if hashes.get(card.key.task_id) != card.key.task_hash:
            raise UsageError(
                f"task {card.key.task_id!r}: scored at version {card.key.task_hash[:12]}, "
                f"but the split has {str(hashes.get(card.key.task_id))[:12]}; start a new run for changed tasks"
            )
    key = cards[0].key
    if key.split is None:
        raise UsageError(f"task {key.task_id!r} belongs to no split, so its harness has no evaluation on one")
    return key, key.split


def _tokens_interval(cards: Sequence[Scorecard], seed: int) -> Interval:
    if any(card.tokens is None for card in cards):
        return nothing("a token count is unknown")
    return mean_interval(list(per_task(cards, lambda card: card.tokens).values()), seed)
