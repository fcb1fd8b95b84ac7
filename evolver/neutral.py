"""Edits that can't matter, hidden among the candidates: how often they are accepted is the run's live error rate.

Such an edit adds blank lines to the end of the system prompt. They are stripped before a model sees them, so that
nothing but the harness's id differs. It is proposed in a person's name, judged like every other candidate, and never
enters the lineage, whatever its verdict is.
"""

from __future__ import annotations

from itertools import count
from random import Random

from evolver.authors.human import free_name
from evolver.authors.proposal import proposal
from evolver.lab import Lab
from evolver.population import Population, population_of
from evolver.protocols import Proposal
from evolver.records import Manifest
from harnesses.harness import Harness
from harnesses.tree import Tree, tree_files

PROMPT = "prompt/system.md"
REASONS = (
    "the system prompt ends more clearly",
    "a tidier system prompt is followed more closely",
    "the last words of the system prompt stand apart from the task",
)


def neutral_edit(parent: Harness, blank_lines: int) -> Tree:
    """The parent with `blank_lines` more at the end of its system prompt."""
    tree = tree_files(parent)
    tree[PROMPT] += b"\n" * blank_lines
    return tree


def due(population: Population, every: int, seed: int) -> bool:
    """Whether the next candidate is a hidden one: one in each `every` candidates, at a place drawn from the seed, but
    not the first, so that a run without proposals has none."""
    if every == 0:
        return False
    proposed = [candidate for candidate in population.candidates if candidate.parents]
    block, place = divmod(len(proposed), every)
    made = any(candidate.hidden_neutral for candidate in proposed[block * every :])
    return not made and place >= Random(f"neutral|{seed}|{block}").randrange(min(1, every - 1), every)


def hidden_neutral(lab: Lab) -> Proposal | None:
    """The hidden candidate whose turn it is, if it is one's; the same one after every resume."""
    population = population_of(lab.store)
    if population.incumbent is None or not due(population, lab.config.checks.neutral_every, lab.config.seed):
        return None
    parent = lab.harness(population.incumbent)
    why = REASONS[len(population.candidates) % len(REASONS)]
    for blank_lines in count(1):
        made = proposal(parent, neutral_edit(parent, blank_lines), "human", "", Manifest(why=why))
        if made.candidate.harness_id not in population.harness_ids:
            break
    name = free_name(lab.library, f"prompt-{made.candidate.harness_id[:6]}", made.candidate.harness_id)
    hidden = made.candidate.model_copy(update={"name": name, "hidden_neutral": True})
    return Proposal(candidate=hidden, tree=made.tree)
