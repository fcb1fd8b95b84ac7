"""Finds a task that is an earlier one again, at four levels, the cheap ones first.

`bytes`: the same instruction, files, set-up and check. `canonical`: the same template with the same values in its
slots, so that only wording and filler differ. `shape`: another template, but checker and oracles that differ in nothing
but values (devset.forge.shapes). `text`: MinHash (datasketch) over what is particular to a task, that is pieces of the
instruction that its wordings don't bring and lines of given files that other instances of its skills lack. A task that
is held out is compared skill by skill, so that none is found again as a part of a composition.
"""

from __future__ import annotations

import base64
import hashlib
import json
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from devset.families.skill import Binding, Family
from devset.forge.shapes import SEEDS, shapes
from devset.forge.workflow import Node, Workflow
from devset.overlap import FEWEST, PERMUTATIONS, RECALL, THRESHOLD, Features, lines_of, pieces_of
from devset.task import Strict, Task

if TYPE_CHECKING:
    from datasketch import LeanMinHash, MinHashLSH

Level = Literal["bytes", "canonical", "shape", "text"]
LEVELS: tuple[Level, ...] = ("bytes", "canonical", "shape", "text")
Known = Mapping[str, Family]


class Print(Strict):
    """The fingerprints of a task: `shape` is its template with the shapes of its skills in place of their names,
    `sketch` a MinHash in base64 (empty where hardly anything is particular to the task)."""

    bytes: str
    canonical: str
    shape: str
    sketch: str


@dataclass(frozen=True)
class Twin:
    """A task that is there already, and the level at which the two are the same."""

    level: Level
    id: str


class Printed(Protocol):
    """A task of a set, as far as its duplicates go."""

    @property
    def id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def print(self) -> Print: ...


class Duplicates:
    """What is there so far. `held` tasks (dev, select, test) are never to be found again, whole or as a part."""

    def __init__(self, families: Known, held: Iterable[Task] = ()) -> None:
        from datasketch import MinHashLSH

        self._families = families
        self._shape: dict[str, str] = {}
        self._boilerplate: dict[str, Features] = {}
        self._bytes: dict[str, str] = {}
        self._canonical: dict[str, str] = {}
        self._shapes: dict[str, tuple[str, str]] = {}  # shape → the first task that had it, and its template
        self._sketches: dict[str, LeanMinHash] = {}
        self._index: MinHashLSH = MinHashLSH(threshold=THRESHOLD * RECALL, num_perm=PERMUTATIONS, weights=(0.1, 0.9))
        self._held: MinHashLSH = MinHashLSH(threshold=THRESHOLD * RECALL, num_perm=PERMUTATIONS, weights=(0.1, 0.9))
        self._held_slots: dict[str, str] = {}
        for task in held:
            self._hold(task)

    def twin(self, flow: Workflow, task: Task) -> tuple[Print, Twin | None]:
        """The task's fingerprints, and what it is the same as."""
        sketch, particular = self._sketch(*flow.nodes)
        made = Print(
            bytes=_digest(_content(task)),
            canonical=_digest([flow.path, *(_slots(node) for node in flow.nodes)]),
            shape=self._shape_of(flow),
            sketch=_packed(sketch) if particular else "",
        )
        return made, self._twin(flow, made)

    def _twin(self, flow: Workflow, made: Print) -> Twin | None:
        if again := self._again(flow.path, made):
            return again[0]
        for node in flow.nodes:
            if (held := self._held_slots.get(_digest(_slots(node)))) is not None:
                return Twin("canonical", held)
            sketch, particular = self._sketch(node)
            if particular and (found := _nearest(sketch, self._held, self._sketches)):
                return Twin("text", found)
        return None

    def levels(self, template: str, made: Print) -> list[Level]:
        """The levels at which a task is one that was added before."""
        return [twin.level for twin in self._again(template, made)]

    def _again(self, template: str, made: Print) -> list[Twin]:
        shape_of, shape_template = self._shapes.get(made.shape, ("", template))
        found: list[tuple[Level, str | None]] = [
            ("bytes", self._bytes.get(made.bytes)),
            ("canonical", self._canonical.get(made.canonical)),
            ("shape", shape_of if shape_template != template else None),
            ("text", _nearest(_unpacked(made.sketch), self._index, self._sketches) if made.sketch else None),
        ]
        return [Twin(level, other) for level, other in found if other is not None]

    def add(self, task_id: str, template: str, made: Print) -> None:
        self._bytes[made.bytes] = self._canonical[made.canonical] = task_id
        self._shapes.setdefault(made.shape, (task_id, template))
        if made.sketch:
            self._sketches[task_id] = _unpacked(made.sketch)
            self._index.insert(task_id, self._sketches[task_id])

    def _hold(self, task: Task) -> None:
        number = task.id.rpartition("-")[2]
        family = self._families.get(task.family)
        if family is not None and number.isdigit():
            node = Node(family, family.binding(int(number)))
            self._held_slots[_digest(_slots(node))] = task.id
            sketch, particular = self._sketch(node)
        else:
            features = pieces_of(task.instruction) | lines_of(task.exec_files)
            sketch, particular = _sketched(features), True
        self._bytes[_digest(_content(task))] = task.id
        if particular:
            self._sketches[task.id] = sketch
            self._held.insert(task.id, sketch)

    def _sketch(self, *nodes: Node) -> tuple[LeanMinHash, bool]:
        """The MinHash of what is particular to these skills as they are filled, and whether that is enough to go by."""
        features = frozenset[str]().union(*(self._particular(node) for node in nodes))
        return _sketched(features), len(features) >= FEWEST

    def _particular(self, node: Node) -> Features:
        made, name = node.made, node.family.name
        if name not in self._boilerplate:
            one, other = (lines_of(node.family.binding(seed).files) for seed in SEEDS[:2])
            self._boilerplate[name] = one & other
        return _filled(made) | (lines_of(made.files) - self._boilerplate[name])

    def _shape_of(self, flow: Workflow) -> str:
        for family in (node.family for node in flow.nodes):
            if family.name not in self._shape:
                self._shape[family.name] = min(shapes(family))
        names = [self._shape[node.family.name] for node in flow.nodes]
        edges = sorted(f"{names[e.source]}>{names[e.target]}" for e in flow.edges)
        return _digest([sorted(names), edges])


