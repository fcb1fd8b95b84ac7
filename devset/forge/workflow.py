"""A workflow: skills with filled slots, what flows between them, and the one task that they make."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from devset.families.skill import Binding, Family, Post, check_program, frame
from devset.forge.flow import fed
from devset.forge.wording import drawn, joined
from devset.task import (
    Channel,
    Criterion,
    GuiStep,
    Oracle,
    Rubric,
    Task,
    TaskLimits,
    TerminalStep,
    task_hash,
)

CLOSING = {"chromium": "ctrl+w"}  # what closes the last window of an app; any other app takes ctrl+q
SEEDS = 10**9  # the skills of workflows are bound with seeds from here on, which no instance of a split has


@dataclass(frozen=True)
class Node:
    """One skill of a workflow, bound with `seed`. `stale` is its binding from before a value flowed into it: a wrong
    solution."""

    family: Family
    made: Binding
    stale: Binding | None = None
    seed: int = SEEDS


@dataclass(frozen=True)
class Edge:
    """What node `source` leaves behind goes into `slot` of node `target`; without a slot it is the order alone."""

    source: int
    target: int
    slot: str = ""


@dataclass(frozen=True)
class Workflow:
    """`nodes` stand in an order in which they can be done: every edge leads forward."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    seed: int

    def __post_init__(self) -> None:
        if any(not 0 <= e.source < e.target < len(self.nodes) for e in self.edges):
            raise ValueError(f"edges must lead forward among {len(self.nodes)} nodes, got {self.edges}")

    @property
    def skills(self) -> tuple[str, ...]:
        return tuple(node.family.name for node in self.nodes)

    @property
    def apps(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(app for node in self.nodes for app in node.family.apps))

    @property
    def channels(self) -> frozenset[Channel]:
        """The channels that every one of its skills has an oracle for."""
        each = [Oracle(terminal=n.made.terminal, gui=n.made.gui).channels for n in self.nodes]
        return frozenset.intersection(*each)

    @property
    def hybrid(self) -> bool:
        """Whether it claims that no channel alone can do it."""
        return not self.channels

    def below(self, source: int) -> frozenset[int]:
        """The nodes that come after node `source` by some path of edges."""
        found: set[int] = set()
        for edge in sorted(self.edges, key=lambda e: e.source):
            if edge.source == source or edge.source in found:
                found.add(edge.target)
        return frozenset(found)

    def orders(self) -> tuple[tuple[int, ...], ...]:
        """The order of the nodes, and the one that is furthest from it where the edges leave a choice."""
        left, other = set(range(len(self.nodes))), []
        while left:
            ready = [n for n in left if not any(e.target == n and e.source in left for e in self.edges)]
            other.append(max(ready))
            left.remove(max(ready))
        first = tuple(range(len(self.nodes)))
        return (first,) if tuple(other) == first else (first, tuple(other))

    @property
    def writes(self) -> frozenset[str]:
        return frozenset(path for node in self.nodes for path in node.made.writes)

    @property
    def path(self) -> str:
        """The canonical path: skills by app/object/verb and slot types, and what flows. It says nothing of names, of
        nonces, or of the order of skills that do not depend on each other: instances of one template share it."""
        return path_of([node.family for node in self.nodes], self.edges)

    @property
    def template(self) -> str:
        """A short name of the canonical path, the same for all of its instances."""
        return hashlib.sha256(self.path.encode()).hexdigest()[:10]


def path_of(chosen: Sequence[Family], edges: Sequence[Edge]) -> str:
    """The canonical path of a workflow of these skills, before its slots are filled."""
    keys = [_key(family) for family in chosen]
    flows = sorted(f"{keys[e.source]}>{keys[e.target]}:{e.slot or 'order'}" for e in edges)
    return " + ".join(sorted(keys)) + "".join(f" | {flow}" for flow in flows)


def _key(family: Family) -> str:
    types = ",".join(sorted(slot.type + "*" * slot.nonce for slot in family.slots.values()))
    return f"{'/'.join(family.path)}({types})"


def bound(chosen: Sequence[Family], edges: Sequence[Edge], seed: int) -> Workflow:
    """The workflow of these families: its slots are filled by `seed`, and values flow along the edges.

    Raises `DoesNotFit` where a value can't take a slot's place.
    """
    nodes: list[Node] = []
    for index, family in enumerate(chosen):
        own = SEEDS + Random(f"{seed}/{index}").randrange(SEEDS)
        made = family.binding(own)
        node = Node(family, made, seed=own)
        for edge in edges:
            if edge.target == index and edge.slot:
                source = nodes[edge.source]
                given = fed(family, node.made, edge.slot, (source.family, source.made), Random(f"{seed}/{index}/flow"))
                node = Node(family, given, stale=made, seed=own)
        nodes.append(node)
    return Workflow(tuple(nodes), tuple(edges), seed)


