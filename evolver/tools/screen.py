"""The screen in words and numbers: [0, 999] coordinates, the list of marks, the accessibility tree."""

from __future__ import annotations

from collections.abc import Sequence

from evolver.errors import BadAction
from evolver.protocols import Element

GRID = 999  # coordinates are integers in [0, 999] on both axes (arXiv 2610.40747)


def to_pixels(point: object, screen: tuple[int, int]) -> tuple[int, int]:
    """Maps a `[x, y]` of integers in [0, 999] to pixels of `screen` (width, height); anything else is a BadAction."""
    if not isinstance(point, list) or len(point) != 2 or any(type(v) is not int or not 0 <= v <= GRID for v in point):
        raise BadAction(f"coordinate must be [x, y] with integers in 0..{GRID}, got {point!r}")
    width, height = screen
    return round(point[0] * (width - 1) / GRID), round(point[1] * (height - 1) / GRID)


def to_thousandths(x: float, y: float, screen: tuple[int, int]) -> tuple[int, int]:
    """Maps pixels of `screen` to the [0, 999] grid, clamped to it."""
    width, height = screen
    return (
        min(GRID, max(0, round(x * GRID / (width - 1)))),
        min(GRID, max(0, round(y * GRID / (height - 1)))),
    )


def _centre(element: Element, screen: tuple[int, int]) -> str:
    x, y = to_thousandths(element.x + element.width / 2, element.y + element.height / 2, screen)
    return f"({x},{y})"


def _bounded(lines: Sequence[str], max_chars: int) -> str:
    kept: list[str] = []
    used = 0
    for index, line in enumerate(lines):
        if used + len(line) + 1 > max_chars:
            kept.append(f"... {len(lines) - index} more")
            break
        kept.append(line)
        used += len(line) + 1
    return "\n".join(kept)


def render_marks(elements: Sequence[Element], screen: tuple[int, int], max_chars: int) -> str:
    """The visible actionable elements, one a line: `role "name" (x,y)`; the focused one ends with `*`."""
    lines = []
    for element in elements:
        if not element.actionable or not (element.name or element.text):
            continue
        label = element.name or element.text
        value = f" = {element.text[:60]!r}" if element.text and element.text != label else ""
        focus = " *" if element.focused else ""
        lines.append(f'{element.role} "{label[:60]}"{value} {_centre(element, screen)}{focus}')
    return _bounded(lines, max_chars) or "(nothing to click)"


def render_tree(elements: Sequence[Element], screen: tuple[int, int], max_chars: int) -> str:
    """The whole visible accessibility tree, indented by depth: `role "name" = text (x,y)`."""
    lines = []
    for element in elements:
        name = f' "{element.name[:80]}"' if element.name else ""
        value = f" = {element.text[:120]!r}" if element.text and element.text != element.name else ""
        focus = " *" if element.focused else ""
        lines.append(f"{' ' * min(element.depth, 12)}{element.role}{name}{value} {_centre(element, screen)}{focus}")
    return _bounded(lines, max_chars) or "(empty tree)"
