"""Whose turn it is, what is built on, and what removals and random search bring to a run."""

from __future__ import annotations

from pathlib import Path

from evolver.authors.removal import Removal
from evolver.config import (
    AuthorConfig,
    ChecksConfig,
    DistilConfig,
    HumanAuthor,
    RaceConfig,
    RandomAuthor,
    RemovalAuthor,
    RunConfig,
    StructuredAuthor,
    TaskLimitsConfig,
)
from evolver.errors import SandboxLost
from evolver.lab import Lab
from evolver.loop import run
from evolver.parents import ArchiveConfig
from evolver.population import Population
from evolver.protocols import Evidence, Proposal, Request
from evolver.records import Candidate, Decision, Rollout
from evolver.stops import Stop
from evolver.testing import FakeSandbox, FakeSandboxes
from evolver.turns import Seat, in_turn
from harnesses.harness import Environment
from tests.evolver.cards import Coin, a_candidate, coin_lab, split_tasks
from tests.evolver.test_authors import Bench

SPACE = ("scaffold.max_steps", "scaffold.history", "tools.bash")


def even(request: Request) -> tuple[float, int]:
    """8 of 10 tasks under any harness; an accessibility tree costs half of all tokens."""
    return 0.8, 2_000 if any(tool.name == "a11y_tree" for tool in request.tools) else 1_000


def config(*authors: AuthorConfig, tasks: int = 8, **changes: object) -> RunConfig:
    plain = RunConfig(
        root="beta2",
        tasks=TaskLimitsConfig(dev=tasks, select=tasks),
        race=RaceConfig(attempts=(1, 2), pool=2, confirm_attempts=2, saturation=1.0),
        checks=ChecksConfig(tasks=0, graded=0, neutral_every=0),
        authors=authors,
        distil=DistilConfig(max_promotions=0),
    )
    return RunConfig.model_validate({**dict(plain), **changes})


async def searched(path: Path, settings: RunConfig) -> Lab:
    lab = coin_lab(path, settings, Coin(even))
    end = await run(lab, tasks=split_tasks)
    assert end.reason is Stop.AUTHORS_DONE
    return lab


def proposed(lab: Lab) -> list[Candidate]:
    return [candidate for candidate in lab.store.all(Candidate) if candidate.parents]


# --- turns -----------------------------------------------------------------------------------------------------------


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    async def propose(self, evidence: Evidence) -> Proposal | None:
        return None


def test_authors_are_asked_in_the_order_of_the_config_and_who_waits_for_others_when_it_is_due() -> None:
    removal = Seat(RemovalAuthor(kind="removal", every=2), Named("removal"))
    optuna = Seat(StructuredAuthor(kind="structured"), Named("structured"))
    person = Seat(HumanAuthor(kind="human", harness="beta1", why="w"), Named("human"))
    seats, root = [person, removal, optuna], a_candidate("root", parents=())

    def order(*authors: str) -> list[str]:
        made = [a_candidate(f"c{n}", author=name) for n, name in enumerate(authors)]
        return [seat.author.name for seat in in_turn(seats, Population([root, *made], []))]

    waits, due = ["human", "structured", "removal"], ["removal", "human", "structured"]
    assert order() == order("human") == order("human", "structured", "removal", "structured") == waits
    assert order("human", "structured") == order("structured", "removal", "structured", "human") == due


def test_of_those_who_are_due_the_one_that_has_waited_longest_is_asked_first() -> None:
    seats = [Seat(RemovalAuthor(kind="removal", every=2), Named(name)) for name in "abcd"]
    made = [a_candidate("root", parents=())]
    for n in range(10):
        first = in_turn(seats, Population(made, []))[0]
        made.append(a_candidate(f"c{n}", author=first.author.name))
    assert "".join(candidate.author for candidate in made[1:]) == "aabcdabcda"


def test_a_hidden_edit_takes_no_author_s_turn() -> None:
    person = Seat(HumanAuthor(kind="human", harness="beta1", why="w", every=1), Named("human"))
    seats, made = [Seat(StructuredAuthor(kind="structured"), Named("structured")), person], [a_candidate("c0")]
    for author, hidden, first in (
        ("structured", False, "human"),
        ("human", True, "human"),
        ("human", False, "structured"),
    ):
        other = a_candidate(f"c{len(made)}", author=author)
        made.append(other.model_copy(update={"hidden_neutral": hidden}))
        assert in_turn(seats, Population(made, []))[0].author.name == first


async def test_removals_come_between_the_others_and_after_them(tmp_path: Path) -> None:
    optuna = StructuredAuthor(kind="structured", n=4, space=SPACE)
    lab = await searched(tmp_path, config(optuna, RemovalAuthor(kind="removal", every=2, n=4), tasks=4))
    authors = [candidate.author for candidate in proposed(lab)]
    assert authors == ["structured", "structured", "removal"] * 2 + ["removal"] * 2


# --- parents --------------------------------------------------------------------------------------------------------


