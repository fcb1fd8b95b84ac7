"""What a run finds out about itself before its first candidate: a difference is seen, and none where there is none.

The original plays beside itself, beside a copy that can only stop, and beside a copy with an edit that can't matter; an
agent that does nothing must fail, and the oracle must succeed. Each outcome is recorded once, so a resume plays nothing
again, and a failed check stops the run before anything is spent on candidates.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from devset.task import Task
from evolver.audit import SelfCheck
from evolver.compare import MIN_COVERAGE
from evolver.controls import NoopModel
from evolver.errors import NotReady, UsageError
from evolver.intervals import DIFFERENCE, mean_interval, nothing, pooled_p
from evolver.lab import Attempt, Lab
from evolver.models.demonstrator import Demonstrator
from evolver.neutral import neutral_edit
from evolver.phrasing import p_value
from evolver.population import by_task, final_cards, tally
from evolver.protocols import Model, Privileged
from evolver.race import dev_cards, interleaved
from evolver.records import Interval, Rollout, Scorecard
from evolver.safeguards import ChecksConfig
from harnesses.edit import with_changes
from harnesses.harness import Harness
from harnesses.tree import Tree

SAME_LEVEL = 0.005  # on each side: by chance alone, one run in fifty or so is stopped
FLAW_LEVEL = 0.05
STOP = "Stop at once: call no tool but the one that ends the task, and end it."
ORACLE_TRIES = 2  # a slow machine may lose one
Check = Literal["a_a", "planted_flaw", "no_op_edit", "idle_agent", "oracle"]
Outcome = Literal["passed", "failed", "not_judged"]
MEANING: dict[Check, str] = {
    "a_a": "the original differs from itself, so something else than the harness moves results",
    "planted_flaw": "a harness that stops at once does not lose, so results do not depend on the harness",
    "no_op_edit": "an edit that can't matter makes a difference, so something else than the harness moves results",
    "idle_agent": "an agent that does nothing succeeds, so the checks give success away",
    "oracle": "a known solution fails, so the checks or the machines are broken",
}


def planned(checks: ChecksConfig, n_dev: int) -> int:
    """The rollouts that the checks take at most."""
    tasks = min(checks.tasks, n_dev)
    return tasks and 4 * tasks * checks.attempts + min(checks.graded, n_dev) * (1 + ORACLE_TRIES)


def remaining(lab: Lab, n_dev: int) -> int:
    """Those that are still to be played."""
    if len(lab.store.all(SelfCheck)) == len(MEANING):
        return 0
    played = sum(rollout.key.purpose == "check" for rollout in lab.store.all(Rollout))
    return max(0, planned(lab.config.checks, n_dev) - played)


async def self_checks(lab: Lab, root: str, dev: Sequence[Task], oracle: Model | Privileged | None = None) -> None:
    """Plays and records what is not recorded yet. Raises UsageError when a check failed, NotReady when too few attempts
    could be scored. `oracle` plays known solutions (a demonstrator that never slips)."""
    rules = lab.config.checks
    if rules.tasks == 0:
        lab.tell("no checks before the run (checks.tasks = 0): nothing shows that a flaw would be seen", 1, 1, {})
        return
    if len(lab.store.all(SelfCheck)) < len(MEANING):
        await _graders(lab, root, dev[: rules.graded], NoopModel(), "idle_agent")
        solvable = [task for task in dev if _can_replay(lab.harness(root), task)][: rules.graded]
        await _graders(lab, root, solvable, oracle or Demonstrator(), "oracle")
        await _arms(lab, root, _chosen(lab, root, dev))
    found = lab.store.all(SelfCheck)
    lab.tell("checks before the run: " + "; ".join(f"{c.check} {c.outcome.replace('_', ' ')}" for c in found), 1, 1, {})
    failed = [f"{MEANING[c.check]} ({c.reason})" for c in found if c.outcome == "failed"]
    if failed:
        raise UsageError(
            f"the checks before the run failed: {'; '.join(failed)}. Mend it and start a new run, or set "
            "checks.tasks = 0 to go on without them"
        )


def flawed(root: Harness) -> Tree:
    """The root with one call of one turn and a prompt to stop at once. Where it has a screen, ending is all that
    is left of its tools: a model that does not heed its prompt may solve a task in one call."""
    changes: dict[str, JsonValue] = {"scaffold.max_steps": 1, "scaffold.max_calls_per_turn": 1, "prompt.system": STOP}
    screens = [tool.name for tool in root.tools if tool.kind == "computer_use" and "terminate" in tool.actions]
    if screens:
        changes |= {f"tools.{tool.name}": False for tool in root.tools if tool.name != screens[0]}
        changes[f"tools.{screens[0]}.actions"] = ["terminate"]
    return with_changes(root, changes)


def _chosen(lab: Lab, root: str, dev: Sequence[Task]) -> list[Task]:
    """Tasks that the root has solved come first: only there a flaw can lose something."""
    solved = {card.key.task_id for card in dev_cards(lab, root) if card.success and card.key.attempt == 0}
    return sorted(dev, key=lambda task: task.id not in solved)[: lab.config.checks.tasks]


async def _arms(lab: Lab, root: str, tasks: Sequence[Task]) -> None:
    harness, attempts = lab.harness(root), lab.config.checks.attempts
    flaw = lab.library.add(flawed(harness), name=f"planted-flaw-{root[:6]}", parents=[root], message="must lose")
    same = lab.library.add(neutral_edit(harness, 1), name=f"no-op-{root[:6]}", parents=[root], message="can't matter")
    numbers = {root: range(2 * attempts), flaw: range(attempts), same: range(attempts)}
    cards = await lab.score(interleaved(numbers, tasks, "check"), label="checks before the run")
    scored = [card for card in cards if card.success is not None]
    if len(scored) < MIN_COVERAGE * len(cards):
        raise NotReady(
            f"only {len(scored)} of {len(cards)} attempts of the checks before the run have a score: {_lost(cards)}. "
            "The same command plays again what got no answer, but nothing that was lost three times otherwise: mend it "
            "and start over with --fresh, or set checks.tasks = 0 to go on without them"
        )
    own = [card for card in scored if card.key.harness_id == root]
    halves = [[card for card in own if card.key.attempt % 2 == half] for half in (0, 1)]
    effect, better, worse = _versus(halves[0], halves[1], lab.config.seed)
    _keep(lab, "a_a", "passed" if min(better, worse) > SAME_LEVEL else "failed", effect, min(better, worse))
    effect, better, worse = _versus([c for c in scored if c.key.harness_id == same], own, lab.config.seed)
    _keep(lab, "no_op_edit", "passed" if min(better, worse) > SAME_LEVEL else "failed", effect, min(better, worse))
    broken = [card for card in scored if card.key.harness_id == flaw]
    effect, _, worse = _versus(broken, own, lab.config.seed)
    at_best = pooled_p([(t, (0, attempts)) for t in _tallies(own).values()])  # where the flaw loses everything
    outcome: Outcome = "passed" if worse <= FLAW_LEVEL else "failed" if at_best <= FLAW_LEVEL else "not_judged"
    _keep(lab, "planted_flaw", outcome, effect, worse)


def _lost(cards: Sequence[Scorecard]) -> str:
    """Why most of the attempts without a score have none."""
    why = Counter(
        card.error.message
        if card.error
        else next((s.explanation for s in card.scores if s.value is None), "not graded")
        for card in cards
        if card.success is None
    )
    [(reason, n)] = why.most_common(1)
    return f"{n} times: {reason}"


async def _graders(lab: Lab, root: str, tasks: Sequence[Task], model: Model | Privileged, check: Check) -> None:
    """`idle_agent`: no task may be solved; `oracle`: each must be, in one of its tries."""
    if lab.store.get(SelfCheck, f"check-{check}") is not None:
        return
    after = 2 * lab.config.checks.attempts  # the teacher may be a demonstrator too: its attempts have these numbers
    outcomes: dict[str, list[bool]] = {task.id: [] for task in tasks}
    for number in range(ORACLE_TRIES if check == "oracle" else 1):
        todo = [task for task in tasks if not any(outcomes[task.id])]
        wanted = [Attempt(root, task, "check", after + number) for task in todo]
        for card in await lab.score(wanted, model=model, label=f"check: {check.replace('_', ' ')}"):
            outcomes[card.key.task_id] += [] if card.success is None else [card.success]
    known = {task: any(seen) for task, seen in outcomes.items() if seen}
    wrong = [task for task, solved in known.items() if solved is not (check == "oracle")]
    outcome: Outcome = "failed" if wrong else "passed" if known else "not_judged"
    reason = f"{sum(known.values())} of {len(known)} solved" if known else "no task of dev can be tried so"
    _keep(lab, check, outcome, nothing("controls"), None, reason + (f", wrong on {', '.join(wrong)}" if wrong else ""))


def _can_replay(harness: Harness, task: Task) -> bool:
    kinds = {tool.kind for tool in harness.tools}
    offered = {"gui"} if "computer_use" in kinds else set()
    return task.feasible and bool(task.oracle.channels & (offered | ({"terminal"} if "bash" in kinds else set())))


def _versus(ours: Sequence[Scorecard], theirs: Sequence[Scorecard], seed: int) -> tuple[Interval, float, float]:
    """Success of the first minus the second over common tasks, and the p-values of "better" and of "worse"."""
    a, b = _tallies(ours), _tallies(theirs)
    common = [(a[task], b[task]) for task in sorted(a.keys() & b.keys())]
    leads = [x[0] / x[1] - y[0] / y[1] for x, y in common]
    return mean_interval(leads, seed, DIFFERENCE), pooled_p(common), pooled_p([(y, x) for x, y in common])


def _tallies(cards: Sequence[Scorecard]) -> Mapping[str, tuple[int, int]]:
    return {task: tally(part) for task, part in by_task(final_cards(cards)).items()}


def _keep(lab: Lab, check: Check, outcome: Outcome, effect: Interval, p: float | None, reason: str = "") -> None:
    if lab.store.get(SelfCheck, f"check-{check}") is None:
        tested = "" if p is None else f", {p_value(p)}"
        said = reason or f"{100 * (effect.point or 0):+.1f} pp on {effect.n} tasks{tested}"
        lab.record(
            SelfCheck(
                id=f"check-{check}", check=check, outcome=outcome, effect=effect, p_value=p, reason=said, at=time.time()
            )
        )
