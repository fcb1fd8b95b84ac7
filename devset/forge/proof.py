"""What a trial is to try for a workflow, and which composition rules its facts break: C1 to C7, C9, C11 by doing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from devset.families.skill import Check
from devset.families.wrong import generic_mutants
from devset.forge.rules import Violation, read_by
from devset.forge.trial import Calls, Facts, Part, Plan
from devset.forge.workflow import Workflow, frame_of


def plan_of(flow: Workflow) -> Plan:
    parts = [
        Part(
            oracle=[step.command for step in node.made.terminal or ()],
            stale=[step.command for step in (node.stale.terminal or () if node.stale else ())],
            pre=_calls(node.made.pre),
            post=[call for post in node.made.post for call in _calls(post.checks)],
            mutants={**node.made.mutants, **generic_mutants(node.made)},
            equivalents=node.made.equivalents,
            below=sorted(flow.below(index)),
            fed=[edge.target for edge in flow.edges if edge.source == index and edge.slot],
            documents=[path for path in node.made.writes if path in read_by(node.made.post)],
        )
        for index, node in enumerate(flow.nodes)
    ]
    secrets = [n for node in flow.nodes if flow.hybrid and node.made.terminal is None for n in node.made.nonces]
    frame = [call for post in frame_of(flow) for call in _calls(post.checks)]
    return Plan(parts, flow.orders(), sorted(flow.writes), frame, secrets)


def _calls(checks: tuple[Check, ...]) -> Calls:
    return [(check.name, dict(check.slots)) for check in checks]


def broken(flow: Workflow, facts: Facts) -> list[Violation]:
    """The rules that the facts of its trial break, in the order of the rules; nodes are numbered from 1."""
    if flow.hybrid:
        return list(_channel_truth(facts))
    found = [*_enablement(facts), *_stability(facts), *_necessity(flow, facts), *_not_satisfied(facts)]
    found += [*_frame(facts), *_nonce_flow(flow, facts), *_order_freedom(facts), *_closed(facts)]
    return sorted(found, key=lambda v: int(v.rule[1:]))


def _enablement(facts: Facts) -> Iterator[Violation]:
    for number, why in facts.unready.items():
        yield Violation("C1", f"what node {number} needs does not hold when it is its turn: {why}")
    for label, why in facts.failed.items():
        yield Violation("C1", f"the oracle of {label} fails: {why}")


def _stability(facts: Facts) -> Iterator[Violation]:
    """Node by node: false until its turn, true from then on, whatever comes later."""
    for walk in facts.walks:
        for node in range(len(walk[0])):
            seen = [state[node] for state in walk]
            if any(before and not after for before, after in pairwise(seen)):
                yield Violation("C2", f"what node {node + 1} has done is undone by a later one")
                return


def _necessity(flow: Workflow, facts: Facts) -> Iterator[Violation]:
    for node, holds in enumerate(facts.without):
        if holds[node]:
            yield Violation("C3", f"node {node + 1} counts as done without having been done")
        for other, done in enumerate(holds):
            if not done and other != node and other not in flow.below(node):
                yield Violation("C3", f"without node {node + 1}, node {other + 1} fails, which does not depend on it")


def _not_satisfied(facts: Facts) -> Iterator[Violation]:
    for number, held in enumerate(facts.walks[0][0], 1):
        if held:
            yield Violation("C4", f"node {number} is done before anything was done")


def _frame(facts: Facts) -> Iterator[Violation]:
    if facts.changed:
        yield Violation("C5", f"the oracle changes what no node is to write: {', '.join(facts.changed[:5])}")
    if not all(facts.framed):
        yield Violation("C5", "the oracle changes a given file of the frame")


def _nonce_flow(flow: Workflow, facts: Facts) -> Iterator[Violation]:
    for edge in flow.edges:
        if edge.slot and facts.without[edge.source][edge.target]:
            yield Violation("C6", f"node {edge.target + 1} can be done without node {edge.source + 1}, which feeds it")


def _order_freedom(facts: Facts) -> Iterator[Violation]:
    for number, walk in enumerate(facts.walks):
        if not all(walk[-1]):
            lacking = ", ".join(str(n) for n, done in enumerate(walk[-1], 1) if not done)
            which = "the order of the nodes" if number == 0 else "another order that the edges allow"
            yield Violation("C7", f"{which} does not succeed: node {lacking} fails")


def _closed(facts: Facts) -> Iterator[Violation]:
    if facts.locked:
        yield Violation("C9", f"a document is still open after its node: {facts.locked[0]}")


def _channel_truth(facts: Facts) -> Iterator[Violation]:
    if facts.shown:
        yield Violation("C11", f"a terminal can read what only a screen was to show: {facts.shown[0]}")
    if all(facts.by_terminal):
        yield Violation("C11", "a terminal alone does all of it")
