"""Scorecards of made-up attempts, and an agent whose every attempt is one weighted coin."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from devset.task import Criterion, Rubric, Split, Task
from evolver.compare import Arms
from evolver.config import RunConfig
from evolver.decide import Case, confirm_steps, decide, race_look, steps, undecided
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.protocols import Request
from evolver.records import (
    Candidate,
    Completion,
    Decision,
    Interval,
    Look,
    Manifest,
    Purpose,
    Rollout,
    RolloutKey,
    Score,
    Scorecard,
    ToolCall,
    Usage,
)
from evolver.safeguards import ChecksConfig
from evolver.store import Store
from evolver.testing import FakeSandbox, FakeSandboxes
from harnesses.library import Library


def a_task(number: int = 0, split: Split = "dev", **fields: object) -> Task:
    return Task.model_validate(
        {
            "id": f"{split}-{number}", "hash": f"h{number}", "family": "f", "split": split, "instruction": "Do it.",
            "category": "os", "apps": ("shell",), "channels": frozenset({"terminal"}), "check": "print('{}')",
            "rubric": Rubric(criteria=(Criterion(id="done", description="done"),)), **fields,
        }
    )  # fmt: skip


def a_card(
    harness: str, task: int, success: bool | None, attempt: int = 0, tokens: int | None = 1_000,
    purpose: Purpose = "race", **fields: object,
) -> Scorecard:  # fmt: skip
    split: Split = "select" if purpose == "confirm" else "test" if purpose == "test" else "dev"
    key = RolloutKey(
        purpose=purpose, harness_id=harness, model_id="m", task_id=f"{split}-{task}", task_hash=f"h{task}",
        split=split, attempt=attempt, seed=0,
    )  # fmt: skip
    card = Scorecard(
        rollout_id=f"{harness}-{purpose}-{task}-{attempt}", key=key, checker_hash="c", scores=(), success=success,
        rubric=None if success is None else float(success), channel="gui", tokens=tokens, cost_usd=0.0, seconds=1.0,
    )  # fmt: skip
    return card.model_copy(update=fields)


def a_candidate(name: str = "c", parents: tuple[str, ...] = ("i",), author: str = "human") -> Candidate:
    return Candidate(
        id=f"cand-{name}", name=name, harness_id=name, parents=parents, author=author, components=("F",), changes=(),
        manifest=Manifest(why="because"), proposed_at=0.0,
    )  # fmt: skip


def a_decision(harness: str = "c", incumbent: str = "i", verdict: str = "keep", lead: float | None = 0.0) -> Decision:
    effect = Interval(point=lead, low=None, high=None, n=3, method="made up")
    look = Look(attempts=2, effect=effect, p_value=0.5, alpha=0.05, verdict="futile")
    return Decision.model_validate(
        {
            "id": f"dec-{harness}", "candidate_id": f"cand-{harness}", "candidate_harness": harness,
            "incumbent_harness": incumbent, "verdict": verdict, "looks": () if lead is None else (look,),
            "confirmation": None, "confirmation_p": None, "alpha_spent": 0.1, "flip_rate_aa": None,
            "flip_rate_ab": None, "tokens_per_solved": 900.0, "incumbent_tokens_per_solved": 1_000.0,
            "reasons": ("because",), "decided_at": 0.0,
        }
    )  # fmt: skip


# --- a whole race without sandboxes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """What an edit really does: its lead in success (0..1), and its tokens as a multiple of the incumbent's."""

    lead: float = 0.0
    tokens: float = 1.0


def tosses(
    harness: str, purpose: Purpose, chances: Sequence[float], attempts: int, tokens: float, rng: random.Random
) -> list[Scorecard]:
    return [
        a_card(harness, task, rng.random() < chance, attempt, int(1_000 * tokens * rng.lognormvariate(0, 0.3)), purpose)
        for task, chance in enumerate(chances)
        for attempt in range(attempts)
    ]


def simulated_decision(edit: Edit, config: RunConfig, seed: int, dev: int = 60, select: int = 40) -> Decision:
    """The verdict on an edit by agents that toss one coin an attempt; tasks differ in how hard they are."""
    rng, rules = random.Random(seed), config.race
    hard = {"race": [rng.betavariate(2, 1.6) for _ in range(dev)]}
    hard["confirm"] = [rng.betavariate(2, 1.6) for _ in range(select)]

    def arms(purpose: Purpose, attempts: int) -> tuple[list[Scorecard], list[Scorecard]]:
        base = hard[purpose]
        better = [min(1.0, max(0.0, chance + edit.lead)) for chance in base]
        return tosses("c", purpose, better, attempts, edit.tokens, rng), tosses("i", purpose, base, attempts, 1.0, rng)

    plan = steps(rules, rules.attempts[-1])
    ours, theirs = arms("race", plan[-1].pool)
    looks: list[Look] = []
    for index, step in enumerate(plan):
        seen = Arms(
            [c for c in ours if c.key.attempt < step.attempts],
            [c for c in theirs if c.key.attempt < step.pool],
            dev,
            step.attempts,
        )
        look, found = race_look(seen, plan, index, rules, seed)
        looks.append(look)
        if look.verdict != "continue":
            break
    case = Case(a_candidate(), "i", tuple(looks), found, seen, None, 0.0)
    ours, theirs = arms("confirm", rules.confirm_attempts)
    for index, step in enumerate(confirm_steps(rules)):
        if look.verdict == "pass" and (index == 0 or undecided(case, rules, seed)):
            mine, other = ([c for c in arm if c.key.attempt < step.attempts] for arm in (ours, theirs))
            fresh = Arms(mine, other, select, step.attempts)
            case = replace(case, confirmation=fresh, confirm_look=index)
    return decide(case, rules, seed, 0.0)


# --- a whole run without a real sandbox or model -------------------------------------------------------------------


class Coin:
    """A model that solves a task with the chance that `skill` gives for its request, and says so in its reply."""

    id = "demonstrator-coin"
    declared = "one weighted coin an attempt"

    def __init__(self, skill: Callable[[Request], tuple[float, int]]) -> None:
        self.skill = skill
        self.calls = 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        chance, tokens = self.skill(request)
        tools = ",".join(tool.name for tool in request.tools)
        solved = random.Random(f"{request.seed}|{tools}|{tokens}").random() < chance
        return Completion(
            text="solved" if solved else "not solved",
            calls=(ToolCall(id="1", name="computer_use", arguments={"action": "terminate", "status": "success"}),),
            usage=Usage(input_tokens=tokens, output_tokens=10, counted_by="tokenizer"),
        )


class ReadsTheReply:
    """Grades by what `Coin` said."""

    name = "program"

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        value = float(rollout.turns[-1].completion.text == "solved")
        return [
            Score(criterion=c.id, weight=c.weight, required=c.required, value=value, explanation="", grader=self.name)
            for c in criteria
        ]

    async def aclose(self) -> None:
        return None


def coin_lab(path: Path, config: RunConfig, model: Coin) -> Lab:
    """A lab of coins; it checks nothing before a run and hides no candidate, unless `config` says how."""
    if config.checks == ChecksConfig():
        config = config.model_copy(update={"checks": ChecksConfig(tasks=0, neutral_every=0)})
    machines = FakeSandboxes(lambda: FakeSandbox({}, (64, 48)))
    store = Store.create(path, config)
    return Lab(store, Library(path / "library"), machines, [ReadsTheReply()], model, LocalExecutor(2))


def split_tasks(split: Split, limit: int | None = None) -> list[Task]:
    return [a_task(number, split) for number in range(limit or 12)]
