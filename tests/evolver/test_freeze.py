"""Freezing: played from the capsule's own bytes before the release, resumable, refused when it does not come out."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from evolver.capsules import Drifted, open_capsule, read_lock, verify
from evolver.capsules.evidence import expected_success, outcome, promotion_of
from evolver.capsules.folder import document, own_files, read_part
from evolver.capsules.program import sha256
from evolver.config import Price, TaskLimitsConfig
from evolver.errors import NotReady, ProviderFailed, UsageError
from evolver.freeze import Wanted, capsules_of, check, freeze, replay, tag_drifts
from evolver.intervals import success_interval
from evolver.lab import Lab
from evolver.protocols import Request
from evolver.records import Completion, Freeze, Interval, Release, Rollout, Scorecard
from evolver.report import report
from evolver.store import Store
from evolver.testing import FailingModel
from harnesses.capsule import PriceList
from harnesses.library import UnknownHarness
from tests.evolver.cards import a_card
from tests.evolver.frozen_run import ALPHA, BETA1, Player, hashed_tasks, lab_of, machines, promoted
from tests.evolver.sample_run import candidate, ci, decision
from tests.evolver.test_cli import called
from tests.evolver.test_ground import folder, imported, verdict
from tests.evolver.test_loop import Crash, CrashAfter

WANTED = Wanted("beta1", "b-1")


def helpless(request: Request) -> tuple[float, int]:
    """Another model than the one that the harness was promoted with: it solves one task in ten."""
    return 0.1, 400


async def frozen(lab: Lab, wanted: Wanted = WANTED) -> Release:
    return await freeze(lab, wanted, tasks=hashed_tasks)


def played(store: Store) -> list[Rollout]:
    return [rollout for rollout in store.all(Rollout) if rollout.key.purpose == "capsule"]


async def test_a_capsule_is_played_released_and_signed_off(tmp_path: Path) -> None:
    lab = promoted(tmp_path / "run")
    release = await frozen(lab)
    assert (release.verdict, release.reasons, release.n_tasks, release.attempts) == ("released", (), 10, 2)
    assert len(played(lab.store)) == 20 and {r.loaded_harness_id for r in played(lab.store)} == {BETA1}
    opened = open_capsule(tmp_path / "run/capsules/b-1")
    assert opened.id == release.capsule_id and lab.library.tags()["capsule-b-1"] == BETA1
    assert release.capsule_id in lab.library.message_of("capsule-b-1")
    assert [path.name for path in (tmp_path / "run/capsules").iterdir()] == ["b-1"]
    [made] = capsules_of(lab.store)
    assert made.state == "released" and made.freeze.stated.point == 0.85
    assert release.expected.low is not None and release.expected.low < 0.85
    [row] = next(table for table in report(lab.store).tables if table.title == "Capsules").rows
    assert row[:3] == ("b-1", "beta1", "released") and row[4].startswith("85.0 % [")


async def test_the_same_command_again_plays_nothing_and_shows_the_verdict(tmp_path: Path) -> None:
    first = await frozen(promoted(tmp_path / "run"))
    again = lab_of(tmp_path / "run", helpless)
    assert await frozen(again) == first and len(played(again.store)) == 20


async def test_g30_a_stop_at_any_record_resumes_to_the_same_capsule_and_repeats_nothing(tmp_path: Path) -> None:
    before = promoted(tmp_path / "whole").store
    shutil.copytree(before.path, tmp_path / "base")
    for stop in (1, 7, 42):  # begun, under way, the verdict
        path = Path(shutil.copytree(tmp_path / "base", tmp_path / f"run-{stop}"))
        cut = lab_of(path)
        cut.observers.append(CrashAfter(stop))
        with pytest.raises((Crash, BaseExceptionGroup)):
            await frozen(cut)
        assert not (path / "capsules/b-1").exists()
        [begun] = Store.open(path).all(Freeze)
        release = await frozen(lab_of(path))
        assert (release.verdict, release.capsule_id) == ("released", begun.capsule_id)
        assert open_capsule(path / "capsules/b-1").id == begun.capsule_id
        keys = [rollout.key for rollout in played(Store.open(path))]
        assert len(keys) == len(set(keys)) == 20


async def test_one_that_was_written_and_not_yet_on_record_is_written_anew(tmp_path: Path) -> None:
    lab = promoted(tmp_path / "run")
    aside = tmp_path / "run/capsules/.b-1.unreleased"
    aside.mkdir(parents=True)
    (aside / "capsule.json").write_text("{}")
    assert (await frozen(lab)).verdict == "released"


async def test_a_success_that_does_not_come_out_is_refused_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(tmp_path / "run")
    lab = lab_of(tmp_path / "run", helpless)
    release = await frozen(lab)
    assert release.verdict == "refused" and release.tag == ""
    [why] = release.reasons
    assert "where 85.0 % in the confirmation lets" in why
    assert not (tmp_path / "run/capsules/b-1").exists() and "capsule-b-1" not in lab.library.tags()
    with pytest.raises(UsageError, match="never released"):
        open_capsule(tmp_path / "run/capsules/.b-1.unreleased")
    code, out, err = called(capsys, "freeze", str(tmp_path / "run"), "beta1", "--name", "b-1", "--json")
    assert code == 1 and json.loads(out)["verdict"] == "refused" and why in err and "another --name" in err
    assert (await frozen(lab_of(tmp_path / "run"), Wanted("beta1", "b-2"))).verdict == "released"
    code, _, err = called(capsys, "freeze", str(tmp_path / "run"), "beta1", "--name", "b-2")
    assert code == 0 and "refused before, of the same harness: b-1" in err


async def test_attempts_that_got_no_answer_refuse_nothing(tmp_path: Path) -> None:
    promoted(tmp_path / "run")
    silent = lab_of(tmp_path / "run")
    model = FailingModel(ProviderFailed("no answer"))
    model.id = silent.model.id
    silent.model = model
    with pytest.raises(NotReady, match="20 of 20 attempts got no answer"):
        await frozen(silent)
    assert silent.store.all(Release) == []
    assert (await frozen(lab_of(tmp_path / "run"))).verdict == "released"


async def test_a_capsule_whose_requests_are_refused_does_not_wait_for_answers(tmp_path: Path) -> None:
    class Refuses(Player):
        async def complete(self, request: Request) -> Completion:
            if request.tools:
                raise UsageError("HTTP 400: filtered")
            return await super().complete(request)

    promoted(tmp_path / "run")
    lab = lab_of(tmp_path / "run")
    lab.model = Refuses(helpless)
    release = await frozen(lab)
    assert (release.verdict, release.n_unscored) == ("refused", 20)


async def test_attempts_on_another_image_are_no_evidence(tmp_path: Path) -> None:
    promoted(tmp_path / "run")
    rebuilt = machines()
    lab = lab_of(tmp_path / "run", sandboxes=rebuilt)
    make = rebuilt._make

    def rebuilding():  # type: ignore[no-untyped-def]
        box = make()
        box.image_digest = "sha256:fake" if len(rebuilt.opened) < 12 else "sha256:rebuilt"
        return box

    rebuilt._make = rebuilding
    release = await frozen(lab)
    assert release.verdict == "refused" and "sha256:rebuilt, pinned is sha256:fake" in release.reasons[0]


async def test_what_can_not_be_frozen_is_told_before_anything_is_played(tmp_path: Path) -> None:
    lab = promoted(tmp_path / "run")
    lab.store.append(child := candidate("beta2", "c" * 40, BETA1))
    lab.store.append(decision(2, child, ci(-0.1, -0.2, 0.0), teacher="demonstrator"))
    lab.library.add_seed("beta2")
    for wanted, told in (
        (Wanted("alpha", "a"), "was never promoted.*promoted in .*: beta1"),
        (Wanted("beta2", "a"), "was never promoted"),
        (Wanted("nothing", "a"), "unknown harness 'nothing'"),
        (Wanted("beta1", "No Good"), "expected lower-case letters"),
    ):
        with pytest.raises(UsageError, match=told):
            check(lab.store, lab.library, wanted)
    await frozen(lab)
    with pytest.raises(UsageError, match="was begun in"):
        check(lab.store, lab.library, Wanted("beta1", "b-1", tmp_path / "elsewhere"))
    lab.library.tag(ALPHA, "capsule-b-2", "taken")
    with pytest.raises(UsageError, match="capsule 'b-2' is of harness"):
        check(lab.store, lab.library, Wanted("beta1", "b-2"))
    (tmp_path / "out/b-3").mkdir(parents=True)
    with pytest.raises(UsageError, match="is there already"):
        check(lab.store, lab.library, Wanted("beta1", "b-3", tmp_path / "out"))


async def test_a_harness_of_another_teacher_and_changed_tasks_are_refused(tmp_path: Path) -> None:
    lab = promoted(tmp_path / "run")
    with pytest.raises(UsageError, match="no longer what they were"):
        await freeze(lab, WANTED, tasks=lambda split, limit: hashed_tasks(split, 4))
    (tmp_path / "run/decisions.jsonl").unlink()
    lead = decision(1, candidate("beta1", BETA1, ALPHA), ci(0.5, 0.3, 0.7), teacher="gpt-x")
    other = lab_of(tmp_path / "run").store
    other.append(lead)
    with pytest.raises(UsageError, match="promoted under teacher 'gpt-x'"):
        promotion_of(other, BETA1, "beta1")


async def test_settings_that_changed_since_it_was_begun_are_named(tmp_path: Path) -> None:
    path = promoted(tmp_path / "run").store.path
    cut = lab_of(path)
    cut.observers.append(CrashAfter(9))
    with pytest.raises((Crash, BaseExceptionGroup)):
        await frozen(cut)
    dearer = lab_of(path, prices={"gpt-x": Price(input=1.0, output=3.0)})
    with pytest.raises(Drifted, match=r"settings\.prices\.gpt-x\.output: 2\.0 → 3\.0"):
        await frozen(dearer)


async def test_two_capsules_of_one_harness_share_no_attempt(tmp_path: Path) -> None:
    lab = promoted(tmp_path / "run")
    one, other = await frozen(lab), await frozen(lab, Wanted("beta1", "b-2", n_tasks=4))
    assert one.verdict == "released" and other.n_tasks == 4 and len(played(lab.store)) == 28
    assert one.capsule_id == other.capsule_id  # they pin the same
    firsts = [made.freeze.first for made in capsules_of(lab.store)]
    assert firsts == [0, 2]


async def test_a_capsule_is_replayed_without_its_run(tmp_path: Path) -> None:
    lab = promoted(tmp_path / "run")
    await frozen(lab)
    shutil.copytree(tmp_path / "run/capsules/b-1", tmp_path / "b-1")
    shutil.rmtree(tmp_path / "run")
    assert verify(tmp_path / "b-1") == []
    opened = open_capsule(tmp_path / "b-1")
    alone = lab_of(tmp_path / "alone")
    good = await replay(alone, opened, 6, 1)
    assert (good.n_tasks, good.attempts, good.found.faults) == (6, 1, ())
    bad = await replay(lab_of(tmp_path / "bad", helpless), opened, 10, 2)
    assert bad.found.faults and "in the confirmation lets" in bad.found.faults[0]
    with pytest.raises(Drifted, match=r"machine\.image\.digest"):
        await replay(lab_of(tmp_path / "other", sandboxes=machines(digest="sha256:new")), opened, 6, 1)


async def test_g25_what_the_run_imports_to_compare_by_is_pinned(tmp_path: Path) -> None:
    tasks = {split: imported(number) for number, split in enumerate(("train", "select", "test"))}
    places = {split: (folder(tmp_path / split, [task], [verdict(task)]),) for split, task in tasks.items()}
    limits = TaskLimitsConfig.model_validate({"dev": 12, "select": 10, "imported": places})
    await frozen(promoted(tmp_path / "run", tasks=limits))
    asked = {tasks[split].hash: sha256(tasks[split].instruction.encode()) for split in ("select", "test")}
    assert read_lock(tmp_path / "run/capsules/b-1").held_out == asked


async def test_lock_and_sign_off_that_are_written_anew_together_have_no_tag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = promoted(tmp_path / "run")
    path = tmp_path / "run/capsules/b-1"
    release = await frozen(lab)
    assert tag_drifts(lab.library, path) == []
    words = ("capsule", "verify", str(path), "--no-image", "--run", str(tmp_path / "run"))
    assert called(capsys, *words)[0] == 0
    prices = path / "prices.json"
    prices.write_text(prices.read_text().replace('"output": 2.0', '"output": 9.0'))
    pinned = read_part(prices, PriceList).prices
    forged = read_lock(path).model_copy(update={"prices": pinned, "files": own_files(path)})
    (path / "capsule.json").write_bytes(document(forged))
    (path / "release.json").write_bytes(document(release.model_copy(update={"capsule_id": forged.id})))
    assert verify(path) == [] and open_capsule(path).id == forged.id
    code, out, _ = called(capsys, *words)
    assert (code, out) == (1, f"tag: (not there) → {forged.id}\n")


def test_an_annotated_tag_has_its_message(tmp_path: Path) -> None:
    lab = promoted(tmp_path / "run")
    lab.library.tag(BETA1, "t-1", "first line\n\nsecond")
    assert lab.library.message_of("t-1").split() == ["first", "line", "second"]
    with pytest.raises(UnknownHarness, match="unknown tag 't-2'"):
        lab.library.message_of("t-2")


# --- what is expected ----------------------------------------------------------------------------------------------


def cards(chances: list[float], attempts: int, rng: random.Random) -> list[Scorecard]:
    return [
        a_card("h", task, rng.random() < chance, attempt, purpose="capsule")
        for task, chance in enumerate(chances)
        for attempt in range(attempts)
    ]


def judged(before: list[Scorecard], after: list[Scorecard], tasks: int) -> bool:
    """Whether a harness with the first attempts is released after the second."""
    means = [sum(c.success is True for c in before if c.key.task_id == f"dev-{t}") / 2 for t in range(tasks)]
    return not outcome(after, tasks, expected_success(success_interval(means), 2, 2), 0).faults


def test_what_is_unchanged_is_released_and_what_lost_a_third_is_not() -> None:
    rng = random.Random(5)
    same = lost = 0
    for _ in range(60):
        chances = [0.9] * 24  # the worst case: tasks alike, so that only chance makes them differ
        before = cards(chances, 2, rng)
        same += judged(before, cards(chances, 2, rng), 24)
        lost += judged(before, cards([0.6] * 24, 2, rng), 24)
    assert same >= 54 and lost <= 6, (same, lost)


def test_to_do_better_than_the_confirmation_is_no_fault() -> None:
    stated = Interval(point=0.8, low=0.5, high=0.95, n=20, method="m")
    all_solved = [a_card("h", t, True, purpose="capsule") for t in range(20)]
    assert not outcome(all_solved, 20, stated, 0).faults
    assert outcome([a_card("h", t, t < 9, purpose="capsule") for t in range(20)], 20, stated, 0).faults


def test_one_task_states_nothing_to_expect() -> None:
    single = success_interval([0.5])
    assert expected_success(single, 2, 2).low is None
    found = outcome([a_card("h", 0, True, purpose="capsule")], 1, single, 0)
    assert "nothing states what to expect" in found.faults[0]


def test_few_fresh_attempts_vary_more() -> None:
    stated = Interval(point=0.5, low=0.4, high=0.6, n=10, method="m")
    assert expected_success(stated, 2, 2).low == pytest.approx(0.5 - 0.1 * 2**0.5)
    assert expected_success(stated, 3, 1).high == pytest.approx(0.7)
    assert expected_success(stated.model_copy(update={"low": 0.1}), 1, 1).low == 0.0


def test_too_few_scored_attempts_say_nothing() -> None:
    asked = [a_card("h", t, True if t < 7 else None, purpose="capsule") for t in range(10)]
    found = outcome(asked, 10, Interval(point=1.0, low=0.7, high=1.0, n=10, method="m"), 0)
    assert (found.covered, found.n_unscored) == (False, 3) and "only 7 of 10 attempts" in found.faults[0]
