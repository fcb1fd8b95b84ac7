"""The composition rules as far as they can be seen without running anything: C2, C6, C8, C9, C10, C11 and the schema.

Resources are paths below the home (or whatever URI a skill writes): one touches another when it is the same or lies in
it. What these rules can't see, the trial (devset.forge.trial) and the gate (evolver.composed) execute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import JsonValue

from devset.families.skill import Check, Post, check_program, fields_of
from devset.forge.flow import output_of, whole
from devset.forge.ports import OUTPUTS
from devset.forge.trial import touches
from devset.forge.workflow import Workflow, frame_of, posts_of
from devset.task import Task

KIND = re.compile(r"\*(\.\w+)")


@dataclass(frozen=True)
class Violation:
    """A rule (`schema`, `C1` to `C11`, `leak`) and what breaks it; nodes are numbered from 1."""

    rule: str
    why: str


Rule = Callable[[Workflow, Task], Iterator[Violation]]


def violations(flow: Workflow, task: Task) -> list[Violation]:
    """What the schema and the static rules have against the workflow and its task; of one skill, those that are not
    about several."""
    return [found for rule in (STATIC if len(flow.nodes) > 1 else ALONE) for found in rule(flow, task)]


def resources(checks: Iterable[Check]) -> frozenset[str]:
    """The resources that checks read: their `path`, and the paths in `files`."""

    def of(name: str, value: JsonValue) -> list[str]:
        if name == "path" and isinstance(value, str):
            return [value]
        return list(value) if name == "files" and isinstance(value, dict) else []

    return frozenset(path for c in checks for name, value in c.slots.items() for path in of(name, value))


def read_by(posts: Iterable[Post]) -> frozenset[str]:
    return frozenset(path for post in posts for path in resources(post.checks))


def says(text: str, word: str) -> bool:
    return whole(word).search(text) is not None


def schema(flow: Workflow, task: Task) -> Iterator[Violation]:
    """Different skills, one set of files, every slot said or secret, every edge a slot, one window at the start."""
    if len(set(flow.skills)) < len(flow.skills):
        yield Violation("schema", "a skill occurs twice")
    if any(node.made.infeasible for node in flow.nodes):
        yield Violation("schema", "a skill can't be done")
    paths = [path for node in flow.nodes for path in node.made.files]
    for one in sorted({path for path in paths if paths.count(path) > 1}):
        yield Violation("schema", f"two nodes give {one}")
    for edge in flow.edges:
        if edge.slot and edge.slot not in flow.nodes[edge.target].family.slots:
            yield Violation("schema", f"node {edge.target + 1} has no slot {edge.slot!r}")
    for number, node in enumerate(flow.nodes, 1):
        if unknown := sorted({f for wording in node.made.wordings for f in fields_of(wording)} - set(node.made.slots)):
            yield Violation("schema", f"node {number} has no slot {unknown[0]!r}, which its wording names")
    yield from _by_kind(flow)
    if sum(bool(node.made.open) for node in flow.nodes) > 1 or any(node.made.open for node in flow.nodes[1:]):
        yield Violation("schema", "an application that is open from the start must belong to the first node alone")
    if named := sorted(skill for skill in task.skills if skill in task.instruction):
        yield Violation("schema", f"the instruction names the family {named[0]}")


def _by_kind(flow: Workflow) -> Iterator[Violation]:
    """A skill that says "the .md file there", which shows as a wildcard in its oracle, must have it to itself."""
    for number, node in enumerate(flow.nodes, 1):
        kinds = {kind for step in node.made.terminal or () for kind in KIND.findall(step.command)}
        folders = {PurePosixPath(path).parent for path in (*node.made.files, *node.made.writes)}
        for other in (n for n in flow.nodes if n is not node):
            for path in map(PurePosixPath, sorted({*other.made.files, *other.made.writes})):
                if path.suffix in kinds and path.parent in folders:
                    yield Violation("schema", f"node {number} picks files by their kind, and {path} is of another")


def c2_stability(flow: Workflow, task: Task) -> Iterator[Violation]:
    """No node writes what the criteria of another read, unless it must come before that other."""
    for j, writer in enumerate(flow.nodes):
        for i, node in enumerate(flow.nodes):
            if i == j or i in flow.below(j):
                continue
            for path in sorted(w for w in writer.made.writes if any(touches(w, r) for r in read_by(node.made.post))):
                yield Violation("C2", f"node {j + 1} writes {path}, which the criteria of node {i + 1} read")


def c6_nonce_flow(flow: Workflow, task: Task) -> Iterator[Violation]:
    """What flows is a secret of its source, and what stood in the slot before is gone."""
    for edge in (e for e in flow.edges if e.slot):
        source, target = flow.nodes[edge.source], flow.nodes[edge.target]
        if source.family.name not in OUTPUTS:
            yield Violation("C6", f"node {edge.source + 1} leaves nothing behind that could flow")
            continue
        value, _ = output_of(source.family, source.made)
        if not any(says(value, nonce) for nonce in source.made.nonces):
            yield Violation("C6", f"what flows from node {edge.source + 1} is no secret of it")
        old = None if target.stale is None else str(target.stale.slots.get(edge.slot))
        if old is None or old == value or any(says(str(c.slots), old) for p in target.made.post for c in p.checks):
            yield Violation("C6", f"node {edge.target + 1} does not depend on what flows into it")


def leak(flow: Workflow, task: Task) -> Iterator[Violation]:
    """A secret stands in no word of the instruction and in no given file but its own (rule C6)."""
    texts = {path: data.decode("utf-8", "ignore") for path, data in task.exec_files.items()}
    started = " ".join([task.setup, *(app.command for app in task.open)])
    for number, node in enumerate(flow.nodes, 1):
        for nonce, home in node.made.nonces.items():
            if says(task.instruction, nonce):
                yield Violation("leak", f"the instruction says a secret of node {number}")
            for path in sorted(path for path, text in texts.items() if path != home and says(text, nonce)):
                yield Violation("leak", f"a secret of node {number} is in {path}")
            if says(started, nonce):
                yield Violation("leak", f"the set-up says a secret of node {number}")


def c8_final_state(flow: Workflow, task: Task) -> Iterator[Violation]:
    """What a node is scored by is in the final state: a resource that it writes and that no other node writes over."""
    for i, node in enumerate(flow.nodes):
        if node.made.infeasible:
            continue
        scored = {w for w in node.made.writes if any(touches(w, r) for r in read_by(node.made.post))}
        if not scored:
            yield Violation("C8", f"no criterion of node {i + 1} reads what it writes")
        for j in flow.below(i):
            for path in sorted(scored & set(flow.nodes[j].made.writes)):
                yield Violation("C8", f"what node {i + 1} does to {path} is written over by node {j + 1}")


def c9_one_writer(flow: Workflow, task: Task) -> Iterator[Violation]:
    """Two nodes on one document, of which at least one writes it, stand in an order."""
    for i, one in enumerate(flow.nodes):
        for j in range(i + 1, len(flow.nodes)):
            other = flow.nodes[j].made
            used = {*one.made.files, *one.made.reads, *one.made.writes}, {*other.files, *other.reads, *other.writes}
            shared = {w for w in one.made.writes if any(touches(w, u) for u in used[1])}
            shared |= {w for w in other.writes if any(touches(w, u) for u in used[0])}
            if shared and j not in flow.below(i):
                yield Violation("C9", f"nodes {i + 1} and {j + 1} work on {min(shared)} in no order")


def c10_conjunction(flow: Workflow, task: Task) -> Iterator[Violation]:
    """The rubric is every criterion of every node and the frame, all required, of one weight, graded by program."""
    post = [*(p for posts in posts_of(flow) for p in posts), *frame_of(flow)]
    ids = [c.id for c in task.rubric.criteria]
    if ids != [p.criterion for p in post]:
        yield Violation("C10", f"the rubric has {ids}, expected {[p.criterion for p in post]}")
    for criterion in task.rubric.criteria:
        if not criterion.required or criterion.weight != 1 or criterion.grader != "program":
            yield Violation("C10", f"criterion {criterion.id} must be required, of weight 1, and graded by program")
    if task.check != check_program(tuple(post)):
        yield Violation("C10", "the check program is not the nodes' atomic checks with their slots filled")


def c11_channel_truth(flow: Workflow, task: Task) -> Iterator[Violation]:
    """A workflow that no channel alone can do has a node whose input only a screen shows, and one without a GUI way."""
    if not flow.hybrid:
        return
    shown = [n for n in flow.nodes if n.made.terminal is None and n.family.gui_only and n.made.nonces]
    if not shown:
        yield Violation("C11", "it claims to be hybrid, but no node has a secret that only a screen shows")
    if all(node.made.gui is not None for node in flow.nodes):
        yield Violation("C11", "it claims to be hybrid, but every node can be done through the GUI")


STATIC: tuple[Rule, ...] = (
    schema,
    c2_stability,
    c6_nonce_flow,
    leak,
    c8_final_state,
    c9_one_writer,
    c10_conjunction,
    c11_channel_truth,
)
ALONE: tuple[Rule, ...] = (c8_final_state, leak)
