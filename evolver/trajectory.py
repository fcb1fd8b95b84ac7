"""One rollout as an ATIF trajectory (Agent Trajectory Interchange Format 1.8, by PyPI `atif`) with its screenshots.

System prompt and task come from the first request as it was sent; then each turn is one agent step. What ATIF has no
field for (channel, slip, settled, who counted) is under `extra`; what is unknown is null.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from evolver.chat import FRAME, Body
from evolver.disk import on_disk
from evolver.errors import UsageError
from evolver.records import Completion, Observed, Rollout, Scorecard, Turn
from evolver.sent import bodies
from evolver.store import Store
from evolver.sums import total

if TYPE_CHECKING:
    import atif

FORMAT = "ATIF-v1.8"
FILE, FRAMES = "trajectory.json", "frames"


def export(store: Store, rollout: Rollout, card: Scorecard | None, out: Path) -> Path:
    """Writes `out`/trajectory.json and `out`/frames/<id>.png; returns the former.

    Raises UsageError when `out` holds something already, or when a frame of the rollout is gone.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty: choose another folder")
    made = trajectory(store, rollout, card)
    with on_disk(out):
        (out / FRAMES).mkdir(parents=True, exist_ok=True)
        for observed in (rollout.first, *(turn.observed for turn in rollout.turns)):
            if observed.image is not None:
                (out / _path(observed.image.frame_id)).write_bytes(store.blob(observed.image.frame_id))
        (out / FILE).write_text(made.model_dump_json(exclude_unset=True, indent=1) + "\n")
    return out / FILE


def trajectory(store: Store, rollout: Rollout, card: Scorecard | None) -> atif.Trajectory:
    """The trajectory; its frames are named by their path below the file's own folder."""
    import atif

    sent = [] if rollout.requests_sha256 is None else bodies(store.blob(rollout.requests_sha256))
    steps = _opening(sent[0], rollout) if sent else []
    steps += [_step(turn, len(steps) + number) for number, turn in enumerate(rollout.turns, 1)]
    tools = sent[0].get("tools") if sent else None
    key = rollout.key
    return atif.Trajectory(
        schema_version=FORMAT,
        session_id=store.run_id,
        trajectory_id=rollout.id,
        agent=atif.Agent(
            name="harness-evolver",
            version=version("harness-evolver"),
            model_name=key.model_id,
            tool_definitions=[t for t in tools if isinstance(t, dict)] if isinstance(tools, list) else None,
            extra={"harness_id": rollout.loaded_harness_id, "image_digest": rollout.image_digest},
        ),
        steps=steps,
        final_metrics=_totals(rollout, card, len(steps)),
        extra={
            "key": key.model_dump(mode="json"),
            "retry_of": rollout.retry_of,
            "stop_reason": rollout.stop_reason,
            "error": rollout.error and rollout.error.model_dump(mode="json"),
            "scorecard": card and card.model_dump(mode="json", exclude={"key"}),
        },
    )


def _opening(body: Body, rollout: Rollout) -> list[atif.Step]:
    """System prompt and task, as the first call carried them."""
    import atif

    messages = body["messages"]
    steps: list[atif.Step] = []
    for message in messages if isinstance(messages, list) else []:
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(message, dict) or role not in ("system", "user"):
            continue
        steps.append(
            atif.Step(
                step_id=len(steps) + 1,
                source="system" if role == "system" else "user",
                timestamp=datetime.fromtimestamp(rollout.started_at, UTC).isoformat(),
                message=_content(message.get("content")),
            )
        )
    return steps


def _content(content: JsonValue) -> str | list[atif.ContentPart]:
    if not isinstance(content, list):
        return str(content)
    parts = []
    for part in content:
        holder = part.get("image_url") if isinstance(part, dict) else None
        url = holder.get("url") if isinstance(holder, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        parts.append(_picture(url.removeprefix(FRAME)) if isinstance(url, str) else _text(str(text)))
    return parts


def _step(turn: Turn, number: int) -> atif.Step:
    import atif

    reply = turn.completion
    by_a_model = reply.usage.counted_by != "estimate"  # the demonstrator is a script: ATIF wants no metrics of it
    fields: dict[str, object] = {"reasoning_content": reply.reasoning} if reply.reasoning and by_a_model else {}
    if by_a_model:
        fields["metrics"] = _metrics(reply)
    if reply.calls:
        fields["tool_calls"] = [
            atif.ToolCall(tool_call_id=_call_id(turn, c.id), function_name=c.name, arguments=c.arguments)
            for c in reply.calls
        ]
    results = _results(turn)
    if results:
        fields["observation"] = atif.Observation(results=results)
    told = ("summary", "channel", "slip", "request_sha256", "request_tokens", "model_s", "tools_s")
    extra = turn.model_dump(mode="json", include=set(told)) | {
        "settled": turn.observed.settled,
        "finish_reason": reply.finish_reason,
        "invalid": reply.invalid,
    }
    return atif.Step.model_validate(
        {"step_id": number, "source": "agent", "message": reply.text, "extra": extra}
        | {"llm_call_count": 1 if by_a_model else 0}
        | fields
    )


def _metrics(reply: Completion) -> atif.Metrics:
    import atif

    usage = reply.usage
    return atif.Metrics(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        extra={"reasoning_tokens": usage.reasoning_tokens, "counted_by": usage.counted_by},
    )


def _results(turn: Turn) -> list[atif.ObservationResult]:
    import atif

    found = [
        atif.ObservationResult(
            source_call_id=_call_id(turn, result.call_id),
            content=result.text,
            extra={"is_error": result.is_error, "seconds": result.seconds},
        )
        for result in turn.results
    ]
    seen = _seen(turn.observed)
    if seen:
        found.append(atif.ObservationResult(content=seen))
    return found


def _seen(observed: Observed) -> list[atif.ContentPart]:
    parts = [_text(observed.text)] if observed.text else []
    return [*parts, _picture(observed.image.frame_id)] if observed.image else parts


def _call_id(turn: Turn, given: str) -> str:
    """Unique in the whole trajectory; models number their calls anew each turn."""
    return f"turn{turn.index}-{given}"


def _text(text: str) -> atif.ContentPart:
    import atif

    return atif.ContentPart(type="text", text=text)


def _picture(frame_id: str) -> atif.ContentPart:
    import atif

    return atif.ContentPart(type="image", source=atif.ImageSource(media_type="image/png", path=_path(frame_id)))


def _path(frame_id: str) -> str:
    return f"{FRAMES}/{frame_id[:16]}.png"


def _totals(rollout: Rollout, card: Scorecard | None, steps: int) -> atif.FinalMetrics:
    import atif

    usages = [turn.completion.usage for turn in rollout.turns]
    return atif.FinalMetrics(
        total_prompt_tokens=total(usage.input_tokens for usage in usages),
        total_completion_tokens=total(usage.output_tokens for usage in usages),
        total_cached_tokens=total(usage.cached_tokens for usage in usages),
        total_cost_usd=None if card is None else card.cost_usd,
        total_steps=steps,
        extra={
            "success": card and card.success,
            "rubric": card and card.rubric,
            "seconds": rollout.finished_at - rollout.started_at,
        },
    )