async def test_who_may_builds_on_what_was_not_promoted_and_the_verdict_is_against_the_incumbent(tmp_path: Path) -> None:
    search = RandomAuthor(kind="random", n=5, space=SPACE)
    lab = await searched(tmp_path / "a", config(search, archive=ArchiveConfig(incumbent=0.05, cells=0.95)))
    root, *others = lab.store.all(Candidate)
    parents = {candidate.parents[0] for candidate in others}
    assert len(parents) > 1 and parents <= {root.harness_id, *(c.harness_id for c in others)}
    assert {d.incumbent_harness for d in lab.store.all(Decision)} == {root.harness_id}
    for candidate in others:
        assert lab.library.parents_of(candidate.name) == candidate.parents
    settled = config(search.model_copy(update={"parents": "incumbent"}))
    alone = await searched(tmp_path / "b", settled)
    assert {candidate.parents for candidate in proposed(alone)} == {(root.harness_id,)}


async def test_e07_two_runs_of_all_authors_with_one_seed_have_the_same_lineage(tmp_path: Path) -> None:
    authors = (
        RemovalAuthor(kind="removal", every=2, n=2),
        StructuredAuthor(kind="structured", n=2, space=SPACE),
        RandomAuthor(kind="random", n=2, space=SPACE),
    )
    one, two = [await searched(tmp_path / name, config(*authors, tasks=4)) for name in "ab"]
    assert [(c.id, c.name, c.parents, c.manifest) for c in proposed(one)] == [
        (c.id, c.name, c.parents, c.manifest) for c in proposed(two)
    ]
    assert len(proposed(one)) == 6
    other = await searched(tmp_path / "c", config(*authors, tasks=4, seed=1))
    assert [c.id for c in proposed(other)] != [c.id for c in proposed(one)]


# --- removal and random search -------------------------------------------------------------------------------------


async def test_what_nothing_needs_is_removed_when_the_tasks_suffice_to_show_it(tmp_path: Path) -> None:
    author = RemovalAuthor(kind="removal", n=5)
    race = RaceConfig(attempts=(1, 2), pool=4, margin=0.2)
    lab = await searched(tmp_path, config(author, tasks=40, race=race))
    [promoted] = [d for d in lab.store.all(Decision) if d.verdict == "promote"]
    names = {candidate.id: candidate.name for candidate in proposed(lab)}
    assert names[promoted.candidate_id] == "without-tool-a11y-tree"
    assert any("not worse and cheaper: confirmed" in reason for reason in promoted.reasons)
    tried = [candidate.changes for candidate in proposed(lab)]
    assert ("tools: - a11y_tree",) in tried and len(tried) == 5


async def test_each_removal_is_proposed_once_an_incumbent_and_again_for_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    author = Removal(RemovalAuthor(kind="removal"), bench.store, bench.library)
    first = await everything(author, bench, bench.root)
    assert len(first) == 12 and {c.parents for c in first} == {(bench.root,)}
    second = await everything(author, bench, first[0].harness_id)
    assert 0 < len(second) < 12  # what is gone already can't go again
    assert await author.propose(evidence(bench.root)) is None
    assert len({c.harness_id for c in first + second}) == len({c.name for c in first + second}) == len(first + second)
    least = Removal(RemovalAuthor(kind="removal", n=3), bench.store, bench.library)
    assert await least.propose(evidence(bench.root)) is None


async def everything(author: Removal, bench: Bench, parent: str) -> list[Candidate]:
    found = []
    while (made := await author.propose(evidence(parent))) is not None:
        assert "taken away" in made.candidate.manifest.why
        found.append(bench.take(made))
    return found


def evidence(parent: str) -> Evidence:
    return Evidence(parent, 0, "", {})


# --- what dies on the way -------------------------------------------------------------------------------------------


class Dying(FakeSandbox):
    """Its process is gone as soon as it is used."""

    async def freeze(self) -> bytes:
        raise SandboxLost("the process that ran it is gone")


class KilledWithoutOpenpyxl(FakeSandboxes):
    async def open(self, environment: Environment, *, run_id: str, ttl_s: float, rollout_id: str = "") -> FakeSandbox:
        made = FakeSandbox if "openpyxl" in environment.pip else Dying
        self.opened.append(made({}, (64, 48)))
        return self.opened[-1]


async def test_e05_a_candidate_whose_process_dies_is_rejected_and_the_run_goes_on(tmp_path: Path) -> None:
    search = RandomAuthor(kind="random", n=3, space=("environment.pip.openpyxl", "scaffold.history"))
    lab = coin_lab(tmp_path, config(search), Coin(even))
    lab.sandboxes = KilledWithoutOpenpyxl()
    assert (await run(lab, tasks=split_tasks)).reason is Stop.AUTHORS_DONE
    decisions = {d.candidate_harness: d for d in lab.store.all(Decision)}
    dead = [c for c in proposed(lab) if "environment.pip: - openpyxl" in c.changes]
    assert 0 < len(dead) < len(decisions) == 3
    for candidate in proposed(lab):
        decision = decisions[candidate.harness_id]
        assert (not decision.looks) == (candidate in dead)
        if candidate in dead:
            assert decision.verdict == "reject" and "the process that ran it is gone" in decision.reasons[0]
    lost = [r for r in lab.store.all(Rollout) if r.error is not None]
    assert lost and {r.error.blame for r in lost if r.error} == {"sandbox"}