def _filled(made: Binding) -> Features:
    """Pieces of the wordings with the slots filled, without those that they bring themselves."""
    found: set[str] = set()
    for wording in made.wordings:
        literal = [text for text, *_ in string.Formatter().parse(wording)]
        found |= pieces_of(wording.format(**made.slots)) - frozenset().union(*(pieces_of(text) for text in literal))
    return frozenset(found)


def _slots(node: Node) -> list[object]:
    """The skill and the values of its slots."""
    return [node.family.name, sorted((name, str(value)) for name, value in node.made.slots.items())]


def _content(task: Task) -> list[object]:
    files = {path: hashlib.sha256(data).hexdigest() for path, data in task.exec_files.items()}
    return [task.instruction, files, task.setup, task.check]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()[:16]


def _sketched(features: Features) -> LeanMinHash:
    from datasketch import LeanMinHash, MinHash

    sketch = MinHash(num_perm=PERMUTATIONS)
    sketch.update_batch([one.encode() for one in features])
    return LeanMinHash(sketch)


def _packed(sketch: LeanMinHash) -> str:
    return base64.b64encode(np.asarray(sketch.hashvalues, dtype="<u4").tobytes()).decode()


def _unpacked(text: str) -> LeanMinHash:
    from datasketch import LeanMinHash, MinHash

    values = np.frombuffer(base64.b64decode(text), dtype="<u4").astype(np.uint64)
    plain = MinHash(num_perm=1)
    return LeanMinHash(seed=plain.seed, hashvalues=values, scheme=plain.scheme)


def _nearest(sketch: LeanMinHash, index: MinHashLSH, sketches: Mapping[str, LeanMinHash]) -> str | None:
    """The first task by name that is alike enough."""
    return next((name for name in sorted(index.query(sketch)) if sketch.jaccard(sketches[name]) >= THRESHOLD), None)


def twins(rows: Iterable[Printed]) -> dict[Level, list[str]]:
    """Per level the tasks of a set that are an earlier one of it again, by their fingerprints alone."""
    found: dict[Level, list[str]] = {level: [] for level in LEVELS}
    seen = Duplicates({})
    for row in rows:
        for level in seen.levels(row.path, row.print):
            found[level].append(row.id)
        seen.add(row.id, row.path, row.print)
    return found
