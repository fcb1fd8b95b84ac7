"""What is kept of an attempt can be shown: its turns, its exact requests, and the trajectory for other programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import atif
import pytest
from PIL import Image as Picture

from evolver.chat import bytes_of
from evolver.cli import main
from evolver.config import RunConfig
from evolver.context import request_for, request_sha256
from evolver.protocols import Request
from evolver.records import Rollout, Scorecard
from evolver.sent import bodies
from evolver.store import Store
from evolver.trajectory import export, trajectory
from harnesses.library import Library
from tests.evolver.endpoint_server import Reply, calls, chat, serving
from tests.evolver.played import bash, ending, played
from tests.evolver.rollouts import KEY, a_rollout, a_turn
from tests.evolver.sample_run import card
from tests.evolver.test_cli import called

BROKEN = chat(calls(("bash", '{"command": "zz-broken')), finish="tool_calls")
CUT = chat(calls(("bash", '{"command": "zz-broken"}')), finish="length")


@pytest.mark.parametrize("protocol", ["native_tools", "xml"])
async def test_s54_the_saved_request_of_every_call_is_what_the_endpoint_received_byte_for_byte(
    tmp_path: Path, protocol: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with serving(bash("ls -la"), BROKEN, bash("echo é"), bash("cat log"), ending()) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url, "a\n" * 300, "é", "x" * 9_000, protocol=protocol)
    blob = store.blob(rollout.requests_sha256 or "")
    assert [bytes_of(body, store.blob) for body in bodies(blob)] == endpoint.raw
    assert len(endpoint.raw) == len(rollout.turns) >= 3 and b"data:image/png;base64," in endpoint.raw[1]
    assert len(blob) < sum(map(len, endpoint.raw)) / 3
    for number, received in enumerate(endpoint.raw):
        with pytest.raises(SystemExit):
            main(["show", rollout.id, "--run", str(store.path), "--turn", str(number), "--request"])
        assert capsysbinary.readouterr().out == received


async def test_s54_training_rebuilds_the_very_messages_that_were_sent(tmp_path: Path) -> None:
    with serving(bash("ls"), BROKEN, bash("ls"), bash("ls"), bash("ls"), ending()) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url)
    harness = Library(store.path / "library").get(rollout.key.harness_id)
    for turn in rollout.turns:
        messages, tools = request_for(
            harness, "List the files.", rollout.first, rollout.turns[: turn.index], rollout.image_rule
        )
        assert request_sha256(messages, tools) == turn.request_sha256
        sent = bodies(store.blob(rollout.requests_sha256 or ""))[turn.index]
        again = Request(messages=messages, tools=tools, sampling=harness.scaffold.sampling, seed=int(str(sent["seed"])))
        assert {"model": "some-model", **again.body} == sent


async def test_a_request_that_was_refused_is_kept_too(tmp_path: Path) -> None:
    """The question after it, whether the endpoint answers others, is no request of the attempt."""
    refused = Reply(status=400, body={"error": {"message": "too long"}})
    with serving(bash("ls"), refused, chat({"content": "391"})) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url)
    assert rollout.error is not None and len(rollout.turns) == 1
    assert [bytes_of(b, store.blob) for b in bodies(store.blob(rollout.requests_sha256 or ""))] == endpoint.raw[:2]
    assert len(endpoint.raw) == 3


@pytest.mark.parametrize("protocol", ["native_tools", "xml"])
async def test_s31_a_broken_or_cut_call_reaches_no_later_request(tmp_path: Path, protocol: str) -> None:
    """What the endpoint really gets: the complaint, never the call, and JSON arguments that parse in every request."""
    xml = 'Remove it. <tool_call>{"name": "bash", "arguments": {"command": "zz-broken'
    broken = chat({"content": xml}) if protocol == "xml" else BROKEN
    cut = chat({"content": f'{xml}"}}}}</tool_call>'}, finish="length") if protocol == "xml" else CUT
    end = '<tool_call>{"name": "computer_use", "arguments": {"action": "terminate"}}</tool_call>'
    done = chat({"content": end}) if protocol == "xml" else ending()
    with serving(broken, cut, done) as endpoint:
        _, rollout = await played(tmp_path, endpoint.url, protocol=protocol)
    assert rollout.stop_reason == "finished" and [t.results for t in rollout.turns[:2]] == [(), ()]
    for sent, complaint in zip(endpoint.requests[1:], ("could not be used", "cut at max_tokens"), strict=True):
        system, *messages = sent["messages"]
        assert complaint in messages[-1]["content"]
        replayed = json.dumps([m for m in messages if m["role"] == "assistant"])
        assert not any(m.get("tool_calls") for m in messages) and "<tool_call>" not in replayed
        assert "zz-broken" not in replayed
        assert (protocol == "xml") == ("<tool_call>" in json.dumps(system))


@pytest.mark.parametrize("protocol", ["native_tools", "xml"])
async def test_s33_no_request_carries_more_images_than_the_harness_keeps(tmp_path: Path, protocol: str) -> None:
    if protocol == "xml":
        text = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
        replies = [chat({"content": text})] * 6
    else:
        replies = [bash("ls")] * 6
    with serving(*replies) as endpoint:
        await played(tmp_path, endpoint.url, protocol=protocol, max_steps=6)
    images = [raw.count(b'"image_url":{"url":"data:image/png;base64,') for raw in endpoint.raw]
    assert images == [1, 2, 3, 3, 3, 3]
    for sent in endpoint.requests:
        asked = {c["id"] for m in sent["messages"] for c in m.get("tool_calls") or ()}
        answered = {m["tool_call_id"] for m in sent["messages"] if m["role"] == "tool"}
        assert asked == answered and (bool(asked) or protocol == "xml" or len(sent["messages"]) == 2)


async def test_s54_the_exported_trajectory_validates_with_frames_and_unique_call_ids(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 0}
    silent = chat(calls(("bash", '{"command": "ls"}'), content="Look.") | {"reasoning_content": "Hm."}, usage=usage)
    with serving(silent, BROKEN, bash("ls"), ending()) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url)
    file = export(store, rollout, store.get(Scorecard, rollout.id), tmp_path / "out")
    raw = json.loads(file.read_text())
    read = atif.Trajectory.model_validate(raw)
    assert [s.source for s in read.steps] == ["system", "user", *["agent"] * 4]
    assert read.has_multimodal_content() and read.agent.model_name == "some-model"
    named = {p.source.path for s in read.steps for p in _parts(s) if p.source}
    assert named and {f"frames/{p.name}" for p in (tmp_path / "out" / "frames").iterdir()} == named
    for path in named:
        assert Picture.open(tmp_path / "out" / path).size == (1920, 1080)
    ids = [c.tool_call_id for s in read.steps for c in s.tool_calls or ()]
    assert len(ids) == len(set(ids)) == 3
    first, broken = raw["steps"][2], raw["steps"][3]
    assert first["reasoning_content"] == "Hm." and first["observation"]["results"][0]["source_call_id"] == ids[0]
    assert first["metrics"]["prompt_tokens"] is None and first["metrics"]["completion_tokens"] is None
    assert raw["final_metrics"]["total_prompt_tokens"] is None and raw["final_metrics"]["total_cost_usd"] is None
    assert first["extra"]["channel"] == "terminal" and "slip" in first["extra"] and first["extra"]["settled"] is True
    assert "tool_calls" not in broken and "not JSON" in broken["extra"]["invalid"]
    assert raw["extra"]["scorecard"]["success"] is True and raw["steps"][0]["message"].startswith("You ")


def _parts(step: atif.Step) -> list[atif.ContentPart]:
    found = list(step.message) if isinstance(step.message, list) else []
    for result in step.observation.results if step.observation else ():
        found += result.content if isinstance(result.content, list) else []
    return found


def test_s54_a_scripted_step_has_no_metrics_and_its_slip(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    turn = a_turn(text="Look.").model_copy(update={"slip": "skipped: Look."})
    estimate = turn.completion.usage.model_copy(update={"counted_by": "estimate"})
    turn = turn.model_copy(update={"completion": turn.completion.model_copy(update={"usage": estimate})})
    made = trajectory(store, a_rollout(turns=(turn,)), None)
    assert (made.steps[0].llm_call_count, made.steps[0].metrics) == (0, None)
    assert made.steps[0].extra is not None and made.steps[0].extra["slip"] == "skipped: Look."


async def test_s55_a_long_attempt_keeps_each_screen_once_however_often_it_was_sent(tmp_path: Path) -> None:
    with serving(*[bash("ls")] * 50) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url, *[f"{n} " * 300 for n in range(50)], max_steps=50)
    assert len(rollout.turns) == 50 and sum(raw.count(b"image/png;base64") for raw in endpoint.raw) == 147
    kept = {p.name: p.stat().st_size for p in (store.path / "blobs").rglob("*") if p.is_file()}
    frames = {t.observed.image.frame_id for t in rollout.turns if t.observed.image}
    assert len(kept) == len(frames) + 2, "the frames, the frozen state and the requests"
    assert kept[rollout.requests_sha256 or ""] < sum(map(len, endpoint.raw)) / 20


async def test_show_prints_turns_channels_tokens_results_and_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(bash("ls", "Look around."), BROKEN, ending()) as endpoint:
        store, rollout = await played(tmp_path, endpoint.url, "line\n" * 400)
    words = ("show", rollout.id[:6], "--run", str(store.path))
    out = _shown(capsys, *words)
    for part in (
        rollout.id, "turn 0 · terminal · 11 in, 7 out", "settled", "Look around.", "bash command='ls'", "1,", " more",
        "not usable: ", "scorecard: solved, rubric 1", "done (weight 1, required): 1  fake", "finished",
    ):  # fmt: skip
        assert part in out, part
    whole = _shown(capsys, *words, "--turn", "0")
    assert whole.count("line") == 400 and "turn 1" not in whole
    asked = json.loads(_shown(capsys, *words, "--json"))
    assert Rollout.model_validate(asked["rollout"]) == rollout and asked["scorecard"]["success"] is True
    body = json.loads(_shown(capsys, *words, "--turn", "1", "--request", "--json"))
    assert body["model"] == "some-model" and "frame:" in json.dumps(body) and "base64" not in json.dumps(body)


def _shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    try:
        main(list(words))
    except SystemExit as ended:
        assert not ended.code, capsys.readouterr().err
    return capsys.readouterr().out


def test_show_says_what_it_can_not_find(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    for number in (1, 2, 10):
        store.append(a_rollout(id=f"r-{number}", key=KEY, turns=(a_turn(),)))
    store.append(card(1))
    run = ("--run", str(store.path))
    for words, said in (
        (("r-9", *run), "no rollout 'r-9'"),
        (("r", *run), "3 rollouts begin with 'r'"),
        (("r-2", "--turn", "7", *run), "r-2 has no turn 7: its turns are 0 to 0"),
        (("r-2", "--turn", "0", "--request", *run), "r-2 has no request"),
        (("r-2", "--run", str(tmp_path / "nowhere")), "no run at"),
    ):
        code, out, err = called(capsys, "show", *words)
        assert (code, out) == (2, "") and said in err
    assert "r-1" in _shown(capsys, "show", "r-1", *run), "a whole id is meant, whatever begins with it"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    code, _, err = called(capsys, "show", "r-1", *run, "--atif", str(tmp_path / "full"))
    assert code == 2 and "not empty" in err
    assert os.listdir(tmp_path / "full") == ["mine.txt"]
