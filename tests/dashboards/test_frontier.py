"""The frontier of success and cost: who is on it, who has no place, and that it is found in little time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from dashboards.queries import open_run
from dashboards.views import Story
from evolver.figures.frontier import Priced, chart, frontier, priced, staircase
from evolver.intervals import nothing, wilson
from tests.dashboards.fixture_run import _evaluation, build, ci
from tests.dashboards.reader import Reader, said


def point(name: str, cost: float | None, solved: int | None) -> Priced:
    success = nothing() if solved is None else wilson(solved, 20, "tasks")
    return Priced(
        run="r", label=name, name=name, success=success, cost=cost, low=None, high=None, tasks_sha256="t"
    )  # fmt: skip


def test_nobody_on_it_is_beaten_and_everybody_else_is() -> None:
    draw = random.Random(0)
    points = [(float(draw.randrange(30)), float(draw.randrange(30))) for _ in range(400)]
    kept = {points[n] for n in frontier(points)}

    def beaten(p: tuple[float, float]) -> bool:
        return any(q[0] <= p[0] and q[1] >= p[1] and q != p for q in points)

    assert kept == {p for p in points if not beaten(p)}
    assert [points[n][0] for n in frontier(points)] == sorted(points[n][0] for n in frontier(points))


def test_u28_a_null_cost_is_never_on_it_and_is_counted_and_equals_both_stay() -> None:
    shown = [point("a", 10, 8), point("b", 10, 8), point("c", 20, 8), point("null", None, 20), point("d", 5, None)]
    assert [p.name for p in staircase(shown)] == ["a", "b"]
    notes = [note.text for note in chart(shown, "tokens", several=False).layout.annotations]
    assert "2 of 5 not drawn: cost or success unknown" in notes


def test_u24_an_infinite_cost_does_not_stretch_the_axis_and_is_counted() -> None:
    shown = [point("a", 10, 8), point("far", float("inf"), 20), point("odd", float("nan"), 20)]
    figure = chart(shown, "tokens", several=False)
    drawn = [x for trace in figure.data for x in trace.x]
    assert max(drawn) < 20 and "2 of 3 not drawn: cost or success unknown" in [
        n.text for n in figure.layout.annotations
    ]


def test_u03_twice_the_points_cost_less_than_three_times_as_much() -> None:
    draw = random.Random(1)
    points = [(draw.random(), draw.random()) for _ in range(100_000)]

    def cost(n: int) -> float:
        started = time.process_time()
        frontier(points[:n])
        return time.process_time() - started

    half, whole = (min(costs) for costs in zip(*((cost(50_000), cost(100_000)) for _ in range(9)), strict=True))
    assert whole < 3 * half


def test_harnesses_that_cost_nothing_have_a_place(whole_run: Path) -> None:
    story = Story(open_run(whole_run))
    free = priced(story, ("dev", "race"), "money")
    assert {p.cost for p in free} == {0.0} and [p.name for p in staircase(free)] == ["beta1"]
    assert chart(free, "money", several=False).layout.xaxis.type == "linear"
    assert chart(priced(story, ("dev", "race"), "tokens"), "tokens", several=False).layout.xaxis.type == "log"


def test_harnesses_of_several_runs_share_one_frontier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "one")
    other = build(tmp_path / "two")  # the newest, which the bar shows
    other.append(_evaluation("9" * 40, ci(0.99, 0.9, 1.0)))
    reader = Reader(tmp_path, monkeypatch)
    app = reader.open("frontier", f_runs="one")
    rows = app.dataframe[0].value
    assert set(rows["run"]) == {"one", "two"} and len(rows) == 11
    assert list(rows["harness"][rows["frontier"] == "● on it"]) == ["99999999"]
    assert "1 of 11 harnesses are on the frontier" in said(app)
