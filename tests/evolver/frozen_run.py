"""A run whose promoted harness can be frozen: coins play, tasks have real hashes, machines can list their packages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from devset.task import Split, Task, task_hash
from evolver.capsules.machine import LIST
from evolver.config import Price, RaceConfig, RunConfig, TaskLimitsConfig
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.protocols import Ran, Request
from evolver.records import RolloutKey, Scorecard
from evolver.store import Store
from evolver.testing import FakeSandbox, FakeSandboxes
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path
from tests.evolver.cards import Coin, ReadsTheReply, a_card, a_task
from tests.evolver.sample_run import candidate, ci, decision
from tests.evolver.test_loop import shell_helps

ALPHA, BETA1 = (read_tree(seed_path(name)).id for name in ("alpha", "beta1"))
PACKAGES = {"deb": {"bash:amd64": "5.2"}, "pip": {"lxml": "6.1.3"}, "graders": {"openpyxl": "3.1.5"}}
Skill = Callable[[Request], tuple[float, int]]


class Player(Coin):
    id = "demonstrator"


def hashed_tasks(split: Split, limit: int | None = None) -> list[Task]:
    made = [a_task(number, split) for number in range(limit or 12)]
    return [task.model_copy(update={"hash": task_hash(task)}) for task in made]


def config(**changes: object) -> RunConfig:
    return RunConfig(
        root="alpha",
        tasks=TaskLimitsConfig(dev=12, select=10),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2),
        prices={"gpt-x": Price(input=1.0, output=2.0)},
    ).model_copy(update=changes)


def machines(packages: dict[str, dict[str, str]] = PACKAGES, digest: str = "sha256:fake") -> FakeSandboxes:
    def listing(box: FakeSandbox, command: str) -> Ran:
        if "dpkg-query" not in command:
            return Ran(127, f"not scripted: {command}")
        box.files[LIST] = json.dumps(packages).encode()
        return Ran(0, "")

    def make() -> FakeSandbox:
        box = FakeSandbox({}, (64, 48))
        box.otherwise, box.image_digest = listing, digest
        return box

    return FakeSandboxes(make)


def lab_of(path: Path, skill: Skill = shell_helps, sandboxes: FakeSandboxes | None = None, **changes: object) -> Lab:
    store = Store.create(path, config(**changes))
    library = Library(path / "library")
    return Lab(store, library, sandboxes or machines(), [ReadsTheReply()], Player(skill), LocalExecutor(2))


def promoted(path: Path, **changes: object) -> Lab:
    """A run in which beta1 has replaced alpha, on record: 17 of 20 fresh attempts at 10 tasks."""
    lab = lab_of(path, **changes)
    for name in ("alpha", "beta1"):
        lab.library.add_seed(name)
    root, child = candidate("alpha", ALPHA, None), candidate("beta1", BETA1, ALPHA)
    lead = decision(1, child, ci(0.5, 0.3, 0.7), teacher=Player.id)
    for record in (root, child, *confirmed(), lead):
        lab.store.append(record)
    return lab


def confirmed() -> list[Scorecard]:
    """The fresh attempts that beta1 was promoted for: three tasks were solved once of twice."""
    return [
        a_card(
            BETA1, number, not (attempt and number < 3), attempt, purpose="confirm", rollout_id=f"r-{number}-{attempt}",
            key=key_of(task, attempt),
        )
        for number, task in enumerate(hashed_tasks("select", 10))
        for attempt in (0, 1)
    ]  # fmt: skip


def key_of(task: Task, attempt: int) -> RolloutKey:
    return RolloutKey(
        purpose="confirm", harness_id=BETA1, model_id=Player.id, task_id=task.id, task_hash=task.hash, split="select",
        attempt=attempt, seed=0,
    )  # fmt: skip


def fields(found: Sequence[object]) -> list[str]:
    return [str(getattr(drift, "field", "")) for drift in found]
