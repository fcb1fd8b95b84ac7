"""The openai model against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import traceback

import pytest

from evolver.config import OpenAISpec
from evolver.controls import blank_png
from evolver.errors import Blamed, ProviderFailed, UsageError
from evolver.models import make_model
from evolver.models.endpoint import Limiter
from evolver.models.openai import OpenAIModel
from evolver.protocols import Request
from evolver.records import Completion, Image, Message, Text, ToolCall, ToolSpec
from harnesses.harness import Sampling
from tests.evolver.endpoint_server import Reply, calls, chat, serving

KEY = "sk-very-secret-0123456789"
BASH = ToolSpec(
    name="bash",
    description="Runs a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
TREE = ToolSpec(name="a11y_tree", description="Accessibility tree.", parameters={"type": "object", "properties": {}})
OK = chat({"content": "Done."})


@pytest.fixture(autouse=True)
def key_in_the_environment() -> object:
    os.environ["EVOLVER_TEST_KEY"] = KEY
    yield
    del os.environ["EVOLVER_TEST_KEY"]


def model(url: str, **changes: object) -> OpenAIModel:
    spec = {"kind": "openai", "model": "some-model", "base_url": url, "api_key_env": "EVOLVER_TEST_KEY"}
    return OpenAIModel(OpenAISpec.model_validate({**spec, **changes}))


def request(*messages: Message, tools: tuple[ToolSpec, ...] = (BASH, TREE), **changes: object) -> Request:
    asked = messages or (Message(role="user", parts=(Text(text="Do it."),)),)
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=64)
    return Request(messages=asked, tools=tools, sampling=sampling, seed=42, **changes)


async def answer(reply: Reply, **changes: object) -> Completion:
    with serving(reply) as endpoint:
        return await model(endpoint.url).complete(request(**changes))


HISTORY = (
    Message(role="system", parts=(Text(text="Be brief."),)),
    Message(role="user", parts=(Text(text="Look."), Image(frame_id="f1", width=4, height=4))),
    Message(
        role="assistant",
        parts=(Text(text="Listing."),),
        calls=(ToolCall(id="c1", name="bash", arguments={"command": "ls ü"}),),
    ),
    Message(role="tool", call_id="c1", parts=(Text(text="a.txt"),)),
)


async def test_a_request_carries_messages_tools_images_and_sampling() -> None:
    png = blank_png(4, 4)
    with serving(OK) as endpoint:
        await model(endpoint.url).complete(request(*HISTORY, frames={"f1": png}))
    sent = endpoint.requests[0]
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["max_tokens"], sent["seed"]) == (
        "some-model", 0.3, 0.9, 64, 42,
    )  # fmt: skip
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][0]["content"] == "Be brief."
    assert sent["messages"][1]["content"][0] == {"type": "text", "text": "Look."}
    assert sent["messages"][1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    call = sent["messages"][2]["tool_calls"][0]
    assert (call["id"], call["function"]) == ("c1", {"name": "bash", "arguments": '{"command": "ls ü"}'})
    assert sent["messages"][3] == {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}
    assert [t["function"]["name"] for t in sent["tools"]] == ["bash", "a11y_tree"]
    assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_images_of_tool_results_follow_the_whole_run_of_results() -> None:
    shot = Image(frame_id="f1", width=4, height=4)
    results = (
        Message(role="assistant", calls=tuple(ToolCall(id=i, name="bash", arguments={}) for i in ("c1", "c2"))),
        Message(role="tool", call_id="c1", parts=(Text(text="one"), shot)),
        Message(role="tool", call_id="c2", parts=(Text(text="two"),)),
    )
    with serving(OK) as endpoint:
        await model(endpoint.url).complete(request(*results, frames={"f1": blank_png(4, 4)}))
    assert [m["role"] for m in endpoint.requests[0]["messages"]] == ["assistant", "tool", "tool", "user"]


async def test_s25_an_image_without_bytes_is_never_sent() -> None:
    with serving(OK) as endpoint:
        with pytest.raises(Blamed, match="frame f1"):
            await model(endpoint.url).complete(request(*HISTORY, frames={"f1": b""}))
        assert endpoint.requests == []


async def test_a_reply_with_reasoning_text_and_calls() -> None:
    message = calls(("bash", '{"command": "ls"}'), ("a11y_tree", ""), content="Listing.") | {"reasoning_content": "Hm."}
    done = await answer(chat(message, finish="tool_calls"))
    assert (done.text, done.reasoning, done.finish_reason, done.invalid) == ("Listing.", "Hm.", "tool_calls", None)
    assert [(c.name, c.arguments) for c in done.calls] == [("bash", {"command": "ls"}), ("a11y_tree", {})]


async def test_s54_doubled_call_ids_are_told_apart() -> None:
    message = calls(("a11y_tree", "{}"), ("a11y_tree", "{}"))
    message["tool_calls"][1]["id"] = "c0"
    done = await answer(chat(message, finish="tool_calls"))
    assert len({c.id for c in done.calls}) == 2


@pytest.mark.parametrize(
    "text", ['{"command": "rm -rf', "", "null", "[]", '"ls"', '{"command": NaN}', "{'command': 'ls'}"]
)
async def test_s31_arguments_that_are_no_json_object_are_never_run_as_empty(text: str) -> None:
    done = await answer(chat(calls(("a11y_tree", "{}"), ("bash", text)), finish="tool_calls"))
    assert done.calls == ()
    assert done.invalid is not None and "bash" in done.invalid
    assert done.usage.total == 18


@pytest.mark.parametrize("finish", ["length"])
async def test_s31_a_cut_reply_is_not_run_even_when_its_calls_look_whole(finish: str) -> None:
    done = await answer(chat(calls(("bash", '{"command": "rm -rf /tmp/x"}')), finish=finish))
    assert done.calls == () and done.invalid == "cut at max_tokens: the reply is not complete"


async def test_e33_reasoning_that_used_all_tokens_has_its_own_status() -> None:
    used = {"prompt_tokens": 11, "completion_tokens": 64, "completion_tokens_details": {"reasoning_tokens": 64}}
    done = await answer(chat({"content": "", "reasoning_content": "so long"}, finish="length", usage=used))
    assert done.invalid == "cut at max_tokens: reasoning used it all and no answer came"
    assert done.usage.reasoning_tokens == 64


async def test_s32_an_empty_reply_is_invalid_and_text_alone_is_a_reply() -> None:
    assert (await answer(chat({"content": ""}))).invalid == "the reply is empty: neither text nor a tool call"
    text_only = await answer(chat({"content": "All done."}))
    assert (text_only.invalid, text_only.calls, text_only.text) == (None, (), "All done.")


async def test_s32_markers_inside_reasoning_do_nothing() -> None:
    thought = '<think>[INFEASIBLE] <tool_call>{"name": "bash", "arguments": {}}</tool_call> terminate</think>Going on.'
    for protocol in ("native_tools", "xml"):
        done = await answer(chat({"content": thought}), protocol=protocol)
        assert (done.text, done.calls, done.invalid) == ("Going on.", (), None)
        assert "[INFEASIBLE]" in done.reasoning


async def test_xml_protocol_sends_tools_as_text_and_reads_calls_from_it() -> None:
    said = 'Listing.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
    with serving(chat({"content": said})) as endpoint:
        asked = request(*HISTORY, frames={"f1": blank_png(4, 4)}, protocol="xml")
        done = await model(endpoint.url).complete(asked)
    sent = endpoint.requests[0]
    assert "tools" not in sent
    assert "<tools>" in sent["messages"][0]["content"] and '"name": "bash"' in sent["messages"][0]["content"]
    assert sent["messages"][2]["content"] == (
        'Listing.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls ü"}}\n</tool_call>'
    )
    assert sent["messages"][3] == {"role": "user", "content": "<tool_response>\na.txt\n</tool_response>"}
    assert (done.text, [(c.name, c.arguments) for c in done.calls]) == ("Listing.", [("bash", {"command": "ls"})])


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}',
        '<tool_call>{"name": "bash", "arguments": {"command": "l</tool_call>',
        '<tool_call>{"name": "bash"}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": "ls"}</tool_call>',
    ],
)
async def test_s31_a_broken_xml_call_is_invalid(said: str) -> None:
    done = await answer(chat({"content": f"Text. {said}"}), protocol="xml")
    assert done.calls == () and done.invalid and done.text == "Text."


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": None}, "none"])
async def test_s37_missing_or_zero_usage_is_unknown_never_zero(usage: object) -> None:
    used = (await answer(chat({"content": "x"}, usage=usage))).usage
    assert (used.input_tokens, used.output_tokens, used.total) == (None, None, None)


async def test_s37_reasoning_and_cached_tokens_are_kept_apart() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 80},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    used = (await answer(chat({"content": "x"}, usage=usage))).usage
    assert (used.input_tokens, used.output_tokens, used.cached_tokens, used.reasoning_tokens) == (100, 50, 80, 30)
    assert (used.total, used.counted_by) == (150, "provider")


async def test_a_reply_in_parts_is_put_together() -> None:
    parts = [{"type": "text", "text": "All "}, {"type": "text", "text": "done."}]
    assert (await answer(chat({"content": parts}))).text == "All done."


async def test_s38_a_reply_that_can_not_be_used_still_has_its_tokens() -> None:
    done = await answer(chat(calls(("bash", "{")), finish="tool_calls"))
    assert done.invalid and done.usage.total == 18


BUSY = Reply(status=429, body={"error": {"message": "slow down"}})


@pytest.mark.parametrize(
    "trouble",
    [
        BUSY,
        Reply(status=503, body={"error": {"message": "down"}}),
        Reply(status=500, body=b"oops"),
        Reply(body={"error": {"message": "upstream"}}),
        Reply(body=b"<html>not json</html>"),
        Reply(body=b"<html>gateway</html>", headers={"content-type": "text/html"}),
    ],
)
async def test_trouble_that_passes_is_tried_again_and_counted_once(trouble: Reply) -> None:
    with serving(trouble, OK) as endpoint:
        done = await model(endpoint.url).complete(request())
    assert done.text == "Done." and len(endpoint.requests) == 2
    assert done.usage.total == 18


async def test_who_waits_for_an_endpoint_is_told_what_for_and_not_at_every_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limiter = Limiter(1)
    limiter.warn("m at u: HTTP 500: down", 1.0)
    assert not caplog.messages, "it may soon be over"
    for seconds in (6.0, 8.0, 12.0):
        limiter.warn("m at u: HTTP 500: down", seconds)
    assert caplog.messages == ["m at u: HTTP 500: down; trying again for 6 s now"]


async def test_s36_retry_after_is_kept_with_jitter_on_top_by_every_caller() -> None:
    busy = Reply(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after": "1"})
    with serving(busy, OK) as endpoint:
        first, second = model(endpoint.url), model(endpoint.url)  # two models, one endpoint: one limiter
        waiting = asyncio.create_task(first.complete(request()))
        await asyncio.sleep(0.4)
        await second.complete(request())
        await waiting
    assert len(endpoint.times) == 3
    assert all(later - endpoint.times[0] >= 1.0 for later in endpoint.times[1:])


async def test_s36_one_limiter_for_all_callers_of_an_endpoint() -> None:
    slow = chat({"content": "x"})
    slow.delay_s = 0.15
    with serving(slow) as endpoint:
        models = [model(endpoint.url, concurrency=2) for _ in range(6)]
        async with asyncio.TaskGroup() as group:
            for one in models:
                group.create_task(one.complete(request()))
    assert len(endpoint.requests) == 6
    assert endpoint.most_running == 2


async def test_s36_a_storm_ends_within_the_wall_clock_as_the_providers_failure() -> None:
    started = time.monotonic()
    with serving(BUSY) as endpoint:  # noqa: SIM117
        with pytest.raises(ProviderFailed, match=r"some-model at http://127.0.0.1.*HTTP 429: .*slow down") as failed:
            await model(endpoint.url, timeout_s=0.5, retry_for_s=1.5).complete(request())
    assert time.monotonic() - started < 4
    assert len(endpoint.requests) >= 2 and failed.value.blame == "provider"


async def test_s36_a_longer_wait_than_there_is_time_for_is_not_waited() -> None:
    away = Reply(status=503, body={"error": {"message": "back in an hour"}}, headers={"retry-after": "3600"})
    started = time.monotonic()
    with serving(away) as endpoint, pytest.raises(ProviderFailed, match="back in an hour"):
        await model(endpoint.url, retry_for_s=30).complete(request())
    assert time.monotonic() - started < 10 and len(endpoint.requests) == 1


async def test_s36_a_caller_that_came_while_the_endpoint_wants_to_be_left_alone_is_told_so() -> None:
    away = Reply(status=503, body={"error": {"message": "back in an hour"}}, headers={"retry-after": "3600"})
    with serving(away) as endpoint:
        with pytest.raises(ProviderFailed, match=r"in 1 try; last: HTTP 503.*left alone for 3,[56]\d\d s more"):
            await model(endpoint.url, retry_for_s=30).complete(request())
        with pytest.raises(ProviderFailed, match=r"was not asked; it asked to be left alone for 3,[56]\d\d s more"):
            await model(endpoint.url, timeout_s=0.1, retry_for_s=0.1).complete(request())
    assert len(endpoint.requests) == 1


async def test_s36_an_endpoint_that_never_answers_is_left_in_time() -> None:
    hanging = chat({"content": "x"})
    hanging.delay_s = 1.5
    started = time.monotonic()
    with serving(hanging) as endpoint, pytest.raises(ProviderFailed):
        await model(endpoint.url, timeout_s=0.2, retry_for_s=0.5).complete(request())
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
async def test_an_address_where_nobody_ever_answered_stops_the_run_within_seconds(url: str) -> None:
    started = time.monotonic()
    with pytest.raises(UsageError, match=r"some-model at http://.* does not answer \(ConnectError.*start the endpoint"):
        await model(url, timeout_s=60, retry_for_s=60, first_contact_s=1).complete(request())
    assert time.monotonic() - started < 8


async def test_s36_an_endpoint_that_answered_once_is_waited_for_when_it_is_gone() -> None:
    with serving(OK) as endpoint:
        await model(endpoint.url).complete(request())
    started = time.monotonic()
    with pytest.raises(ProviderFailed, match="Connect"):  # a client without a connection that is still open
        await model(endpoint.url, timeout_s=60, retry_for_s=2, first_contact_s=0.1).complete(request())
    assert time.monotonic() - started < 10


async def test_s36_a_busy_endpoint_is_waited_for_at_first_contact_too() -> None:
    with serving(BUSY, BUSY, OK) as endpoint:
        done = await model(endpoint.url, first_contact_s=0).complete(request())
    assert done.text == "Done." and len(endpoint.requests) == 3


REFUSALS = [
    (401, "bad key", "check the key in EVOLVER_TEST_KEY"),
    (403, "not yours", "what the key in EVOLVER_TEST_KEY may use"),
    (404, "no such model", "check `model` and `base_url`"),
    (400, "bad request", "does not accept this request"),
]


@pytest.mark.parametrize(("status", "said", "todo"), REFUSALS)
async def test_s39_a_refusal_stops_the_run_at_the_first_call(status: int, said: str, todo: str) -> None:
    with serving(Reply(status=status, body={"error": {"message": said}})) as endpoint:  # noqa: SIM117
        with pytest.raises(UsageError) as stopped:
            await model(endpoint.url).complete(request())
    text = str(stopped.value)
    assert len(endpoint.requests) == 1
    assert all(part in text for part in ("some-model", endpoint.url, str(status), said, todo)) and "\n" not in text


async def test_a_refusal_without_the_usual_shape_is_quoted() -> None:
    with serving(Reply(status=422, body={"detail": "messages must alternate"})) as endpoint:  # noqa: SIM117
        with pytest.raises(UsageError, match=r"HTTP 422: .*messages must alternate"):
            await model(endpoint.url).complete(request())


async def test_s39_a_spent_account_is_not_waited_for() -> None:
    spent = Reply(status=429, body={"error": {"message": "no quota", "code": "insufficient_quota"}})
    with serving(spent) as endpoint, pytest.raises(UsageError, match="no quota left"):
        await model(endpoint.url).complete(request())
    assert len(endpoint.requests) == 1


def test_a_missing_key_names_its_variable() -> None:
    spec = OpenAISpec(kind="openai", model="some-model", api_key_env="EVOLVER_NO_SUCH_KEY")
    with pytest.raises(UsageError, match=r"some-model at https://api.openai.com/v1 .* EVOLVER_NO_SUCH_KEY"):
        make_model(spec)


async def test_an_endpoint_on_this_machine_needs_no_key() -> None:
    with serving(OK) as endpoint:
        done = await model(endpoint.url, api_key_env="EVOLVER_NO_SUCH_KEY").complete(request())
    assert done.text == "Done."


async def test_s56_the_key_shows_up_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = Reply(status=401, body={"error": {"message": f"Incorrect API key provided: {KEY}"}})
    busy = Reply(status=500, body={"error": {"message": f"failed for {KEY}"}})
    shown: list[str] = []
    for reply, error in ((echo, UsageError), (busy, ProviderFailed)):
        with serving(reply) as endpoint:
            one = model(endpoint.url, timeout_s=0.5, retry_for_s=0.1)
            shown += [repr(one), str(one), one.id, one.declared]
            with pytest.raises(error) as raised:
                await one.complete(request())
        shown += ["".join(traceback.format_exception(raised.value)), repr(raised.value)]
    with serving(OK) as endpoint:
        shown.append((await model(endpoint.url).complete(request())).model_dump_json())
    assert "[key]" in "".join(shown)
    assert KEY not in "".join(shown) + caplog.text
