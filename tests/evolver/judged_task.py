"""A task that a judge answers for, and a run with a judge behind a local endpoint."""

from __future__ import annotations

import json
from pathlib import Path

from devset.task import Choice, Criterion, Rubric, Task
from evolver.config import RunConfig
from evolver.graders.judge import JudgeGrader
from evolver.models.openai import OpenAIModel
from evolver.records import Completion, Image, Observed, Rollout, ToolCall, ToolResult, Turn, Usage
from evolver.store import Store
from tests.evolver.endpoint_server import Reply, chat
from tests.evolver.graded_task import rollout, task

NEAT = Criterion(
    id="neat",
    description="The letter in a.txt is laid out neatly.",
    grader="judge",
    choices=(
        Choice(label="messy", description="no layout at all", value=0),
        Choice(label="passable", description="readable, with flaws", value=0.5),
        Choice(label="neat", description="laid out as one would expect", value=1),
    ),
)
POLITE = NEAT.model_copy(update={"id": "polite", "description": "The letter is polite.", "required": False})


def judged(*criteria: Criterion, **changes: object) -> Task:
    rubric = Rubric(criteria=criteria or (NEAT, POLITE))
    return task(rubric=rubric, exec_files={"old.txt": b"as given"}, **changes)


def says(**choices: str) -> Reply:
    """The reply of a judge that took these choices (criterion → label)."""
    said = {criterion: {"why": f"I saw {label}.", "choice": label} for criterion, label in choices.items()}
    return chat({"content": json.dumps(said)})


def config(url: str, **changes: object) -> RunConfig:
    spec = {"kind": "openai", "model": "judge-4", "base_url": url, "retry_for_s": 0, "first_contact_s": 0}
    raw = {
        "judge": {"model": spec, **({"min_cases": 1} if "judge" not in changes else {})},
        "prices": {"judge-4": {"input": 1.0, "output": 2.0}},
        **changes,
    }
    return RunConfig.model_validate(raw)


def a_judge(path: Path, url: str, **changes: object) -> tuple[JudgeGrader, Store]:
    store = Store.create(path, config(url, **changes))
    assert store.config.judge is not None
    return JudgeGrader(store.config.judge, OpenAIModel(store.config.judge.model), store), store


def turn(index: int, text: str, command: str, result: str, image: Image | None = None) -> Turn:
    completion = Completion(
        text=text,
        calls=(ToolCall(id="c", name="bash", arguments={"command": command}),),
        usage=Usage(input_tokens=1, output_tokens=1, counted_by="estimate"),
    )
    return Turn(
        index=index, request_sha256="r", completion=completion, summary=text,
        results=(ToolResult(call_id="c", text=result),), observed=Observed(image=image), channel="terminal",
        model_s=0.0, tools_s=0.0,
    )  # fmt: skip


def played(of: Task, *turns: Turn) -> Rollout:
    return rollout(of).model_copy(update={"turns": turns})
