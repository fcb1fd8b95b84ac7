"""All skill families in one table."""

from __future__ import annotations

from devset.families import chains, crossing, documents, editor, files, folders, infeasible, sheets, text
from devset.families.skill import Family


def families() -> dict[str, Family]:
    """Name → family, in a fixed order."""
    modules = (files, folders, editor, text, sheets, documents, crossing, chains, infeasible)
    return {family.name: family for module in modules for family in module.FAMILIES}
