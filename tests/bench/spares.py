"""How much sooner the first command answers with a warm spare than without. Goal: at least twice as soon."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from evolver.sandboxes import open_backend
from harnesses.tree import read_tree, seed_path

ROUNDS = 12
TTL_S = 300.0
GOAL = 2.0


async def first_answers(spares: int) -> list[float]:
    """Seconds from asking for a sandbox to the answer of its shell, with a pause between rounds to refill the shelf."""
    environment = read_tree(seed_path("beta1")).environment
    sandboxes = open_backend("auto", spares=spares)
    seconds = []
    try:
        await sandboxes.prepare(environment)
        for number in range(ROUNDS + 1):
            began = time.monotonic()
            sandbox = await sandboxes.open(environment, run_id="bench", ttl_s=TTL_S)
            await sandbox.bash("true", timeout_s=30)
            if number:  # the first one of all finds an empty shelf
                seconds.append(time.monotonic() - began)
            await sandbox.close()
            await asyncio.sleep(1.5)
    finally:
        await sandboxes.aclose()
    return seconds


def main() -> int:
    cold = statistics.median(asyncio.run(first_answers(0)))
    warm = statistics.median(asyncio.run(first_answers(1)))
    ratio = cold / warm
    met = ratio >= GOAL
    print(
        f"spares: first answer {1000 * cold:.0f} ms cold, {1000 * warm:.0f} ms with a spare, {ratio:.1f}x as soon "
        f"(medians of {ROUNDS}; goal {GOAL:g}x) {'goal met' if met else 'short of goal'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
