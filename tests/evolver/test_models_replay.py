"""The replay model."""

from __future__ import annotations

import pytest

from evolver.context import request_sha256
from evolver.errors import Blamed
from evolver.models.replay import ReplayModel
from evolver.protocols import Request
from evolver.records import Message, Rollout, RolloutKey, Text, Turn
from evolver.testing import reply
from harnesses.harness import Sampling


def request(text: str) -> Request:
    return Request(messages=(Message(role="user", parts=(Text(text=text),)),), tools=(), sampling=Sampling(), seed=0)


def recorded(*texts: str) -> Rollout:
    key = RolloutKey(
        purpose="adhoc",
        harness_id="h",
        model_id="some-model",
        task_id="t",
        task_hash="h",
        split=None,
        attempt=0,
        seed=0,
    )
    turns = tuple(
        Turn(
            index=i,
            request_sha256=request_sha256(request(text).messages, ()),
            completion=reply(f"answer to {text}"),
            summary="",
            channel="none",
            model_s=0.0,
            tools_s=0.0,
        )
        for i, text in enumerate(texts)
    )
    return Rollout(
        id="r-1", key=key, loaded_harness_id="h", image_digest="d", apps=(), category="os", turns=turns,
        stop_reason="finished", started_at=0.0, finished_at=1.0,
    )  # fmt: skip


async def test_the_same_questions_get_the_recorded_answers() -> None:
    model = ReplayModel(recorded("one", "two"))
    answers = [(await model.complete(request(text))).text for text in ("one", "two")]
    assert answers == ["answer to one", "answer to two"]
    assert (model.id, model.declared) == ("some-model", "replay of r-1")


async def test_another_question_is_an_error_and_does_not_use_up_the_answer() -> None:
    model = ReplayModel(recorded("one"))
    with pytest.raises(Blamed, match="turn 0"):
        await model.complete(request("other"))
    assert (await model.complete(request("one"))).text == "answer to one"


async def test_there_is_nothing_after_the_last_turn() -> None:
    model = ReplayModel(recorded("one"))
    await model.complete(request("one"))
    with pytest.raises(Blamed, match="only 1 were recorded"):
        await model.complete(request("one"))
