"""A forged set on disk: it goes on as if it had not been cut off, and holds no task twice nor one that is held out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from devset.directory import read_task_dir
from devset.families import families
from devset.families.skill import Family
from devset.forge.duplicates import Duplicates, Level, twins
from devset.forge.lanes import edges_of
from devset.forge.sets import ROWS, SETTINGS, Row, SetError, forge_of, read_rows, remade, skills_of, write_set
from devset.forge.settings import Settings, SettingsError, Target, read_settings, settings_text
from devset.forge.workflow import Workflow, bound, task_of
from devset.splits import load_split
from devset.task import Task

KNOWN = families()
PAIR = [KNOWN["csv.lookup"], KNOWN["text.append"]]


def level(of: Duplicates, flow: Workflow, task: Task | None = None) -> Level | None:
    return twin.level if (twin := of.twin(flow, task or task_of(flow))[1]) else None


def with_one(flow: Workflow) -> Duplicates:
    found, task = Duplicates(KNOWN), task_of(flow)
    found.add(task.id, flow.path, found.twin(flow, task)[0])
    return found


def rebound(flow: Workflow, **changes: object) -> Workflow:
    """The workflow with its first skill's binding changed."""
    first = flow.nodes[0]
    return replace(flow, nodes=(replace(first, made=replace(first.made, **changes)), *flow.nodes[1:]))


def test_g22_a_task_again_is_found_at_every_level_and_another_one_is_not() -> None:
    flow = bound(PAIR, edges_of(PAIR), 1)
    seen, task = with_one(flow), task_of(flow)
    assert level(seen, flow) == "bytes"
    assert level(seen, flow, task.model_copy(update={"instruction": f"Please. {task.instruction}"})) == "canonical"
    made = flow.nodes[0].made
    longer = {path: data + b"one more line\n" for path, data in made.files.items()}
    assert level(seen, rebound(flow, files=longer)) == "canonical"
    renamed = rebound(flow, slots={**made.slots, "item": "other"})  # one value of many
    assert level(seen, renamed, task.model_copy(update={"instruction": "Another wording of it."})) == "text"
    twin = replace(PAIR[0], name="table.find", path=("table", "value", "find"))
    copied = bound([twin, PAIR[1]], (), 77)
    assert level(with_one(bound(PAIR, (), 1)), copied) == "shape"
    assert level(seen, bound(PAIR, edges_of(PAIR), 2)) is None  # another instance of the template
    assert level(seen, bound([KNOWN["files.rename"]], (), 1)) is None


def test_g23_what_wordings_and_skills_bring_themselves_makes_no_duplicate() -> None:
    """All instances of a template share most of their words and, in office documents, of their files."""
    for name in ("docs.append", "slides.title", "sheets.set-cell", "web.form", "files.new-folder"):
        seen = with_one(bound([KNOWN[name]], (), 1))
        assert {level(seen, bound([KNOWN[name]], (), seed)) for seed in range(2, 12)} == {None}, name


def test_g25_no_task_that_is_held_out_is_found_again_whole_or_as_a_part() -> None:
    held = load_split("dev")
    seen = Duplicates(KNOWN, held)
    ours = [task for task in held if task.family in KNOWN and task.feasible][:6]
    for task in ours:
        number = int(task.id.rpartition("-")[2])
        made = KNOWN[task.family].binding(number)
        family = replace(KNOWN[task.family], bind=lambda rng, made=made: made)
        alone = bound([family], (), 1)
        assert level(seen, alone) in ("bytes", "canonical", "text"), task.id
        beside = bound([family, KNOWN["system.link"]], (), 1)
        assert level(seen, beside) in ("canonical", "text"), task.id
    assert not any(level(seen, bound([KNOWN[t.family]], (), 3)) for t in ours)


def forged(folder: Path, n: int, **settings: object) -> list[Row]:
    return list(write_set(forge_of(Settings.model_validate(settings)), n, folder))


def test_a_set_goes_on_as_if_it_had_not_been_cut_off(tmp_path: Path) -> None:
    whole = forged(tmp_path / "whole", 30)
    cut = tmp_path / "cut"
    forged(cut, 11)
    with (cut / ROWS).open("a") as lines:
        lines.write('{"id": "half a li')
    list(islice(write_set(forge_of(Settings()), 30, cut), 19))  # ended between two tasks
    assert forged(cut, 30) == whole == read_rows(cut)
    listed = json.loads((cut / "import.json").read_text())
    assert [one["hash"] for one in listed["offered"]] == [row.hash for row in whole] and listed["source"] == "forge"
    known = skills_of(Settings())
    for row in whole:
        task = read_task_dir(cut / row.id)
        assert task.hash == row.hash == remade(row, known).task.hash and task.skill_ids == row.skills
    assert not any(twins(whole).values())
    again = [row.model_copy(update={"id": f"{row.id}1"}) for row in whole[:2]]
    assert {level: len(ids) for level, ids in twins([*whole, *again]).items()} == {
        "bytes": 2, "canonical": 2, "shape": 0, "text": sum(bool(row.print.sketch) for row in whole[:2])
    }  # fmt: skip
    with pytest.raises(SetError, match="other settings"):
        forged(cut, 30, seed=1)


def test_a_folder_that_is_no_set_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(SetError, match="holds no forged set"):
        forged(tmp_path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_set_of_other_skills_is_told_apart(tmp_path: Path) -> None:
    (row,) = forged(tmp_path, 1)
    with pytest.raises(SetError, match="is not there"):
        remade(row, {})
    family = KNOWN[row.skills[0]]
    other: dict[str, Family] = {**skills_of(Settings()), family.name: replace(family, bind=KNOWN["text.sort"].bind)}
    with pytest.raises(SetError, match="no longer make this task"):
        remade(row, other)
    with pytest.raises(SetError, match="known: "):
        forge_of(Settings(targets=(Target(skill="files.nothing", weight=1),)))


def test_settings_survive_their_file_and_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / SETTINGS
    settings = Settings(seed=3, single=0.5, targets=(Target(skill="csv.sum", weight=0.5, sizes=(1,), channel="gui"),))
    path.write_text(settings_text(settings))
    assert read_settings(path) == settings
    for text, said in (("single = 2", "single: got 2"), ("sizes = [4]", "sizes"), ("n = 3", "Extra"), ("=", "TOML")):
        path.write_text(text)
        with pytest.raises(SettingsError, match=said):
            read_settings(path)
    path.write_text('skills = ["own"]')
    assert read_settings(path).skills == (str(tmp_path / "own"),)
