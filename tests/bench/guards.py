"""What guards cost a good edit and what they catch, on the simulated bench of `acceptance.py` with six apps.

Goals: of the edits that race and confirmation would promote, guards stop at most 2 % where every task gains; where one
app in six loses 50 points while the others gain, they stop at least 90 %.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
from simulated.rules import APPS, Agent, Ours

CASES = (  # gain everywhere, fall of one app instead, runs, edits a run
    (0.05, 0.0, 40, 10),
    (0.10, 0.0, 40, 5),
    (0.20, 0.3, 30, 5),
    (0.20, 0.5, 30, 5),
)


def edited(root: Agent, gain: float, fall: float) -> Agent:
    """`gain` on all tasks, but the first app, which loses `fall`, as far as it has it."""
    better = root.edited(gain)
    if not fall:
        return better
    chances = {ground: chance.copy() for ground, chance in better.chances.items()}
    for ground, chance in chances.items():
        chance[::APPS] = (root.chances[ground][::APPS] - fall).clip(0.005, 0.995)
    return Agent(chances)


def measured(gain: float, fall: float, runs: int, edits: int) -> tuple[int, int, Counter[str]]:
    """(edits that race and confirmation would promote, those that a guard stopped, how often which guard did)."""
    rule, would, by = Ours(), 0, Counter[str]()
    stopped = 0
    for run in range(runs):
        root = Agent.drawn(np.random.default_rng((1, run)))
        rule.start(root, np.random.default_rng((2, run)))
        for _ in range(edits):
            rule.judge(edited(root, gain, fall), adopt=False)
            decision = rule.decisions[-1]
            tripped = {result.guard for result in decision.guards if result.outcome == "tripped"}
            would += decision.verdict == "promote" or bool(tripped)
            stopped += bool(tripped)
            by.update(tripped)
    return would, stopped, by


def main() -> int:
    missed = 0
    for gain, fall, runs, edits in CASES:
        would, stopped, by = measured(gain, fall, runs, edits)
        share = stopped / would
        wanted = share <= 0.02 if not fall else share >= 0.9 if fall >= 0.5 else True
        missed += not wanted
        goal = "at most 2 %" if not fall else "at least 90 %" if fall >= 0.5 else ""
        verdict = f"; {goal}: {'met' if wanted else 'MISSED'}" if goal else ""
        what = f"{100 * gain:+.0f} pp" + (f", one app of {APPS} loses {100 * fall:.0f}" if fall else "")
        print(
            f"{what}: guards stop {stopped} of {would} ({100 * share:.1f} %{verdict}) {dict(by)}",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
