"""The lineage as a tree: where each harness stands, and which closed branches are folded away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evolver.phrasing import short
from evolver.population import Population, standing

MOST_NODES = 150
CLOSED = ("reject", "inconclusive", "neutral")


@dataclass(frozen=True)
class Node:
    """One harness of the lineage tree; `x` is its generation, `y` its lane. `parents` are node ids. A node that stands
    for several closed ones is named by their number and has the verdict "folded"."""

    id: str
    name: str
    verdict: str
    parents: tuple[str, ...]
    x: int
    y: float
    on_path: bool


def layout(population: Population, on_path: set[str]) -> list[Node]:
    """Places: generation → x; leaves get lanes in the order of writing, a parent sits amid its children."""
    candidates = list(population.candidates)
    first = {c.harness_id: c.id for c in reversed(candidates)}
    ids = {c.id for c in candidates}
    parents: dict[str, tuple[str, ...]] = {}
    missing: dict[str, str] = {}
    for c in candidates:
        found = []
        for parent in c.parents:
            node = parent if parent in ids else first.get(parent)
            if node is None:
                node = f"missing:{parent}"
                missing[node] = parent
            found.append(node)
        parents[c.id] = tuple(p for p in found if p != c.id)
    order = [*missing, *(c.id for c in candidates)]
    depth = _depths(order, parents)
    lanes = _lanes(order, parents)
    nodes = [Node(n, f"{short(h)}, not in this run", "missing", (), 0, lanes[n], False) for n, h in missing.items()]
    for c in candidates:
        verdict = standing(c, population.decision_of.get(c.id))
        leads = c.harness_id in on_path and first[c.harness_id] == c.id
        nodes.append(Node(c.id, c.name, verdict, parents[c.id], depth[c.id], lanes[c.id], leads))
    return nodes


def folded(nodes: Sequence[Node], most: int = MOST_NODES) -> list[Node]:
    """The tree with at most about `most` marks: branches in which nothing lives become one mark a parent, "+12"."""
    if len(nodes) <= most:
        return list(nodes)
    first = {n.id: n.parents[0] if n.parents else None for n in nodes}
    living: set[str] = set()
    for node in nodes:
        if node.on_path or node.verdict not in CLOSED:
            at: str | None = node.id
            while at is not None and at not in living:
                living.add(at)
                at = first.get(at)
    hidden = Counter(_living_above(n.id, first, living) for n in nodes if n.id not in living)
    kept = [n for n in nodes if n.id in living]
    kept += [Node(f"folded:{at}", f"+{many}", "folded", (at,), 0, 0.0, False) for at, many in hidden.items() if at]
    parents = {n.id: n.parents[:1] for n in kept}
    order = [n.id for n in kept]
    depth = _depths(order, parents)
    lanes = _lanes(order, parents)
    return [replace(n, x=depth[n.id], y=lanes[n.id]) for n in kept]


def _living_above(node: str, first: Mapping[str, str | None], living: set[str]) -> str | None:
    seen: set[str] = set()
    at: str | None = node
    while at is not None and at not in living and at not in seen:
        seen.add(at)
        at = first.get(at)
    return at if at in living else None


def _depths(order: Sequence[str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """A parent is written before its child, so one pass is enough; a parent that comes later counts as generation 0."""
    depth: dict[str, int] = {}
    for node in order:
        depth[node] = 1 + max((depth.get(p, 0) for p in parents.get(node, ())), default=-1)
    return depth


def _lanes(order: Sequence[str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    children: dict[str, list[str]] = {node: [] for node in order}
    for node in order:
        for parent in parents.get(node, ())[:1]:
            children[parent].append(node)
    lanes: dict[str, float] = {}
    free = 0.0
    stack = [node for node in reversed(order) if not parents.get(node)]
    walked: list[str] = []
    while stack:
        node = stack.pop()
        walked.append(node)
        stack.extend(reversed(children[node]))
        if not children[node]:
            lanes[node], free = free, free + 1
    for node in reversed(walked):
        if children[node]:
            inner = [lanes[c] for c in children[node]]
            lanes[node] = sum(inner) / len(inner)
    return {node: lanes.get(node, free) for node in order}
