"""Two harnesses side by side: what pairs, what does not and why, and that the figures are those of the rule."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from dashboards.database import database
from dashboards.queries import open_run, side
from evolver.audit import SelfCheck
from evolver.compare import Comparison
from evolver.history import effect_between
from evolver.pairing import CELLS, Pairing, by_part, kinds_in_common
from evolver.records import Interval
from evolver.store import Store
from harnesses.diff import diff
from harnesses.library import Library
from tests.dashboards.paired_run import TEACHER, Way, make, outcomes, play
from tests.dashboards.reader import Reader, said

KIND = ("dev", "race", TEACHER)


@pytest.fixture
def duel(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """One run: alpha solves 6 of 20 tasks, beta1 15 of them, twice each."""
    path = tmp_path / "runs" / "one"
    store, ids = make(path, "alpha", "beta1")
    play(store, ids["alpha"], outcomes(6, 20, attempts=2))
    play(store, ids["beta1"], outcomes(15, 20, attempts=2), Way(tokens=400))
    return path, ids


def paired(a: Path, b: Path, one: str, other: str) -> Pairing:
    return Pairing(side(open_run(a), one, KIND), side(open_run(b), other, KIND))


def test_the_figures_are_those_that_the_command_line_prints(duel: tuple[Path, dict[str, str]]) -> None:
    path, ids = duel
    library = Library(path / "library")
    between = effect_between(Store.open(path), library.get("alpha"), library.get("beta1")).dev
    found = paired(path, path, ids["alpha"], ids["beta1"]).gap
    assert isinstance(found, Comparison) and found == between
    assert found.effect.point == pytest.approx(9 / 20)


def test_the_dots_are_draws_of_the_same_gap(duel: tuple[Path, dict[str, str]]) -> None:
    path, ids = duel
    found = paired(path, path, ids["alpha"], ids["beta1"])
    draws = found.draws()
    assert len(draws) == 20 and draws == sorted(draws)
    assert isinstance(found.gap, Comparison) and found.gap.effect.low is not None and found.gap.effect.high is not None
    assert found.gap.effect.low <= draws[1] and draws[-2] <= found.gap.effect.high
    noise, where = found.noise()
    assert noise.point == 0 and "20 tasks" in where, "alpha's two attempts went alike"


def test_noise_is_that_of_the_check_before_the_run_when_nothing_was_repeated(tmp_path: Path) -> None:
    path = tmp_path / "one"
    store, ids = make(path, "alpha", "beta1")
    for harness in ids.values():
        play(store, harness, outcomes(3, 6))
    assert paired(path, path, *ids.values()).noise()[0].point is None
    seen = Interval(point=0.02, low=-0.1, high=0.12, n=12, method="m")
    store.append(SelfCheck(id="check-a_a", check="a_a", outcome="passed", effect=seen, p_value=0.4, reason="", at=1.0))
    noise, where = paired(path, path, *ids.values()).noise()
    assert noise == seen and "before the run" in where


def test_u31_pairs_need_the_same_version_number_and_seed(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    a, ids = make(one, "alpha", "beta1")
    b, _ = make(other, "alpha", "beta1")
    play(a, ids["alpha"], outcomes(2, 10))
    play(b, ids["beta1"], outcomes(6, 6))
    play(b, ids["beta1"], outcomes(2, 2, first=6), Way(task_hash="version-2"))
    play(b, ids["beta1"], {("task-008", 3): True, ("elsewhere", 0): True})
    found = paired(one, other, ids["alpha"], ids["beta1"])
    assert found.tasks == [f"task-{n:03d}" for n in range(6)]
    assert found.unpaired == {
        "another version of the task under the same name": 2,
        "no attempt of the same number and seed is scored in both": 1,
        "played by A alone": 1,
        "played by B alone": 1,
    }
    assert isinstance(found.gap, Comparison) and (found.gap.tasks, found.gap.effect.point) == (6, pytest.approx(4 / 6))


def test_what_another_check_scored_does_not_pair(duel: tuple[Path, dict[str, str]]) -> None:
    path, ids = duel
    log = path / "scorecards.jsonl"
    lines = log.read_text().splitlines()
    changed = [
        line.replace("check-1", "check-2") if ids["beta1"] in line and '"task-003"' in line else line for line in lines
    ]
    log.write_text("\n".join(changed) + "\n")
    found = paired(path, path, ids["alpha"], ids["beta1"])
    assert found.unpaired == {"another version of its check": 1} and len(found.tasks) == 19


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (Way(task_hash="version-2"), "No gap is shown: no task pairs."),
        (Way(model="another-model"), "The two have nothing in common"),
        (Way(split="select", purpose="confirm"), "The two have nothing in common"),
    ],
)
def test_u31_what_does_not_pair_is_refused_and_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way, why: str
) -> None:
    store, ids = make(tmp_path / "one", "alpha", "beta1")
    play(store, ids["alpha"], outcomes(2, 6))
    play(store, ids["beta1"], outcomes(5, 6), way)
    app = Reader(tmp_path, monkeypatch).open("compare", base="alpha", cand="beta1")
    text = said(app)
    assert why in text and not re.search(r"[+-]\d+\.\d pp", text)
    assert "T tools" in text, "what differs between the trees is still shown"


def test_u30_two_runs_compare_and_the_banner_says_what_they_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, ids = make(tmp_path / "one", "alpha", "beta1")
    b, _ = make(tmp_path / "other", "alpha", "beta1", seed=7)
    play(a, ids["alpha"], outcomes(2, 10))
    play(b, ids["beta1"], outcomes(8, 8))
    reader = Reader(tmp_path, monkeypatch)
    text = said(reader.open("compare", run="other", base_run="one", base="alpha", cand_run="other", cand="beta1"))
    assert "8 of 10 tasks pair" in text and "2: played by A alone" in text
    assert "+75.0 pp" in text and "The two runs have other settings too: seed: 0 → 7" in text


def test_u18_exactly_the_two_of_the_address_are_compared(
    duel: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = duel
    text = said(Reader(path.parent, monkeypatch).open("compare", base="beta1", cand="alpha"))
    assert "B alpha minus A beta1: -45.0 pp" in text
    fresh = Reader(path.parent, monkeypatch).open("compare", base="beta1", cand="gone")
    assert "No harness `gone`" in said(fresh) and " pp" not in said(fresh), "and never another one in its place"


def test_u33_what_differs_and_what_it_changed_are_on_one_page(
    duel: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ids = duel
    text = said(Reader(path.parent, monkeypatch).open("compare", base="alpha", cand="beta1"))
    run = open_run(path)
    parts = by_part(diff(run.harness(ids["alpha"]), run.harness(ids["beta1"])))
    assert "**attempts that flip** 45.0 % [" in text and "], n = 20 between A and B, 0.0 % [0.0, " in text
    assert "+45.0 pp" in text and "20 paired tasks" in text and "B beta1 ahead in 20 of 20 draws" in text
    assert all(change in text for changes in parts.values() for change in changes)
    assert sum(map(len, parts.values())) == len(diff(run.harness(ids["alpha"]), run.harness(ids["beta1"])).changes)


def test_u32_each_cell_of_the_concordance_opens_its_rollouts(
    duel: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ids = duel
    found = paired(path, path, ids["alpha"], ids["beta1"])
    assert found.concordance() == {"both": 12, "only_a": 0, "only_b": 18, "neither": 10}
    text = said(Reader(path.parent, monkeypatch).open("compare", base="alpha", cand="beta1"))
    links = re.findall(r"\]\((rollouts\?[^)]*\))", text)
    addresses = [{k: v[0] for k, v in parse_qs(urlparse(link[:-1]).query).items()} for link in links]
    assert [a["pairs"] for a in addresses] == ["both", "only_a", "only_b", "neither"] == list(CELLS)
    for address, (cell, n) in zip(addresses, found.concordance().items(), strict=True):
        app = Reader(path.parent, monkeypatch).open("rollouts", **address)
        assert f"{n} of 80 rollouts" in said(app)
        if n:
            rows = app.dataframe[0].value
            assert set(rows["harness"]) == {"beta1"}
            assert all(f"beside=r-{ids['alpha'][-6:]}" in link for link in rows["replay"])
            assert set(rows["outcome"]) == {"● solved" if cell in ("both", "only_b") else "✕ failed"}


def test_apps_have_a_row_each_and_all_tasks_together_are_the_gap(tmp_path: Path) -> None:
    path = tmp_path / "one"
    store, ids = make(path, "alpha", "beta1")
    for first, app, solved in ((0, "calc", 6), (6, "files", 1)):
        play(store, ids["alpha"], outcomes(1, 6, first=first), Way(app=app))
        play(store, ids["beta1"], outcomes(solved, 6, first=first), Way(app=app))
    apps = paired(path, path, ids["alpha"], ids["beta1"]).by_app()
    assert {app: (made.tasks, made.effect.point) for app, made in apps.items()} == {
        "calc": (6, pytest.approx(5 / 6)),
        "files": (6, 0),
    }
    assert list(apps) == ["calc", "files"]


def test_attempts_on_a_sealed_split_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "one"
    store, ids = make(path, "alpha", "beta1")
    for harness in ids.values():
        play(store, harness, outcomes(2, 4), Way(split="test", purpose="test"))
    run = open_run(path)
    assert run.kinds(ids["alpha"]) == [] and run.cards(ids["alpha"], ("test", "test", TEACHER)) == []
    assert kinds_in_common(run.kinds(ids["alpha"]), run.kinds(ids["beta1"])) == []


def test_u07_compare_asks_the_database_as_often_with_many_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for name, more in (("few", 0), ("many", 60)):
        path = tmp_path / name / "run"
        store, ids = make(path, "alpha", "beta1")
        for harness in (*ids.values(), *(f"{n:040x}" for n in range(more))):
            play(store, harness, outcomes(2, 4))
        reader = Reader(tmp_path / name, monkeypatch)
        run = open_run(path)
        connection = database(path, run.stamp).connection
        connection.execute("call enable_logging('QueryLog', storage='memory')")
        reader.open("compare", base="alpha", cand="beta1")
        found = connection.execute("select count(*) from duckdb_logs where type = 'QueryLog'").fetchone()
        asked.append(found[0] if found else 0)
    assert asked[0] == asked[1] > 3
