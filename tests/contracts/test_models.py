"""The Model contract on every model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evolver.config import OpenAISpec
from evolver.controls import AlwaysFailModel, NoopModel
from evolver.models.demonstrator import Demonstrator
from evolver.models.openai import OpenAIModel
from evolver.protocols import Model, Request
from evolver.records import Message, Text
from evolver.testing import FakeSandbox, ModelContract, ScriptedModel, reply
from evolver.tools import tool_specs
from harnesses.harness import Sampling
from harnesses.tree import read_tree, seed_path
from tests.evolver.endpoint_server import Endpoint, calls, chat, serving
from tests.evolver.graded_task import task


class OnBeta1:
    def request(self) -> Request:
        messages = (Message(role="user", parts=(Text(text="Write right into a.txt."),)),)
        tools = tool_specs(read_tree(seed_path("beta1")))
        return Request(messages=messages, tools=tools, sampling=Sampling(), seed=1)


class TestOpenAI(OnBeta1, ModelContract):
    @pytest.fixture(autouse=True)
    def endpoint(self) -> Iterator[Endpoint]:
        doubled = calls(("bash", '{"command": "ls"}'), ("bash", '{"command": "pwd"}'))
        doubled["tool_calls"][1]["id"] = doubled["tool_calls"][0]["id"]
        with serving(chat(doubled, finish="tool_calls", usage={"prompt_tokens": 0})) as self.served:
            yield self.served

    def make(self) -> Model:
        return OpenAIModel(OpenAISpec(kind="openai", model="m", base_url=self.served.url))


class TestDemonstrator(OnBeta1, ModelContract):
    def make(self) -> Model:
        return Demonstrator().bind(task(), FakeSandbox(), "r-1", max_calls=15)


class TestNoop(OnBeta1, ModelContract):
    def make(self) -> Model:
        return NoopModel()


class TestAlwaysFail(OnBeta1, ModelContract):
    def make(self) -> Model:
        return AlwaysFailModel()


class TestScripted(OnBeta1, ModelContract):
    def make(self) -> Model:
        return ScriptedModel([reply("Two calls.", ("bash", {}), ("bash", {}))])
