"""The archive: who is in it and in which cell, and whom a parent's draw favours."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.archive import Cell, Member, archive, cells, draw_parent, most_promising
from evolver.parents import ArchiveConfig
from evolver.population import Population
from evolver.records import Scorecard, StopReason
from tests.evolver.cards import a_candidate, a_card, a_decision

CELL = Cell("F", "finished", "gui")
DRAWS = 400


def a_member(name: str, solved: int, scored: int = 4, tasks: int = 30, cell: Cell = CELL) -> Member:
    """Solves `solved` of `scored` attempts at every task."""
    return Member(name, name, cell, {f"dev-{task}": (solved, scored) for task in range(tasks)})


def drawn(members: list[Member], incumbent: str, rules: ArchiveConfig) -> Counter[str]:
    return Counter(draw_parent(members, incumbent, rules, f"0/{generation}") for generation in range(DRAWS))


@settings(max_examples=25, deadline=None)
@given(
    shares=st.lists(st.integers(0, 8), min_size=2, max_size=6),
    incumbent=st.floats(0.05, 0.5),
    cell=st.floats(0.0, 0.3),
)
def test_e31_the_best_parent_is_drawn_most_often_apart_from_the_incumbents_share(
    shares: list[int], incumbent: float, cell: float
) -> None:
    members = [a_member(f"m{n}", solved, 8) for n, solved in enumerate(shares)]
    ranked = sorted(shares)
    rules = ArchiveConfig(incumbent=incumbent, cells=cell)
    counts = Counter(draw_parent(members, "nobody", rules, str(generation)) for generation in range(60))
    del counts["nobody"]
    if ranked[-1] - ranked[-2] >= 2:  # a lead of a quarter of all attempts: far beyond what 30 tasks leave open
        best = f"m{shares.index(ranked[-1])}"
        assert counts.most_common(1)[0][0] == best or not counts


def test_e31_the_better_of_two_is_drawn_more_often_and_the_more_surely_the_more_it_leads() -> None:
    rules = ArchiveConfig(incumbent=0.1, cells=0.0, temperature=1.0)
    counts = [drawn([a_member("good", 4 + lead, 8), a_member("bad", 4, 8)], "good", rules)["bad"] for lead in (0, 1, 3)]
    assert counts[0] > counts[1] >= counts[2] == 0
    assert 0.35 * DRAWS < counts[0] < 0.55 * DRAWS
    cold = ArchiveConfig(incumbent=0.1, cells=0.0, temperature=0.0)
    assert drawn([a_member("good", 5, 8), a_member("bad", 4, 8)], "bad", cold)["good"] > 0.8 * DRAWS


def test_e31_every_cell_has_descendants_and_the_incumbent_always_its_share() -> None:
    hopeless = a_member("hopeless", 0, cell=Cell("T", "step_limit", "terminal"))
    members = [a_member("incumbent", 3), a_member("best", 4), hopeless]
    counts = drawn(members, "incumbent", ArchiveConfig(incumbent=0.3, cells=0.2))
    assert set(counts) == {"incumbent", "best", "hopeless"}
    assert 0.25 * DRAWS < counts["incumbent"] < 0.40 * DRAWS
    assert 0.05 * DRAWS < counts["hopeless"] < 0.15 * DRAWS
    assert drawn(members, "incumbent", ArchiveConfig(incumbent=1.0, cells=0.0)) == {"incumbent": DRAWS}


def test_e31_what_is_uncertain_is_tried_and_how_hard_its_tasks_were_is_no_merit() -> None:
    rules = ArchiveConfig(incumbent=0.01, cells=0.0, temperature=1.0)
    sure, unsure = a_member("sure", 17, 32), a_member("unsure", 1, 2)
    assert drawn([sure, unsure], "sure", rules)["unsure"] > 0.2 * DRAWS
    colder = rules.model_copy(update={"temperature": 0.25})
    assert 0 < drawn([sure, unsure], "sure", colder)["unsure"] < drawn([sure, unsure], "sure", rules)["unsure"]
    easy = Member("easy", "easy", CELL, {f"dev-{t}": (2, 2) for t in range(10)})  # was only asked what all can do
    whole = Member("whole", "whole", CELL, {f"dev-{t}": (2 * (t < 20), 2) for t in range(30)})
    assert drawn([easy, whole], "whole", rules)["easy"] < 0.7 * DRAWS


def test_e07_the_same_key_draws_the_same_parent() -> None:
    members = [a_member(f"m{n}", 2 + n % 2) for n in range(5)]
    rules = ArchiveConfig()
    once, again = ([draw_parent(members, "m0", rules, f"7/{n}") for n in range(50)] for _ in range(2))
    assert once == again
    assert once != [draw_parent(members, "m0", rules, f"8/{n}") for n in range(50)]
    assert draw_parent([], "m0", rules, "7/0") == "m0"


def test_what_is_known_of_a_parent_says_something_of_its_child() -> None:
    """Both children solved their one task; the one whose parent solves more is the more promising."""
    root, good = a_member("root", 4, 8), a_member("good", 6, 8)
    bred = [replace(a_member(name, 1, 1, tasks=1), parent=parent) for name, parent in (("a", "good"), ("b", "root"))]
    members = [root, replace(good, parent="root"), *bred]
    assert most_promising(members, {"a", "b"}) == "a" and most_promising(members, {"root", "good"}) == "good"


# --- who is in it ----------------------------------------------------------------------------------------------------

ROOT = a_candidate("root", parents=()).model_copy(update={"components": ()})
A, B, C, HIDDEN = (a_candidate(name, ("root",)) for name in ("a", "b", "c", "hidden"))


def cards(harness: str, *successes: bool | None) -> list[Scorecard]:
    return [a_card(harness, task, success) for task, success in enumerate(successes)]


def found(stops: dict[str, StopReason] | None = None) -> list[Member]:
    population = Population(
        [ROOT, A, B, C, HIDDEN.model_copy(update={"hidden_neutral": True})],
        [a_decision("a", "root", "reject"), a_decision("b", "root", lead=None), a_decision("hidden", "root")],
    )
    played = [*cards("root", True, False), *cards("a", False, None), *cards("b", True), *cards("hidden", True)]
    other = a_card("a", 9, True)
    other = other.model_copy(update={"key": other.key.model_copy(update={"model_id": "other"})})
    return archive(population, [*played, other, a_card("root", 5, True, purpose="confirm")], stops or {}, "m")


def test_e02_it_holds_what_ran_and_no_other_whatever_the_verdict_was() -> None:
    """c waits, b never ran, a hidden edit is no parent; attempts of other models and of `select` do not count."""
    members = found()
    assert [member.harness_id for member in members] == ["root", "a"]
    assert members[0].tallies == {"dev-0": (1, 1), "dev-1": (0, 1)}
    assert members[1].tallies == {"dev-0": (0, 1)}
    assert [member.parent for member in members] == [None, "root"]
    assert found() == members


def test_cells_are_component_by_failure_by_channel() -> None:
    stops: dict[str, StopReason] = {
        "root-race-1-0": "step_limit",
        "a-race-0-0": "finished",
        "root-race-0-0": "finished",
    }
    members = found(stops)
    assert cells(members) == {
        Cell("root", "step_limit", "gui"): [members[0]],
        Cell("F", "finished", "gui"): [members[1]],
    }


def test_the_shares_are_of_one_whole() -> None:
    with pytest.raises(ValueError, match="shares of the same whole"):
        ArchiveConfig(incumbent=0.7, cells=0.4)
