"""The structured author and people: what they propose, when they stop, and that nothing known is proposed again."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from evolver.authors.human import enter, free_name, propose, read_named
from evolver.authors.make import make_authors
from evolver.authors.space import KNOBS, as_changes, knobs_of, value_of
from evolver.authors.structured import ASKS, Structured, standings, step_of
from evolver.config import HumanAuthor, RandomAuthor, RunConfig, StructuredAuthor
from evolver.controls import NoopModel
from evolver.errors import UsageError
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.leaks import Leaks
from evolver.population import Population
from evolver.protocols import Author, Evidence, Proposal
from evolver.records import Candidate, Decision, Manifest
from evolver.store import Store
from evolver.testing import FakeSandboxes
from harnesses.diff import diff
from harnesses.edit import with_changes
from harnesses.library import Library
from harnesses.tree import harness_from_files, read_tree, seed_path, write_tree
from tests.evolver.cards import a_candidate, a_decision, a_task

BETA1 = read_tree(seed_path("beta1"))


class Bench:
    """A run with beta1 as its root, and what a loop does with proposals, but for the rollouts."""

    def __init__(self, path: Path, config: RunConfig | None = None) -> None:
        self.store = Store.create(path / "run", config or RunConfig(root="beta1"))
        self.library = Library(self.store.path / "library")
        self.root = self.library.add_seed("beta1")
        if not self.store.all(Candidate):
            root = Candidate(
                id="cand-root", name="beta1", harness_id=self.root, parents=(), author="root", components=(),
                changes=(), manifest=Manifest(why="root"), proposed_at=0.0,
            )  # fmt: skip
            self.store.append(root)

    def evidence(self) -> Evidence:
        return Evidence(self.root, 0, "", {})

    def authors(self) -> list[Author]:
        lab = Lab(self.store, self.library, FakeSandboxes(), [], NoopModel(), LocalExecutor(1))
        return make_authors(lab, [a_task(0, "dev")], [])

    def structured(self, n: int = 20, space: tuple[str, ...] = ()) -> Structured:
        return Structured(StructuredAuthor(kind="structured", n=n, space=space), self.store, self.library)

    def take(self, made: Proposal, lead: float | None = 0.0) -> Candidate:
        candidate = made.candidate
        self.library.add(made.tree, name=candidate.name, parents=candidate.parents)
        self.store.append(candidate)
        decision = a_decision(candidate.harness_id, self.root, lead=lead).model_dump() | {"candidate_id": candidate.id}
        self.store.append(Decision.model_validate(decision))
        return candidate

    async def harvest(self, author: Structured, most: int = 50) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < most and (made := await author.propose(self.evidence())) is not None:
            found.append(self.take(made, lead=random.Random(len(found)).uniform(-0.3, 0.3)))
        return found


# --- structured ----------------------------------------------------------------------------------------------------


async def test_it_turns_one_to_three_knobs_and_the_components_come_from_the_trees(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    found = await bench.harvest(bench.structured(n=12))
    assert len(found) == 12
    for candidate in found:
        child = bench.library.get(candidate.harness_id)
        turned = [knob for knob in KNOBS if value_of(child, knob) != value_of(BETA1, knob)]
        assert 1 <= len(turned) <= 3
        assert all(value_of(child, knob) in KNOBS[knob] for knob in turned)
        assert child.tool("computer_use") is not None
        real = diff(BETA1, child)
        assert (candidate.components, candidate.changes) == (real.components, real.changes)
        assert candidate.parents == (bench.root,) and candidate.manifest.why.endswith(".")
    assert {"F", "T", "E"} <= {component for candidate in found for component in candidate.components}


async def test_e07_the_same_records_and_seed_give_the_same_candidates(tmp_path: Path) -> None:
    one, two = Bench(tmp_path / "1"), Bench(tmp_path / "2")
    first = await one.harvest(one.structured(n=9))
    state = random.getstate()
    second = await two.harvest(two.structured(n=9))
    assert [c.harness_id for c in first] == [c.harness_id for c in second]
    assert [(c.name, c.manifest) for c in first] == [(c.name, c.manifest) for c in second]
    assert random.getstate() == state
    other = Bench(tmp_path / "3", RunConfig(root="beta1", seed=7))
    assert [c.harness_id for c in await other.harvest(other.structured(n=9))] != [c.harness_id for c in first]


async def test_a_resumed_author_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole, cut = Bench(tmp_path / "whole"), Bench(tmp_path / "cut")
    straight = await whole.harvest(whole.structured(n=6))
    before = await cut.harvest(cut.structured(n=6), most=3)
    lost = await cut.structured(n=6).propose(cut.evidence())
    assert lost is not None
    cut.library.add(lost.tree, name=lost.candidate.name, parents=lost.candidate.parents)  # killed before the record
    reopened = Bench(tmp_path / "cut")
    after = await reopened.harvest(reopened.structured(n=6))
    assert [c.harness_id for c in before + after] == [c.harness_id for c in straight]


async def test_e09_no_known_tree_is_proposed_again_and_a_small_space_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    author = bench.structured(n=50, space=("scaffold.history", "scaffold.observation.when"))
    found = await bench.harvest(author)
    ids = [candidate.harness_id for candidate in found]
    assert len(set(ids)) == len(ids) == 3 * 2 - 1
    assert bench.root not in ids and ASKS >= 100


async def test_an_invalid_combination_is_passed_over_not_a_crash(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    found = await bench.harvest(
        bench.structured(n=8, space=("scaffold.observation.image", "scaffold.observation.text"))
    )
    for candidate in found:
        assert harness_from_files(bench.library.get(candidate.harness_id).files).id == candidate.harness_id


async def test_a_candidate_that_never_ran_is_a_failed_trial(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    author = bench.structured(n=9)
    for _ in range(3):
        made = await author.propose(bench.evidence())
        assert made is not None
        bench.take(made, lead=None)
    assert await author.propose(bench.evidence()) is not None


async def test_what_earlier_candidates_measured_decides_what_comes_next(tmp_path: Path) -> None:
    """Two runs that differ in nothing but the measured leads part ways, once Optuna's random start is over."""
    ways: list[list[str]] = []
    for sign in (1, -1):
        bench = Bench(tmp_path / str(sign))
        author = bench.structured(n=12)
        ids = []
        for number in range(12):
            made = await author.propose(bench.evidence())
            assert made is not None
            ids.append(bench.take(made, lead=sign * (0.3 if number % 2 else -0.3)).harness_id)
        ways.append(ids)
    assert ways[0][:5] == ways[1][:5]
    assert ways[0] != ways[1]


