"""Keys are masked where text enters an attempt, so that no record, trajectory or error ever holds one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolver.errors import UsageError
from evolver.records import Scorecard
from evolver.redact import MASK, keys_in, redacted, redacted_record
from evolver.sent import bodies
from evolver.testing import reply
from evolver.trajectory import export
from tests.evolver.endpoint_server import Reply, calls, chat, serving
from tests.evolver.played import KEY_ENV, ending, played

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def key_in_the_environment() -> Iterator[None]:
    os.environ[KEY_ENV] = KEY
    yield
    del os.environ[KEY_ENV]


def everything(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


async def test_s56_a_key_that_the_model_and_a_tool_say_is_in_no_record_request_or_trajectory(tmp_path: Path) -> None:
    typed = calls(("bash", f'{{"command": "echo {KEY}", "{KEY}": ["{KEY}"]}}'), content=f"The key is {KEY}.")
    broken = calls(("bash", f'{{"command": "{KEY}'), content=None)
    replies = [
        chat(typed | {"reasoning_content": f"I know {KEY}."}, finish="tool_calls"),
        chat(broken, finish="tool_calls"),
        ending(),
    ]
    with serving(*replies) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url, f"{KEY}\n")
    export(store, rollout, store.get(Scorecard, rollout.id), tmp_path / "out")
    turn = rollout.turns[0]
    assert turn.completion.text == f"The key is {MASK}." and turn.completion.calls[0].arguments == {
        "command": f"echo {MASK}",
        MASK: [MASK],
    }
    assert turn.results[0].text == MASK and MASK in (rollout.turns[1].completion.invalid or "")
    assert KEY.encode() not in everything(tmp_path) + b"".join(endpoint.raw)
    assert KEY not in str(bodies(store.blob(rollout.requests_sha256 or "")))


async def test_s56_a_key_that_an_endpoint_echoes_is_in_no_error(tmp_path: Path) -> None:
    echo = Reply(status=400, body={"error": {"message": f"bad request by {KEY}"}})
    with serving(
        chat(calls(("bash", '{"command": "ls"}')), finish="tool_calls"), echo, chat({"content": "391"})
    ) as endpoint:
        _, rollout = await played(tmp_path, endpoint.url)
    assert rollout.error is not None and f"by {MASK}" in rollout.error.message
    with serving(Reply(status=401, body={"detail": f"who is {KEY}?"})) as endpoint:  # noqa: SIM117
        with pytest.raises(UsageError, match=r"who is \[key\]\?") as refused:
            await played(tmp_path / "other", endpoint.url)
    assert KEY not in str(refused.value) and KEY.encode() not in everything(tmp_path)


def test_only_what_can_be_a_key_is_masked_and_the_longest_first() -> None:
    os.environ["EVOLVER_TEST_OTHER"] = f"{KEY}-and-more"
    os.environ["EVOLVER_TEST_SHORT"] = "none"
    try:
        keys = keys_in(("EVOLVER_TEST_OTHER", KEY_ENV, "EVOLVER_TEST_SHORT", "EVOLVER_NO_SUCH"))
    finally:
        del os.environ["EVOLVER_TEST_OTHER"], os.environ["EVOLVER_TEST_SHORT"]
    assert keys == (f"{KEY}-and-more", KEY)
    assert redacted(f"none {KEY}-and-more {KEY}", keys) == f"none {MASK} {MASK}"
    plain = reply("Look.", ("bash", {"command": "ls"}))
    assert redacted_record(plain, keys) is plain and redacted_record(plain, ()) is plain
