"""How much faster sixteen replies come together than one by one, from the demo's student. Goal: at least twice."""

from __future__ import annotations

import asyncio
import sys
import time

from evolver.protocols import Request
from evolver.records import Message, Text
from harnesses.harness import Sampling
from training.recipe import load_recipe
from training.student import StudentModel, open_untrained

REPLIES = 16
TOKENS = 32
GOAL = 2.0


def request(number: int) -> Request:
    words = f"In the folder called batch-{number}, rename every file so that its name starts with its size. " * 8
    messages = (Message(role="user", parts=(Text(text=words),)),)
    return Request(messages=messages, tools=(), sampling=Sampling(max_tokens=TOKENS), seed=number)


async def tokens_per_second(student: StudentModel, *, together: bool, first: int) -> float:
    began = time.monotonic()
    requests = [request(first + n) for n in range(REPLIES)]
    if together:
        replies = await asyncio.gather(*(student.complete(r) for r in requests))
    else:
        replies = [await student.complete(r) for r in requests]
    return sum(r.usage.output_tokens or 0 for r in replies) / (time.monotonic() - began)


async def measure() -> tuple[float, float]:
    student = open_untrained(load_recipe("demo"))
    try:
        await student.complete(request(999))  # loads the weights
        alone = await tokens_per_second(student, together=False, first=0)
        return alone, await tokens_per_second(student, together=True, first=100)
    finally:
        student.close()


def main() -> int:
    alone, together = asyncio.run(measure())
    ratio = together / alone
    met = ratio >= GOAL
    print(
        f"student: {alone:.0f} tokens/s one by one, {together:.0f} for {REPLIES} at once, {ratio:.1f}x "
        f"(goal {GOAL:g}x) {'goal met' if met else 'short of goal'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
