"""What acceptance rules make of noise: false accepts, power, rollouts and claims, on one simulated task bench.

The rules: ours (the functions of `evolver.decide` on simulated scorecards), harness-evolve 0.3.0 (its own acceptance
functions, in the order of its `Optimizer`) and a strict mean. The agent is a coin a task, whose chance an edit moves on
the logit scale. Chances are Beta distributed: 55 % on average, and 21 % of the tasks turn out differently in two runs
of one harness, which is what the authors of harness-evolve report. Of the edits of a lineage 20 % help, as in
experiments at Bing and Google (Kohavi et al. 2013, KDD: 10 to 20 %); half do nothing and 30 % cost 5 points. Each rule
gets the same 20 edits; ours applies them to parents that `evolver.archive` draws, the others to their incumbent.

Goals of the race: at most 5 % false accepts; power of 60 % at +5 points and 95 % at +10; at most 200 rollouts a
candidate, the incumbent's apart. With confirmation: no false winner in 90 % of runs of 20 neutral edits, claims biased
by at most 0.5 points, and more true gain than a strict mean that spends as many rollouts on the same 20 edits.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from simulated.rules import SIZES, Agent, HarnessEvolve, Ours, Rule, StrictMean, Tally

from evolver.config import RaceConfig
from evolver.parents import ArchiveConfig

EDITS, SHARES = (0.0, -0.05, 0.05, 0.10), (0.5, 0.3, 0.15, 0.05)
GENERATIONS = 20
NULL_RUNS, POWER_RUNS, RIVAL_RUNS, POWER_EDITS, LINEAGES, SPLIT_LINEAGES = 100, 100, 40, 10, 50, 15
SPLITS = {
    "parents the incumbent alone": Ours(archive=ArchiveConfig(incumbent=1.0, cells=0.0)),
    "confirmed by at most 4": Ours(RaceConfig(confirm_attempts=4)),
    "confirmed by at most 16": Ours(RaceConfig(confirm_attempts=16)),
    "1 and 2": Ours(RaceConfig(attempts=(1, 2))),
    "1, 2, 4 and 8": Ours(RaceConfig(attempts=(1, 2, 4, 8))),
    "a pool of 6": Ours(RaceConfig(pool=6)),
    "futile below +2 points": Ours(RaceConfig(min_effect=0.02)),
    "futile below +2 points, a pool of 6": Ours(RaceConfig(min_effect=0.02, pool=6)),
}


# --- what is measured -----------------------------------------------------------------------------------------------


@dataclass
class Trials:
    """Candidates with one and the same gain, each against the root of its run."""

    tallies: list[list[Tally]]
    rollouts: float  # a candidate, all of the rule's together
    own: float = 0.0
    pool: float = 0.0

    def share(self, which: Callable[[Tally], bool]) -> float:
        return 100 * statistics.mean(which(tally) for run in self.tallies for tally in run)


def trials(rule: Rule, gain: float, runs: int, edits: int) -> Trials:
    found, rollouts = [], 0
    for run in range(runs):
        root = Agent.drawn(np.random.default_rng((1, run)))
        rule.start(root, np.random.default_rng((2, run)))
        edited = root.edited(gain)
        found.append([rule.judge(edited, adopt=False) for _ in range(edits)])
        rollouts += rule.rollouts
    per = runs * edits
    made = Trials(found, rollouts / per)
    if isinstance(rule, Ours):
        made.own, made.pool = rule.own / per, rule.pool / per
    return made


@dataclass
class Lineage:
    gain: float  # true, on tasks that no rule has seen, 0..1
    rollouts: int
    errors: list[float]  # claimed minus true, on the tasks that the claim is about
    stepwise: float = 0.0


def lineages(rule: Rule, generations: int = GENERATIONS, count: int = LINEAGES) -> list[Lineage]:
    """The same roots and edits for every rule; a longer lineage begins with the edits of a shorter one."""
    found = []
    for run in range(count):
        rng = np.random.default_rng((3, run))
        root = Agent.drawn(rng)
        rule.start(root, np.random.default_rng((4, run)))
        for gain in rng.choice(EDITS, size=generations, p=SHARES):
            rule.judge(rule.parent().edited(float(gain)), adopt=True)
        agent = rule.result()
        ground = "select" if isinstance(rule, Ours) else "dev"
        true = agent.success(ground) - root.success(ground)
        made = Lineage(
            agent.success("anywhere") - root.success("anywhere"), 0, [claim - true for claim in rule.claims()]
        )
        made.rollouts = rule.rollouts
        if isinstance(rule, Ours):
            made.stepwise = rule.stepwise() - true
        found.append(made)
    return found


# --- what is said of it ---------------------------------------------------------------------------------------------


@dataclass
class Goals:
    """Prints one line a figure and remembers whether its goal was met."""

    met: bool = True
    figures: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def hold(self, text: str, met: bool) -> None:
        self.met &= met
        self.figures.append(text)
        self.say(f"{text}: {'met' if met else 'MISSED'}")


def noise_and_power(goals: Goals) -> None:
    rules: dict[str, Rule] = {
        "strict mean": StrictMean(), "harness-evolve": HarnessEvolve(), "harness-evolve, careful": HarnessEvolve(True),
    }  # fmt: skip
    nulls = trials(Ours(), 0.0, NULL_RUNS, GENERATIONS)
    gains = {gain: trials(Ours(), gain, POWER_RUNS, POWER_EDITS) for gain in (0.05, 0.10)}
    for name, rule in rules.items():
        null = trials(rule, 0.0, RIVAL_RUNS, GENERATIONS)
        power = [trials(rule, gain, RIVAL_RUNS, POWER_EDITS).share(lambda t: t.promoted) for gain in gains]
        goals.say(
            f"{name}: false accepts {null.share(lambda t: t.promoted):.1f} % of {RIVAL_RUNS * GENERATIONS}, power "
            f"{power[0]:.0f} % at +5 and {power[1]:.0f} % at +10 points, {null.rollouts:.0f} rollouts a neutral edit, "
            f"no false winner in {_clean(null):.0f} % of {RIVAL_RUNS} neutral runs"
        )
    for gain, found in ((0.0, nulls), *gains.items()):
        goals.say(
            f"ours at {100 * gain:+.0f} points: race {found.share(lambda t: t.passed):.1f} %, with confirmation "
            f"{found.share(lambda t: t.promoted):.1f} %; rollouts a candidate {found.own:.0f} of its own in the race, "
            f"{found.pool:.0f} of the shared pool, {found.rollouts:.0f} with confirmations"
        )
    small, large = (gains[gain].share(lambda t: t.passed) for gain in gains)
    accepted, own = nulls.share(lambda t: t.passed), max(found.own for found in (nulls, *gains.values()))
    goals.hold(f"race: false accepts {accepted:.1f} % (goal 5)", accepted <= 5)
    goals.hold(f"power {small:.0f} % at +5 (goal 60)", small >= 60)
    goals.hold(f"power {large:.0f} % at +10 (goal 95)", large >= 95)
    goals.hold(f"at most {own:.0f} rollouts a candidate (goal 200)", own <= 200)
    clean = _clean(nulls)
    goals.hold(f"no false winner in {clean:.0f} % of neutral runs (goal 90)", clean >= 90)


def _clean(found: Trials) -> float:
    return 100 * statistics.mean(not any(tally.promoted for tally in run) for run in found.tallies)


def gains_and_claims(goals: Goals) -> None:
    ours = lineages(Ours())
    spent = statistics.mean(made.rollouts for made in ours)
    trials_each = ceil(spent / (GENERATIONS + 1) / SIZES["dev"])
    rivals = {
        f"strict mean of {trials_each}": lineages(StrictMean(trials_each)),
        "strict mean of 1": lineages(StrictMean()),
        "harness-evolve": lineages(HarnessEvolve()),
        "harness-evolve, careful": lineages(HarnessEvolve(True)),
    }
    _say_lineages(goals, "ours", ours)
    for name, found in rivals.items():
        _say_lineages(goals, name, found)
    stepwise = 100 * statistics.mean(made.stepwise for made in ours)
    goals.say(f"ours, were the confirmations summed up as the claim: {stepwise:+.1f} points beyond the truth")
    longer = lineages(StrictMean(), generations=round(spent / SIZES["dev"]) - 1, count=SPLIT_LINEAGES)
    _say_lineages(goals, f"strict mean of 1 on as many edits as that buys ({round(spent / SIZES['dev']) - 1})", longer)
    _say_lineages(goals, "split as it is: 1, 2 and 4, a pool of 16, confirmed by at most 8", ours[:SPLIT_LINEAGES])
    for name, rule in SPLITS.items():
        _say_lineages(goals, f"split {name}", lineages(rule, count=SPLIT_LINEAGES))
    bias = 100 * statistics.mean(error for made in ours for error in made.errors)
    goals.hold(f"claims biased by {bias:+.2f} points (goal 0.5)", abs(bias) <= 0.5)
    same = [a.gain - b.gain for a, b in zip(ours, rivals[f"strict mean of {trials_each}"], strict=True)]
    lead, error = 100 * statistics.mean(same), 100 * statistics.stdev(same) / len(same) ** 0.5
    goals.hold(f"true gain {lead:+.1f} ± {error:.1f} points against a strict mean at equal rollouts (goal 0)", lead > 0)


def _say_lineages(goals: Goals, name: str, found: Sequence[Lineage]) -> None:
    gain = 100 * statistics.mean(made.gain for made in found)
    error = 100 * statistics.stdev(made.gain for made in found) / len(found) ** 0.5
    rollouts = statistics.mean(made.rollouts for made in found)
    bias = 100 * statistics.mean(statistics.mean(made.errors) for made in found)
    off = 100 * statistics.mean(abs(e) for made in found for e in made.errors)
    goals.say(
        f"lineage, {name}: true gain {gain:.1f} ± {error:.1f} points for {rollouts:,.0f} rollouts "
        f"({1_000 * gain / rollouts:.1f} per 1,000), claim off by {bias:+.1f} on average, {off:.1f} without sign"
    )


def main() -> int:
    goals = Goals()
    noise_and_power(goals)
    gains_and_claims(goals)
    print(f"acceptance: {'; '.join(goals.figures)} {'goal met' if goals.met else 'short of goal'}")
    return 0 if goals.met else 1


if __name__ == "__main__":
    sys.exit(main())
