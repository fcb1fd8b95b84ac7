"""Exports: what is written reads back as what the model saw, with the loss on one reply a row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devset.splits import load_split
from devset.task import task_hash
from evolver.config import RunConfig
from evolver.context import request_for, request_sha256
from evolver.errors import UsageError
from evolver.records import Image, Observed, Rollout
from evolver.store import Store
from harnesses.library import Library
from harnesses.tree import read_tree, seed_path, tree_files
from tests.evolver.test_ground import folder, imported, verdict
from tests.evolver.test_ground import store as run_of
from tests.training.conversations import END, INSTRUCTION, TASK, USUAL, Said, beta1, card, rollout
from tests.training.test_rows import rows_of
from training.cli import Format, export
from training.exports import Conversation, conversations_of, write
from training.exports.conversations import IMAGE
from training.exports.formats import write_tokens
from training.filter import FilterLedger, counted
from training.recipe import Recipe
from training.render import Renderer

pytestmark = pytest.mark.train
pq = pytest.importorskip("pyarrow.parquet")
HARNESS = beta1()
HARD = Said(text="Look: <image>", command='echo "{é}"', result="<image> again", reasoning="Why not.")


def seen(of: Rollout) -> Rollout:
    """The same rollout, with a picture of the screen at its start."""
    of = of.model_copy(update={"first": Observed(image=Image(frame_id="f" * 64, width=640, height=480))})
    turns = []
    for turn in of.turns:
        request = request_for(HARNESS, INSTRUCTION, of.first, turns, of.image_rule)
        turns.append(turn.model_copy(update={"request_sha256": request_sha256(*request)}))
    return of.model_copy(update={"turns": tuple(turns)})


@pytest.fixture(scope="module")
def made() -> list[Conversation]:
    rollouts = [seen(rollout([HARD, *USUAL])), rollout([Said(slip="wrong_value"), *USUAL], name="r-1")]
    failed = rollout(name="r-2")
    scored = [*((r, card(r)) for r in rollouts), (failed, card(failed, False))]
    return conversations_of(HARNESS, {TASK: INSTRUCTION}, scored)


def path_of(frame: str) -> str:
    return f"blobs/{frame[:2]}/{frame}"


def test_each_good_reply_is_learned_once_after_what_was_shown(made: list[Conversation]) -> None:
    assert [(one.rollout_id, one.turn) for one in made] == [
        *(("r-0", n) for n in range(4)),
        *(("r-1", n) for n in range(1, 4)),
    ]
    assert all([s.loss for s in one.messages] == [False] * (len(one.messages) - 1) + [True] for one in made)
    assert all(sum(s.content.count(IMAGE) for s in one.messages) == len(one.images) for one in made)
    assert made[0].images == ("f" * 64,)


def test_a_test_task_is_a_leak_and_a_call_that_is_there_already_a_duplicate() -> None:
    scored = [(r, card(r)) for r in (rollout(), rollout(name="r-1"))]
    ledger = FilterLedger()
    made = conversations_of(HARNESS, {TASK: INSTRUCTION}, scored, ledger=ledger)
    assert {one.rollout_id for one in made} == {"r-0"} and len(made) == len(USUAL)
    assert counted(tuple(ledger.entries)) == {"duplicate": len(USUAL)}
    ledger = FilterLedger()
    assert conversations_of(HARNESS, {TASK: INSTRUCTION}, scored, frozenset({INSTRUCTION}), ledger) == []
    assert counted(tuple(ledger.entries)) == {"leak": 2}


def test_trl_parquet_reads_back_with_tools_as_a_string(made: list[Conversation], tmp_path: Path) -> None:
    (path,) = write("trl", made, tmp_path, path_of)
    for one, row in zip(made, pq.read_table(path).to_pylist(), strict=True):
        assert isinstance(row["tools"], str) and row["tools"] == one.tools
        said = [*row["prompt"], *row["completion"]]
        assert [(m["role"], m["content"], m["tool_call_id"]) for m in said] == [
            (s.role, s.content, s.call_id) for s in one.messages
        ]
        assert len(row["completion"]) == 1 and row["images"] == [path_of(f) for f in one.images]


def test_t12_no_call_gets_arguments_of_another_tool(made: list[Conversation], tmp_path: Path) -> None:
    for name, columns in (("trl", ("prompt", "completion")), ("verl", ("messages",))):
        (path,) = write(name, made, tmp_path / name, path_of)
        for one, row in zip(made, pq.read_table(path).to_pylist(), strict=True):
            calls = [c["function"] for column in columns for m in row[column] for c in m["tool_calls"]]
            wanted = [(c.name, json.loads(c.arguments)) for s in one.messages for c in s.calls]
            assert [(c["name"], json.loads(c["arguments"])) for c in calls] == wanted
            assert not any(None in arguments.values() for _, arguments in wanted)


def test_verl_parquet_has_a_flag_a_message(made: list[Conversation], tmp_path: Path) -> None:
    (path,) = write("verl", made, tmp_path, path_of)
    for one, row in zip(made, pq.read_table(path).to_pylist(), strict=True):
        assert [(m["content"], m["loss_mask"]) for m in row["messages"]] == [(s.content, s.loss) for s in one.messages]
        assert {tool["function"]["name"] for tool in json.loads(row["tools"])} == {"bash", "computer_use"}


def test_swift_lines_read_back_with_the_loss_on_the_last_reply(made: list[Conversation], tmp_path: Path) -> None:
    (path,) = write("swift", made, tmp_path, path_of)
    for one, line in zip(made, path.read_text().splitlines(), strict=True):
        row = json.loads(line)
        wanted: list[tuple[str, object, bool | None]] = []
        for s in one.messages:
            flag = s.loss if s.role == "assistant" else None
            wanted += [(s.role, s.content, flag)] if s.content or not s.calls else []
            wanted += [("tool_call", {"name": c.name, "arguments": json.loads(c.arguments)}, flag) for c in s.calls]
        found = [
            (m["role"], json.loads(m["content"]) if m["role"] == "tool_call" else m["content"], m.get("loss"))
            for m in row["messages"]
        ]
        assert found == wanted and isinstance(row["tools"], str)


def test_llamafactory_rows_take_turns_and_their_columns_are_named(made: list[Conversation], tmp_path: Path) -> None:
    rows_path, info_path = write("llamafactory", made, tmp_path, path_of)
    info = json.loads(info_path.read_text())["harness"]
    assert info["file_name"] == rows_path.name
    for one, row in zip(made, json.loads(rows_path.read_text()), strict=True):
        assert set(row) == set(info["columns"].values())
        sides = [turn["from"] in ("gpt", "function_call") for turn in row["conversations"]]
        assert sides == [n % 2 == 1 for n in range(len(sides))] and sides[-1]
        assert row["system"] == one.messages[0].content and row["tools"] == one.tools
        text = "\n".join(turn["value"] for turn in row["conversations"])
        assert all(s.content in text for s in one.messages[1:])
        assert text.count(IMAGE) == len(row["images"]) == len(one.images)
        *_, called = row["conversations"][-1]["value"].rpartition("\n")
        assert [c["name"] for c in json.loads(called)] == [c.name for c in one.messages[-1].calls]


def test_pretokenised_rows_are_the_rows_of_training(renderer: Renderer, recipe: Recipe, tmp_path: Path) -> None:
    rows = rows_of([rollout(), rollout([Said(text="Else."), END], name="r-1")], renderer, recipe).rows
    (path,) = write_tokens(rows, tmp_path)
    found = pq.read_table(path).to_pylist()
    assert [(tuple(r["input_ids"]), r["labels"]) for r in found] == [(row.ids, row.labels) for row in rows]


def test_text_that_spells_an_image_is_no_image() -> None:
    shown = conversations_of(HARNESS, {TASK: INSTRUCTION}, [(r := rollout([HARD, END]), card(r))])
    assert all(IMAGE not in s.content for one in shown for s in one.messages)


def test_the_command_writes_what_a_run_holds_and_says_how_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.create(tmp_path / "run", RunConfig())
    library = Library(store.path / "library")
    files = tree_files(read_tree(seed_path("beta1")))
    assert library.add(files, name="beta1", parents=(), message="m", branch="b") == HARNESS.id
    library.close()
    task = load_split("train", 1)[0]
    for name, success in (("r-0", True), ("r-1", False)):
        of = rollout(name=name, instruction=task.instruction)
        key = of.key.model_copy(update={"task_id": task.id, "attempt": int(name[-1])})
        of = of.model_copy(update={"key": key})
        store.append(of)
        store.append(card(of, success))
    export(store.path, "beta1", "verl", tmp_path / "out")
    assert "3 rows of 2 rollouts" in capsys.readouterr().err
    assert len(pq.read_table(tmp_path / "out" / "train.parquet")) == 3
    with pytest.raises(UsageError, match="no train rollout under beta2"):
        export(store.path, "beta2", "verl", tmp_path / "out")


@pytest.mark.parametrize("format", ["verl", "tokens"])
def test_the_command_leaves_out_what_a_test_task_asks_for(
    format: Format, recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leak = imported(0).model_copy(update={"instruction": load_split("test", 1, unsealed=True)[0].instruction})
    leak = leak.model_copy(update={"hash": task_hash(leak)})
    tasks = [leak, imported(1)]
    place = folder(tmp_path / "tasks", tasks, [verdict(task) for task in tasks])
    run = run_of(tmp_path, {"train": (place,)})
    for number, task in enumerate(tasks):
        of = rollout(name=f"r-{number}", instruction=task.instruction)
        key = of.key.model_copy(update={"task_id": task.id, "model_id": "m"})
        of = of.model_copy(update={"key": key})
        run.append(of)
        run.append(card(of))
    (tmp_path / "tiny.yaml").write_text(recipe.model_dump_json())
    export(run.path, "beta1", format, tmp_path / "out", recipe=str(tmp_path / "tiny.yaml"))
    assert "of 2 rollouts (left out: 1 leak)" in capsys.readouterr().err
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert len(pq.read_table(path)) == {"verl": 3, "tokens": 1}[format]
