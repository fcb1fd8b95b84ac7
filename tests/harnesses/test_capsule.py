"""The capsule's record: each of its fields is part of its id, and a drift is named by its path."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pydantic import JsonValue, ValidationError

from harnesses.capsule import Capsule, Drift, differences

SHA, GIT = "0" * 64, "0" * 40
INTERVAL: JsonValue = {"point": 0.5, "low": 0.4, "high": 0.6, "n": 10, "method": "Wilson"}
MODEL: JsonValue = {
    "provider": "openai", "id": "gpt-x", "slip_rate": 0.5, "weights": {"w": SHA}, "endpoint": "http://a",
    "key_name": "A_KEY", "timeout_s": 1.5, "retry_for_s": 2.5, "first_contact_s": 3.5, "concurrency": 4,
    "image_tokens": "auto", "dialect": {"limit": "max_tokens", "leave_out": ["top_p"]},
}  # fmt: skip
IMAGE: JsonValue = {
    "digest": "sha256:1", "deb": {"bash": "5.2"}, "pip": {"lxml": "6.1"}, "graders": {"odfpy": "1.4"},
}  # fmt: skip
WHOLE: dict[str, JsonValue] = {
    "version": 1,
    "harness": {"id": GIT, "files": {"prompt/system.md": SHA}, "executable": ["files/run"]},
    "teacher": {
        "model": MODEL, "temperature": 0.5, "top_p": 0.5, "max_tokens": 100, "protocol": "xml",
        "first_request_sha256": SHA,
    },
    "judge": {"model": MODEL, "signature": "judge:m", "prompt_sha256": SHA, "settings": {"sees_screen": True}},
    "machine": {
        "backend": "docker", "platform": "x86_64", "screen": [640, 480], "network": "allowlist", "allowlist": ["a.org"],
        "image": IMAGE, "grading": IMAGE,
    },
    "tasks": {"name": "select", "n": 10, "sha256": SHA, "rubrics_sha256": SHA, "checks": {"files.py": SHA}},
    "held_out": {SHA: SHA},
    "program": {
        "python": "3.11.7", "packages": {"openai": "3.1"}, "constraints_sha256": SHA, "source": {"evolver/x.py": SHA},
    },
    "prices": {"gpt-x": {"input": 1.5, "output": 2.5}},
    "prices_on": "2026-01-02",
    "seed": 7,
    "settings": {"sandbox": {"ttl_s": 1800.0}},
    "retry": {"tries": 3, "judge_asks": 2, "window_wait_s": 30.0},
    "evidence": {
        "run_id": "r", "decision_id": "d", "candidate_id": "c", "incumbent": GIT, "effect": INTERVAL, "p_value": 0.01,
        "success": INTERVAL, "attempts": 2, "tokens_per_solved": 10.5, "incumbent_tokens_per_solved": 20.5,
    },
    "files": {"config.toml": SHA},
}  # fmt: skip
FIXED = {("version",)}  # there is one
OTHERS = {
    "docker": "local",
    "xml": "native_tools",
    "openai": "student",
    "allowlist": "none",
    "2026-01-02": "2026-01-03",
}


def leaves(value: JsonValue, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JsonValue]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def other(value: JsonValue) -> JsonValue:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2
        case str():
            hexadecimal = set(value) == {"0"}
            return OTHERS.get(value, "1" + value[1:] if hexadecimal else value + "x")
        case list():
            return [other(value[0]), *value[1:]]
    raise AssertionError(f"no other value is known for {value!r}")


def changed(path: tuple[str, ...], value: JsonValue) -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = json.loads(json.dumps(WHOLE))
    place = made
    for key in path[:-1]:
        inner = place[key]
        assert isinstance(inner, dict)
        place = inner
    place[path[-1]] = value
    return made


def capsule(fields: dict[str, JsonValue]) -> Capsule:
    return Capsule.model_validate_json(json.dumps(fields))


@pytest.mark.parametrize(("path", "value"), [p for p in leaves(WHOLE) if p[0] not in FIXED], ids=lambda x: str(x)[:60])
def test_g28_every_field_is_part_of_the_id_and_is_named_when_it_differs(
    path: tuple[str, ...], value: JsonValue
) -> None:
    pinned, found = capsule(WHOLE), capsule(changed(path, other(value)))
    assert pinned.id != found.id
    assert differences(pinned, found) == [Drift(field=".".join(path), pinned=value, found=other(value))]


def test_the_example_leaves_no_field_out() -> None:
    """So the test above is about all of them."""
    read = capsule(WHOLE).model_dump(mode="json")
    assert {path for path, _ in leaves(read)} == {path for path, _ in leaves(WHOLE)}


def test_the_id_knows_no_order_of_keys_and_survives_the_disk() -> None:
    one = capsule(WHOLE)
    backwards = Capsule.model_validate(dict(reversed(WHOLE.items())), strict=False)
    assert one.id == backwards.id == Capsule.model_validate_json(one.model_dump_json(indent=1)).id
    assert len(one.id) == 64 and differences(one, backwards) == []


@pytest.mark.parametrize(
    "path", [(), ("teacher",), ("teacher", "model"), ("machine", "image"), ("evidence",), ("retry",)]
)
def test_unknown_fields_are_refused_at_every_level(path: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="api_key"):
        capsule(changed((*path, "api_key"), "sk-1"))


def test_a_difference_says_what_was_there_and_what_is() -> None:
    without = capsule(changed(("machine", "image", "deb"), {}))
    [gone] = differences(capsule(WHOLE), without)
    [new] = differences(without, capsule(WHOLE))
    assert str(gone) == "machine.image.deb.bash: 5.2 → (not there)"
    assert str(new) == "machine.image.deb.bash: (not there) → 5.2"
    [none] = differences(capsule(changed(("judge",), None)), capsule(WHOLE))
    assert none.field == "judge" and none.pinned is None