def posts_of(flow: Workflow) -> list[tuple[Post, ...]]:
    """Per node its criteria, under names that tell the nodes apart."""
    return [
        tuple(replace(post, criterion=f"{post.criterion}_{number}") for post in node.made.post)
        for number, node in enumerate(flow.nodes, 1)
    ]


def frame_of(flow: Workflow) -> tuple[Post, ...]:
    """The criterion of every given file that no node writes."""
    return frame(given(flow), flow.writes)


def given(flow: Workflow) -> dict[str, bytes]:
    """The files that the home starts with."""
    return {path: data for node in flow.nodes for path, data in node.made.files.items()}


def instruction(flow: Workflow) -> str:
    rng = Random(f"{flow.seed}/wording")
    said = [(drawn(node.made.wordings, rng), node.made.slots) for node in flow.nodes]
    parts = [(wording, wording.format(**slots)) for wording, slots in said]
    follows = [any(edge.target == index for edge in flow.edges) for index in range(len(flow.nodes))]
    return joined(parts, follows, rng)


def task_of(flow: Workflow) -> Task:
    """One task: the nodes' files side by side, success = all their criteria and the frame, oracles in a row. A skill by
    itself is an instance of its family."""
    if len(flow.nodes) == 1:
        return flow.nodes[0].family.instance(flow.nodes[0].seed)
    post = [*(p for posts in posts_of(flow) for p in posts), *frame_of(flow)]
    channels, count = flow.channels, len(flow.nodes)
    alone = TaskLimits()
    setups = [node.made.setup.strip() for node in flow.nodes if node.made.setup.strip()]
    task = Task(
        id=f"multi.{flow.template}-{flow.seed:04d}",
        hash="",
        family=f"multi.{flow.template}",
        seen_in_training=for_training(flow.skills, {n.family.name: n.family for n in flow.nodes}),
        instruction=instruction(flow),
        category="multi_app" if len(flow.apps) > 1 else flow.nodes[0].family.category,
        apps=flow.apps,
        channels=channels,
        rubric=Rubric(criteria=tuple(Criterion(id=p.criterion, description=p.description) for p in post)),
        limits=TaskLimits(
            agent_timeout_s=alone.agent_timeout_s * count,
            setup_timeout_s=alone.setup_timeout_s * count,
            check_timeout_s=alone.check_timeout_s,
        ),
        open=tuple(app for node in flow.nodes for app in node.made.open),
        exec_files=given(flow),
        setup="\n".join(f"( {setup}\n) || exit 1" for setup in setups),
        check=check_program(tuple(post)),
        oracle=Oracle(
            terminal=_terminal(flow.nodes) if "terminal" in channels else None,
            gui=_gui(flow.nodes) if "gui" in channels else None,
        ),
        requires_pip=tuple(sorted({name for node in flow.nodes for name in node.family.requires_pip})),
        source=f"devset.forge: {' + '.join(flow.skills)}, seed {flow.seed}",
        skills=flow.skills,
    )
    return task.model_copy(update={"hash": task_hash(task)})


def _terminal(nodes: Sequence[Node]) -> tuple[TerminalStep, ...]:
    return tuple(step for node in nodes for step in node.made.terminal or ())


def _gui(nodes: Sequence[Node]) -> tuple[GuiStep, ...]:
    """The nodes' moves; between them the window that a node left open is closed, so that the desktop can be seen."""
    moves: list[GuiStep] = []
    for index, node in enumerate(nodes):
        if index and _opens(nodes[index - 1]):
            keys = CLOSING.get(nodes[index - 1].family.apps[-1], "ctrl+q")
            # It closes a moment after the key; a click before that would go into it.
            moves += (GuiStep(action="key", keys=keys, summary="Close the window"), GuiStep(action="wait", seconds=2.0))
        moves += node.made.gui or ()
    return tuple(moves)


def _opens(node: Node) -> bool:
    return bool(node.made.open) or any(step.action == "double_click" for step in node.made.gui or ())


def for_training(skills: Sequence[str], families: Mapping[str, Family]) -> bool:
    """Whether a task of these skills may be trained on: only when none of them is held out, by name or by path."""
    held = {family.path for family in families.values() if family.held_out}
    return all(not families[name].held_out and families[name].path not in held for name in skills)
