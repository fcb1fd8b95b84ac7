"""What acceptance rules make of noise: false accepts, power, rollouts and claims, on one simulated task bench.

The rules: ours (the functions of `evolver.decide` on simulated scorecards), harness-evolve 0.3.0 (its own acceptance
functions, in the order of its `Optimizer`) and a strict mean. The agent is a coin a task, whose chance an edit moves on
the logit scale. Chances are Beta distributed: 55 % on average, and 21 % of the tasks turn out differently in two runs
of one harness, which is what the authors of harness-evolve report. Of the edits of a lineage 20 % help, as in
experiments at Bing and Google (Kohavi et al. 2013, KDD: 10 to 20 %); half do nothing and 30 % cost 5 points. Each rule
gets the same 20 edits; ours applies them to parents that `evolver.archive` draws, the others to their incumbent.

Goals of the race: at most 5 % false accepts; power of 60 % at +5 points and 95 % at +10; at most 200 rollouts a
candidate, the incumbent's apart. With confirmation: no false winner in 90 % of runs of 20 neutral edits, claims biased
by at most 0.5 points, and more true gain than a strict mean that spends as many rollouts on the same 20 edits. A strict
mean takes a whole number of trials, so its gain at our rollouts is interpolated between two of them, lineage by
lineage. Our rollouts include those of our claim; its claim is free, and off.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from simulated.rules import SIZES, Agent, HarnessEvolve, Ours, Rule, StrictMean, Tally

from evolver.config import RaceConfig
from evolver.parents import ArchiveConfig

EDITS, SHARES = (0.0, -0.05, 0.05, 0.10), (0.5, 0.3, 0.15, 0.05)
GENERATIONS = 20
NULL_RUNS, POWER_RUNS, RIVAL_RUNS, POWER_EDITS = 200, 120, 40, 10
LINEAGES, RIVAL_LINEAGES, SPLIT_LINEAGES = 300, 40, 30
SPLITS = {
    "parents the incumbent alone": Ours(archive=ArchiveConfig(incumbent=1.0, cells=0.0)),
    "Thompson sampling at full temperature": Ours(archive=ArchiveConfig(temperature=1.0)),
    "attempts spread evenly": Ours(RaceConfig(focus=0.0)),
    "small leads confirmed at once": Ours(RaceConfig(confirm_from=0.0)),
    "all leads confirmed at the end": Ours(RaceConfig(confirm_from=1.0)),
    "confirmed by at most 4": Ours(RaceConfig(confirm_attempts=4)),
    "confirmed by at most 16": Ours(RaceConfig(confirm_attempts=16)),
    "1 and 2": Ours(RaceConfig(attempts=(1, 2))),
    "1, 2, 4 and 8": Ours(RaceConfig(attempts=(1, 2, 4, 8))),
    "a pool of 16": Ours(RaceConfig(pool=16)),
    "futile below +5 points": Ours(RaceConfig(min_effect=0.05)),
}


# --- what is measured -----------------------------------------------------------------------------------------------


@dataclass
class Trials:
    """Candidates with one and the same gain, each against the root of its run."""

    tallies: list[list[Tally]]
    late: list[bool]  # by run: whether something was promoted after the last candidate
    rollouts: float  # a candidate, all of the rule's together
    own: float = 0.0
    pool: float = 0.0

    def share(self, which: Callable[[Tally], bool]) -> float:
        return 100 * statistics.mean(which(tally) for run in self.tallies for tally in run)

    def clean(self) -> float:
        """The share of runs without a winner, in percent."""
        runs = zip(self.tallies, self.late, strict=True)
        return 100 * statistics.mean(not late and not any(tally.promoted for tally in run) for run, late in runs)


def trials(rule: Rule, gain: float, runs: int, edits: int) -> Trials:
    found, late, rollouts = [], [], 0
    for run in range(runs):
        root = Agent.drawn(np.random.default_rng((21, run)))
        rule.start(root, np.random.default_rng((22, run)))
        edited = root.edited(gain)
        found.append([rule.judge(edited, adopt=False) for _ in range(edits)])
        late.append(rule.finish())
        rollouts += rule.rollouts
    per = runs * edits
    made = Trials(found, late, rollouts / per)
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
        rng = np.random.default_rng((23, run))
        root = Agent.drawn(rng)
        rule.start(root, np.random.default_rng((24, run)))
        for gain in rng.choice(EDITS, size=generations, p=SHARES):
            rule.judge(rule.parent().edited(float(gain)), adopt=True)
        rule.finish()
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
    gains = {gain: trials(Ours(alone=True), gain, POWER_RUNS, POWER_EDITS) for gain in (0.05, 0.10)}
    for name, rule in rules.items():
        null = trials(rule, 0.0, RIVAL_RUNS, GENERATIONS)
        power = [trials(rule, gain, RIVAL_RUNS, POWER_EDITS).share(lambda t: t.promoted) for gain in gains]
        goals.say(
            f"{name}: false accepts {null.share(lambda t: t.promoted):.1f} % of {RIVAL_RUNS * GENERATIONS}, power "
            f"{power[0]:.0f} % at +5 and {power[1]:.0f} % at +10 points, {null.rollouts:.0f} rollouts a neutral edit, "
            f"no false winner in {null.clean():.0f} % of {RIVAL_RUNS} neutral runs"
        )
    for gain, found in ((0.0, nulls), *gains.items()):
        goals.say(
            f"ours at {100 * gain:+.0f} points: race {found.share(lambda t: t.passed):.1f} %, with confirmation "
            f"{found.share(lambda t: t.promoted):.1f} %; rollouts a candidate {found.own:.0f} of its own in the race, "
            f"{found.pool:.0f} of the shared pool, {found.rollouts:.0f} with confirmations"
        )
    small, large = (gains[gain].share(lambda t: t.passed) for gain in gains)
    accepted, own = nulls.share(lambda t: t.passed), max(found.own for found in (nulls, *gains.values()))
    error = 100 * statistics.stdev(statistics.mean(t.passed for t in run) for run in nulls.tallies) / NULL_RUNS**0.5
    goals.hold(f"race: false accepts {accepted:.1f} ± {error:.1f} % (goal 5)", accepted <= 5)
    goals.hold(f"power {small:.0f} % at +5 (goal 60)", small >= 60)
    goals.hold(f"power {large:.0f} % at +10 (goal 95)", large >= 95)
    goals.hold(f"at most {own:.0f} rollouts a candidate (goal 200)", own <= 200)
    clean = nulls.clean()
    goals.hold(f"no false winner in {clean:.0f} % of neutral runs (goal 90)", clean >= 90)


def gains_and_claims(goals: Goals) -> None:
    ours = lineages(Ours())
    _say_lineages(goals, "ours", ours)
    spent = statistics.mean(made.rollouts for made in ours)
    each = spent / (GENERATIONS + 1) / SIZES["dev"]  # trials of a strict mean that cost as much
    fewer, more = (lineages(StrictMean(trials)) for trials in (int(each), int(each) + 1))
    _say_lineages(goals, f"strict mean of {int(each)}", fewer)
    _say_lineages(goals, f"strict mean of {int(each) + 1}", more)
    _say_lineages(goals, "strict mean of 1", lineages(StrictMean()))
    for name, rule in (("harness-evolve", HarnessEvolve()), ("harness-evolve, careful", HarnessEvolve(True))):
        _say_lineages(goals, name, lineages(rule, count=RIVAL_LINEAGES))
    stepwise = 100 * statistics.mean(made.stepwise for made in ours)
    goals.say(f"ours, were the confirmations summed up as the claim: {stepwise:+.1f} points beyond the truth")
    longer = lineages(StrictMean(), generations=round(spent / SIZES["dev"]) - 1, count=RIVAL_LINEAGES)
    _say_lineages(goals, f"strict mean of 1 on as many edits as that buys ({round(spent / SIZES['dev']) - 1})", longer)
    _say_lineages(goals, "split as it is", ours[:SPLIT_LINEAGES])
    for name, rule in SPLITS.items():
        _say_lineages(goals, f"split {name}", lineages(rule, count=SPLIT_LINEAGES))
    bias = 100 * statistics.mean(error for made in ours for error in made.errors)
    goals.hold(f"claims biased by {bias:+.2f} points (goal 0.5)", abs(bias) <= 0.5)
    lead, error = _lead(ours, more)
    goals.say(
        f"true gain {lead:+.2f} ± {error:.2f} points against the strict mean of {int(each) + 1}, which costs more"
    )
    share = each - int(each)
    equal = [(1 - share) * a.gain + share * b.gain for a, b in zip(fewer, more, strict=True)]
    lead, error = _lead(ours, [Lineage(gain, 0, []) for gain in equal])
    goals.hold(f"true gain {lead:+.2f} ± {error:.2f} points against a strict mean at equal rollouts (goal 0)", lead > 0)


def _lead(ours: Sequence[Lineage], theirs: Sequence[Lineage]) -> tuple[float, float]:
    """How much more we gain on the same roots and edits, in points, with its standard error."""
    same = [100 * (a.gain - b.gain) for a, b in zip(ours, theirs, strict=True)]
    return statistics.mean(same), statistics.stdev(same) / len(same) ** 0.5


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
