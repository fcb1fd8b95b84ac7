"""Runs in which two harnesses play the same tasks, written record by record, for tests of Compare and of many runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evolver.config import RunConfig
from evolver.records import Candidate, Manifest, Rollout, RolloutKey, Score, Scorecard
from evolver.store import Store
from harnesses.library import Library
from tests.dashboards.synthetic import turn

TEACHER = "demonstrator"
Outcomes = Mapping[tuple[str, int], bool | None]  # (task, attempt) → solved, failed, unscored


@dataclass(frozen=True)
class Way:
    """How attempts are played, where it is not as usual."""

    model: str = TEACHER
    task_hash: str = "version-1"
    purpose: str = "race"
    split: str = "dev"
    app: str = "calc"
    tokens: int = 1_000


def make(path: Path, *names: str, seed: int = 0) -> tuple[Store, dict[str, str]]:
    """A run whose library holds seed harnesses, each proposed on top of the one before it."""
    store = Store.create(path, RunConfig(seed=seed))
    library = Library(path / "library")
    ids = {name: library.add_seed(name) for name in names}
    library.close()
    for number, name in enumerate(names):
        store.append(
            Candidate(
                id=f"c-{name}", name=name, harness_id=ids[name], parents=(ids[names[number - 1]],) if number else (),
                author="human", components=("T",) if number else (), changes=(), manifest=Manifest(why=""),
                proposed_at=float(number),
            )
        )  # fmt: skip
    return store, ids


def play(store: Store, harness: str, outcomes: Outcomes, way: Way | None = None) -> None:
    """One rollout with its card for each outcome."""
    how = way or Way()
    for number, ((task, attempt), solved) in enumerate(outcomes.items()):
        key = RolloutKey(
            purpose=how.purpose, harness_id=harness, model_id=how.model, task_id=task, task_hash=how.task_hash,
            split=how.split, attempt=attempt, seed=0,
        )  # fmt: skip
        name = f"r-{harness[-6:]}-{how.model}-{how.purpose}-{task}-{attempt}"
        store.write(
            Rollout(
                id=name, key=key, loaded_harness_id=harness, image_digest="sha256:0", apps=(how.app,),
                category="office", turns=(turn(0, 10),), stop_reason="finished", started_at=100.0 + number,
                finished_at=101.0 + number,
            )
        )  # fmt: skip
        value = None if solved is None else float(solved)
        score = Score(criterion="right", weight=1, required=True, value=value, explanation="", grader="program")
        store.write(
            Scorecard(
                rollout_id=name, key=key, checker_hash="check-1", scores=(score,), success=solved, rubric=value,
                channel="gui", tokens=how.tokens, cost_usd=0.0, seconds=1.0,
            )
        )  # fmt: skip


def outcomes(solved: int, tasks: int, *, attempts: int = 1, first: int = 0) -> Outcomes:
    """The first `solved` of `tasks` tasks (from number `first` on) are solved in every attempt."""
    return {(f"task-{first + n:03d}", a): n < solved for n in range(tasks) for a in range(attempts)}
