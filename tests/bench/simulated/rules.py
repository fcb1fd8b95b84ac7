"""A simulated agent, and the acceptance rules that judge its edits: a strict mean, harness-evolve's, and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
from harness_evolve import acceptance as peer
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from devset.task import Split
from evolver.archive import Cell, Member, draw_parent, most_promising
from evolver.compare import Arms, compare
from evolver.config import RaceConfig
from evolver.decide import Case, Step, confirm_steps, decide, race_look, steps, undecided, waits
from evolver.guards import Facts
from evolver.parents import ArchiveConfig
from evolver.population import Population, by_task, tally
from evolver.records import Candidate, Decision, Look, Manifest, Purpose, RolloutKey, Scorecard
from evolver.spread import Counts, Spread, spread

SIZES = {"dev": 60, "select": 40, "anywhere": 400}
BETA = (0.405, 0.332)
TOKENS, TOKEN_SPREAD = 1_000.0, 0.3  # median, and standard deviation of the logarithm
CLAIM_ATTEMPTS = range(4)
REPEATS = 20  # a lineage's claim is drawn so often: its bias is wanted, not the luck of one draw
APPS = 6
COIN = "coin"
FACTS = Facts(
    apps={f"{ground}-{task}": (f"app-{task % APPS}",) for ground, size in SIZES.items() for task in range(size)},
    lost=((0, 1), (0, 1)),
)
Chances = NDArray[np.float64]


def tallies(cards: Sequence[Scorecard]) -> dict[str, tuple[int, int]]:
    return {task: tally(part) for task, part in by_task(cards).items()}


@dataclass(frozen=True)
class Agent:
    """The chance of success on each task, by ground: where candidates race, where they are confirmed, everywhere."""

    chances: dict[str, Chances]

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Agent:
        return cls({ground: rng.beta(*BETA, size).clip(0.005, 0.995) for ground, size in SIZES.items()})

    def edited(self, gain: float) -> Agent:
        """With `gain` (0..1) more success everywhere, as far as there is room."""
        base = self.chances["anywhere"]
        wanted = min(max(base.mean() + gain, 0.02), 0.98)
        shift = brentq(lambda s: float(expit(logit(base) + s).mean()) - wanted, -9.0, 9.0) if gain else 0.0
        return Agent({ground: expit(logit(chance) + shift) for ground, chance in self.chances.items()})

    def success(self, ground: str) -> float:
        return float(self.chances[ground].mean())


@dataclass
class Tally:
    """What a rule did with one candidate."""

    passed: bool
    promoted: bool


class Rule(Protocol):
    rollouts: int

    def start(self, root: Agent, rng: np.random.Generator) -> None: ...
    def parent(self) -> Agent: ...  # what the next edit is made to
    def judge(self, candidate: Agent, *, adopt: bool) -> Tally: ...
    def finish(self) -> bool: ...  # what comes after the last edit; whether it promoted
    def result(self) -> Agent: ...
    def claims(self) -> list[float]: ...


# --- the rules ------------------------------------------------------------------------------------------------------


@dataclass
class StrictMean:
    """Accepts whatever scored higher; a candidate's score is its successor's bar."""

    trials: int = 1
    rollouts: int = 0

    def start(self, root: Agent, rng: np.random.Generator) -> None:
        self.rng, self.rollouts = rng, 0
        self.agent = root
        self.first = self.bar = self._measured(root)

    def parent(self) -> Agent:
        return self.agent

    def result(self) -> Agent:
        return self.agent

    def _measured(self, agent: Agent) -> float:
        self.rollouts += self.trials * SIZES["dev"]
        return float(self.rng.binomial(self.trials, agent.chances["dev"]).mean() / self.trials)

    def judge(self, candidate: Agent, *, adopt: bool) -> Tally:
        score = self._measured(candidate)
        won = score > self.bar
        if won and adopt:
            self.bar, self.agent = score, candidate
        return Tally(won, won)

    def finish(self) -> bool:
        return False

    def claims(self) -> list[float]:
        return [self.bar - self.first]


@dataclass
class HarnessEvolve:
    """harness-evolve's rule with its default settings, or with all that it offers against noise (`careful`)."""

    careful: bool = False
    rollouts: int = 0

    def start(self, root: Agent, rng: np.random.Generator) -> None:
        """Its round 0: two trials a case calibrate the noise bands, and are the incumbent's evaluation."""
        self.rng, self.rollouts = rng, 0
        self.incumbent, costs = self._measured(root, trials=2)
        outcomes = {case: tuple(v == "PASS" for v in r.verdicts) for case, r in self.incumbent.per_case.items()}
        self.best = self.first = self.incumbent.S
        self.agent = root
        self.rules = peer.AcceptanceConfig(
            delta=peer.calibrate_delta(outcomes, trials_per_eval=1),
            cost_delta=peer.calibrate_cost_delta(costs, trials_per_eval=1) if self.careful else 0.0,
        )

    def parent(self) -> Agent:
        return self.agent

    def result(self) -> Agent:
        return self.agent

    def _measured(self, agent: Agent, trials: int = 1) -> tuple[peer.EvalResult, dict[str, tuple[float, ...]]]:
        chances = agent.chances["dev"]
        self.rollouts += trials * len(chances)
        solved = self.rng.random((len(chances), trials)) < chances[:, None]
        costs = self.rng.lognormal(0.0, TOKEN_SPREAD, solved.shape)
        cases = {
            f"case-{n}": peer.CaseResult(
                int(row.sum()), trials, cost_usd=float(cost.sum()), verdicts=["PASS" if x else "FAIL" for x in row]
            )
            for n, (row, cost) in enumerate(zip(solved, costs, strict=True))
        }
        return peer.EvalResult(cases), {f"case-{n}": tuple(map(float, cost)) for n, cost in enumerate(costs)}

    def judge(self, candidate: Agent, *, adopt: bool) -> Tally:
        found, _ = self._measured(candidate)
        passed = won = peer.decide(self.incumbent, found, self.best, self.rules).accept
        if won and self.careful:
            again, _ = self._measured(self.agent)
            won = peer.decide(again, self._measured(candidate)[0], again.S, self.rules).accept
        if won and adopt:
            self.incumbent, self.agent, self.best = found, candidate, max(self.best, found.S)
        return Tally(passed, won)

    def finish(self) -> bool:
        return False

    def claims(self) -> list[float]:
        return [self.incumbent.S - self.first]


