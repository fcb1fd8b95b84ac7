"""The smallest skills that compose: each writes one word into one file on the Desktop."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from devset.families.skill import Binding, Family, lines_post, steps
from devset.forge.proof import broken, plan_of
from devset.forge.rules import violations
from devset.forge.sampler import Composed
from devset.forge.skills import TRIED
from devset.forge.trial import Facts, Plan, tried
from devset.forge.workflow import Edge, Node, Workflow, given, task_of

VENV = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def node(word: str, **changes: object) -> Node:
    """A skill that writes `word` into Desktop/<word>.txt; `changes` are of its binding."""
    path = f"Desktop/{word}.txt"
    made = Binding(
        slots={"word": word},
        wordings=("Write {word} into {word}.txt on the Desktop.",),
        files={f"Desktop/{word}.md": word.encode()},
        writes=(path,),
        post=(lines_post("written", "The word is there.", path, [word]),),
        terminal=steps((f"Write {word}", f"echo {word} > ~/{path}")),
        mutants={"twice": f"echo {word}{word} > ~/{path}"},
        equivalents={"without a line end": f"printf {word} > ~/{path}"},
    )
    family = Family(
        f"tiny.{word}", "Write a word", ("tiny", word, "write"), "text", "daily", (word,), {}, lambda rng: made
    )
    return Node(family, replace(made, **changes))


def seldom_filled(family: Family) -> Family:
    """The skill with slots that can be filled with every seed that skills are tried with, and with one in five else."""
    tried = {Random(f"{family.name}/{seed}").random() for seed in TRIED}

    def bind(rng: Random) -> Binding:
        if (first := rng.random()) > 0.2 and first not in tried:
            raise ValueError("slot 'word': nth can't be made: tuple index out of range")
        return family.bind(rng)

    return replace(family, bind=bind)


def flow(*nodes: Node, edges: Sequence[Edge] = ()) -> Workflow:
    return Workflow(tuple(nodes), tuple(edges), seed=1)


def composed(*nodes: Node, edges: Sequence[Edge] = ()) -> Composed:
    made = flow(*nodes, edges=edges)
    return Composed(made, task_of(made))


def static(made: Workflow) -> dict[str, str]:
    """Rule → what the static rules have against it."""
    return {v.rule: v.why for v in violations(made, task_of(made))}


def facts_of(made: Workflow, home: Path, plan: Plan | None = None) -> Facts:
    """The facts of its trial in a plain folder as the home; `plan` where it is not to be the whole one."""
    for folder in ("Desktop", "Documents", "Downloads"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for path, data in given(made).items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(data)
    before = os.environ["PATH"]
    os.environ["PATH"] = VENV  # the office libraries
    try:
        return tried(plan or plan_of(made), home)
    finally:
        os.environ["PATH"] = before


def oracles_alone(made: Workflow) -> Plan:
    """The plan of its trial without mutants and equivalents, which are what most of a trial's time goes into."""
    plan = plan_of(made)
    return replace(plan, parts=[replace(part, mutants={}, equivalents={}) for part in plan.parts])


def executed(made: Workflow, home: Path) -> dict[str, str]:
    """Rule → what its trial has against it."""
    return {v.rule: v.why for v in broken(made, facts_of(made, home, oracles_alone(made)))}
