"""All skill families in one table."""

from __future__ import annotations

from devset.families import (
    chains,
    crossing,
    develop,
    documents,
    editor,
    files,
    folders,
    forms,
    infeasible,
    pages,
    planner,
    sheets,
    system,
    tables,
    text,
)
from devset.families.skill import Binding, Family
from devset.task import Task


def families() -> dict[str, Family]:
    """Name → family, in a fixed order."""
    first = (files, folders, editor, text, sheets, documents, crossing, chains, infeasible)
    modules = (*first, pages, forms, system, planner, develop, tables)  # new ones come last: the seeds of others stay
    return {family.name: family for module in modules for family in module.FAMILIES}


def binding_of(task: Task) -> Binding | None:
    """What a family filled its slots with for this task; None for a task of no family."""
    family, number = families().get(task.family), task.id.rpartition("-")[2]
    return family.binding(int(number)) if family is not None and number.isdigit() else None
