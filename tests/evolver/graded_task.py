"""A small task and a rollout of it, for tests of what grades."""

from __future__ import annotations

from devset.task import Criterion, Oracle, Rubric, Task, TerminalStep, task_hash
from evolver.records import Rollout, RolloutKey

LINES = """
import json, sys
from pathlib import Path

found = Path(sys.argv[1], "a.txt")
value = 1.0 if found.exists() and found.read_text() == Path(sys.argv[2], "answer.txt").read_text() else 0.0
print(json.dumps({"done": {"value": value, "explanation": "compared"}, "kept": {"value": 1, "explanation": "yes"}}))
"""


def task(check: str = LINES, **changes: object) -> Task:
    made = Task.model_validate(
        {
            "id": "right-1",
            "hash": "",
            "family": "right",
            "instruction": "Write right into a.txt.",
            "category": "os",
            "apps": ("shell",),
            "channels": frozenset({"terminal"}),
            "rubric": Rubric(
                criteria=(
                    Criterion(id="done", description="a.txt says right", weight=3),
                    Criterion(id="kept", description="the home is there", required=False),
                )
            ),
            "gt_files": {"answer.txt": b"right"},
            "check": check,
            "oracle": Oracle(terminal=(TerminalStep(summary="Write it.", command="printf right > a.txt"),)),
            **changes,
        }
    )
    return made.model_copy(update={"hash": task_hash(made)})


def rollout(of: Task) -> Rollout:
    key = RolloutKey(
        purpose="adhoc", harness_id="h", model_id="m", task_id=of.id, task_hash=of.hash, split=None, attempt=0, seed=0
    )
    return Rollout(
        id="r-1", key=key, loaded_harness_id="h", image_digest="d", apps=of.apps, category=of.category, turns=(),
        stop_reason="finished", started_at=0.0, finished_at=1.0,
    )  # fmt: skip
