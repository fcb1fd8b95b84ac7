"""Where the names of marks fit beside them without lying on each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CHARACTER_PX, LINE_PX, MARK_PX = 7.0, 17.0, 8.0
# Plotly's word for a place → in which direction the text lies from its mark.
PLACES = {
    "top right": (1, 1), "bottom right": (1, -1), "top left": (-1, 1), "bottom left": (-1, -1), "middle right": (1, 0),
    "middle left": (-1, 0), "top center": (0, 1), "bottom center": (0, -1),
}  # fmt: skip


class Box(NamedTuple):
    """A rectangle in pixels, y upwards."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left or self.high <= other.low or other.high <= self.low
        return not apart


def places(
    marks: Sequence[tuple[float, float]], names: Sequence[str], area: tuple[float, float], taken: Sequence[Box] = ()
) -> list[str | None]:
    """For each mark (x and y in pixels from the lower left of `area` = width, height) where its name goes, or None
    where no place is left beside what is `taken`; those that come first choose first. An empty name needs no place."""
    taken = [*taken, *(Box(x - MARK_PX, y - MARK_PX, x + MARK_PX, y + MARK_PX) for x, y in marks)]
    found: list[str | None] = []
    for (x, y), name in zip(marks, names, strict=True):
        free = None
        for place, toward in PLACES.items() if name else ():
            box = _box((x, y), toward, CHARACTER_PX * len(name))
            inside = box.left >= 0 and box.low >= 0 and box.right <= area[0] and box.high <= area[1]
            if inside and not any(box.meets(other) for other in taken):
                free = place
                taken.append(box)
                break
        found.append(free)
    return found


def _box(mark: tuple[float, float], toward: tuple[int, int], width: float) -> Box:
    """The text of a mark that lies in a direction from it; just outside of the mark's own square."""
    (x, y), (right, up) = mark, toward
    left = x + MARK_PX if right > 0 else x - MARK_PX - width if right < 0 else x - width / 2
    low = y + MARK_PX if up > 0 else y - MARK_PX - LINE_PX if up < 0 else y - LINE_PX / 2
    return Box(left, low, left + width, low + LINE_PX)
