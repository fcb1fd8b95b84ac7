"""The composition rules by doing: runs the terminal oracles of a workflow in one home, in every way the rules ask for.

It runs inside a sandbox (`python3 -m devset.forge.trial PLAN.json HOME` prints facts as JSON) and needs nothing but the
checks. Going back to an earlier state is copying the home back, so the n + k ways cost commands, not machines.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from devset.checks import evaluate
from devset.checks.home import LOCK_FILE

STEP_S = 60.0
# Files that programs leave beside the work: nobody asked for them and nobody minds.
NOISE = (
    ".cache/*", ".config/*", ".local/share/recently-used.xbel*", ".local/share/gvfs-metadata/*", ".bash_history",
    ".python_history", ".pki/*", ".dbus/*", ".mozilla/*", f"*/{LOCK_FILE}", "*/.git/index",
)  # fmt: skip
Calls = list[tuple[str, Mapping[str, Any]]]  # (atomic check, its slots)


@dataclass(frozen=True)
class Part:
    """One node: its oracle's commands (none where it has no terminal oracle), its checks, other ways to do it."""

    oracle: Sequence[str]
    stale: Sequence[str]
    pre: Calls
    post: Calls
    mutants: Mapping[str, str]
    equivalents: Mapping[str, str]
    below: Sequence[int]
    fed: Sequence[int]
    documents: Sequence[str]


@dataclass(frozen=True)
class Plan:
    """What to try: `orders` are orders of the nodes, `writes` what may change, `frame` what may not."""

    parts: Sequence[Part]
    orders: Sequence[Sequence[int]]
    writes: Sequence[str]
    frame: Calls
    secrets: Sequence[str] = ()


