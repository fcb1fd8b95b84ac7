"""Finds tasks of one set that another set has too, whole or nearly: the gate between train and test.

A duplicate is the same template with the same values; the same template with other values is another task, which is
how families make many tasks. So two tasks are compared by what is particular to them: 5-letter pieces of the
instruction, and lines of the given files, are left out where more than `SHARED` tasks have them (wordings of a family,
styles of a document), unless hardly anything would be left. Similarity is the Jaccard index of the instructions or that
of the files, whichever is lower; where one of the two brings no files (a list of goals), that of the instructions.
MinHash (datasketch) proposes the pairs, the sets themselves are then compared. A paraphrase is not found this way.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from devset.directory import read_task_dir
from devset.extracts import text_of
from devset.task import Task

THRESHOLD = 0.7  # train and test of the shared splits stay below 0.25
SHARED = 20  # tasks: what more of them have says nothing of one
LETTERS = 5
FEWEST = 3  # pieces that must be left for them to be compared alone
PERMUTATIONS = 128
RECALL = 0.6  # pairs are proposed at this share of the threshold, so that hardly one is missed
By = Literal["both", "instruction"]
Features = frozenset[str]


class NotTasks(ValueError):
    """A path that holds no tasks; the message names file, line and what was expected."""


@dataclass(frozen=True)
class Item:
    """What is compared of a task: the instruction, and the files that it gives (path → bytes)."""

    id: str
    instruction: str
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """Two tasks that are alike, 0..1. `files` is None where one of them gives none; `exact` means the same bytes."""

    a: str
    b: str
    similarity: float
    instruction: float
    files: float | None
    exact: bool


def items_of(tasks: Iterable[Task]) -> list[Item]:
    """A task's set-up script counts as a file: it may hold the values."""
    return [
        Item(
            t.id,
            t.instruction,
            {**t.exec_files, **t.hidden_files, **({"setup.sh": t.setup.encode()} if t.setup else {})},
        )
        for t in tasks
    ]


def read_items(path: Path) -> list[Item]:
    """The tasks of a task directory, of a directory of them, or of a file of JSON lines with `instruction`, and `id`
    and `files` (path → text) where there are any. Raises NotTasks, or TaskError for a broken directory."""
    if path.is_dir():
        found = [path] if (path / "task.toml").is_file() else [p.parent for p in sorted(path.glob("*/task.toml"))]
        if not found:
            raise NotTasks(f"{path}: no task directories in it (a task directory has a task.toml)")
        return items_of(map(read_task_dir, found))
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NotTasks(f"{path}: is neither a split, nor a directory of tasks, nor JSON lines ({error})") from None
    items = [_item(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    twice = [name for name, n in Counter(item.id for item in items).items() if n > 1]
    if twice or not items:
        raise NotTasks(f"{path}: " + (f"the id {twice[0]!r} comes twice" if twice else "holds no task"))
    return items


def overlaps(a: Sequence[Item], b: Sequence[Item], threshold: float = THRESHOLD, by: By = "both") -> list[Pair]:
    """Pairs of a task of `a` and one of `b` that are at least so alike, the most alike first; the order of the sets
    changes nothing but which of the two comes first. A set compared with itself (the same object) leaves out each
    task's pair with itself."""
    from datasketch import MinHash, MinHashLSH

    said = _particular({(side, i.id): pieces_of(i.instruction) for side, items in enumerate((a, b)) for i in items})
    given = _particular({(side, i.id): lines_of(i.files) for side, items in enumerate((a, b)) for i in items})
    index = MinHashLSH(threshold=threshold * RECALL, num_perm=PERMUTATIONS, weights=(0.1, 0.9))
    sketches = dict(
        zip(said, MinHash.bulk(([p.encode() for p in said[k]] for k in said), num_perm=PERMUTATIONS), strict=True)
    )
    of_b = {item.id: item for item in b}
    for name in of_b:
        index.insert(name, sketches[1, name])
    pairs: list[Pair] = []
    for item in a:
        for name in index.query(sketches[0, item.id]):
            instruction = jaccard(said[0, item.id], said[1, name])
            one, other = given[0, item.id], given[1, name]
            files = jaccard(one, other) if one and other and by == "both" else None
            similarity = instruction if files is None else min(instruction, files)
            exact = (item.instruction, item.files) == (of_b[name].instruction, of_b[name].files)
            if similarity >= threshold and not (a is b and item.id == name):
                pairs.append(Pair(item.id, name, similarity, instruction, files, exact))
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.a, pair.b))


def jaccard(one: Features, other: Features) -> float:
    """The share of features that two tasks have in common, 0..1; 1 when neither has any."""
    whole = len(one | other)
    return len(one & other) / whole if whole else 1.0


def _particular(features: Mapping[tuple[int, str], Features]) -> dict[tuple[int, str], Features]:
    """The features of each task without those that more than `SHARED` tasks have; all of them where few are left."""
    counts = Counter(one for found in features.values() for one in found)
    kept = {key: frozenset(one for one in found if counts[one] <= SHARED) for key, found in features.items()}
    return {key: kept[key] if len(kept[key]) >= FEWEST else found for key, found in features.items()}


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def pieces_of(text: str) -> Features:
    """Every run of `LETTERS` letters of the words of a text, in lower case."""
    words = _words(text)
    return frozenset(words[at : at + LETTERS] for at in range(max(1, len(words) - LETTERS + 1)))


def lines_of(files: Mapping[str, bytes]) -> Features:
    """The paths of files, and the lines of their texts; of a file without text the hash."""
    found: set[str] = set()
    for path, data in files.items():
        text = text_of(data)
        found.add(f"path {_words(path)}")
        found |= {hashlib.sha256(data).hexdigest()} if text is None else {_words(line) for line in text.splitlines()}
    return frozenset(found - {""})


def _item(path: Path, number: int, line: str) -> Item:
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise NotTasks(f"{path}:{number}: is no JSON: {error}") from None
    files = raw.get("files", {}) if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(raw.get("instruction"), str) or not isinstance(files, dict):
        raise NotTasks(f"{path}:{number}: expected an object with `instruction`, got {line[:80]!r}")
    texts = {str(name): str(text).encode() for name, text in files.items()}
    return Item(str(raw.get("id", f"line-{number}")), raw["instruction"], texts)
