"""A simulated agent, and the acceptance rules that judge its edits: a strict mean, harness-evolve's, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
from harness_evolve import acceptance as peer
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from devset.task import Split
from evolver.archive import Cell, Member, draw_parent
from evolver.compare import Arms, Comparison, compare
from evolver.config import RaceConfig
from evolver.decide import Case, Step, confirm_steps, decide, race_look, steps, undecided
from evolver.guards import Facts
from evolver.parents import ArchiveConfig
from evolver.population import Population, by_task, tally
from evolver.records import Candidate, Decision, Look, Manifest, Purpose, RolloutKey, Scorecard

SIZES = {"dev": 60, "select": 40, "anywhere": 400}
BETA = (0.405, 0.332)
TOKENS, TOKEN_SPREAD = 1_000.0, 0.3  # median, and standard deviation of the logarithm
CLAIM_ATTEMPTS = range(4)
REPEATS = 20  # a lineage's claim is drawn so often: its bias is wanted, not the luck of one draw
APPS = 6
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

    def claims(self) -> list[float]:
        return [self.incumbent.S - self.first]


@dataclass
class Ours:
    """The race on dev and the fresh confirmation on select, decided by `evolver.decide`; parents from the archive."""

    rules: RaceConfig = field(default_factory=RaceConfig)
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    rollouts: int = 0
    own: int = 0  # of these, the candidates' in their races
    pool: int = 0  # of these, the incumbents' in races

    def start(self, root: Agent, rng: np.random.Generator) -> None:
        self.rng, self.rollouts = rng, 0
        self.root = self.agent = root
        self.holder, self.decisions = "root", list[Decision]()
        self.cards = self._tossed("root", root, "race", range(1))
        self.agents = {"root": root}
        self.tallies: dict[str, dict[str, tuple[int, int]]] = {"root": tallies(self.cards)}
        self.key = f"{rng.integers(2**31)}"

    def parent(self) -> Agent:
        """Drawn by `evolver.archive`; the root is a cell of its own, all edits are of one kind."""
        self.tallies[self.holder] = tallies(self.cards)
        members = [
            Member(name, name, Cell("root" if name == "root" else "F", None, "gui"), held)
            for name, held in self.tallies.items()
        ]
        return self.agents[draw_parent(members, self.holder, self.archive, f"{self.key}/{len(self.decisions)}")]

    def result(self) -> Agent:
        return self.agent

    def _tossed(self, name: str, agent: Agent, purpose: Purpose, numbers: range) -> list[Scorecard]:
        split: Split = "dev" if purpose == "race" else "select"
        chances = agent.chances[split]
        solved = self.rng.random((len(numbers), len(chances))) < chances
        tokens = self.rng.lognormal(np.log(TOKENS), TOKEN_SPREAD, solved.shape)
        self.rollouts += solved.size
        return [
            Scorecard.model_construct(
                rollout_id=f"{name}-{split}-{task}-{number}",
                key=RolloutKey.model_construct(
                    purpose=purpose, harness_id=name, model_id="coin", task_id=f"{split}-{task}", task_hash="1",
                    split=split, attempt=number, seed=0,
                ),
                checker_hash="1", scores=(), success=bool(solved[row, task]), rubric=float(solved[row, task]),
                error=None, channel="gui", tokens=int(tokens[row, task]), cost_usd=0.0, seconds=1.0,
            )
            for row, number in enumerate(numbers)
            for task in range(len(chances))
        ]  # fmt: skip

    def judge(self, candidate: Agent, *, adopt: bool) -> Tally:
        turn = len(self.decisions)
        made, dev, looks, found = self._raced(candidate, turn)
        passed = looks[-1].verdict == "pass"
        spent = Population([], self.decisions).alpha_spent
        case = Case(made, self.holder, looks, found, dev, None, best_success=0.0, spent=spent, facts=FACTS)
        fresh = Arms([], [], SIZES["select"], 0)
        for index, (before, step) in enumerate(pairwise((Step(0, 0), *confirm_steps(self.rules)))):
            if passed and (index == 0 or undecided(case, self.rules, turn)):
                more = range(before.attempts, step.attempts)
                ours = [*fresh.candidate, *self._tossed(made.name, candidate, "confirm", more)]
                theirs = [*fresh.incumbent, *self._tossed(self.holder, self.agent, "confirm", more)]
                fresh = Arms(ours, theirs, fresh.n_tasks, step.attempts)
                case = replace(case, confirmation=fresh, confirm_look=index)
        self.decisions.append(decide(case, self.rules, turn, 0.0))
        self.agents[made.name], self.tallies[made.name] = candidate, tallies(dev.candidate)
        promoted = self.decisions[-1].verdict == "promote"
        if promoted and adopt:
            self.holder, self.agent, self.cards = made.name, candidate, list(dev.candidate)
        return Tally(passed, promoted)

    def _raced(self, candidate: Agent, turn: int) -> tuple[Candidate, Arms, tuple[Look, ...], Comparison]:
        made = Candidate(
            id=f"cand-{turn}", name=f"c{turn}", harness_id=f"c{turn}", parents=(self.holder,), author="bench",
            components=(), changes=(), manifest=Manifest(why="simulated"), proposed_at=0.0,
        )  # fmt: skip
        settled, tasks = len(self.cards) // SIZES["dev"], SIZES["dev"]
        plan, looks, ours = steps(self.rules, settled), list[Look](), list[Scorecard]()
        for index, (before, step) in enumerate(pairwise((Step(0, settled), *plan))):
            ours += self._tossed(made.name, candidate, "race", range(before.attempts, step.attempts))
            self.cards += self._tossed(self.holder, self.agent, "race", range(before.pool, step.pool))
            self.own += (step.attempts - before.attempts) * tasks
            self.pool += (step.pool - before.pool) * tasks
            dev = Arms(ours, self.cards, tasks, step.attempts)
            look, found = race_look(dev, plan, index, self.rules, turn)
            looks.append(look)
            if look.verdict != "continue":
                break
        return made, dev, tuple(looks), found

    def claims(self) -> list[float]:
        """The incumbent against the root on fresh attempts of both, paid for once and drawn `REPEATS` times."""
        if self.agent is self.root:
            return [0.0]
        before, drawn = self.rollouts, []
        for _ in range(REPEATS):
            self.rollouts = before
            ours = self._tossed("new", self.agent, "confirm", CLAIM_ATTEMPTS)
            theirs = self._tossed("root", self.root, "confirm", CLAIM_ATTEMPTS)
            claimed = Arms(ours, theirs, SIZES["select"], len(CLAIM_ATTEMPTS))
            drawn.append(compare(claimed, self.rules, 0.05, 0).effect.point or 0.0)
        return drawn

    def stepwise(self) -> float:
        """What the promotions claim one by one, on the attempts that confirmed them."""
        return sum(d.confirmation.point or 0.0 for d in self.decisions if d.verdict == "promote" and d.confirmation)
