"""The closed library of atomic checks that every task is graded with, run beside the frozen state after the agent.

A check is a pure function of the frozen home and its slots: it returns an explanation, or raises `Wrong`. A check
program names criteria and their checks and calls `grade`; it needs nothing but this package, openpyxl, python-docx
and python-pptx. A new check enters only with a fixture that passes and one that fails (tests/devset/test_checks.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from devset.checks import files, office, records, text
from devset.checks.home import Wrong

Slots = Mapping[str, Any]  # JSON values; what each check takes is its signature
Calls = Sequence[tuple[str, Slots]]

_ALL: tuple[Callable[..., str], ...] = (
    files.file_is,
    files.absent,
    files.folder_exists,
    files.folder_lists,
    files.permissions,
    files.link_is,
    files.unchanged,
    files.archive_holds,
    text.text_is,
    text.line_count,
    text.number_is,
    text.csv_is,
    text.json_value,
    text.sqlite_value,
    records.json_is,
    records.components_are,
    records.shell_variable,
    office.sheet_is,
    office.cells_are,
    office.sheet_names,
    office.paragraphs_are,
    office.slide_titles,
    office.slide_body,
)
CHECKS: dict[str, Callable[..., str]] = {check.__name__: check for check in _ALL}


def evaluate(home: Path, calls: Calls) -> tuple[float, str]:
    """1.0 when every check holds, else 0.0, with the first reason that it doesn't."""
    said = []
    for name, slots in calls:
        try:
            said.append(CHECKS[name](home, **slots))
        except Wrong as wrong:
            return 0.0, str(wrong)
    return 1.0, "; ".join(said)


def grade(criteria: Mapping[str, Calls]) -> None:
    """The body of a check program: prints criterion → {value, explanation} for the frozen home in `argv[1]`."""
    home = Path(sys.argv[1])
    if not home.is_dir():
        raise SystemExit(f"expected the frozen home as argv[1], got {home}")
    verdicts = {criterion: evaluate(home, calls) for criterion, calls in criteria.items()}
    json.dump({name: {"value": value, "explanation": why} for name, (value, why) in verdicts.items()}, sys.stdout)