async def test_it_stops_at_its_number(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    author = bench.structured(n=2)
    assert len(await bench.harvest(author)) == 2
    assert await author.propose(bench.evidence()) is None


def test_an_unknown_knob_is_named_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"unknown knob 'scaffold.max_step'; did you mean 'scaffold.max_steps'"):
        knobs_of(("scaffold.max_step",))


@pytest.mark.parametrize("knob", KNOBS)
def test_every_value_of_every_knob_is_a_valid_edit_that_sticks(knob: str) -> None:
    for value in KNOBS[knob]:
        try:
            edited = harness_from_files(with_changes(BETA1, as_changes(BETA1, {knob: value})))
        except ValueError as error:  # beta1's own tools may forbid one setting; never all of them
            assert value != value_of(BETA1, knob), error
            continue
        assert value_of(edited, knob) == value


def test_package_toggles_join_into_one_list() -> None:
    changes = as_changes(BETA1, {"environment.pip.openpyxl": False, "scaffold.max_steps": 8})
    assert changes == {"scaffold.max_steps": 8, "environment.pip": ["python-pptx", "python-docx"]}
    alpha = read_tree(seed_path("alpha"))
    assert as_changes(alpha, {"environment.pip.openpyxl": True})["environment.pip"] == [
        *alpha.environment.pip,
        "openpyxl",
    ]


def test_an_edit_is_worth_what_it_did_to_its_parent_whatever_it_was_raced_against() -> None:
    root, kept, child, lost = (a_candidate(n, p) for n, p in (("r", ()), ("k", ("r",)), ("c", ("k",)), ("x", ("r",))))
    decisions = [
        a_decision("k", "r", lead=0.04),
        a_decision("c", "r", "promote", lead=0.10),
        a_decision("x", "c", lead=None),
    ]
    stands = standings(Population([root, kept, child, lost], decisions))
    assert stands == {"r": (0.0, 0.0), "k": (0.04, pytest.approx(math.log(0.9))), "c": (0.10, stands["k"][1])}
    assert step_of(stands, child) == [pytest.approx(0.06), 0.0]
    assert step_of(stands, kept) == [0.04, stands["k"][1]]


