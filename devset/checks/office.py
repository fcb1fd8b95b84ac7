"""Atomic checks of spreadsheets, documents and slides; a file the library can't read is the agent's fault (value 0).

Each check first turns the document into plain lists inside `reading`, where any error of the library is put down to
the document, and compares outside of it, where an error is the checker's own.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from devset.checks.home import Wrong, read_bytes

MAX_UNPACKED = 8 * 2**20  # of cells alone, openpyxl reads this in some 10 s on a busy core; a check has 60
MAX_ITEMS = 100_000
Cell = str | int | float | bool | None


@contextmanager
def reading(path: str) -> Iterator[None]:
    try:
        yield
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{path} can't be read: {type(error).__name__}: {str(error)[:120]}") from error


def package(home: Path, path: str) -> io.BytesIO:
    data = read_bytes(home, path)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(info.file_size for info in archive.infolist()) > MAX_UNPACKED:
            raise Wrong(f"{path} unpacks to more than {MAX_UNPACKED} bytes")
    return io.BytesIO(data)


def _sheets(home: Path, path: str) -> dict[str, dict[str, Cell]]:
    """Sheet name → coordinate → value of every non-empty cell."""
    import openpyxl

    with reading(path):
        book = openpyxl.load_workbook(package(home, path))
        found: dict[str, dict[str, Cell]] = {}
        for sheet in book.worksheets:
            if sheet.max_row * sheet.max_column > MAX_ITEMS:
                raise Wrong(f"{path} has a sheet of {sheet.max_row} x {sheet.max_column} cells")
            filled = [cell for row in sheet.iter_rows() for cell in row if cell.value is not None]
            found[sheet.title] = {cell.coordinate: cast(Cell, cell.value) for cell in filled}
        return found


def _equal(found: Cell, expected: Cell) -> bool:
    if isinstance(expected, (int, float)) and isinstance(found, (int, float)) and not isinstance(found, bool):
        return abs(float(found) - float(expected)) < 0.005
    return type(found) is type(expected) and found == expected


def sheet_is(home: Path, *, path: str, sheet: str, cells: Mapping[str, Cell]) -> str:
    """The sheet's non-empty cells are exactly these (coordinate → value); numbers match to the cent."""
    book = _sheets(home, path)
    if sheet not in book:
        raise Wrong(f"{path} has sheets {sorted(book)[:10]}, expected one named {sheet!r}")
    for at in sorted(set(book[sheet]) | set(cells)):
        if not _equal(book[sheet].get(at), cells.get(at)):
            raise Wrong(f"cell {at} of {path} is {str(book[sheet].get(at))[:60]!r}, expected {cells.get(at)!r}")
    return f"all {len(cells)} cells of {path} are as expected"


def cells_are(home: Path, *, path: str, cells: Mapping[str, Cell]) -> str:
    """These cells of the first sheet have these values."""
    book = _sheets(home, path)
    first = next(iter(book.values()), {})
    for at, expected in cells.items():
        if not _equal(first.get(at), expected):
            raise Wrong(f"cell {at} of {path} is {str(first.get(at))[:60]!r}, expected {expected!r}")
    return f"{', '.join(cells)} of {path} as expected"


def sheet_names(home: Path, *, path: str, expected: Sequence[str]) -> str:
    found = list(_sheets(home, path))
    if found != list(expected):
        raise Wrong(f"{path} has sheets {found[:10]}, expected {list(expected)}")
    return f"{path} has the sheets {list(expected)}"


def _paragraphs(home: Path, path: str) -> list[str]:
    import docx

    with reading(path):
        found = [paragraph.text.strip() for paragraph in docx.Document(package(home, path)).paragraphs[:MAX_ITEMS]]
    return [text for text in found if text]


def paragraphs_are(home: Path, *, path: str, expected: Sequence[str]) -> str:
    """The document's non-empty paragraphs are exactly these."""
    found = _paragraphs(home, path)
    if found != list(expected):
        at = next(
            (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected))
        )
        seen = found[at][:80] if at < len(found) else "nothing"
        raise Wrong(f"paragraph {at + 1} of {path} is {seen!r} ({len(found)} paragraphs, expected {len(expected)})")
    return f"{path} has exactly the expected {len(expected)} paragraphs"


def _slides(home: Path, path: str) -> list[tuple[str, list[str]]]:
    """Per slide: its title, and the non-empty paragraphs of its other shapes."""
    import pptx

    with reading(path):
        found: list[tuple[str, list[str]]] = []
        for slide in list(pptx.Presentation(package(home, path)).slides)[:1000]:
            title = slide.shapes.title
            frames = [s for s in slide.shapes if s.has_text_frame and (title is None or s.shape_id != title.shape_id)]
            body = [p.text.strip() for shape in frames for p in shape.text_frame.paragraphs]
            found.append((title.text_frame.text.strip() if title is not None else "", [text for text in body if text]))
        return found


def slide_titles(home: Path, *, path: str, expected: Sequence[str]) -> str:
    found = [title for title, _ in _slides(home, path)]
    if found != list(expected):
        raise Wrong(f"{path} has the slide titles {str(found)[:160]}, expected {list(expected)}")
    return f"{path} has exactly the expected {len(expected)} slide titles"


def slide_body(home: Path, *, path: str, slide: int, expected: Sequence[str]) -> str:
    """The lines below the title of slide number `slide` (from 1) are exactly these."""
    found = _slides(home, path)
    if len(found) < slide:
        raise Wrong(f"{path} has {len(found)} slide(s), expected at least {slide}")
    if found[slide - 1][1] != list(expected):
        raise Wrong(f"slide {slide} of {path} says {str(found[slide - 1][1])[:160]}, expected {list(expected)}")
    return f"slide {slide} of {path} says what it should"
