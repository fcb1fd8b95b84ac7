"""From what a round is made of to the record that pins it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from devset.task import Task
from evolver.capsules.program import CHECKS, ROOT, folder_digests, program_pin, sha256
from evolver.chat import PLAIN, Dialect, bytes_of
from evolver.config import DemonstratorSpec, JudgeConfig, ModelSpec, OpenAISpec, RunConfig, StudentSpec
from evolver.context import Context
from evolver.graders.judge import ASKS, PROMPT, signature_of
from evolver.lab import TRIES
from evolver.models.openai import DEFAULT_URL
from evolver.protocols import Request
from evolver.records import Observed
from evolver.rollout import WINDOW_WAIT_S
from evolver.score import tasks_hash
from harnesses.capsule import (
    Capsule,
    Digests,
    EvidencePin,
    HarnessPin,
    ImagePin,
    JudgePin,
    MachinePin,
    ModelPin,
    PriceList,
    ProgramPin,
    RetryPin,
    TaskList,
    TaskSetPin,
    TeacherPin,
    canonical,
)
from harnesses.harness import Harness
from harnesses.tree import Tree, tree_id

INSTRUCTION = "(the instruction of a task)"  # of the request whose bytes are pinned
APART = ("seed", "teacher", "judge")  # settings that have fields of their own


@dataclass(frozen=True)
class Contents:
    """What a capsule is made of: `settings` is its config.toml, `config` the same with the prices, checked.

    `tasks` are those of `task_list`, in its order; `files` are the digests of the capsule's own files. `grading` is the
    image that checks run on; absent, it is that of the attempts. `held_out` is as in the lock.
    """

    harness: Harness
    settings: dict[str, JsonValue]
    config: RunConfig
    task_list: TaskList
    tasks: Sequence[Task]
    prices: PriceList
    evidence: EvidencePin
    image: ImagePin
    files: Digests
    grading: ImagePin | None = None
    held_out: Digests = field(default_factory=dict)


def pinned(contents: Contents) -> Capsule:
    """The capsule of these contents in this program, as both are now."""
    config, harness = contents.config, contents.harness
    return Capsule(
        harness=harness_pin(Tree(harness.files, harness.executable)),
        teacher=teacher_pin(config.teacher, harness),
        judge=None if config.judge is None else judge_pin(config.judge),
        machine=machine_pin(config, harness, (contents.image, contents.grading or contents.image)),
        tasks=task_set_pin(contents.task_list.name, contents.tasks),
        held_out=contents.held_out,
        program=program_of(config),
        prices=contents.prices.prices,
        prices_on=contents.prices.prices_on,
        seed=config.seed,
        settings=other_settings(contents.settings),
        retry=retry_pin(),
        evidence=contents.evidence,
        files=contents.files,
    )


def program_of(config: RunConfig | None) -> ProgramPin:
    return program_pin(config is not None and isinstance(config.teacher, StudentSpec))


def retry_pin() -> RetryPin:
    return RetryPin(tries=TRIES, judge_asks=ASKS, window_wait_s=WINDOW_WAIT_S)


def other_settings(settings: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The settings that the capsule has no fields for."""
    return {name: value for name, value in settings.items() if name not in APART}


def harness_pin(tree: Tree) -> HarnessPin:
    return HarnessPin(
        id=tree_id(tree),
        files={path: sha256(tree[path]) for path in sorted(tree)},
        executable=tuple(sorted(tree.executable)),
    )


def teacher_pin(spec: ModelSpec, harness: Harness) -> TeacherPin:
    model, sampling = model_pin(spec), harness.scaffold.sampling
    dialect = spec.dialect if isinstance(spec, OpenAISpec) else PLAIN
    return TeacherPin(
        model=model,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        protocol=harness.scaffold.protocol,
        first_request_sha256=sha256(first_request(harness, model.id, dialect)),
    )


def model_pin(spec: ModelSpec) -> ModelPin:
    match spec:
        case DemonstratorSpec():
            return ModelPin(provider="demonstrator", id=spec.kind, slip_rate=spec.slip_rate)
        case StudentSpec():
            folder = Path(spec.checkpoint)
            return ModelPin(provider="student", id=folder.name, weights=folder_digests(folder, (".",)))
        case OpenAISpec():
            return ModelPin(
                provider="openai",
                id=spec.model,
                endpoint=spec.base_url or DEFAULT_URL,
                key_name=spec.api_key_env,
                timeout_s=spec.timeout_s,
                retry_for_s=spec.retry_for_s,
                first_contact_s=spec.first_contact_s,
                concurrency=spec.concurrency,
                image_tokens=spec.image_tokens,
                dialect=spec.dialect.model_dump(mode="json"),
            )


def first_request(harness: Harness, model_id: str, dialect: Dialect) -> bytes:
    """The bytes of a first request under this harness: system prompt, task and tool schemas as they are sent, for one
    fixed instruction and before any look at the screen."""
    context = Context(harness, INSTRUCTION, Observed(), "qwen2")
    messages, _ = context.messages(())
    scaffold = harness.scaffold
    request = Request(messages, context.tools, scaffold.sampling, 0, protocol=scaffold.protocol, dialect=dialect)
    return bytes_of({"model": model_id, **request.body}, _no_picture)


def _no_picture(frame_id: str) -> bytes:
    raise LookupError(f"a request without a picture names {frame_id}")


def judge_pin(judge: JudgeConfig) -> JudgePin:
    return JudgePin(
        model=model_pin(judge.model),
        signature=signature_of(judge),
        prompt_sha256=sha256(PROMPT.read_bytes()),
        settings=judge.model_dump(mode="json", exclude={"model"}),
    )


def machine_pin(config: RunConfig, harness: Harness, images: tuple[ImagePin, ImagePin]) -> MachinePin:
    """`images` are that of the attempts and that of the checks. Raises ValueError while the back end is not chosen."""
    if config.sandbox.backend == "auto":
        raise ValueError("a capsule names its back end: docker or local, not auto")
    environment = harness.environment
    return MachinePin(
        backend=config.sandbox.backend,
        platform=platform.machine(),
        image=images[0],
        grading=images[1],
        screen=environment.screen if environment.image == "desktop" else None,
        network=environment.network,
        allowlist=environment.allowlist,
    )


def task_set_pin(name: str, tasks: Sequence[Task]) -> TaskSetPin:
    rubrics: JsonValue = {task.id: task.rubric.model_dump(mode="json") for task in tasks}
    return TaskSetPin(
        name=name,
        n=len(tasks),
        sha256=tasks_hash(tasks),
        rubrics_sha256=hashlib.sha256(canonical(rubrics)).hexdigest(),
        checks=folder_digests(ROOT, (CHECKS,)),
    )
