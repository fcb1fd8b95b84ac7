"""Names beside marks, and the figures of a round."""

from __future__ import annotations

import itertools

from evolver.figures.labels import PLACES, Box, _box, places
from evolver.figures.rounds import instruments, rejections
from evolver.rounds.view import InstrumentView

AREA = (400.0, 200.0)


def test_names_of_close_marks_never_lie_on_each_other_and_stay_inside() -> None:
    marks = [(200.0 + 3 * n, 100.0 + 2 * n) for n in range(9)]
    names = [f"structured-{n}" for n in range(9)]
    found = places(marks, names, AREA)
    boxes = [_box(m, PLACES[p], 7.0 * len(n)) for m, n, p in zip(marks, names, found, strict=True) if p is not None]
    assert len(boxes) >= 3 and found[0] is not None
    assert not any(a.meets(b) for a, b in itertools.combinations(boxes, 2))
    assert all(b.left >= 0 and b.low >= 0 and b.right <= AREA[0] and b.high <= AREA[1] for b in boxes)


def test_a_mark_in_the_corner_has_its_name_to_the_inside_and_one_without_a_name_has_none() -> None:
    assert places([(395.0, 195.0), (200.0, 100.0)], ["corner", ""], AREA) == ["bottom left", None]
    assert Box(0, 0, 1, 1).meets(Box(0.5, 0.5, 2, 2)) and not Box(0, 0, 1, 1).meets(Box(1, 0, 2, 1))


def test_rejections_are_counted_beside_what_was_accepted() -> None:
    (bars,) = rejections({"state": 3, "infra": 1}, 6).data
    assert list(bars.y) == ["accepted", "state", "infra"] and list(bars.x) == [6, 3, 1]
    assert list(bars.text) == ["6 (60.0 %)", "3 (30.0 %)", "1 (10.0 %)"]
    assert list(rejections({}, 0).data[0].text) == ["0 (0.0 %)"]


def test_an_instrument_at_its_alarm_has_another_shape_and_none_leaves_the_axis() -> None:
    def one(name: str, statistic: float, alarm: bool = False) -> InstrumentView:
        return InstrumentView(name=name, seen=50, off=5, expected=0.1, statistic=statistic, threshold=8.0, alarm=alarm)

    calm, raised = instruments([one("judge", 2.0), one("endpoint", 90.0, True), one("infra", -3.0)]).data
    assert dict(zip(calm.y, calm.x, strict=True)) == {"judge": 25.0, "infra": 0.0}
    assert list(raised.x) == [100.0] and raised.marker.symbol != calm.marker.symbol
