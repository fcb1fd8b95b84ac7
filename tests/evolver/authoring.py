"""A scripted author behind a chat-completions endpoint, and runs small enough to be raced in real sandboxes."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from devset.families import families
from devset.task import Split, Task
from evolver.authors.llm import LLMAuthor
from evolver.authors.make import make_authors
from evolver.config import Caps, DemonstratorSpec, OpenAISpec, RunConfig
from evolver.config import LLMAuthor as LLMConfig
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.models import make_model
from evolver.protocols import Evidence
from evolver.records import Candidate, FailedProposal, Manifest
from evolver.sandboxes import open_backend
from evolver.store import Store
from harnesses.edit import with_changes
from harnesses.library import Library
from harnesses.tree import Tree, harness_from_files, read_tree, seed_path, write_tree
from tests.evolver.endpoint_server import Reply, calls, chat

AUTHOR = "author-model"
KINDS = [pytest.param("docker", marks=pytest.mark.docker), "local"]
FAMILIES = ("files.count", "text.write", "csv.sum", "files.rename")


def tasks_of(split: Split, limit: int | None = None) -> list[Task]:
    """A few tasks that a shell solves."""
    seed = {"dev": 1_000, "select": 2_000}.get(split, 3_000)
    made = [families()[name].instance(seed + n) for n in range(2) for name in FAMILIES]
    return [task.model_copy(update={"split": split}) for task in made[:limit]]


DEV = tasks_of("dev")
FLIPPED = DEV[0].id
MANIFEST: dict[str, object] = {
    "why": "files are found sooner",
    "edits": [
        {
            "what": "a tool that lists files",
            "predicted_flips": [{"task_id": FLIPPED, "probability": 0.6}],
            "predicted_regressions": [],
        }
    ],
    "expected_token_change": -0.1,
    "expected_channel_change": {},
}
ADDS_A_TOOL = """cd ~/harness && mkdir files && cat > files/list.sh <<'END'
#!/bin/sh
find . -type f | head -100
END
chmod +x files/list.sh
cat > tools/list_files.toml <<'END'
kind = "program"
description = "Lists the files below the home."
entry = "files/list.sh"
[parameters]
type = "object"
properties = {}
END"""
NO_FLIPS = {"what": "fewer", "predicted_flips": [], "predicted_regressions": []}
REMOVES_A_PACKAGE = """cd ~/harness && sed -i 's/"openpyxl", //' environment.toml"""


def failed(store: Store) -> FailedProposal:
    [record] = store.all(FailedProposal)
    return record


def terminal_tree() -> Tree:
    """beta1 without a screen: its attempts take a tenth of the time."""
    beta1 = read_tree(seed_path("beta1"))
    changes = {"tools.computer_use": False, "environment.image": "terminal", "scaffold.observation.image": False}
    return with_changes(beta1, {**changes, "scaffold.observation.text": "none", "prompt.system": "Use the shell.\n"})


def says(manifest: object = MANIFEST) -> str:
    """The command that writes the manifest."""
    return f"cat > ~/manifest.json <<'END'\n{json.dumps(manifest)}\nEND"


def runs(*commands: str, usage: object = None) -> Reply:
    """A turn that runs these commands, one call each."""
    return chat(calls(*(("bash", json.dumps({"command": c})) for c in commands)), finish="tool_calls", usage=usage)


DONE = chat({"content": "Done."})


def config(url: str, **changes: object) -> RunConfig:
    model = OpenAISpec(kind="openai", model=AUTHOR, base_url=url, timeout_s=20, retry_for_s=0.2, first_contact_s=0.2)
    author = LLMConfig(kind="llm", model=model, **{k: changes.pop(k) for k in ("n", "max_repairs") if k in changes})
    plain = RunConfig(
        root="beta1", teacher=DemonstratorSpec(slip_rate=0.0), authors=(author,), caps=Caps(),
        prices={AUTHOR: {"input": 1.0, "output": 1.0}},
    )  # fmt: skip
    return RunConfig.model_validate({**dict(plain), **changes})


class Desk:
    """A run whose root is the terminal harness, and its one author, over real sandboxes."""

    def __init__(self, lab: Lab, author: LLMAuthor) -> None:
        self.lab, self.author, self.store = lab, author, lab.store
        self.root = lab.library.names()["root"]

    def evidence(self, summary: str = "What is known.") -> Evidence:
        return Evidence(self.root, 0, summary, {"tasks.md": b"| task |\n"})


@asynccontextmanager
async def desk(path: Path, settings: RunConfig, kind: Literal["docker", "local"] = "local") -> AsyncIterator[Desk]:
    if kind == "local" and shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap (apt-get install bubblewrap)")
    machines = open_backend(kind, spares=0)
    store, library = Store.create(path, settings), Library(path / "library")
    root = library.add(terminal_tree(), name="root")
    if not store.all(Candidate):
        record = Candidate(
            id=f"cand-{root[:12]}", name="root", harness_id=root, parents=(), author="root", components=(), changes=(),
            manifest=Manifest(why="root"), proposed_at=0.0,
        )  # fmt: skip
        store.append(record)
    lab = Lab(store, library, machines, [], make_model(settings.teacher), LocalExecutor(1))
    [author] = make_authors(lab, DEV, tasks_of("select"))
    assert isinstance(author, LLMAuthor)
    try:
        yield Desk(lab, author)
    finally:
        await machines.aclose()


def root_folder(path: Path) -> Path:
    write_tree(harness_from_files(terminal_tree()), path)
    return path


def first_user_message(request: dict) -> str:
    content = next(m["content"] for m in request["messages"] if m["role"] == "user")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
