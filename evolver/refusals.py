"""Whether a refused request is refused for what it asks: then the endpoint still answers one that asks other things."""

from __future__ import annotations

from evolver.errors import Blamed, UsageError
from evolver.protocols import Model, Privileged, Request
from evolver.records import Completion, Message, Text
from harnesses.harness import Sampling

QUESTION = "What is 17 * 23? Reply with the number alone."
ANSWER_TOKENS = 16


async def answer_to(model: Model | Privileged, request: Request) -> Completion | None:
    """The reply to a request; None where it is refused as well, or not answered."""
    if isinstance(model, Privileged):
        return None
    try:
        return await model.complete(request)
    except (Blamed, UsageError):
        return None


def neutral_request() -> Request:
    """A question that has nothing to do with any task."""
    return short_request(QUESTION, ANSWER_TOKENS)


def short_request(text: str, most_tokens: int) -> Request:
    """A question without tools and pictures at temperature 0."""
    return Request(
        messages=(Message(role="user", parts=(Text(text=text),)),),
        tools=(),
        sampling=Sampling(temperature=0.0, max_tokens=most_tokens),
        seed=0,
    )
