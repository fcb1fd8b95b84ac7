"""Duplicates between two sets of tasks: seeded ones of five kinds are found, our splits have none."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import combinations, product
from pathlib import Path

import pytest

from devset.directory import write_task_dir
from devset.families import families
from devset.overlap import (
    THRESHOLD,
    Item,
    NotTasks,
    items_of,
    jaccard,
    lines_of,
    overlaps,
    pieces_of,
    read_items,
)
from devset.overlap import _particular as particular
from devset.splits import load_split
from devset.task import SPLITS, Task

TRAIN: list[Task] = load_split("train")
ITEMS = {split: items_of(load_split(split, unsealed=True)) for split in SPLITS}
SEEDED = [ITEMS["train"][n] for n in (3, 57, 111, 208, 333)]


def other_bytes(item: Item) -> Item:
    """Case, spaces and marks of the instruction changed."""
    return replace(item, instruction=item.instruction.upper().replace(" ", "  ").replace(".", " !"))


def one_word(item: Item) -> Item:
    """A word more at the beginning and one at the end."""
    return replace(item, instruction=f"Kindly {item.instruction} Thanks.")


def swapped(item: Item) -> Item:
    """The first half of the instruction after the second."""
    words = item.instruction.split()
    half = len(words) // 2
    return replace(item, instruction=" ".join([*words[half:], *words[:half]]))


def one_line(item: Item) -> Item:
    """A line more in one of its text files, where it has one."""
    texts = [path for path, data in item.files.items() if path.endswith((".txt", ".csv", ".md"))]
    return replace(item, files={p: d + b"\nextra line\n" if p in texts[:1] else d for p, d in item.files.items()})


LEVELS = {
    "only the id": lambda item: item,
    "other bytes": other_bytes,
    "a word": one_word,
    "swapped": swapped,
    "a line": one_line,
}


@pytest.mark.parametrize("level", LEVELS)
def test_g22_seeded_duplicates_of_five_levels_are_found_among_all_others(level: str) -> None:
    planted = [replace(LEVELS[level](item), id=f"planted-{n}") for n, item in enumerate(SEEDED)]
    found = overlaps(ITEMS["train"], [*ITEMS["test"], *planted])
    assert {(pair.a, pair.b) for pair in found} == {(item.id, f"planted-{n}") for n, item in enumerate(SEEDED)}
    assert all(pair.exact for pair in found) is (level == "only the id")


def test_g22_other_values_in_the_same_template_are_no_duplicate_and_the_detector_says_how_far() -> None:
    """The negative control: 24 tasks of one template, and not one pair near the threshold."""
    made = items_of(families()["files.rename"].instance(seed) for seed in range(24))
    nearest = overlaps(made, made, threshold=0.05)
    assert all(pair.similarity < THRESHOLD for pair in nearest if pair.a != pair.b)
    assert overlaps(made, [replace(made[7], id="x")])[0].a == made[7].id


@pytest.mark.parametrize(("one", "other"), list(combinations(SPLITS, 2)))
def test_g25_no_task_of_one_split_is_in_another(one: str, other: str) -> None:
    """Measured: the nearest pair of any two splits is alike by 0.40 (dev and test), that of train and test by 0.20."""
    assert overlaps(ITEMS[one], ITEMS[other], threshold=0.4) == []


def test_g25_a_public_goal_in_either_set_is_found_in_both_directions_with_a_report(tmp_path: Path) -> None:
    goals = [item.instruction for item in SEEDED[:2]] + ["Set the default search engine to one that keeps no logs."]
    path = tmp_path / "goals.jsonl"
    path.write_text("\n".join(json.dumps({"instruction": goal}) for goal in goals))
    listed = read_items(path)
    there, back = overlaps(ITEMS["train"], listed), overlaps(listed, ITEMS["train"])
    assert {(p.a, p.b) for p in there} == {(SEEDED[0].id, "line-1"), (SEEDED[1].id, "line-2")}
    assert sorted((p.a, p.b, p.similarity) for p in there) == sorted((p.b, p.a, p.similarity) for p in back)
    assert all(p.files is None and p.similarity == p.instruction for p in there)
    assert overlaps(ITEMS["test"], listed) == []
    assert json.dumps([asdict(p) for p in there])


def test_g23_what_everybody_has_is_no_overlap() -> None:
    """30 tasks that share a long preamble and a style file: only what differs is compared."""
    preamble = "You are at a computer with a desktop. Work carefully, save everything and close the application. "
    words = [f"{a}{b}" for a, b in product("bdfgklmnpr", "aei")]
    made = [Item(f"t{n}", f"{preamble}Open the {w}{w}{w} entry.", {"style.css": b"a\nb\nc", f"{w}.txt": w.encode()})
            for n, w in enumerate(words)]  # fmt: skip
    assert jaccard(pieces_of(made[0].instruction), pieces_of(made[1].instruction)) > 0.7, "whole texts are alike"
    assert overlaps(made[:15], made[15:]) == []
    assert [(p.a, p.b) for p in overlaps(made, [replace(other_bytes(made[4]), id="x")])] == [("t4", "x")]


def test_what_minhash_proposes_is_what_comparing_all_would_find() -> None:
    a, b = ITEMS["dev"], ITEMS["test"]
    said = particular({(s, i.id): pieces_of(i.instruction) for s, items in enumerate((a, b)) for i in items})
    given = particular({(s, i.id): lines_of(i.files) for s, items in enumerate((a, b)) for i in items})

    def similarity(one: Item, other: Item) -> float:
        words, files = jaccard(said[0, one.id], said[1, other.id]), (given[0, one.id], given[1, other.id])
        return min(words, jaccard(*files)) if all(files) else words

    expected = {(x.id, y.id) for x, y in product(a, b) if similarity(x, y) >= 0.1}
    assert expected and {(p.a, p.b) for p in overlaps(a, b, threshold=0.1)} == expected


def test_g25_a_copy_under_its_own_id_is_found() -> None:
    copies = [replace(item) for item in SEEDED]
    assert [(p.a, p.exact) for p in overlaps(ITEMS["train"], copies)] == [(i.id, True) for i in sorted(SEEDED, key=_id)]
    assert overlaps(copies, copies) == []


def _id(item: Item) -> str:
    return item.id


def test_instructions_alone_can_be_compared() -> None:
    moved = [replace(SEEDED[0], id="x", files={"other.txt": b"quite another file\nwith other lines"})]
    assert overlaps(ITEMS["train"], moved) == []
    assert [p.a for p in overlaps(ITEMS["train"], moved, by="instruction")] == [SEEDED[0].id]


def test_directories_and_lines_are_read(tmp_path: Path) -> None:
    for task in TRAIN[:2]:
        write_task_dir(task, tmp_path / "tasks" / task.id)
    assert read_items(tmp_path / "tasks") == sorted(items_of(TRAIN[:2]), key=lambda item: item.id)
    assert read_items(tmp_path / "tasks" / TRAIN[0].id) == items_of(TRAIN[:1])
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"instruction": "Do it.", "id": "a", "files": {"x": "y"}}\n\n{"instruction": "Do that."}\n')
    assert read_items(lines) == [Item("a", "Do it.", {"x": b"y"}), Item("line-3", "Do that.")]


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "holds no task"), ("{", "1: is no JSON"), ('{"goal": 1}', "1: expected an object with `instruction`"),
     ('{"instruction": "a", "id": "x"}\n{"instruction": "b", "id": "x"}', "'x' comes twice")],
)  # fmt: skip
def test_what_is_no_list_of_tasks_is_named(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(NotTasks, match=why):
        read_items(path)
    for wrong in (tmp_path / "missing", tmp_path):
        with pytest.raises(NotTasks, match=r"neither a split|no task directories"):
            read_items(wrong)
