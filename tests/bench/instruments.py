"""Whether the instruments of a generation round find drift in time, over many simulated rounds.

Goal: a swapped model, a stale image and a judge that became lenient are found within 1,000 calls in 99 % of the rounds,
each by the chart that is meant to; of rounds without drift, one in ten raises an alarm at most. Of other drifts it says
what was found.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from pathlib import Path
from statistics import median

ROUNDS, CALM_ROUNDS, FOUND, FALSE, GOAL_CALLS = 100, 200, 0.99, 0.1, 1_000
MEMORY = Path("/dev/shm")  # nothing of it is to be kept
FIRST, LAST = 2_000, 4_000  # units after which the drift begins


def main() -> int:
    from tests.evolver.drifting import CALLS, CALM, DRIFTS, STEP, after, simulated

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="with each drift")
    parser.add_argument("--calm", type=int, default=CALM_ROUNDS, help="without any")
    options = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory(prefix="instruments-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        places = (Path(folder) / str(number) for number in itertools.count())
        for drift in DRIFTS:
            late, wrong = [], 0
            for seed in range(options.rounds):
                start = random.Random(seed).randrange(FIRST, LAST, STEP)
                why, done = simulated(next(places), after(start, drift.shares), seed)
                wrong += why is not None and (done <= start or not why.startswith(drift.named))
                late.append(CALLS * (done - start))
            found = sum(calls <= drift.calls for calls in late)
            late.sort()
            print(
                f"{drift.what}: found within {drift.calls:,} calls in {found} of {options.rounds} rounds "
                f"(median {median(late):,.0f}, 99th percentile {late[int(0.99 * len(late))]:,}); "
                f"{wrong} times something else was found, or too early",
                flush=True,
            )
            met &= drift.calls > GOAL_CALLS or found - wrong >= FOUND * options.rounds
        alarms = []
        for seed in range(options.calm):
            wavers = random.Random(seed).choice((0.0, 0.03, 0.1))
            calm = {name: wavers if share == CALM["endpoint"] else share for name, share in CALM.items()}
            why, _ = simulated(next(places), after(0, {}, calm), 10_000 + seed)
            alarms += [why.split()[0]] if why else []
        print(f"{len(alarms)} of {options.calm} rounds without drift raised an alarm ({', '.join(alarms) or 'none'})")
        met &= len(alarms) <= FALSE * options.calm
    print("goal met" if met else "short of goal")
    return 0 if met else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
