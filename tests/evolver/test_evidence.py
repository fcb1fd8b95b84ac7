"""What an author is told: all of it follows from attempts on dev, fits its bounds, and gives no hidden task away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from evolver.compare import detectable_effect
from evolver.config import Cap, Caps, GapConfig, RaceConfig, RunConfig
from evolver.evidence import BUNDLE_BYTES, SUMMARY_BYTES, evidence
from evolver.loop import run
from evolver.protocols import Evidence
from evolver.records import Candidate, Decision, Failure, LedgerEntry, Rollout, Scorecard
from evolver.store import Store
from evolver.turns import evidence_of
from tests.evolver.cards import Coin, coin_lab, split_tasks
from tests.evolver.made_run import CHILD, PARENT, ROOT, Made, flips, refused, score, turns
from tests.evolver.test_loop import Students, shell_helps
from tests.evolver.test_loop import config as experiment

Row = dict[str, JsonValue]


def told(made: Made) -> Evidence:
    return evidence(made.store, PARENT)


def rows(found: Evidence, table: str) -> list[Row]:
    made = json.loads(found.files["evidence.json"])["tables"][table]
    return list(made["rows"])


def page(found: Evidence, path: str) -> str:
    return found.files[path].decode()


# --- what is never told -----------------------------------------------------------------------------------------------


async def real_run(path: Path) -> Store:
    """A whole experiment on coin-tossing agents: dev, select and test are played."""
    lab = coin_lab(path, experiment(gap=GapConfig(pairs=(("alpha", "beta1"),))), Coin(shell_helps))
    await run(lab, tasks=split_tasks, distil=Students(lab))
    told_in_loop = evidence_of(lab)
    assert told_in_loop == evidence(lab.store, lab.harness(told_in_loop.parent_harness))
    return lab.store


async def test_no_byte_names_a_task_of_select_or_test_or_an_attempt_at_one(tmp_path: Path) -> None:
    store = await real_run(tmp_path / "run")
    secret = {r.key.task_id for r in store.all(Rollout) if r.key.split != "dev"}
    secret |= {r.id for r in store.all(Rollout) if r.key.split != "dev"}
    assert {name.split("-")[0] for name in secret} == {"select", "test", "r"}
    last = [candidate for candidate in store.all(Candidate) if candidate.parents][-1]
    nosy = last.model_copy(
        update={
            "id": "cand-nosy", "harness_id": "f" * 40, "name": "select-1", "author": "test-2",
            "changes": ("prompt.notes: + select-3",),
            "manifest": last.manifest.model_copy(
                update={"why": f"mends select-3 and {max(secret)}", "predicted_flips": flips(("select-1", 0.9))}
            ),
        }
    )  # fmt: skip
    store.append(nosy)
    decided = store.all(Decision)[-1]
    update = {"id": "dec-nosy", "candidate_id": nosy.id, "candidate_harness": nosy.harness_id, "verdict": "keep"}
    store.append(decided.model_copy(update={**update, "reasons": ("select-2 was lost",)}))
    store.append(refused(why="select-4", reasons=("test-1 is named",)))
    found = evidence(store, PARENT)
    whole = b"\n".join([found.summary.encode(), *(path.encode() + data for path, data in found.files.items())])
    assert b"[hidden task]" in whole, "what an author wrote is shown, without the names"
    assert not [name for name in secret if name.encode() in whole]


def test_what_single_tasks_of_select_came_to_changes_no_byte(tmp_path: Path) -> None:
    """Nothing is derived from them one by one: only what a verdict says of all of them together."""
    bundles = []
    for name, success in (("a", True), ("b", False)):
        made = Made(tmp_path / name / "run")
        for task in ("dev-0", "dev-1"):
            made.attempt(PARENT.id, task, task == "dev-0")
        for number in range(4):
            made.attempt(PARENT.id, f"select-{number}", success, purpose="confirm", split="select")
        bundles.append(b"".join(told(made).files.values()).replace(made.store.run_id.encode(), b""))
    assert bundles[0] == bundles[1]


def test_no_answer_of_a_check_and_no_key_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    made = Made(tmp_path / "run")
    lost = (
        score(0.0, "cell", "cell B2 of Desktop/plan.xlsx is 'Lyon', expected 'Antwerp'"),
        score(0.0, "rows", "Desktop/a.csv differs from row 7 on (6 rows, expected 4711)"),
        score(0.0, "total", "Desktop/sum.txt holds 12, expected 8823"),
    )
    made.attempt(PARENT.id, "dev-0", False, words=[("echo sk-very-secret-key", "ok")], scores=lost)
    made.attempt(PARENT.id, "dev-1", None, error=Failure(kind="checker", blame="grader", message="check.py: Antwerp"))
    found = told(made)
    whole = b"".join(found.files.values()).decode()
    for answer in ("Antwerp", "4711", "8823", "Lyon", "check.py"):
        assert answer not in whole
    assert "sk-very-secret-key" not in whole and "[key]" in page(found, f"rollouts/r-{PARENT.id[:6]}-dev-0-0.md")
    said = rows(found, "tasks")[0]["check_said"]
    assert said == ["cell … of … is …", "… differs from row … on …", "… holds … expected"]


def test_an_edit_that_only_tests_the_rule_is_not_told_of(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    made.attempt(PARENT.id, "dev-0", False)
    made.attempt(CHILD, "dev-0", True)
    neutral = made.candidate("neutral-edit", CHILD, PARENT.id, hidden_neutral=True)
    made.store.append(neutral)
    made.decide(neutral, "promote", 0.1)
    found = told(made)
    whole = b"".join(path.encode() + data for path, data in found.files.items())
    assert b"neutral-edit" not in whole and CHILD[:6].encode() not in whole and rows(found, "pairs") == []
    assert found.generation == 1 and "1 candidates decided" in found.summary


# --- how the parent does ----------------------------------------------------------------------------------------------


def test_e21_coverage_is_shown_and_effects_rest_on_common_tasks(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    for number in range(5):
        made.attempt(PARENT.id, f"dev-{number}", number > 2)
    made.attempt(CHILD, "dev-0", True)
    for number in range(1, 5):
        made.attempt(CHILD, f"dev-{number}", None)
    made.decide(made.propose("lucky"), "inconclusive", 1.0)
    found = told(made)
    [parent] = [row for row in rows(found, "scorecard") if str(row["harness"]).startswith("parent")]
    assert (parent["tasks_scored"], parent["tasks"]) == (5, 5) and (parent["attempts_scored"], parent["attempts"]) == (
        5,
        5,
    )
    [lucky] = rows(found, "near_misses")
    assert (lucky["tasks"], lucky["of"]) == (1, 5), "the mean over one task is not passed off as one over five"
    made.attempt(PARENT.id, "dev-5", None)
    [parent] = [row for row in rows(told(made), "scorecard") if str(row["harness"]).startswith("parent")]
    assert (parent["tasks_scored"], parent["tasks"]) == (5, 6)
    assert [(row["kind"], row["attempts"]) for row in rows(told(made), "unscored")] == [("not graded", 1)]


def test_e28_effects_are_computed_anew_from_the_attempts(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    for number in range(4):
        made.attempt(PARENT.id, f"dev-{number}", False)
        made.attempt(CHILD, f"dev-{number}", number < 3)
    made.decide(made.propose("gain"), "keep", 0.0)  # as if the frontier had moved before it was measured
    found = told(made)
    [near], [change] = rows(found, "near_misses"), rows(found, "ablations")[:1]
    assert near["effect"]["point"] == change["effect"]["point"] == 0.75  # type: ignore[index, call-overload]
    assert "as written down" not in b"".join(found.files.values()).decode()


def test_e38_partial_credit_above_success_is_shown_and_warned_of(tmp_path: Path) -> None:
    for name, rubric, warned in (("farmed", 0.8, True), ("honest", 0.05, False)):
        made = Made(tmp_path / name)
        for number in range(4):
            made.attempt(PARENT.id, f"dev-{number}", False, rubric=rubric)
        found = told(made)
        [row] = [row for row in rows(found, "scorecard") if str(row["harness"]).startswith("parent")]
        assert row["rubric_minus_success"] == pytest.approx(rubric)
        assert (f"The rubric is {100 * rubric:.0f} pp above success" in found.summary) is warned


def test_the_task_table_tells_stability_and_what_failed(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    for number, success in enumerate((True, False, False)):
        made.attempt(PARENT.id, "flaky", success, number)
        made.attempt(PARENT.id, "hard", False, number, stop="step_limit", scores=(score(1.0), score(0.5, "total")))
        made.attempt(PARENT.id, "easy", True, number)
    made.attempt(PARENT.id, "broken", None)
    made.attempt(CHILD, "easy", False)
    found = rows(told(made), "tasks")
    assert [(row["task"], row["stability"]) for row in found] == [
        ("flaky", "unstable"), ("hard", "never"), ("broken", "unscored"), ("easy", "always"),
    ]  # fmt: skip
    assert (found[0]["solved"], found[0]["attempts"]) == (1, 3)
    assert found[1]["criteria_failed"] == ["total x3"] and found[1]["stops"] == ["step_limit x3"]


def test_failures_are_grouped_by_what_they_share(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    trace = "Traceback (most recent call last):\n  ...\nModuleNotFoundError: No module named 'pptx'\n(exit code 1)"
    for number in range(3):
        made.attempt(PARENT.id, f"slides-{number}", False, words=[("python3 x.py", trace)])
    made.attempt(PARENT.id, "csv-0", False, stop="step_limit", words=[("cat", "a TypeError is named in this file")])
    made.attempt(PARENT.id, "csv-1", False, played=turns([("x", "error: no")], "gui", error=True))
    found = rows(told(made), "groups")
    shared = [(row["stop"], row["error"], row["channel"], row["n_tasks"]) for row in found]
    assert shared == [
        ("finished", "modulenotfounderror", "terminal", 3), ("finished", "refused action", "gui", 1),
        ("step_limit", "none", "terminal", 1),
    ]  # fmt: skip
    assert found[0]["share"] == 0.6 and found[0]["tasks"] == ["slides-0", "slides-1", "slides-2"]
    first = f"rollouts/{found[0]['examples'][0]}.md"  # type: ignore[index]
    assert "No module named 'pptx'" in page(told(made), first)


def test_a_pair_shows_the_turn_in_which_pass_and_fail_part(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    same = [("ls", "a.csv"), ("cat a.csv", "1,2")]
    made.propose("sibling")
    made.attempt(PARENT.id, "t", True, 0, [*same, ("sort -n a.csv > b.csv", "ok")])
    made.attempt(PARENT.id, "t", False, 1, [*same, ("sort a.csv > b.csv", "ok")])
    made.attempt(PARENT.id, "t", False, 2, [("find /", "lots")])
    made.attempt(PARENT.id, "u", False, 0, [("date", "Monday")])
    made.attempt(CHILD, "u", True, 0, [("date", "Tuesday")])
    made.attempt(PARENT.id, "alone", False)
    found = told(made)
    [near, far] = rows(found, "pairs")
    assert (near["task"], near["turn"], near["how"], near["failed"]) == (
        "t",
        2,
        "other calls",
        f"r-{PARENT.id[:6]}-t-1",
    )
    assert (far["task"], far["turn"], far["how"]) == ("u", 0, "same calls, other results")
    side = page(found, "failures.md")
    assert "### t: other calls at turn 2" in side and "Before it, the same in both: step 0; step 1" in side
    assert "sort -n a.csv" in side and "sort a.csv" in side and "find /" not in side
    assert {f"rollouts/{near[key]}.md" for key in ("failed", "solved")} <= found.files.keys()


# --- what was tried ---------------------------------------------------------------------------------------------------


def test_predictions_are_held_against_what_came(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    for task, before, after in (("a", False, True), ("b", False, False), ("c", True, False), ("d", True, False)):
        made.attempt(PARENT.id, task, before)
        made.attempt(CHILD, task, after)
    made.decide(
        made.propose(
            "seer", predicted_flips=flips(("a", 0.9), ("b", 0.6), ("nowhere", 1.0)),
            predicted_regressions=flips(("c", 0.2)), expected_token_change=-0.5,
        ),
        "reject", -0.25,
    )  # fmt: skip
    found = told(made)
    [row] = [row for row in rows(found, "predictions") if row["candidates"] == 2 or row["predictions"]]
    assert (row["predictions"], row["flips"], row["flips_came"]) == (3, 2, 1)
    assert (row["regressions"], row["regressions_came"], row["regressions_missed"]) == (1, 1, 1)
    assert row["brier"] == pytest.approx((0.1**2 + 0.6**2 + 0.8**2) / 3, abs=1e-6)
    assert row["token_error"] == pytest.approx(0.5), "the tokens stayed as they were"
    assert [(one["task"], one["outcome"]) for one in rows(found, "predicted")] == [
        ("a", "came"), ("b", "did not come"), ("c", "came"),
    ]  # fmt: skip


def test_changes_near_misses_and_rejected_ideas_are_told_apart(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    made.attempt(PARENT.id, "t", False)
    for number, (name, verdict) in enumerate((("kept", "keep"), ("worse", "reject"), ("unsure", "inconclusive"))):
        harness = str(number) * 40
        made.attempt(harness, "t", verdict == "inconclusive")
        changes = ("tools: - bash",) if verdict == "reject" else ("environment.pip: + lxml", "prompt.notes: + bash")
        one = made.candidate(name, harness, PARENT.id, changes=changes)
        made.store.append(one)
        made.decide(one, verdict, 0.0)
    made.store.append(refused(why="a tool"))
    found = told(made)
    assert [row["candidate"] for row in rows(found, "near_misses")] == ["unsure", "kept"], "the largest effect first"
    assert [(r["candidate"], r["reasons"]) for r in rows(found, "rejected")] == [("worse", "worse was seen")]
    assert [row["reasons"] for row in rows(found, "refused")] == [["it does not parse"]]
    changes_told = [row for row in rows(found, "ablations") if row["candidate"] != "beta1"]
    assert [(row["component"], row["kind"], row["with_others"]) for row in changes_told] == [
        ("T", "removed", 0), ("E", "added", 1), ("P", "added", 1), ("E", "added", 1), ("P", "added", 1),
    ]  # fmt: skip


def test_a_change_is_held_against_the_parent_that_was_changed(tmp_path: Path) -> None:
    """Which need not be the incumbent that it was raced against."""
    made = Made(tmp_path / "run")
    for number in range(4):
        made.attempt(PARENT.id, f"dev-{number}", number < 2)
        made.attempt(ROOT, f"dev-{number}", False)
        made.attempt(CHILD, f"dev-{number}", number < 1)
    one = made.candidate("aside", CHILD, ROOT, changes=("scaffold.max_steps: 20 → 8",))
    made.store.append(one)
    made.decide(one, "reject", 0.0, incumbent_harness=PARENT.id)
    found = told(made)
    [change] = [row for row in rows(found, "ablations") if row["candidate"] == "aside"]
    [lost] = rows(found, "rejected")
    assert change["effect"]["point"] == 0.25 and change["parent"] == "alpha"  # type: ignore[index, call-overload]
    assert lost["effect"]["point"] == -0.25 and lost["against"] == "beta1"  # type: ignore[index, call-overload]


def test_the_rule_is_told_with_this_run_s_numbers(tmp_path: Path) -> None:
    rules = RaceConfig(attempts=(1, 3), confirm_attempts=8, margin=0.07, min_saving=0.2, screen_alpha=0.04)
    made = Made(tmp_path / "run", RunConfig(race=rules, caps=Caps(rollouts=100, teacher=Cap(tokens=5_000))))
    for number in range(4):
        made.attempt(PARENT.id, f"dev-{number}", number < 2)
    entry = LedgerEntry(
        id="l", role="teacher", model_id="demonstrator", calls=2, input_tokens=900, output_tokens=100, cost_usd=0.0,
        rollout_id="r", at=1.0,
    )  # fmt: skip
    made.store.append(entry)
    unknown: dict[str, object] = dict.fromkeys(("input_tokens", "output_tokens", "cost_usd"))
    made.store.append(entry.model_copy(update={"id": "s", "spoiled": True, **unknown}))
    found = told(made)
    for words in (
        "4 dev tasks",
        "after 1, 3 attempts",
        "4 % over all looks",
        "at most 7 pp below",
        "least 20 % of the",
    ):
        assert words in " ".join(found.summary.split()), words
    assert "(2, 4, 8 a task)" in " ".join(found.summary.split())
    last = rows(found, "detectable")[-1]
    assert last["attempts"] == 3 and last["lead"] == pytest.approx(detectable_effect(4, 3, 0.04, 0.8, 0.5), abs=1e-5)
    left = {row["role"]: (row["rollouts_left"], row["tokens_left"], row["cost_left"]) for row in rows(found, "budget")}
    assert left == {"all": ("99", "no cap", "no cap"), "teacher": ("no cap", "4,000", "no cap")}


async def test_every_table_of_a_real_run_agrees_with_its_records(tmp_path: Path) -> None:
    store = await real_run(tmp_path / "run")
    found = evidence(store, PARENT)
    cards = [c for c in store.all(Scorecard) if (c.key.split, c.key.purpose) == ("dev", "race")]
    own = [card for card in cards if card.key.harness_id == PARENT.id]
    tasks = rows(found, "tasks")
    assert len(tasks) == len({card.key.task_id for card in own})
    assert sum(int(str(row["attempts"])) for row in tasks) == len(own)
    assert sum(int(str(row["solved"])) for row in tasks) == sum(card.success is True for card in own)
    assert sum(int(str(row["attempts"])) for row in rows(found, "groups")) == sum(c.success is False for c in own)
    turns_played = sum(len(r.turns) for r in store.all(Rollout) if r.id in {card.rollout_id for card in own})
    assert sum(int(str(row["turns"])) for row in rows(found, "channel_cost")) == turns_played
    shares = [row["share"] for row in rows(found, "prompt_cost") if row["share"] != ""]
    assert sum(float(str(share)) for share in shares) == pytest.approx(1, abs=1e-4) and len(shares) == 6
    decided = [d for d in store.all(Decision) if d.verdict != "promote"]
    assert len(rows(found, "near_misses")) + len(rows(found, "rejected")) == len(decided)
    assert found.summary == page(found, "README.md") and found.generation == len(store.all(Decision))
    assert {"tasks.md", "failures.md", "costs.md", "tried.md", "evidence.json"} <= found.files.keys()


def test_a_run_that_has_played_nothing_has_evidence_too(tmp_path: Path) -> None:
    found = evidence(Store.create(tmp_path / "run", RunConfig()), PARENT)
    assert "(nothing yet)" in found.summary and found.generation == 0 and ROOT not in found.summary


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_bundle_of_a_large_run_stays_within_its_bounds(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    flood = "é|`漢\n" * 400
    for task in range(70):
        for number in range(3):
            lost = tuple(score(0.0, f"criterion_{task}_{n}", flood) for n in range(8))
            made.attempt(
                PARENT.id, f"task-{task}-{'x' * 60}", (task + number) % 3 == 0, number,
                [(f"echo {task} {flood}", flood)] * 12, scores=lost,
            )  # fmt: skip
    for number in range(80):
        harness = f"{number:040d}"
        one = made.propose(f"candidate-{number}", harness, why=flood)
        made.decide(one, ("keep", "reject", "inconclusive")[number % 3], 0.0, reasons=(flood,))
    found = told(made)
    assert sum(len(data) for data in found.files.values()) <= BUNDLE_BYTES
    assert len(found.summary.encode()) <= SUMMARY_BYTES
    tables = json.loads(found.files["evidence.json"])["tables"]
    assert tables["tasks"]["left_out"] > 0 and tables["tasks"]["rows"], "what is left out is counted"
    assert len([path for path in found.files if path.startswith("rollouts/")]) == 24
    assert "turns left out" in next(page(found, path) for path in found.files if path.startswith("rollouts/"))
    assert "more rows" in page(found, "tasks.md")
    assert "## Where to look" in found.summary, "no table takes the room of what comes after it"
