"""A harness that a reader of the pages writes: its files as they stand, what is wrong with them, what it would cost.

Everything here is bytes in memory and TOML that is parsed; nothing of a draft is ever run in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import streamlit as st

from dashboards.views import Story
from evolver.compare import detectable_effect
from evolver.decide import confirm_steps, steps
from evolver.phrasing import UNKNOWN, count
from harnesses.harness import Harness
from harnesses.tree import HarnessError, Tree, harness_from_files

WHOLE = ""  # what concerns no single file
NEW_BYTES = b""


@dataclass
class Edits:
    """Files that are being edited. `before` is what they are compared with: the files of the parent."""

    before: Mapping[str, bytes]
    files: dict[str, bytes]
    executable: set[str] = field(default_factory=set)

    def tree(self) -> Tree:
        return Tree(self.files, self.executable | {path for path, data in self.files.items() if data[:2] == b"#!"})

    def mark(self, path: str) -> str:
        """What became of a file: "new", "changed", "removed" or nothing."""
        if path not in self.files:
            return "removed"
        if path not in self.before:
            return "new"
        return "changed" if self.files[path] != self.before[path] else ""

    @property
    def paths(self) -> list[str]:
        """All files, those that were taken away included."""
        return sorted(self.before.keys() | self.files.keys())


def edits_of(origin: str, parent: Harness, start: Tree) -> Edits:
    """The reader's edits of files that came from `origin` (a parent, or an upload), kept until the session ends."""
    known: dict[str, Edits] = st.session_state.setdefault("drafts", {})
    if origin not in known:
        known[origin] = Edits(parent.files, dict(start), set(start.executable))
    return known[origin]


def checked(tree: Mapping[str, bytes]) -> tuple[Harness | None, dict[str, list[str]]]:
    """The harness that the files are, or path → what is wrong in it (`WHOLE`: in no single file)."""
    try:
        return harness_from_files(tree), {}
    except HarnessError as error:
        wrong: dict[str, list[str]] = {}
        for line in error.lines:
            path, _, rest = line.partition(": ")
            place = path.strip("'\"")
            wrong.setdefault(place if rest and place in tree else WHOLE, []).append(
                rest if rest and place in tree else line
            )
        return None, wrong


def price(story: Story) -> str:
    """What deciding one candidate takes at most, and what lead it would see; from the incumbent's own attempts."""
    rules, incumbent = story.run.config.race, story.incumbent
    raced = story.evaluation(incumbent, "race") if incumbent else None
    if raced is None:
        return "What a race takes is not known yet: the incumbent has not been raced."
    last, most = steps(rules, 1)[-1], confirm_steps(rules)[-1]
    rollouts = raced.n_tasks * (last.attempts + last.pool - 1)
    lead = detectable_effect(raced.n_tasks, last.attempts, rules.screen_alpha)
    each = raced.tokens_per_task.point
    tokens = UNKNOWN if each is None else f"about {count(rollouts * each)}"
    confirmed = story.run.config.tasks.select
    select = "as many attempts on each task of select" if confirmed is None else f"{2 * confirmed * most.attempts:,}"
    return (
        f"A race to its last look takes {rollouts:,} rollouts ({tokens} tokens at the incumbent's rate), its "
        f"confirmation at most {select} more; on {raced.n_tasks} dev tasks a lead of about {100 * lead:.0f} pp is seen "
        "with power 80 %."
    )
