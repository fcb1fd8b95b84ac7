"""The language model author at the end of its cap, at a dead endpoint and after a restart, and in a whole run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devset.splits import load_split
from evolver.config import Cap, Caps, DistilConfig, HumanAuthor, RaceConfig, RunConfig
from evolver.errors import BudgetSpent, NotReady, UsageError
from evolver.loop import run
from evolver.records import Candidate, Decision, FailedProposal, LedgerEntry, Rollout, Scorecard
from evolver.store import Store
from tests.evolver.authoring import (
    ADDS_A_TOOL,
    DONE,
    MANIFEST,
    NO_FLIPS,
    REMOVES_A_PACKAGE,
    config,
    desk,
    failed,
    first_user_message,
    root_folder,
    runs,
    says,
)
from tests.evolver.cards import Coin, coin_lab, split_tasks
from tests.evolver.endpoint_server import Reply, serving
from tests.evolver.test_cli import called


async def test_e14_e17_a_cap_stops_the_author_between_two_calls_and_what_it_wrote_goes_on(tmp_path: Path) -> None:
    dear = {"prompt_tokens": 90, "completion_tokens": 10}
    endless = runs(f"{REMOVES_A_PACKAGE}; echo half >> ~/harness/prompt/system.md", usage=dear)
    with serving(endless) as endpoint:
        capped = config(endpoint.url, caps=Caps(author=Cap(tokens=250)))
        async with desk(tmp_path / "run", capped) as place:
            with pytest.raises(BudgetSpent, match=r"caps.author.tokens = 250 is spent \(300 used\)"):
                await place.author.propose(place.evidence())
            [rollout] = place.store.all(Rollout)
            assert rollout.stop_reason == "cap" and len(rollout.turns) == 3 and rollout.error is None
            assert place.lab.budget.spent("author").tokens == 300
            assert place.store.all(FailedProposal) == []
            with pytest.raises(BudgetSpent):
                await place.author.propose(place.evidence())
            assert len(endpoint.requests) == 3
    with serving(runs("cat ~/harness/prompt/system.md", says()), DONE) as endpoint:
        raised = config(endpoint.url, caps=Caps(author=Cap(tokens=2_000)), max_repairs=0)
        old = Store.open(tmp_path / "run").config
        raised = raised.model_copy(update={"authors": old.authors, "caps": raised.caps})
        async with desk(tmp_path / "run", _at(raised, endpoint.url, tmp_path / "run")) as place:
            made = await place.author.propose(place.evidence())
            assert made is not None and set(made.candidate.components) == {"P", "E"}
            assert "half" in place.store.all(Rollout)[1].turns[0].results[0].text
            assert made.candidate.author_tokens == 300 + 36
            assert "You were cut off" in first_user_message(endpoint.requests[0])


def _at(settings: RunConfig, url: str, path: Path) -> RunConfig:
    """The settings with the author's endpoint at another address, in the run directory too: tests can't keep a port."""
    author = settings.authors[0]
    moved = author.model_copy(update={"model": author.model.model_copy(update={"base_url": url})})
    settings = settings.model_copy(update={"authors": (moved,)})
    kept = json.loads((path / "run.json").read_text())
    kept["config"] = settings.model_dump(mode="json")
    (path / "run.json").write_text(json.dumps(kept))
    return settings


async def test_an_endpoint_that_dies_half_way_is_asked_again_at_the_next_start_and_charged_once(tmp_path: Path) -> None:
    with serving(runs("echo lost > ~/lost"), Reply(gone=True)) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url, max_repairs=0)) as place:
            with pytest.raises(NotReady, match=r"author llm \(author-model\) got no proposal done: provider"):
                await place.author.propose(place.evidence())
            [dead] = place.store.all(Rollout)
            assert dead.error is not None and dead.error.blame == "provider" and len(dead.turns) == 1
            assert [e.calls for e in place.store.all(LedgerEntry) if not e.spoiled] == [1]
            settings = place.store.config
    with serving(runs("ls ~", REMOVES_A_PACKAGE, says()), DONE) as endpoint:
        async with desk(tmp_path / "run", _at(settings, endpoint.url, tmp_path / "run")) as place:
            made = await place.author.propose(place.evidence())
            again = place.store.all(Rollout)[1]
            entries = [e for e in place.store.all(LedgerEntry) if not e.spoiled]
    assert made is not None and again.retry_of == dead.id and again.key.attempt == dead.key.attempt == 0
    assert "lost" not in again.turns[0].results[0].text
    assert [(e.rollout_id, e.calls) for e in entries] == [(dead.id, 1), (again.id, 2)]
    assert made.candidate.author_tokens is None, "what the call that died may be billed is unknown"


async def test_e18_e12_a_finished_attempt_is_not_paid_for_twice(tmp_path: Path) -> None:
    """The run dies after the attempt is on record, before it is charged and before its candidate is on record."""
    with serving(runs(REMOVES_A_PACKAGE, says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url)) as place:
            first = await place.author.propose(place.evidence())
            settings = place.store.config
    (tmp_path / "run" / "ledger.jsonl").unlink()
    with serving(Reply(status=500)) as endpoint:
        async with desk(tmp_path / "run", _at(settings, endpoint.url, tmp_path / "run")) as place:
            second = await place.author.propose(place.evidence("other evidence, of another day"))
            assert len(place.store.all(Rollout)) == 1
            assert [(e.role, e.calls) for e in place.store.all(LedgerEntry)] == [("author", 2)]
    assert first is not None and second is not None and endpoint.requests == []
    same = {"proposed_at"}
    assert first.candidate.model_dump(exclude=same) == second.candidate.model_dump(exclude=same)


async def test_e13_an_author_without_known_cost_stops_the_run_and_is_on_record(tmp_path: Path) -> None:
    with serving(runs("true", usage={}), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url)) as place:
            with pytest.raises(UsageError, match="a call to 'author-model' as author has no known cost"):
                await place.author.propose(place.evidence())
            assert len(place.store.all(Rollout)) == len(place.store.all(LedgerEntry)) == 1


async def test_a_failed_proposal_is_followed_by_the_next_one(tmp_path: Path) -> None:
    with serving(DONE, runs(REMOVES_A_PACKAGE, says()), DONE) as endpoint:
        async with desk(tmp_path / "run", config(endpoint.url, n=2, max_repairs=0)) as place:
            made = await place.author.propose(place.evidence())
            record = failed(place.store)
    assert made is not None and made.candidate.name.startswith("llm-2-")
    assert "expected a change" in record.reasons[0] and "manifest.json: missing" in record.reasons[0]
    assert made.candidate.author_tokens == 2 * 18 and record.author_tokens == 18
    told = first_user_message(endpoint.requests[1])
    assert "# What failed since\n\n- no reason given: harness/: expected a change" in told


async def test_e35_a_spent_cap_of_the_author_ends_the_run_by_name_after_what_waits_was_raced(tmp_path: Path) -> None:
    plain = config("http://127.0.0.1:9/v1", caps=Caps(author=Cap(rollouts=0)), root="alpha", min_proposals=0)
    people = HumanAuthor(kind="human", harness="beta1", why="a shell")
    changes = {
        "authors": (people, *plain.authors),
        "race": RaceConfig(attempts=(1,)),
        "distil": DistilConfig(max_promotions=0),
    }
    lab = coin_lab(tmp_path / "run", plain.model_copy(update=changes), Coin(lambda request: (0.5, 400)))
    end = await run(lab, tasks=split_tasks)
    assert end.reason == "budget" and "caps.author.rollouts = 0 is spent" in end.detail
    assert len(lab.store.all(Decision)) == 1


# --- the whole loop --------------------------------------------------------------------------------------------------

RUN = """
root = "{root}"
min_proposals = 0
[teacher]
kind = "demonstrator"
slip_rate = 0.0
[sandbox]
backend = "local"
[tasks]
dev = 2
select = 1
[race]
attempts = [1]
confirm_attempts = 1
saturation = 1.0
[checks]
tasks = 0
neutral_every = 0
[distil]
max_promotions = 0
[[authors]]
kind = "llm"
n = 3
max_repairs = 0
parents = "incumbent"
model = {{ kind = "openai", model = "author-model", base_url = "{url}", retry_for_s = 0 }}
[prices.author-model]
input = 1.0
output = 1.0
"""


@pytest.mark.slow
def test_the_same_command_goes_on_after_the_endpoint_died_and_races_what_was_proposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool more, a package less and a leak, by `evolver run` with real attempts of the demonstrator."""
    known = load_split("dev", 2)[0].id
    claims = {**MANIFEST, "edits": [{**NO_FLIPS, "predicted_flips": [{"task_id": known, "probability": 0.5}]}]}
    script = (
        runs("true"), Reply(gone=True),  # dies half-way
        runs(ADDS_A_TOOL, says(claims)), DONE, runs(REMOVES_A_PACKAGE, says(claims)), DONE,
        runs(f"echo {known} >> ~/harness/prompt/system.md", says(claims)), DONE,
    )  # fmt: skip
    with serving(*script) as endpoint:
        (tmp_path / "run.toml").write_text(RUN.format(root=root_folder(tmp_path / "root"), url=endpoint.url))
        words = ("run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run"))
        code, _, err = called(capsys, *words)
        assert code == 2 and "author llm (author-model) got no proposal done: provider" in err
        before = [r.id for r in Store.open(tmp_path / "run").all(Rollout)]
        code, _, err = called(capsys, *words)
        assert code == 0, err
    store = Store.open(tmp_path / "run")
    made = [c for c in store.all(Candidate) if c.parents]
    assert [c.components for c in made] == [("T",), ("E",)] and {c.author for c in made} == {"llm"}
    assert [d.candidate_id for d in store.all(Decision)] == [c.id for c in made]
    assert "the id of a task" in failed(store).reasons[0]
    rollouts = store.all(Rollout)
    assert [r.id for r in rollouts][: len(before)] == before
    assert {r.loaded_harness_id for r in rollouts if r.key.purpose == "race"} >= {c.harness_id for c in made}
    assert all(card.success is not None for card in store.all(Scorecard))
    entries = [e for e in store.all(LedgerEntry) if not e.spoiled]
    assert sorted(e.rollout_id or "" for e in entries) == sorted(r.id for r in rollouts)
    assert sum(e.calls for e in entries if e.role == "author") == len(endpoint.requests) - 1  # one was never answered
    assert "# Evidence for a change of root" in first_user_message(endpoint.requests[0])
