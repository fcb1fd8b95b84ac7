"""The lineage with all that a run records of it: neutral edits, stages, frozen harnesses, guards, predictions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dashboards.queries import open_run
from dashboards.views import Story
from evolver.audit import SelfCheck
from evolver.figures.tree import CLOSED, Node, folded, layout
from evolver.history import history
from evolver.intervals import nothing
from evolver.population import Population
from evolver.records import (
    Arm,
    Candidate,
    Decision,
    FailedProposal,
    Final,
    Flip,
    GuardResult,
    Manifest,
    Stage,
)
from evolver.store import Store
from harnesses.library import Library
from tests.dashboards.fixture_run import START, TEACHER, ci
from tests.dashboards.paired_run import make, outcomes, play
from tests.dashboards.reader import Reader, said


def judged(
    store: Store, candidate: Candidate, against: str, verdict: str, guards: tuple[GuardResult, ...] = ()
) -> None:
    store.append(
        Decision(
            id=f"d-{candidate.id}", candidate_id=candidate.id, candidate_harness=candidate.harness_id,
            incumbent_harness=against, verdict=verdict, looks=(), confirmation=ci(0.1, -0.1, 0.3, 16),
            confirmation_p=0.2, alpha_spent=0.0, flip_rate_aa=None, flip_rate_ab=None, tokens_per_solved=None,
            incumbent_tokens_per_solved=None, reasons=("as it was",), decided_at=START + 9_500, guards=guards,
            teacher=TEACHER,
        )
    )  # fmt: skip


def edit_of(base: Candidate, name: str, **changed: object) -> Candidate:
    fresh = {"id": f"c-{name}", "name": name, "harness_id": f"{ord(name[0]):040x}", "parents": (base.harness_id,)}
    return base.model_copy(update={**fresh, "components": ("P",), "proposed_at": START + 9_000, **changed})


@pytest.fixture
def told(run_copy: Path) -> Path:
    """The run of the other tests, with what a run of today records beside it."""
    store = Store.open(run_copy)
    beta1 = next(c for c in store.all(Candidate) if c.name == "beta1")
    neutral = edit_of(beta1, "neutral-1", hidden_neutral=True)
    waiting = edit_of(beta1, "waiting", hidden_neutral=True)
    guarded = edit_of(beta1, "guarded")
    for candidate in (neutral, waiting, guarded):
        store.append(candidate)
    judged(store, neutral, beta1.harness_id, "promote")
    trip = GuardResult(
        guard="app", subject="calc", outcome="tripped", interval=ci(-0.3, -0.5, -0.1, 12), limit=0.1, p_value=0.01,
        reason="calc loses more than it may",
    )  # fmt: skip
    judged(store, guarded, beta1.harness_id, "inconclusive", (trip,))
    store.append(
        Stage(
            id="stage-1", name="beta", kind="harness", harness_id=beta1.harness_id, teacher=TEACHER, before_harness="",
            before_teacher="", why="the terminal channel stays", at=START,
        )
    )  # fmt: skip
    store.append(
        FailedProposal(
            id="f-1", author="llm", parent=beta1.harness_id, reasons=("it names a task of select",), why="shorter",
            changes=("prompt.system: 90 → 80 words",), rollout_ids=(), author_tokens=1_234, author_cost_usd=None,
            failed_at=START,
        )
    )  # fmt: skip
    library = Library(run_copy / "library")
    library.tag(beta1.harness_id, "paper-1", "for the paper")
    library.close()
    return run_copy


def test_a_hidden_neutral_edit_is_shown_as_what_it_is_once_it_is_judged(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(open_run(told))
    shown = {n.name: (n.verdict, n.on_path) for n in story.nodes()}
    assert shown["neutral-1"] == ("neutral", False) and shown["waiting"] == ("undecided", False)
    assert story.name(str(story.incumbent)) == "beta1", "one that was promoted by mistake leads nothing"
    assert next(p.verdict for p in story.path() if p.name == "neutral-1") == "neutral"
    reader = Reader(told.parent, monkeypatch)
    text = said(reader.open("lineage", h="neutral-1"))
    assert "☆ hidden neutral edit" in text and "An edit that can't matter" in text
    assert "☆ hidden neutral edit" in said(reader.open("overview"))


def test_stages_frozen_names_guards_and_refused_proposals_are_on_the_page(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Reader(told.parent, monkeypatch).open("lineage", h="guarded")
    text = said(app)
    for words in (
        "✕ stopped it", "app calc", "calc loses more than it may", "-30.0 % [-50.0, -10.0], limit 10.0 %, n = 12",
        "stage beta · tagged paper-1", "the terminal channel stays", "it names a task of select", "1,234",
        "1 proposals that became no candidate",
    ):  # fmt: skip
        assert words in text
    picture = app.get("plotly_chart")[0].proto.spec
    assert "stage beta +1" in picture


def test_what_a_candidate_took_is_what_the_log_says(whole_run: Path) -> None:
    story = Story(open_run(whole_run))
    spent = story.attempts_before()
    for entry in history(Store.open(whole_run)):
        played = spent[entry.candidate.id]
        assert (played.rollouts, None if played.unknown else played.tokens) == (entry.rollouts, entry.tokens)


def test_predictions_stand_beside_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, ids = make(tmp_path / "one", "alpha", "beta1")
    play(store, ids["alpha"], outcomes(2, 6))
    play(store, ids["beta1"], outcomes(4, 6))
    store.append(
        Candidate(
            id="c-sure", name="sure", harness_id="5" * 40, parents=(ids["alpha"],), author="llm", components=("P",),
            changes=(), proposed_at=9.0,
            manifest=Manifest(
                why="", edits=("a hint",), expected_token_change=-0.2, expected_channel_change={"calc": 0.25},
                predicted_flips=(
                    Flip(task_id="task-002", probability=0.75), Flip(task_id="task-005", probability=0.5),
                    Flip(task_id="elsewhere", probability=0.9),
                ),
                predicted_regressions=(Flip(task_id="task-000", probability=0.25),),
            ),
        )
    )  # fmt: skip
    play(store, "5" * 40, outcomes(4, 6))
    text = said(Reader(tmp_path, monkeypatch).open("lineage", h="sure"))
    assert "1 of 3 came, 4 were foretold; Brier 0.12" in text
    assert "task-002,flip,75.0 %,● came" in text and "task-005,flip,50.0 %,✕ did not come" in text
    assert "task-000,regression,25.0 %,✕ did not come" in text and "○ not measured in both" in text
    assert "expects -20 % tokens a task" in text and "expects +25 pp of calc's calls" in text


def test_what_a_run_says_of_its_honesty_is_on_the_overview(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(told)
    alpha = next(c for c in store.all(Candidate) if c.name == "alpha")
    store.append(
        SelfCheck(id="check-a_a", check="a_a", outcome="passed", effect=nothing(), p_value=0.5, reason="fine", at=START)
    )
    arms = [
        Arm(name=n, harness_id=alpha.harness_id, attempts=2, n_unscored=0, success=ci(0.5, 0.4, 0.6),
            tokens_per_attempt=900.0)
        for n in ("winner", "original")
    ]  # fmt: skip
    store.append(
        Final(
            id="final-1", frozen_id="f", arms=tuple(arms), effect=ci(0.2, 0.1, 0.3), p_better=0.01, mcnemar_p=0.02,
            best_of=ci(0.55, 0.4, 0.7), k=2, against_best_of=ci(0.1, -0.1, 0.3), flip_rate=None, n_tasks=40, seed=0,
            tasks_sha256="t", notes=(), at=START,
        )
    )  # fmt: skip
    text = said(Reader(told.parent, monkeypatch).open("overview"))
    assert "checks before the run: a a passed (fine)" in text
    assert "100.0 % [20.7, 100.0] of 1 hidden edit that can't matter" in text
    assert "original best of 2" in text and "Winner minus original: +20.0 pp [+10.0, +30.0]" in text


def big(closed: int) -> Population:
    made = [Candidate.model_construct(id="c", name="root", harness_id="h", parents=(), components=(), author="a")]
    decisions = []
    for n in range(closed):
        parent = made[0] if n % 3 else made[-1]
        made.append(made[0].model_copy(update={"id": f"c{n}", "name": f"n{n}", "harness_id": f"h{n}",
                                               "parents": (parent.harness_id,)}))  # fmt: skip
        decisions.append(
            Decision.model_construct(candidate_id=f"c{n}", candidate_harness=f"h{n}", incumbent_harness="h",
                                     verdict="keep" if n % 50 == 7 else "reject")
        )  # fmt: skip
    return Population(made, decisions)


def test_u34_a_large_tree_folds_only_branches_in_which_nothing_lives() -> None:
    nodes = layout(big(500), {"h"})
    shown = folded(nodes)
    assert folded(nodes[:100]) == nodes[:100] and len(shown) < 150
    hidden = sum(int(n.name) for n in shown if n.verdict == "folded")
    kept = [n for n in shown if n.verdict != "folded"]
    assert hidden + len(kept) == 501 and all(n.name.startswith("+") for n in shown if n.verdict == "folded")
    assert {n.id for n in nodes if n.verdict not in CLOSED} <= {n.id for n in kept}
    known = {n.id for n in shown}
    assert all(set(n.parents[:1]) <= known for n in shown) and len({(n.x, n.y) for n in shown}) == len(shown)


def test_folding_a_long_chain_takes_little_time() -> None:
    chain = [Node(f"n{n}", f"n{n}", "reject", (f"n{n - 1}",) if n else (), n, 0.0, n == 0) for n in range(3_000)]
    started = time.process_time()
    assert [n.name for n in folded(chain)] == ["n0", "+2999"]
    assert time.process_time() - started < 5


def test_u16_new_records_do_not_move_what_is_chosen(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(told.parent, monkeypatch)
    app = reader.open("lineage")
    node = next(c.id for c in Store.open(told).all(Candidate) if c.name == "wide")
    app.session_state["tree"] = {"selection": {"points": [{"customdata": node}]}}
    app.selectbox(key="h").set_value("wide").run()
    store = Store.open(told)
    store.append(edit_of(store.all(Candidate)[1], "zest"))
    app.run()
    assert app.selectbox(key="h").value == "wide" and "zest" in app.dataframe[0].value.to_csv()
    assert "wide should need fewer turns" in said(app)


def test_filters_of_the_table_come_from_the_run(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Reader(told.parent, monkeypatch).open("lineage", l_verdict="reject")
    assert list(app.dataframe[0].value["verdict"]) == ["✕ reject"]
    assert "1 to 1 of 1 that fit, of 9 candidates" in said(app)
