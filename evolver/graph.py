"""A lineage drawn as `git log --graph` draws commits: pure, from the newest candidate to the root.

The commits themselves would not do: a harness that the library had before it was proposed has no parent there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the drawing: the rails, and the node that stands here (None on a line of rails alone)."""

    rails: str
    node: str | None = None


def draw(nodes: Sequence[str], parents: Mapping[str, Sequence[str]], trunk: str | None = None) -> list[Row]:
    """One row a node, and rows of rails between them. `nodes` are newest first, so that children come before parents;
    a parent that is no node is not drawn. The way from `trunk` down keeps the leftmost rail.
    """
    known = set(nodes)
    rails: list[str] = [trunk] if trunk in known else []  # the node that each rail leads down to
    hidden = trunk in known  # nothing leads to the trunk's tip from above
    rows: list[Row] = []
    for node in nodes:
        if node not in rails:
            rails.append(node)
        at = rails.index(node)
        hidden = hidden and node != trunk
        marks = ["*" if i == at else " " if hidden and i == 0 else "|" for i in range(len(rails))]
        rows.append(Row(" ".join(marks), node))
        above = [parent for parent in dict.fromkeys(parents.get(node, ())) if parent in known]
        if not above:
            del rails[at]
            if at < len(rails):
                rows.append(Row(_shifted(at, len(rails))))
            continue
        rails[at] = above[0]
        for parent in above[1:]:
            width = len(rails)
            if parent not in rails:
                rails.append(parent)
            rows.append(Row(_reached(at, rails.index(parent), width)))
        rows += _merged(rails, hidden)
    return rows


def _merged(rails: list[str], hidden: bool) -> list[Row]:
    """Rails that lead to the same node become one, the rightmost first."""
    rows = []
    for right in range(len(rails) - 1, 0, -1):
        left = rails.index(rails[right])
        if left < right:
            rows.append(Row(_joined(left, right, len(rails), hidden)))
            del rails[right]
            if right < len(rails):
                rows.append(Row(_shifted(right, len(rails))))
    return rows


def _joined(left: int, right: int, width: int, hidden: bool) -> str:
    """`|_|/`: the rail at `right` ends in that at `left`."""
    line = list(" ".join(" " if hidden and i == 0 else "|" for i in range(width)))
    line[2 * right] = " "
    line[2 * right - 1] = "/"
    for gap in range(2 * left + 1, 2 * right - 1, 2):
        line[gap] = "_"
    return "".join(line).rstrip()


def _reached(at: int, parent: int, width: int) -> str:
    r"""`|\`: the rail at `at` sends a second one to `parent`, left or right of it, which may be a new one."""
    line = list(" ".join("|" for _ in range(width)).ljust(2 * max(at, parent)))
    left, right = min(at, parent), max(at, parent)
    line[2 * right - 1] = "\\" if parent > at else "/"
    for gap in range(2 * left + 1, 2 * right - 1, 2):
        line[gap] = "_"
    return "".join(line)


def _shifted(first: int, width: int) -> str:
    """The rails from `first` on move one place to the left."""
    return " ".join("|" for _ in range(first)) + (" /" * (width - first) if first else "/ " * (width - first)).rstrip()