@dataclass
class Ours:
    """The race on dev and the fresh confirmation on select, decided by `evolver.decide`; parents from the archive.

    `alone`: each candidate is taken for the only one of its run, so that one whose small lead waits is heard at once.
    """

    rules: RaceConfig = field(default_factory=RaceConfig)
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    alone: bool = False
    rollouts: int = 0
    own: int = 0  # of these, the candidates' in their races
    pool: int = 0  # of these, the incumbents' in races

    def start(self, root: Agent, rng: np.random.Generator) -> None:
        self.rng, self.rollouts = rng, 0
        self.root = self.agent = root
        self.holder = self.drawn = "root"
        self.made, self.decisions = [_made("root", ())], list[Decision]()
        self.agents, self.cases = {"root": root}, dict[str, Case]()
        self.names = [f"dev-{task}" for task in range(SIZES["dev"])]
        self.counts: dict[str, Counts] = {"root": dict.fromkeys(self.names, 1)}
        self.known = dict.fromkeys(self.names, (0, 0))
        self.cards = {"root": self._tossed("root", "race", {task: range(1) for task in self.names})}
        self.key = f"{rng.integers(2**31)}"

    def parent(self) -> Agent:
        """Drawn by `evolver.archive`; the root is a cell of its own, all edits are of one kind."""
        key = f"{self.key}/{len(self.decisions)}"
        self.drawn = draw_parent(self._members(), self.holder, self.archive, key)
        return self.agents[self.drawn]

    def _members(self) -> list[Member]:
        return [
            Member(
                one.harness_id,
                one.name,
                Cell("F" if one.parents else "root", None, "gui"),
                tallies(self.cards[one.harness_id]),
                next(iter(one.parents), None),
            )
            for one in self.made
        ]

    def result(self) -> Agent:
        return self.agent

    def _tossed(self, name: str, purpose: Purpose, numbers: Mapping[str, range]) -> list[Scorecard]:
        split: Split = "dev" if purpose == "race" else "select"
        chances = self.agents[name].chances[split]
        tossed = [(task, int(task.rpartition("-")[2]), number) for task, given in numbers.items() for number in given]
        solved = self.rng.random(len(tossed)) < chances[[position for _, position, _ in tossed]]
        tokens = self.rng.lognormal(np.log(TOKENS), TOKEN_SPREAD, len(tossed))
        self.rollouts += len(tossed)
        cards = [
            Scorecard.model_construct(
                rollout_id=f"{name}-{task}-{number}",
                key=RolloutKey.model_construct(
                    purpose=purpose, harness_id=name, model_id=COIN, task_id=task, task_hash="1", split=split,
                    attempt=number, seed=0,
                ),
                checker_hash="1", scores=(), success=bool(won), rubric=float(won),
                error=None, channel="gui", tokens=int(taken), cost_usd=0.0, seconds=1.0,
            )
            for (task, _, number), won, taken in zip(tossed, solved, tokens, strict=True)
        ]  # fmt: skip
        if purpose == "race":
            for card in cards:
                before = self.known[card.key.task_id]
                self.known[card.key.task_id] = (before[0] + bool(card.success), before[1] + 1)
        return cards

    def judge(self, candidate: Agent, *, adopt: bool) -> Tally:
        name = f"c{len(self.made)}"
        self.agents[name] = candidate
        self.made.append(_made(name, (self.drawn,)))
        case = self.cases[name] = self._raced(self.made[-1])
        passed = case.looks[-1].verdict == "pass"
        if passed and (self.alone or not waits(case.race, self.rules, case.looks[-1].alpha)):
            case = self._confirmed(case)
        decision = decide(case, self.rules, len(self.made), 0.0)
        return Tally(passed, self._keep(decision, adopt=adopt))

    def finish(self) -> bool:
        """The last hearing; whether it promoted."""
        waiting = {d.candidate_harness for d in Population(self.made, self.decisions).waiting(COIN)}
        if not waiting:
            return False
        case = self._confirmed(self.cases[most_promising(self._members(), waiting)])
        decision = decide(case, self.rules, len(self.made), 0.0)
        return self._keep(decision.model_copy(update={"heard": True}), adopt=True)

    def _keep(self, decision: Decision, *, adopt: bool) -> bool:
        self.decisions.append(decision)
        promoted = decision.verdict == "promote"
        if promoted and adopt:
            self.holder = decision.candidate_harness
            self.agent = self.agents[self.holder]
        return promoted

    def _raced(self, made: Candidate) -> Case:
        looks, ours = list[Look](), made.harness_id
        plan = steps(self.rules, sum(self.counts[self.holder].values()) // len(self.names))
        arms = Spread(dict.fromkeys(self.names, 0), self.counts[self.holder])
        self.cards[ours] = []
        for index, step in enumerate(plan):
            before, arms = arms, spread(arms, (step.attempts, step.pool), self.known, self.rules.focus)
            for name, old, new in ((ours, before.candidate, arms.candidate), (self.holder, before.pool, arms.pool)):
                self.cards[name] += self._tossed(name, "race", {t: range(old[t], new[t]) for t in self.names})
            self.own += sum(arms.candidate.values()) - sum(before.candidate.values())
            self.pool += sum(arms.pool.values()) - sum(before.pool.values())
            dev = Arms(list(self.cards[ours]), list(self.cards[self.holder]), len(self.names), step.attempts)
            look, found = race_look(dev, plan, index, self.rules, len(self.made))
            looks.append(look)
            if look.verdict != "continue":
                break
        self.counts |= {ours: arms.candidate, self.holder: arms.pool}
        spent = Population(self.made, self.decisions).alpha_spent
        return Case(made, self.holder, tuple(looks), found, dev, None, best_success=0.0, spent=spent, facts=FACTS)

    def _confirmed(self, case: Case) -> Case:
        fresh, select = Arms([], [], SIZES["select"], 0), [f"select-{task}" for task in range(SIZES["select"])]
        for index, (before, step) in enumerate(pairwise((Step(0, 0), *confirm_steps(self.rules)))):
            more = dict.fromkeys(select, range(before.attempts, step.attempts))
            ours = [*fresh.candidate, *self._tossed(case.candidate.name, "confirm", more)]
            theirs = [*fresh.incumbent, *self._tossed(case.incumbent_harness, "confirm", more)]
            fresh = Arms(ours, theirs, fresh.n_tasks, step.attempts)
            case = replace(case, confirmation=fresh, confirm_look=index)
            if not undecided(case, self.rules, len(self.made)):
                break
        return case

    def claims(self) -> list[float]:
        """The incumbent against the root on fresh attempts of both, paid for once and drawn `REPEATS` times."""
        if self.agent is self.root:
            return [0.0]
        before, drawn = self.rollouts, []
        more = {f"select-{task}": CLAIM_ATTEMPTS for task in range(SIZES["select"])}
        for _ in range(REPEATS):
            self.rollouts = before
            ours, theirs = (self._tossed(name, "confirm", more) for name in (self.holder, "root"))
            claimed = Arms(ours, theirs, SIZES["select"], len(CLAIM_ATTEMPTS))
            drawn.append(compare(claimed, self.rules, 0.05, 0).effect.point or 0.0)
        return drawn

    def stepwise(self) -> float:
        """What the promotions claim one by one, on the attempts that confirmed them."""
        return sum(d.confirmation.point or 0.0 for d in self.decisions if d.verdict == "promote" and d.confirmation)


def _made(name: str, parents: tuple[str, ...]) -> Candidate:
    return Candidate(
        id=f"cand-{name}", name=name, harness_id=name, parents=parents, author="bench", components=(), changes=(),
        manifest=Manifest(why="simulated"), proposed_at=0.0,
    )  # fmt: skip
