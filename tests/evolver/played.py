"""A run of one attempt by the `openai` model against a local endpoint, on a machine in memory."""

from __future__ import annotations

from pathlib import Path

from evolver.chat import PLAIN, Dialect
from evolver.config import OpenAISpec, RunConfig
from evolver.executors.local import LocalExecutor
from evolver.lab import Attempt, Lab
from evolver.models import make_model
from evolver.protocols import Ran
from evolver.records import Rollout
from evolver.store import Store
from evolver.testing import FakeGrader, FakeSandbox, FakeSandboxes
from harnesses.edit import with_changes
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path
from tests.evolver.endpoint_server import Reply, calls, chat
from tests.evolver.test_rollout import SCREEN, task

KEY_ENV = "EVOLVER_TEST_KEY"
END = calls(("computer_use", '{"action": "terminate", "status": "success"}'), content="All done.")


def bash(command: str, text: str = "Look.") -> Reply:
    return chat(calls(("bash", f'{{"command": "{command}"}}'), content=text), finish="tool_calls")


def ending() -> Reply:
    return chat(END, finish="tool_calls")


class Counting(FakeSandbox):
    """Says what `outputs` lists, command after command; its screen differs at every look."""

    def __init__(self, outputs: tuple[str, ...]) -> None:
        super().__init__({}, SCREEN)
        self._outputs = iter(outputs)

    async def bash(self, command: str, *, timeout_s: float) -> Ran:
        return Ran(0, next(self._outputs, "ok"))


async def played(
    path: Path, url: str, *outputs: str, dialect: Dialect = PLAIN, **scaffold: object
) -> tuple[Store, Rollout]:
    """The run directory and its newest rollout."""
    spec = OpenAISpec(
        kind="openai", model="some-model", base_url=url, api_key_env=KEY_ENV, retry_for_s=1, dialect=dialect
    )
    store = Store.create(path / "run", RunConfig(teacher=spec, allow_unpriced=True))
    changes = {f"scaffold.{name}": value for name, value in scaffold.items()}
    tree = with_changes(read_tree(seed_path("beta1")), {"scaffold.observation.when": "every_turn", **changes})
    library = Library(store.path / "library")
    harness = library.add(tree, name="mine", parents=(), message="for a test", branch="main")
    machines = FakeSandboxes(lambda: Counting(outputs))
    lab = Lab(store, library, machines, [FakeGrader({"done": 1.0})], make_model(spec), LocalExecutor(1))
    await lab.score([Attempt(harness, task(), "race")])
    return store, store.all(Rollout)[-1]
