"""What holds however much a run has written: what is sent, what is read, what is asked, and that every cap is said."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboards import frame, serve, views
from dashboards.beside import MOST
from dashboards.queries import PAGE_ROWS, open_run
from evolver.config import RunConfig
from evolver.records import Rollout
from evolver.store import Store
from tests.dashboards.reader import Reader, said
from tests.dashboards.synthetic import Size, build, turn

PAGES = (
    "overview", "lineage", "compare", "frontier", "channels", "gap", "rollouts", "replay", "rounds", "propose", "freeze"
)  # fmt: skip
MOST_BYTES = 300_000
MANY, CANDIDATES = 100_000, 500
OPENED: list[str] = []
LISTENING: list[bool] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if LISTENING and event == "open":
        OPENED.append(str(arguments[0]))


sys.addaudithook(_hear)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The paths of all files that are opened meanwhile."""
    OPENED.clear()
    LISTENING.append(True)
    try:
        yield OPENED
    finally:
        LISTENING.clear()


def parts(app: AppTest) -> dict[str, list[int]]:
    """Kind of element → the bytes that each of them sends to the browser."""
    found: dict[str, list[int]] = {}
    waiting = [app._tree]
    while waiting:
        element = waiting.pop()
        inner = list(getattr(element, "children", {}).values())
        waiting += inner
        if not inner and getattr(element, "proto", None) is not None:
            found.setdefault(element.type, []).append(element.proto.ByteSize())
    return found


def sent(app: AppTest) -> int:
    return sum(size for sizes in parts(app).values() for size in sizes)


def marks(app: AppTest) -> int:
    """The points that the charts of a page draw."""
    charts = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    return sum(len(trace.get("x") or ()) for chart in charts for trace in chart["data"] if isinstance(trace["x"], list))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "run"
    build(path, Size(rollouts=MANY, candidates=CANDIDATES, turns=1, text=10))
    return path


