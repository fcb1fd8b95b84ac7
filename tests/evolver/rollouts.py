"""Made-up rollouts, turn by turn."""

from __future__ import annotations

from evolver.records import Channel, Completion, Rollout, RolloutKey, ToolCall, Turn, Usage

KEY = RolloutKey(
    purpose="race", harness_id="b", model_id="m", task_id="dev-0", task_hash="h0", split="dev", attempt=0, seed=0
)


def a_turn(
    channel: Channel = "none",
    calls: tuple[ToolCall, ...] = (),
    text: str = "",
    tokens: tuple[int | None, int] = (90, 10),
) -> Turn:
    usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1], counted_by="tokenizer")
    return Turn(
        index=0, request_sha256="", completion=Completion(text=text, calls=calls, usage=usage), summary="",
        channel=channel, model_s=0.0, tools_s=0.0,
    )  # fmt: skip


def a_rollout(**fields: object) -> Rollout:
    made = {
        "id": "r", "key": KEY, "loaded_harness_id": "b", "image_digest": "d", "apps": ("shell",), "category": "os",
        "turns": (), "stop_reason": "finished", "started_at": 10.0, "finished_at": 15.0,
    }  # fmt: skip
    return Rollout.model_validate(made | fields)
