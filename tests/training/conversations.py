"""Made-up rollouts whose requests are the real ones of a harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolver.context import request_for, request_sha256, summary_of
from evolver.records import Completion, Observed, Rollout, RolloutKey, Scorecard, ToolCall, ToolResult, Turn, Usage
from harnesses.harness import Harness
from harnesses.tree import read_tree, seed_path

TASK = "files.rename-0001"
INSTRUCTION = "Rename the file a.txt on the Desktop to b.txt."
USAGE = Usage(input_tokens=1, output_tokens=1, counted_by="estimate")


@dataclass(frozen=True)
class Said:
    """One turn as a test wants it. `command` None ends the rollout."""

    text: str = "Rename it."
    command: str | None = "mv a.txt b.txt"
    result: str = "ok"
    slip: str | None = None
    invalid: str | None = None
    reasoning: str = ""


LISTING = Said(text="Look around.", command="ls ~/Desktop", result="a.txt")
END = Said(text="Everything is done.", command=None, result="ended")
USUAL = (LISTING, Said(), END)


def beta1() -> Harness:
    return read_tree(Path(seed_path("beta1")))


def call(said: Said) -> ToolCall:
    if said.command is None:
        return ToolCall(id="call_0", name="computer_use", arguments={"action": "terminate", "status": "success"})
    return ToolCall(id="call_0", name="bash", arguments={"command": said.command})


def completion(said: Said) -> Completion:
    calls = () if said.invalid else (call(said),)
    return Completion(text=said.text, reasoning=said.reasoning, calls=calls, invalid=said.invalid, usage=USAGE)


def rollout(
    turns: Sequence[Said] = USUAL, harness: Harness | None = None, name: str = "r-0", instruction: str = INSTRUCTION
) -> Rollout:
    harness = harness or beta1()
    log: list[Turn] = []
    for index, said in enumerate(turns):
        messages, tools = request_for(harness, instruction, Observed(), log)
        reply = completion(said)
        results = () if said.invalid else (ToolResult(call_id="call_0", text=said.result),)
        log.append(
            Turn(
                index=index, request_sha256=request_sha256(messages, tools), completion=reply,
                summary=summary_of(reply), results=results, channel="terminal", slip=said.slip, model_s=0.0,
                tools_s=0.0,
            )
        )  # fmt: skip
    return Rollout(
        id=name, key=key(harness), loaded_harness_id=harness.id, image_digest="", apps=("shell",), category="os",
        turns=tuple(log), stop_reason="finished", started_at=0.0, finished_at=1.0,
    )  # fmt: skip


def key(harness: Harness) -> RolloutKey:
    return RolloutKey(
        purpose="train", harness_id=harness.id, model_id="demonstrator", task_id=TASK, task_hash="h", split="train",
        attempt=0, seed=0,
    )  # fmt: skip


def card(of: Rollout, success: bool | None = True) -> Scorecard:
    return Scorecard(
        rollout_id=of.id, key=of.key, checker_hash="c", scores=(), success=success,
        rubric=None if success is None else float(success), channel="terminal", tokens=2, cost_usd=0.0, seconds=1.0,
    )  # fmt: skip
