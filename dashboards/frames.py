"""Draws where a turn acted on a copy of the screenshot that the model saw; the stored frame is never changed."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, UnidentifiedImageError

from dashboards import theme
from evolver.errors import BadAction
from evolver.records import Image as Frame
from evolver.records import Observed, Rollout, ToolCall
from evolver.tools.screen import to_pixels


def seen_by(rollout: Rollout, step: int) -> Frame | None:
    """The newest screenshot that existed when turn `step` was asked for."""
    before: Sequence[Observed] = (rollout.first, *(t.observed for t in rollout.turns[:step]))
    return next((o.image for o in reversed(before) if o.image is not None), None)


def click_points(calls: Sequence[ToolCall], size: tuple[int, int]) -> list[tuple[int, int]]:
    """Pixels of every coordinate in a turn's calls, on a frame of `size`; unusable coordinates are left out."""
    found = []
    for call in calls:
        for field in ("coordinate", "to"):
            if field in call.arguments:
                try:
                    found.append(to_pixels(call.arguments[field], size))
                except BadAction:
                    continue  # the tool refused it too, and its error stands in the results
    return found


def with_rings(png: bytes, calls: Sequence[ToolCall]) -> Image.Image | None:
    """The frame with a numbered ring at every place the turn pointed to; None when the bytes are no image."""
    try:
        image = Image.open(io.BytesIO(png)).convert("RGB")
    except (UnidentifiedImageError, OSError):
        return None
    draw = ImageDraw.Draw(image)
    radius = max(8, round(image.width / 80))
    thick = max(2, radius // 6)
    for number, (x, y) in enumerate(click_points(calls, image.size), 1):
        for extra, colour, width in ((thick, theme.HALO, 3 * thick), (0, theme.VERMILLION, thick)):
            box = (x - radius - extra, y - radius - extra, x + radius + extra, y + radius + extra)
            draw.ellipse(box, outline=colour, width=width)
        draw.line((x - radius // 2, y, x + radius // 2, y), fill=theme.VERMILLION, width=thick)
        draw.line((x, y - radius // 2, x, y + radius // 2), fill=theme.VERMILLION, width=thick)
        place = (x + radius + 2 * thick, y - radius - 2 * thick)
        draw.text(
            place, str(number), fill=theme.VERMILLION, stroke_fill=theme.HALO, stroke_width=thick, font_size=2 * radius
        )
    return image
