"""Every page, run as Streamlit runs it: on a whole run, an empty one, a damaged one, and with bad addresses."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from dashboards import frame
from evolver.config import OpenAISpec, RunConfig
from evolver.records import Interval, Rollout
from evolver.store import Store
from tests.dashboards.reader import Reader, said

PAGES = (
    "overview", "lineage", "compare", "frontier", "channels", "gap", "rollouts", "replay", "rounds", "propose", "freeze"
)  # fmt: skip
ROLLOUT = "r-0000000000000010"


@pytest.fixture
def reader(whole_run: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(whole_run.parent, monkeypatch)


def test_every_page_says_what_the_run_holds(reader: Reader) -> None:
    expected = {
        "overview": ["beta1", "+56.2 pp [+31.0, +77.0]", "16 paired tasks", "✕ reject", "90.0 %"],
        "lineage": ["◇ inconclusive", "○ undecided", "tools: + bash", "diff --git", "beta1 should need fewer turns"],
        "compare": ["No gap is shown: no task pairs", "0 of 8 tasks pair", "4: played by A alone", "T tools"],
        "frontier": ["on the frontier", "1,800 [1,500, 2,100]", "● on it"],
        "channels": ["calc", "mousepad", "unknown", "n=14"],
        "gap": ["-15.0 pp [-27.0, -3.0]", "40 test tasks", "student seeds: 0, 1", "not defined", "untrained control"],
        "rollouts": ["120 of 120 rollouts · page 1 of 3", "◇ unscored (sandbox)", "○ not graded"],
        "rounds": ["No generation round here yet", "evolver generate CAPSULE"],
        "propose": ["byte for byte", "A race to its last look takes", "nothing is changed"],
        "freeze": ["+56.2 pp [+31.0, +77.0] over alpha", "it needs a name", "None yet"],
        "replay": ["calc-total-16", "computer_use", "B9 is 412", "counted by estimate"],
    }
    for page in PAGES:
        text = said(reader.open(page, r=ROLLOUT))
        wanted = ["demonstrator (scripted, slip rate 0.05)", *expected[page]]
        assert not [words for words in wanted if words not in text]
        assert "nan" not in re.findall(r"[a-z]+", text.lower())


def test_every_page_of_an_empty_run_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.create(tmp_path / "new", RunConfig())
    reader = Reader(tmp_path, monkeypatch)
    for page in PAGES:
        app = reader.open(page, r="r-none")
        assert re.search(r"\bno\b|nothing|unknown", said(app), re.IGNORECASE)
        assert not app.dataframe


@pytest.mark.parametrize("where", ["empty", "absent"])
def test_without_a_run_two_commands_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    (tmp_path / "empty").mkdir()
    app = Reader(tmp_path / where, monkeypatch).app
    assert not app.exception and app.title[0].value == "No run yet"
    assert app.code[0].value.splitlines() == ["make demo", "make dashboard"]


def test_u20_a_new_run_shows_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    Store.create(tmp_path / "new", RunConfig())
    assert "run **new**" in said(reader.app.run())


def test_several_runs_can_be_chosen_and_a_wrong_name_shows_the_newest(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(run_copy.parent / "other", RunConfig())
    reader = Reader(run_copy.parent, monkeypatch)
    reader.app.selectbox(key="run").set_value("demo").run()
    assert "beta1" in said(reader.app)
    assert reader.app.dataframe[0].value["candidate"][0] == "lineage?run=demo&h=short", "a link leads to the same run"
    fresh = Reader(run_copy.parent, monkeypatch)
    fresh.open("overview", run="../../etc")
    assert fresh.app.selectbox(key="run").value == "other"


def test_a_run_of_another_version_is_named(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = run_copy / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": 99}))
    app = Reader(run_copy.parent, monkeypatch).app
    assert not app.exception and "schema version 99" in app.error[0].value


def test_a_real_teacher_is_named_without_a_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = OpenAISpec(kind="openai", model="some-model", base_url="http://127.0.0.1:9")
    Store.create(tmp_path / "new", RunConfig(teacher=teacher, allow_unpriced=True))
    text = said(Reader(tmp_path, monkeypatch).app)
    assert "some-model" in text and "scripted" not in text


def test_torn_lines_are_counted_on_every_page(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for log in ("rollouts", "decisions"):
        with (run_copy / f"{log}.jsonl").open("a") as opened:
            opened.write('{"id": "r-torn", "key": {"pur')
    reader = Reader(run_copy.parent, monkeypatch)
    for page in PAGES:
        app = reader.open(page, r=ROLLOUT)
        torn = [w.value for w in app.warning if "1 torn last line" in w.value]
        assert len(torn) == 2 and "r-torn" not in said(app)


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "null"])
def test_u22_a_value_that_is_no_number_is_unknown_everywhere(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    for log in ("evaluations", "decisions", "gaps", "distillations", "scorecards", "ledger"):
        file = run_copy / f"{log}.jsonl"
        names = "point|low|high|tokens_per_solved|cost_usd|seconds_per_task|flip_rate_aa|train_loss_first|rubric"
        damaged = re.sub(rf'"({names})": ?-?[\d.]+', rf'"\1":{bad}', file.read_text())
        assert damaged != file.read_text()
        file.write_text(damaged)
    reader = Reader(run_copy.parent, monkeypatch)
    for page in PAGES:
        text = said(reader.open(page, r=ROLLOUT))
        assert not re.search(r"\b(nan|inf)\b|1\.79", text, re.IGNORECASE)
        assert "unknown" in text or page in ("replay", "compare", "rounds")


@pytest.mark.parametrize(
    ("page", "address", "answer"),
    [
        ("lineage", {"h": "nope"}, "No candidate `nope`"),
        ("gap", {"gap": "a to z"}, "No gap `a to z`"),
        ("rollouts", {"r_id": "r-nope"}, "No rollout `r-nope`"),
        ("rollouts", {"r_outcome": "drop table", "r_purpose": "x"}, "120 of 120"),
        ("rollouts", {"r_page": "-3"}, "page 1 of 3"),
        ("replay", {"r": "../../run.json"}, "No rollout `../../run.json`"),
        ("replay", {"r": ""}, "No rollout `(none given)`"),
        ("replay", {"r": ROLLOUT, "step": "999"}, "no turn 999"),
        ("replay", {"r": ROLLOUT, "step": "x"}, "Turn 1"),
        ("channels", {"ch": "nope"}, "Terminal share"),
    ],
)
def test_what_the_address_asks_is_checked(reader: Reader, page: str, address: dict[str, str], answer: str) -> None:
    assert answer in said(reader.open(page, **address))


def test_u14_the_address_holds_filters_page_and_turn(reader: Reader) -> None:
    app = reader.open("rollouts", r_harness="beta1", r_outcome="solved", r_page="1")
    assert app.selectbox(key="r_harness").value == "beta1"
    assert set(app.dataframe[0].value["harness"]) == {"beta1"}
    assert set(app.dataframe[0].value["outcome"]) == {"● solved"}
    assert "Turn 3" in said(reader.open("replay", r=ROLLOUT, step="3"))


def test_u19_a_filter_resets_the_page_and_a_page_too_far_is_clamped(reader: Reader) -> None:
    app = reader.open("rollouts", r_page="3")
    assert "page 3 of 3" in said(app)
    app.selectbox(key="r_outcome").set_value("failed").run()
    assert app.number_input(key="r_page").value == 1 and "page 1 of 1" in said(app)
    app.number_input(key="r_page").set_value(40).run()
    assert "There is no page 40; the last one is shown." in said(app) and "page 1 of 1" in said(app)


def test_u02_an_id_lands_on_its_row(reader: Reader) -> None:
    app = reader.open("rollouts", r_id=ROLLOUT)
    assert list(app.dataframe[0].value["replay"]) == [f"replay?r={ROLLOUT}&step=1"]


def test_u17_rows_are_links(reader: Reader) -> None:
    column = json.loads(reader.open("rollouts").dataframe[0].proto.columns)["replay"]
    assert column["type_config"]["type"] == "link"


def test_the_next_button_goes_one_turn_on(reader: Reader) -> None:
    app = reader.open("replay", r=ROLLOUT, step="1")
    next(b for b in app.button if b.label == "next").click().run()
    assert app.number_input(key="step").value == 2 and "python3 total.py" in said(app)


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_u39_a_lost_frame_is_a_card_with_its_reason(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    for blob in (run_copy / "blobs").glob("*/*"):
        if damage == "missing":
            blob.unlink()
        else:
            blob.write_bytes(b"<html>")
    app = Reader(run_copy.parent, monkeypatch).open("replay", r=ROLLOUT, step="1")
    assert [w.value for w in app.warning if "can't be shown" in w.value and "blob" in w.value]
    next(b for b in app.button if b.label == "next").click().run()
    assert not app.exception and "Turn 2" in said(app)


def test_a_rollout_of_another_shape_is_an_error_with_its_place(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = run_copy / "rollouts.jsonl"
    file.write_text(file.read_text().replace('"image_digest"', '"digest"'))
    app = Reader(run_copy.parent, monkeypatch).open("replay", r=ROLLOUT)
    assert f"rollouts.jsonl: rollout {ROLLOUT}: " in app.error[0].value


def test_an_attempt_of_another_run_has_the_frames_and_the_names_of_that_run(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = run_copy.parent / "other"
    shutil.copytree(run_copy, other)
    for blob in (run_copy / "blobs").glob("*/*"):
        blob.unlink()
    shutil.rmtree(run_copy / "library")
    log = run_copy / "candidates.jsonl"
    log.write_text(log.read_text().replace('"name":"beta1"', '"name":"renamed"'))
    reader = Reader(run_copy.parent, monkeypatch)
    reader.app.selectbox(key="run").set_value("demo").run()
    app = reader.open("replay", r=ROLLOUT, beside=ROLLOUT, beside_run="other", step="1")
    assert len([w for w in app.warning if "can't be shown" in w.value]) == 1, "the other run has its frames"
    assert [c.value.partition(" · ")[0] for c in app.caption if "the same so far" in c.value] == ["renamed", "beta1"]


def test_a_run_that_ended_and_is_driven_again_is_said_to_be_worked_on(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(run_copy.parent, monkeypatch)
    assert re.search(r"ended: done · updated \d+ \w+ ago", said(reader.open("overview")))
    with Store.open(run_copy).working():
        text = said(reader.app.run())
        assert f"process {os.getpid()} is working on it" in text and "ended: done" not in text
    assert "ended: done" in said(reader.app.run())


def test_j_and_k_step_through_the_attempts_as_they_are_listed(reader: Reader) -> None:
    app = reader.open("replay", r=ROLLOUT, step="3", beside="r-0000000000000028")
    for word, number in (("earlier", 15), ("later", 16), ("later", 17)):
        next(b for b in app.button if b.label == word).click().run()
        assert not app.exception and f"r-{number:016x} · " in said(app) and "Turn 1" in said(app)
    assert not reader.app.query_params.get("beside")
    oldest = reader.open("replay", r=f"r-{0:016x}")
    assert [b.disabled for b in oldest.button if b.label in ("earlier", "later")] == [True, False]


def test_tables_come_as_csv_with_what_is_unknown_left_empty() -> None:
    lead = {"app": "calc, files", **frame.ends(Interval(point=0.5, low=None, high=None, n=1, method="m"))}
    assert frame.as_csv([lead]).splitlines() == ["app,point,low,high,n", '"calc, files",0.5,,,1']


def test_u25_a_harness_has_the_same_figures_whatever_else_is_shown(reader: Reader) -> None:
    app = reader.open("channels")
    alone = app.multiselect(key="ch").set_value(["beta1"]).run().dataframe[0].value
    both = app.multiselect(key="ch").set_value(["beta1", "alpha"]).run().dataframe[0].value
    kept = both[both["harness"] == "beta1"].reset_index(drop=True)
    assert kept.equals(alone.reset_index(drop=True))


def test_an_attempt_can_be_watched_while_it_is_played(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = Store.open(run_copy).all(Rollout)[16]
    (run_copy / "live").mkdir()
    file = run_copy / "live" / "r-live.jsonl"
    head = {"key": rollout.key.model_dump(mode="json"), "started_at": rollout.started_at}
    file.write_text("".join([json.dumps(head) + "\n", *(t.model_dump_json() + "\n" for t in rollout.turns[:2])]))
    reader = Reader(run_copy.parent, monkeypatch)
    text = said(reader.open("rollouts"))
    assert "1 being played" in text and "turn 3](replay?r=r-live)" in text
    app = reader.open("replay", r="r-live")
    text = said(app)
    assert "2 turns finished" in text and "Turn 2" in text and "python3 total.py" in text
    file.unlink()
    assert "No rollout `r-live`" in said(app.run())
