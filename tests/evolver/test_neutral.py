"""Hidden edits that can't matter: judged like any other, unknown to authors, never in the lineage, counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.config import DistilConfig, HumanAuthor, RaceConfig, RunConfig, StructuredAuthor, TaskLimitsConfig
from evolver.context import Context
from evolver.loop import run
from evolver.neutral import due, neutral_edit
from evolver.population import Population
from evolver.protocols import Request
from evolver.records import Candidate, Decision, Observed
from evolver.safeguards import ChecksConfig
from evolver.safety import false_accepts
from evolver.turns import evidence_of
from harnesses.tree import harness_from_files, read_tree, seed_path
from tests.evolver.cards import Coin, a_candidate, a_decision, coin_lab, split_tasks
from tests.evolver.test_selfcheck import no_student


def config(every: int = 2) -> RunConfig:
    return RunConfig(
        root="alpha",
        tasks=TaskLimitsConfig(dev=12, select=10),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2),
        authors=(
            HumanAuthor(kind="human", harness="beta1", why="a shell"),
            StructuredAuthor(kind="structured", n=2, space=("scaffold.max_steps",)),
        ),
        distil=DistilConfig(max_promotions=0),
        checks=ChecksConfig(tasks=0, neutral_every=every),
    )


def shell_helps(request: Request) -> tuple[float, int]:
    return (0.9, 400) if any(tool.name == "bash" for tool in request.tools) else (0.3, 1_000)


def test_a_neutral_edit_is_another_harness_that_a_model_can_not_tell_apart() -> None:
    root = read_tree(seed_path("alpha"))
    edited = harness_from_files(neutral_edit(root, 2))
    assert edited.id != root.id
    shown = [Context(h, "Do it.", Observed(), "qwen2") for h in (root, edited)]
    assert shown[0].messages(()) == shown[1].messages(()) and shown[0].tools == shown[1].tools


@pytest.mark.parametrize("seed", range(5))
def test_one_candidate_in_each_twenty_is_hidden_at_a_place_that_the_seed_draws(seed: int) -> None:
    candidates: list[Candidate] = [a_candidate("root", parents=())]
    for number in range(100):
        hidden = due(Population(candidates, ()), 20, seed)
        candidates.append(a_candidate(f"c{number}").model_copy(update={"hidden_neutral": hidden}))
    places = [number for number, c in enumerate(candidates[1:]) if c.hidden_neutral]
    assert [place // 20 for place in places] == [0, 1, 2, 3, 4]
    assert len({place % 20 for place in places}) > 1
    assert not due(Population(candidates, ()), 0, seed)


async def test_hidden_edits_are_judged_like_others_and_looked_at_by_no_author(tmp_path: Path) -> None:
    lab = coin_lab(tmp_path / "run", config(), Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=no_student)
    hidden = [c for c in lab.store.all(Candidate) if c.hidden_neutral]
    assert len(hidden) >= 2
    population = Population(lab.store.all(Candidate), lab.store.all(Decision))
    assert [d.candidate_id for d in population.neutrals] == [c.id for c in hidden]
    assert all(d.looks for d in population.neutrals)
    told = evidence_of(lab)
    text = told.summary + "".join(told.files) + b"".join(told.files.values()).decode()
    marks = {c.name: (c.name, c.id, c.harness_id[:8], c.manifest.why) for c in population.candidates}
    assert [mark for c in hidden for mark in marks[c.name] if mark in text] == []
    shown = [c for c in population.candidates if c.author == "structured"]
    assert shown and all(any(mark in text for mark in marks[c.name]) for c in shown), "others are told of"
    assert {c.author for c in hidden} == {"human"} and not any("neutral" in c.name + c.manifest.why for c in hidden)
    assert sum(c.author == "structured" for c in population.candidates) == 2


def test_what_an_accepted_hidden_edit_changes_is_the_estimate_alone() -> None:
    root, real = a_candidate("root", parents=()), a_candidate("real", parents=("root",))
    fake = a_candidate("fake", parents=("root",)).model_copy(update={"hidden_neutral": True})
    decisions = [a_decision("fake", "root", "promote"), a_decision("real", "root", "keep")]
    found = Population([root, fake, real], decisions)
    assert found.lineage == ["root"] and found.promotions == [] and found.since_promotion == 1
    assert found.alpha_spent == decisions[1].alpha_spent
    passed, accepted = false_accepts(found)
    assert (accepted.point, accepted.n) == (1.0, 1) and accepted.low is not None and accepted.low < 0.3
    assert passed.point == 0.0
