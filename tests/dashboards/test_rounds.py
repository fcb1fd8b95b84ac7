"""The page of generation rounds, over rounds that a driver has played."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dashboards.pages.rounds import _each
from dashboards.queries import find_runs
from dashboards.rounds import find_rounds, view_of
from evolver.config import RunConfig
from evolver.intervals import wilson
from evolver.rounds.folder import BOOK
from evolver.rounds.view import RoundView
from evolver.store import Store
from tests.dashboards.reader import Reader, said
from tests.evolver.rounds import Spec, a_plan, driven


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run and, beside it, a round in which every fourth unit fails."""
    Store.create(tmp_path / "demo", RunConfig())
    place = tmp_path / "rounds" / "first"
    driven(place, Spec(place, success=lambda unit: unit.position % 4 != 0), plan=a_plan(one_off_usd=3.0))
    return tmp_path


def test_the_page_says_what_a_round_has_produced(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Reader(runs, monkeypatch).open("rounds")
    text = said(app)
    assert not app.error and "what has it produced" in text
    assert "accepted 30" in text and "75.0 % [" in text and "of 40 units" in text
    assert "30 accepted, 10 turned away: 10 a check program says no" in text
    assert r"one-off cost \$3.00, with it \$0.10" in text
    assert "4 shards, 0 of them suspect · 30 of 30 accepted units" in text and "dataset root" in text


def test_the_cost_of_an_accepted_unit_is_as_sure_as_the_share_that_is_accepted(runs: Path) -> None:
    view = view_of(runs / "rounds" / "first")
    assert isinstance(view, RoundView)
    made, share = _each(view.model_copy(update={"usd_per_accepted": 0.02})), wilson(30, 40, "units")
    assert share.low and share.high and (made.point, made.n) == (0.02, 40)
    assert (made.low, made.high) == (pytest.approx(0.015 / share.high), pytest.approx(0.015 / share.low))
    none = view.model_copy(update={"accepted": 0, "usd_per_accepted": None})
    assert _each(none).point is None


def test_a_round_is_no_run_and_is_found_wherever_it_lies(runs: Path, tmp_path: Path) -> None:
    (runs / "rounds" / "first" / "run.json").write_text((runs / "demo" / "run.json").read_text())
    assert find_runs(runs) == [runs / "demo"] and find_runs(runs / "rounds" / "first") == []
    first = runs / "rounds" / "first"
    assert find_rounds(runs) == find_rounds(runs / "rounds") == find_rounds(first) == [first]


def test_without_a_round_the_command_is_shown_and_a_damaged_one_is_named(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = runs / "rounds" / "first" / "manifest.jsonl"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join([lines[0], lines[1].replace('"rows":10', '"rows":11'), *lines[2:]]))
    app = Reader(runs, monkeypatch).open("rounds")
    assert len(app.error) == 1 and "first" in app.error[0].value
    assert "evolver generate CAPSULE" in app.code[0].value


def test_a_round_of_another_version_is_named_and_the_others_are_shown(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(shutil.copytree(runs / "rounds" / "first", runs / "rounds" / "older"))
    for file in other.glob(f"{BOOK}*"):
        file.unlink()
    with closing(sqlite3.connect(other / BOOK)) as book, book:
        book.execute("create table something_else (a)")
    app = Reader(runs, monkeypatch).open("rounds")
    assert "older" in app.error[0].value and "use the program that made it" in app.error[0].value
    assert "accepted 30" in said(app)


def test_a_page_reads_a_round_again_only_when_it_has_gone_on(runs: Path) -> None:
    first = runs / "rounds" / "first"
    before = view_of(first, now=1_000.0)
    assert view_of(first, now=1_000.0) is before
    assert view_of(first, now=1_100.0) is not before, "a driver that died writes nothing"
    (first / BOOK).touch()
    assert view_of(first, now=1_000.0) is not before
