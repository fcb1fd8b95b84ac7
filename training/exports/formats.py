"""Conversations as files of other trainers: columns, tags and loss flags as each of them reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from training.exports.conversations import Called, Conversation, Speech

if TYPE_CHECKING:
    from training.rows import Row

ImagePath = Callable[[str], str]  # frame id → the path that the file names
Write = Callable[[Sequence[Conversation], Path, ImagePath], list[Path]]


def write(name: str, made: Sequence[Conversation], out: Path, image_path: ImagePath) -> list[Path]:
    """Writes the conversations in the format `name` (see FORMATS) into the directory `out`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    return FORMATS[name](made, out, image_path)


def write_tokens(rows: Sequence[Row], out: Path) -> list[Path]:
    """Pre-tokenised rows (`input_ids`, `labels` with -100 outside the loss), for TRL, axolotl or one's own loop.

    Rows of a base that sees have the ids of their pictures, in order, as `frames`.
    """
    out.mkdir(parents=True, exist_ok=True)
    seen = any(row.frames for row in rows)
    records: list[dict[str, JsonValue]] = [
        {"input_ids": list(row.ids), "labels": list(row.labels), "rollout_id": row.rollout_id}
        | ({"frames": list(row.frames)} if seen else {})
        for row in rows
    ]
    return [_parquet(records, out / "tokens.parquet")]


def write_provenance(by: Mapping[tuple[str, int], str], out: Path) -> Path:
    """`annotated.jsonl`: of which turns another model than the teacher wrote the reasoning, and which."""
    path = out / "annotated.jsonl"
    lines = [{"rollout_id": rollout, "turn": turn, "annotator": who} for (rollout, turn), who in sorted(by.items())]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _trl(made: Sequence[Conversation], out: Path, image_path: ImagePath) -> list[Path]:
    """TRL and prime-rl: `prompt`, `completion` (the loss is on it alone), `tools` as a JSON string."""
    records: list[dict[str, JsonValue]] = [
        {
            "prompt": [_openai(speech) for speech in one.messages[:-1]],
            "completion": [_openai(one.messages[-1])],
            "tools": one.tools,
            "images": [image_path(frame) for frame in one.images],
        }
        for one in made
    ]
    return [_parquet(records, out / "train.parquet")]


def _verl(made: Sequence[Conversation], out: Path, image_path: ImagePath) -> list[Path]:
    """verl's multi-turn SFT: `messages` with `<image>` tags and a flag each, `tools` as a JSON string, `images`."""
    records: list[dict[str, JsonValue]] = [
        {
            "messages": [_openai(speech) | {"loss_mask": int(speech.loss)} for speech in one.messages],
            "tools": one.tools,
            "images": [image_path(frame) for frame in one.images],
        }
        for one in made
    ]
    return [_parquet(records, out / "train.parquet")]


def _swift(made: Sequence[Conversation], out: Path, image_path: ImagePath) -> list[Path]:
    """ms-swift: JSON lines; calls are messages of role `tool_call`, and each message of the model has its `loss`."""
    lines = []
    for one in made:
        messages: list[JsonValue] = []
        for speech in one.messages:
            flag: dict[str, JsonValue] = {"loss": speech.loss} if speech.role == "assistant" else {}
            if speech.content or not speech.calls:
                messages.append({"role": speech.role, "content": speech.content} | flag)
            messages += [{"role": "tool_call", "content": _call_text(call)} | flag for call in speech.calls]
        images = [image_path(frame) for frame in one.images]
        lines.append(json.dumps({"tools": one.tools, "messages": messages, "images": images}, ensure_ascii=False))
    path = out / "train.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return [path]


def _llamafactory(made: Sequence[Conversation], out: Path, image_path: ImagePath) -> list[Path]:
    """LLaMA-Factory: ShareGPT rows and the `dataset_info.json` that names their columns.

    It wants sides by turns, so what comes between two replies is one message; train it with `mask_history: true`,
    which learns the last reply alone.
    """
    records = []
    for one in made:
        system, *rest = one.messages
        turns = [_shared(list(side)) for _, side in groupby(rest, key=lambda speech: speech.role == "assistant")]
        images = [image_path(frame) for frame in one.images]
        records.append({"conversations": turns, "system": system.content, "tools": one.tools, "images": images})
    info = {
        "harness": {
            "file_name": "train.json",
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "system": "system", "tools": "tools", "images": "images"},
            "tags": {
                "role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt",
                "observation_tag": "observation", "function_tag": "function_call",
            },
        }
    }  # fmt: skip
    paths = out / "train.json", out / "dataset_info.json"
    for path, body in zip(paths, (records, info), strict=True):
        path.write_text(json.dumps(body, ensure_ascii=False, indent=1))
    return list(paths)


def _shared(side: Sequence[Speech]) -> dict[str, str]:
    text = "\n".join(speech.content for speech in side if speech.content)
    calls = [call for speech in side for call in speech.calls]
    if calls:
        listed = json.dumps([json.loads(_call_text(call)) for call in calls], ensure_ascii=False)
        return {"from": "function_call", "value": f"{text}\n{listed}" if text else listed}
    if side[0].role == "assistant":
        return {"from": "gpt", "value": text}
    return {"from": "observation" if any(speech.role == "tool" for speech in side) else "human", "value": text}


def _openai(speech: Speech) -> dict[str, JsonValue]:
    calls: list[JsonValue] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in speech.calls
    ]
    return {"role": speech.role, "content": speech.content, "tool_calls": calls, "tool_call_id": speech.call_id}


def _call_text(call: Called) -> str:
    return json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}, ensure_ascii=False)


def _parquet(records: Sequence[dict[str, JsonValue]], path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(list(records)), path)
    return path


FORMATS: dict[str, Write] = {"trl": _trl, "verl": _verl, "swift": _swift, "llamafactory": _llamafactory}