async def test_random_search_turns_the_same_knobs_and_what_was_measured_does_not_matter(tmp_path: Path) -> None:
    ways = []
    for sign in (1, -1):
        bench = Bench(tmp_path / str(sign))
        author = Structured(RandomAuthor(kind="random", n=8), bench.store, bench.library)
        ids = []
        while (made := await author.propose(bench.evidence())) is not None:
            ids.append(bench.take(made, lead=sign * (0.3 if len(ids) % 2 else -0.3)).harness_id)
            assert made.candidate.name.startswith("random-") and made.candidate.author == "random"
        ways.append(ids)
    assert ways[0] == ways[1] and len(set(ways[0])) == 8


# --- people ----------------------------------------------------------------------------------------------------------


async def test_a_named_harness_is_proposed_once_with_the_person_s_reason(tmp_path: Path) -> None:
    config = RunConfig(root="beta1", authors=(HumanAuthor(kind="human", harness="beta2", why="sees names"),))
    bench = Bench(tmp_path, config)
    [author] = bench.authors()
    made = await author.propose(bench.evidence())
    assert made is not None
    assert (made.candidate.name, made.candidate.author, made.candidate.manifest.why) == ("beta2", "human", "sees names")
    assert made.candidate.harness_id == read_tree(seed_path("beta2")).id
    bench.take(made)
    assert await author.propose(bench.evidence()) is None


async def test_e09_the_root_proposed_again_costs_nothing(tmp_path: Path) -> None:
    config = RunConfig(root="beta1", authors=(HumanAuthor(kind="human", harness="beta1", why="again"),))
    bench = Bench(tmp_path, config)
    [author] = bench.authors()
    assert await author.propose(bench.evidence()) is None


def test_authors_come_in_the_order_of_the_config_each_under_its_own_name(tmp_path: Path) -> None:
    people = HumanAuthor(kind="human", harness="beta2", why="w")
    optuna = StructuredAuthor(kind="structured")
    bench = Bench(tmp_path, RunConfig(root="beta1", authors=(people, optuna, optuna)))
    assert [author.name for author in bench.authors()] == ["human", "structured", "structured2"]


def test_a_working_copy_becomes_a_pending_candidate(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    copy = tmp_path / "My Copy"
    write_tree(harness_from_files(with_changes(BETA1, {"scaffold.max_steps": 9})), copy)
    candidate = propose(bench.store, bench.library, "beta1", copy, "fewer steps", Leaks([]))
    assert candidate.changes == ("scaffold.max_steps: 20 → 9",) and candidate.parents == (bench.root,)
    assert candidate in bench.store.all(Candidate)
    assert bench.library.parents_of(candidate.name) == (bench.root,)
    with pytest.raises(UsageError, match="proposed already as 'my-copy'"):
        propose(bench.store, bench.library, "beta1", copy, "once more", Leaks([]))


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(UsageError, match=r"harness 'gamma': expected one of alpha, beta1, beta2 or a directory"):
        read_named("gamma")
    with pytest.raises(UsageError, match="expected the directory of a harness"):
        propose(bench.store, bench.library, "beta1", tmp_path / "nowhere", "w", Leaks([]))
    (tmp_path / "broken").mkdir()
    with pytest.raises(UsageError, match="broken"):
        read_named(str(tmp_path / "broken"))
    copy = tmp_path / "copy"
    write_tree(harness_from_files(with_changes(BETA1, {"scaffold.max_steps": 9})), copy)
    with pytest.raises(UsageError, match="unknown harness 'nobody'"):
        propose(bench.store, bench.library, "nobody", copy, "w", Leaks([]))
    assert len(bench.store.all(Candidate)) == 1


def test_a_harness_enters_the_library_once_by_any_of_its_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert enter(bench.library, "beta1") == enter(bench.library, bench.root) == bench.root
    alpha = enter(bench.library, "alpha")
    assert bench.library.names()["alpha"] == alpha == enter(bench.library, alpha[:12])


def test_a_taken_name_gets_the_id_s_first_digits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert free_name(bench.library, "beta1", bench.root) == "beta1"
    assert free_name(bench.library, "beta1", "f" * 40) == "beta1-ffffff"
    assert free_name(bench.library, "Ünï code!", "f" * 40) == "n--code"