@dataclass
class Facts:
    """What was seen. `walks` holds per order, before the first node and after each, which nodes' criteria hold;
    `without` holds per node what held after all but it were done. `unready` says of nodes (by number) what they needed
    and lacked when it was their turn, in any order. `changed` are paths outside of `writes`; the other maps say what
    succeeded."""

    walks: list[list[list[bool]]] = field(default_factory=list)
    unready: dict[str, str] = field(default_factory=dict)
    without: list[list[bool]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    framed: list[bool] = field(default_factory=list)
    mutants: dict[str, bool] = field(default_factory=dict)
    equivalents: dict[str, bool] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    by_terminal: list[bool] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Trial:
    """Holds the home and the states it can be put back to."""

    def __init__(self, plan: Plan, home: Path, store: Path) -> None:
        self.plan, self.home, self.store = plan, home, store
        self.facts = Facts()
        self.keep("initial")

    def keep(self, name: str) -> None:
        shutil.rmtree(self.store / name, ignore_errors=True)
        shutil.copytree(self.home, self.store / name, symlinks=True)

    def back(self, name: str) -> None:
        for left in self.home.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        shutil.copytree(self.store / name, self.home, symlinks=True, dirs_exist_ok=True)

    def do(self, commands: Iterable[str], label: str = "") -> None:
        """Runs the commands one after the other, each to its end whatever the one before came to. With a label, that of
        a command that fails is kept."""
        env = {**os.environ, "HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        env.pop("PYTHONPATH", None)  # the libraries of the checks are not those of the machine
        for command in commands:
            try:
                ran = subprocess.run(
                    ["bash", "-c", command], cwd=self.home, env=env, capture_output=True, text=True, timeout=STEP_S,
                    errors="replace", check=False, stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                self.facts.failed[label or command[:80]] = f"still ran after {STEP_S:g} s"
                continue
            if label and ran.returncode:
                self.facts.failed[label] = f"exit {ran.returncode}: {(ran.stderr or ran.stdout)[-200:]}"

    def holds(self) -> list[bool]:
        """Per node whether its criteria hold."""
        return [evaluate(self.home, part.post)[0] == 1.0 for part in self.plan.parts]

    def succeeds(self) -> bool:
        return all(self.holds()) and evaluate(self.home, self.plan.frame)[0] == 1.0

    # --- the ways ------------------------------------------------------------------------------------------------

    def walk(self, order: Sequence[int]) -> None:
        """The whole oracle in one order."""
        first = not self.facts.walks
        self.back("initial")
        before = tree(self.home)
        seen = [self.holds()]
        for node in order:
            part = self.plan.parts[node]
            ready, why = evaluate(self.home, part.pre)
            if ready != 1.0:
                self.facts.unready.setdefault(str(node + 1), why)
            self.do(part.oracle, f"node {node + 1}")
            seen.append(self.holds())
            if first:
                self.facts.locked += [f"{node + 1}: {path}" for path in locks(self.home)]
        self.facts.walks.append(seen)
        self.facts.framed.append(evaluate(self.home, self.plan.frame)[0] == 1.0)
        if first:
            self.facts.changed = outside(before, tree(self.home), self.plan.writes)
            if len(self.plan.parts) > 1:
                self.exchanged()

    def exchanged(self) -> None:
        """The right documents under each other's names: what two nodes wrote changes places."""
        written = [next((d for d in p.documents if (self.home / d).is_file()), None) for p in self.plan.parts]
        for i, one in enumerate(written):
            for j, other in enumerate(written[:i]):
                if one is None or other is None or (self.home / one).read_bytes() == (self.home / other).read_bytes():
                    continue
                self.keep("done")
                (self.home / one).rename(self.home / ".exchanged")
                (self.home / other).rename(self.home / one)
                (self.home / ".exchanged").rename(self.home / other)
                self.facts.mutants[f"{j + 1} and {i + 1} exchanged"] = self.succeeds()
                self.back("done")

    def around(self, node: int) -> None:
        """All but one node and what is below it is done once; from there: without it, wrongly, in other right ways."""
        part, rest = self.plan.parts[node], self.plan.parts
        self.back("initial")
        for other in self.plan.orders[0]:
            if other != node and other not in part.below:
                self.do(rest[other].oracle)
        self.keep("base")
        below = [command for other in part.below for command in rest[other].oracle]
        self.do(below)
        self.facts.without.append(self.holds())
        self.facts.mutants[f"{node + 1} left out"] = self.succeeds()
        ways = [(f"{node + 1}: {name}", [script], self.facts.mutants) for name, script in part.mutants.items()]
        ways += [(f"{node + 1}: {name}", [script], self.facts.equivalents) for name, script in part.equivalents.items()]
        if part.stale:
            ways.append((f"{node + 1} with another value", list(part.stale), self.facts.mutants))
        for label, commands, into in ways:
            self.back("base")
            self.do([*commands, *below])
            into[label] = self.succeeds()
        if part.fed:
            self.back("base")
            self.do(below)
            self.do(part.oracle)
            self.facts.mutants[f"{node + 1} after what needs it"] = self.succeeds()

    def channel_truth(self) -> None:
        """What a workflow that claims to be hybrid shows a terminal: its secrets, and how far a terminal gets."""
        self.back("initial")
        for path in sorted(p for p in self.home.rglob("*") if p.is_file() and not p.is_symlink()):
            if any(secret.encode() in path.read_bytes() for secret in self.plan.secrets):
                self.facts.shown.append(path.relative_to(self.home).as_posix())
        for part in self.plan.parts:
            self.do(part.oracle)
        self.facts.by_terminal = self.holds()


def tree(home: Path) -> dict[str, str]:
    """Path → sha256 of every file below the home; a folder is "folder", a link what it says."""
    found = {}
    for path in home.rglob("*"):
        name = path.relative_to(home).as_posix()
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        else:
            found[name] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def touches(one: str, other: str) -> bool:
    """Whether two paths are the same or one lies below the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def outside(before: Mapping[str, str], after: Mapping[str, str], writes: Iterable[str]) -> list[str]:
    """The paths that differ, that nobody said would be written, and that are no noise. A folder counts as written when
    something below it is."""
    allowed = tuple(writes)

    def fine(path: str) -> bool:
        return any(touches(path, w) for w in allowed) or any(
            fnmatch.fnmatchcase(path, n) or path == n.removesuffix("/*") for n in NOISE
        )

    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p) and not fine(p))


def locks(home: Path) -> list[str]:
    """Lock files: a document is still open."""
    return sorted(p.relative_to(home).as_posix() for p in home.rglob(LOCK_FILE))


def tried(plan: Plan, home: Path) -> Facts:
    """Everything that the rules ask for. The home is left as it was found."""
    with tempfile.TemporaryDirectory() as store:
        trial = Trial(plan, home, Path(store))
        if plan.secrets:
            trial.channel_truth()
        else:
            for order in plan.orders:
                trial.walk(order)
            for node in range(len(plan.parts)):
                trial.around(node)
        trial.back("initial")
    return trial.facts


def plan_in(text: str) -> Plan:
    fields = json.loads(text)
    return Plan(**{**fields, "parts": [Part(**part) for part in fields["parts"]]})


if __name__ == "__main__":
    json.dump(asdict(tried(plan_in(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))), sys.stdout)
