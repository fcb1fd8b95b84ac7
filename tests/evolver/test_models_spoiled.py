"""Tries that got no reply and may be billed all the same are noted, and how an endpoint wants its requests worded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from evolver.chat import Dialect, bytes_of
from evolver.errors import ProviderFailed, UsageError
from evolver.protocols import UNKNOWN_USAGE, Request
from evolver.records import LedgerEntry, Usage
from evolver.sent import bodies
from tests.evolver.endpoint_server import Endpoint, Reply, chat, serving
from tests.evolver.played import ending, played
from tests.evolver.test_models_openai import BUSY, OK, model, request

REASONING = {"limit": "max_completion_tokens", "leave_out": ["temperature", "top_p"]}


def slow(seconds: float) -> Reply:
    made = chat({"content": "late"})
    made.delay_s = seconds
    return made


async def asked(endpoint: Endpoint, **changes: object) -> Request:
    """The request of a call that is answered in the end."""
    one = request()
    assert (await model(endpoint.url, **changes).complete(one)).text == "Done."
    return one


async def test_e13_a_try_that_timed_out_may_be_billed_also_where_no_reply_comes_at_all() -> None:
    with serving(slow(1.5), OK) as endpoint:
        assert (await asked(endpoint, timeout_s=0.5, retry_for_s=5)).spoiled == [UNKNOWN_USAGE]
    with serving(slow(1.5)) as endpoint:
        never = request()
        with pytest.raises(ProviderFailed):
            await model(endpoint.url, timeout_s=0.3, retry_for_s=0.2).complete(never)
    assert len(endpoint.requests) == len(never.spoiled) and set(never.spoiled) == {UNKNOWN_USAGE}


async def test_e13_a_call_that_its_caller_gives_up_may_be_billed() -> None:
    with serving(slow(1.5)) as endpoint:
        given_up = request()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(model(endpoint.url).complete(given_up), 0.5)
    assert given_up.spoiled == [UNKNOWN_USAGE]


STATED = Usage(input_tokens=9, output_tokens=3, counted_by="provider")


@pytest.mark.parametrize(
    ("trouble", "billed"),
    [
        (BUSY, []),
        (Reply(status=500, body=b"oops"), []),
        (Reply(body={"error": {"message": "upstream"}}), []),
        (Reply(body=b"<html>gateway</html>", headers={"content-type": "text/html"}), []),
        (Reply(body={"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}), [STATED]),
        (Reply(body={"error": "no", "usage": {"prompt_tokens": 9, "completion_tokens": 3}}), [STATED]),
        (Reply(body={"choices": []}), [UNKNOWN_USAGE]),
        (Reply(body=b'{"choices": [{"mess'), [UNKNOWN_USAGE]),
        (Reply(gone=True), [UNKNOWN_USAGE]),
    ],
)
async def test_e13_what_comes_in_place_of_a_reply_is_billed_as_it_says_or_unknown_or_not(
    trouble: Reply, billed: list[Usage]
) -> None:
    with serving(trouble, OK) as endpoint:
        assert (await asked(endpoint)).spoiled == billed


async def test_an_endpoint_that_nobody_reached_bills_nothing() -> None:
    one = request()
    with pytest.raises(UsageError, match="does not answer"):
        await model("http://127.0.0.1:9/v1", first_contact_s=0.2).complete(one)
    assert one.spoiled == []


async def test_reasoning_models_get_the_limit_by_its_other_name_and_no_sampling() -> None:
    with serving(OK) as endpoint:
        plain = await asked(endpoint)
        await asked(endpoint, dialect=REASONING)
    usual, other = endpoint.requests
    assert usual["max_tokens"] == other["max_completion_tokens"] == plain.sampling.max_tokens
    named = {"temperature", "top_p", "max_tokens"}
    assert named <= usual.keys() and not named & other.keys() and "max_completion_tokens" not in usual
    assert {k: v for k, v in usual.items() if k not in named} == {
        k: v for k, v in other.items() if k != "max_completion_tokens"
    }


async def test_s54_what_is_kept_of_a_call_is_worded_as_it_was_sent(tmp_path: Path) -> None:
    with serving(ending()) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url, dialect=Dialect.model_validate(REASONING))
    kept = bodies(store.blob(rollout.requests_sha256 or ""))
    assert [bytes_of(body, store.blob) for body in kept] == endpoint.raw and "temperature" not in kept[0]


async def test_e13_a_connection_that_breaks_off_is_on_the_ledger_of_its_run(tmp_path: Path) -> None:
    with serving(Reply(gone=True), ending()) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url)
    assert rollout.spoiled == (UNKNOWN_USAGE,) and len(rollout.turns) == 1
    assert [(e.calls, e.spoiled) for e in store.all(LedgerEntry)] == [(1, True), (1, False)]
