"""Settings of whom authors build on: the incumbent, or another harness of the archive."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from evolver.safeguards import Section


class ArchiveConfig(Section):
    """Whom authors with `parents = "archive"` build on (evolver.archive): the `incumbent` this often, this often one of
    a cell taken at random (`cells`), else whoever promises most.

    `temperature` scales how far draws stray from what is most likely: 1 is Thompson sampling as it is, 0 always takes
    the most promising one.
    """

    incumbent: Annotated[float, Field(ge=0, le=1)] = 0.0
    cells: Annotated[float, Field(ge=0, le=1)] = 0.02
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.25

    @model_validator(mode="after")
    def _shares_of_one(self) -> ArchiveConfig:
        if self.incumbent + self.cells > 1:
            raise ValueError("incumbent and cells are shares of the same whole: they can't be more than 1 together")
        return self