@pytest.fixture
def reader(large: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(large.parent, monkeypatch)


@pytest.mark.slow
def test_u01_every_page_of_100_000_rollouts_opens_and_sends_little(reader: Reader) -> None:
    for page in PAGES:
        app = reader.open(page, r=f"r-{MANY - 7:016x}", r_page="1500", base="candidate-0", cand="candidate-7")
        assert 1_000 < sent(app) < MOST_BYTES or page in ("gap", "rounds", "propose"), (page, parts(app))
        assert not app.error, page
        if page == "rollouts":
            assert len(app.dataframe[0].value) == PAGE_ROWS and "page 1500 of 2000" in said(app)


@pytest.mark.slow
def test_u04_the_landing_page_draws_no_mark_per_rollout(reader: Reader, tmp_path: Path) -> None:
    assert 0 < marks(reader.open("overview")) <= 2 * CANDIDATES
    assert "100,000 rollouts" in said(reader.app)


@pytest.mark.slow
def test_u10_every_cap_says_how_much_there_is(reader: Reader) -> None:
    text = said(reader.open("rollouts", r_page="2", r_rows="20"))
    assert "100,000 of 100,000 rollouts · page 2 of 5000 · rows 21 to 40" in text, "and the cap can be chosen"
    text = said(reader.open("lineage", l_page="2"))
    assert "101 to 200 of 500 that fit, of 500 candidates" in text
    assert re.search(r"500 harnesses: .* closed ones folded into ▽", text)
    rollout = f"r-{MANY - 7:016x}"
    app = reader.open("replay", r=rollout)
    assert f"the {MOST} nearest; any other by its id in the address" in app.selectbox(key=f"beside {rollout}").label
    assert "The first 100 of 500: the frontier, then the most successful." in said(reader.open("frontier"))


@pytest.mark.slow
def test_u27_a_comparison_leaves_no_pair_out_in_silence(reader: Reader) -> None:
    text = said(reader.open("compare", base="candidate-0", cand="candidate-7"))
    assert "50 of 50 tasks pair" in text and "200 paired attempts that both have scored" in text


def test_u05_keys_that_nobody_asked_for_are_not_read(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Reader(run_copy.parent, monkeypatch).open("rollouts").dataframe[0].value
    log = run_copy / "rollouts.jsonl"
    *most, last = log.read_text().splitlines()
    record = json.loads(last) | {f"extra_{n}": n for n in range(2_000)}
    log.write_text("\n".join([*most, json.dumps(record)]) + "\n")
    after = Reader(run_copy.parent, monkeypatch).open("rollouts").dataframe[0].value
    assert list(after.columns) == list(before.columns) and after.equals(before)
    assert "extra_" not in json.dumps([row.message for row in open_run(run_copy).page(1)])


def test_u06_the_overview_opens_no_file_of_an_attempt(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(run_copy.parent, monkeypatch)
    with opened() as seen:
        reader.open("overview")
        assert not [path for path in seen if "/blobs/" in path]
        reader.open("replay", r="r-0000000000000010")
        assert [path for path in seen if "/blobs/" in path], "what the spy would see"


def test_a_new_server_has_read_the_newest_run_before_anyone_asks(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(frame.RUNS_DIR, str(run_copy))
    serve.warm()
    with opened() as seen:
        told = views.story(open_run(run_copy))
        assert told.path() and told.run.count() == 120 and not told.run.unread()
    assert not [path for path in seen if path.endswith(".jsonl")]


@pytest.fixture
def long_one(run_copy: Path) -> str:
    """A rollout of 2,000 turns, every tenth of them with a screenshot, and a very long result at turn 8."""
    store = Store.open(run_copy)
    like = store.all(Rollout)[16]
    image = next(t.observed.image for t in like.turns if t.observed.image)
    blobs = [store.put_blob(store.blob(image.frame_id) + bytes([n])) for n in range(200)]
    turns = []
    for n in range(2_000):
        one = turn(n, 30_000 if n == 7 else 400)
        if n % 10 == 0:
            shot = one.observed.model_copy(update={"image": image.model_copy(update={"frame_id": blobs[n // 10]})})
            one = one.model_copy(update={"observed": shot})
        turns.append(one)
    store.append(like.model_copy(update={"id": "r-long", "turns": tuple(turns), "started_at": like.started_at + 1}))
    return "r-long"


def test_u08_a_rollout_of_2_000_turns_opens_with_the_frames_of_one_turn(
    run_copy: Path, long_one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(run_copy.parent, monkeypatch)
    with opened() as seen:
        app = reader.open("replay", r=long_one, step="1001")
        frames = {path for path in seen if "/blobs/" in path}
    assert len(frames) == 2 and "Turn 1001" in said(app), "what it acted on, and what came of it"


def test_u09_only_the_bodies_of_the_chosen_turn_are_sent(
    run_copy: Path, long_one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Reader(run_copy.parent, monkeypatch).open("replay", r=long_one, step="1001")
    assert "result 1000 yyy" in said(app) and not re.search(r"result (999|1001) yyy", said(app))
    assert sent(app) < MOST_BYTES


def test_u12_a_text_that_is_cut_can_be_had_whole(
    run_copy: Path, long_one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Reader(run_copy.parent, monkeypatch).open("replay", r=long_one, step="8")
    (button,) = app.get("download_button")
    assert button.proto.label == f"first {frame.LONGEST_TEXT:,} of 30,009 characters shown · download all"
    assert max(len(code.value) for code in app.code) == frame.LONGEST_TEXT


def test_u13_hidden_columns_stay_hidden(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(run_copy.parent, monkeypatch)
    app = reader.open("rollouts", r_hidden="model")
    assert "model" not in app.dataframe[0].value.columns and "task" in app.dataframe[0].value.columns
    Store.create(run_copy.parent / "new", RunConfig())
    app.run()
    app.selectbox(key="run").set_value("demo").run()
    assert "model" not in reader.open("rollouts").dataframe[0].value.columns, "a new run and a refresh change nothing"
    reader.open("overview")
    assert "model" not in reader.open("rollouts").dataframe[0].value.columns, "nor does a look at another page"


def test_u29_repeated_attempts_are_counted_and_each_has_its_link(
    whole_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(whole_run)
    row = next(row for row in run.page(1) if row.repeats > 2)
    same = run.repeats(row, MOST)
    text = said(Reader(whole_run.parent, monkeypatch).open("replay", r=row.id))
    links = re.findall(r"replay\?r=(r-[0-9a-f]+)", text)
    assert len(same) == row.repeats and sorted([*links, row.id]) == sorted(one.id for one in same)
    solved, graded = (sum(one.outcome in kinds for one in same) for kinds in (("solved",), ("solved", "failed")))
    assert f"{solved} of {graded} graded attempts" in text


def test_another_harness_at_the_same_task_stands_beside_it_and_the_first_difference_is_a_click_away(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(run_copy)
    one = store.all(Rollout)[18]  # four turns or more
    turns = list(one.turns)
    other = turns[2].completion.calls[0].model_copy(update={"arguments": {"action": "key", "text": "Tab"}})
    turns[2] = turns[2].model_copy(update={"completion": turns[2].completion.model_copy(update={"calls": (other,)})})
    key = one.key.model_copy(update={"harness_id": "c" * 40})
    store.append(one.model_copy(update={"id": "r-other", "key": key, "turns": tuple(turns)}))
    reader = Reader(run_copy.parent, monkeypatch)
    app = reader.open("replay", r=one.id, step="1")
    assert app.selectbox(key=f"beside {one.id}").options[1].startswith("cccccccc"), (
        "the same number of another harness is first"
    )
    app.selectbox(key=f"beside {one.id}").set_value("r-other").run()
    assert "The two go the same way for 2 turns; then: **other calls**" in said(app)
    next(b for b in app.button if b.label == "to the first divergence").click().run()
    assert app.number_input(key="step").value == 3 and '"Tab"' in said(app) and "after they parted" in said(app)
    strange = store.all(Rollout)[19]
    assert "No attempt" in said(reader.open("replay", r=one.id, beside=strange.id))
