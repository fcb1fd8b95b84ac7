"""Settings of which tasks a run plays: how many of its own, and which imported ones."""

from __future__ import annotations

from pydantic import model_validator

from evolver.safeguards import Count, Section


class ImportedConfig(Section):
    """Directories of imported and admitted tasks that take part in a split, each whole (or one task's directory)."""

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


class TaskLimitsConfig(Section):
    """How many of its own tasks each split gives, taken from its start; absent = all, 0 = only what is imported.

    `families` names those that own tasks may come from, with wildcards (`files.*`); empty = all.
    """

    train: Count | None = None
    dev: Count | None = None
    select: Count | None = None
    test: Count | None = None
    families: tuple[str, ...] = ()
    imported: ImportedConfig = ImportedConfig()

    @model_validator(mode="after")
    def _leaves_something(self) -> TaskLimitsConfig:
        for split, folders in self.imported:
            if getattr(self, split) == 0 and not folders:
                raise ValueError(f"0 tasks of {split} leave nothing to play: name tasks in tasks.imported.{split}")
        return self
