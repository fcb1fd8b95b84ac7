"""All skill families in one table."""

from __future__ import annotations

from devset.families import files, folders, sheets, text
from devset.families.skill import Family


def families() -> dict[str, Family]:
    """Name → family, in a fixed order."""
    groups = (files.FAMILIES, folders.FAMILIES, text.FAMILIES, sheets.FAMILIES)
    return {family.name: family for group in groups for family in group}
