"""The rule of a gap experiment, fixed beforehand: how many students and tasks, when to look, when to extend."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, field_validator

from evolver.power import Noise, Size, levels
from evolver.records import Equal
from evolver.safeguards import Section

Share = Annotated[float, Field(ge=0, le=1)]


class LookConfig(Section):
    """The first `seeds` of `distil.seeds` an arm, on the first `tasks` of the test split."""

    seeds: Annotated[int, Field(ge=2)]
    tasks: Annotated[int, Field(ge=2)]


class CrossedConfig(Section):
    """Students of an arm's first `seeds` also play the first `tasks` of the test split under the other harnesses."""

    seeds: Annotated[int, Field(ge=1)] = 1
    tasks: Annotated[int, Field(ge=2)]


class NoiseConfig(Section):
    """What the looks are planned with (evolver.power.Noise); wrong figures cost power, hardly any error."""

    base: Annotated[float, Field(gt=0, lt=1)] = Noise.base
    spread: Share = Noise.spread
    task: Share = Noise.task
    seed: Share = Noise.seed


class GapConfig(Section):
    """Pairs (A, B) whose teacher and student gaps B minus A are measured; each a harness name or id.

    `looks` is the sequential rule, for instance [{seeds = 3, tasks = 100}, {seeds = 5, tasks = 200}]: a pair whose gap
    is not found at a look goes on to the next, and all looks together err with `alpha`. Without looks each pair is
    measured once, with all of `distil.seeds` on all test tasks. A pair of a harness with itself is an A/A arm: its
    students are dealt to two sides, at a look those of twice as many seeds where `distil.seeds` has them.

    `equal` names variants, each with students of its own: "budget", the recipe's `n_rollouts` attempts of the teacher
    an arm, and "accepted", as many successful ones; empty: what the recipe says. `crossed` adds, for the first variant,
    each student under the harness of the other arms.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    looks: tuple[LookConfig, ...] = ()
    equal: tuple[Equal, ...] = ()
    crossed: CrossedConfig | None = None
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    noise: NoiseConfig = NoiseConfig()

    @field_validator("looks")
    @classmethod
    def _grow(cls, looks: tuple[LookConfig, ...]) -> tuple[LookConfig, ...]:
        for before, after in pairwise(looks):
            if after.seeds < before.seeds or after.tasks < before.tasks or after == before:
                raise ValueError("each look must have more seeds or tasks than the one before, and no fewer of either")
        return looks

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(Size(look.seeds, look.tasks) for look in self.looks)

    def seeds_of(self, pair: tuple[str, str], seeds: tuple[int, ...], size: Size) -> tuple[int, ...]:
        """The training seeds that a look of `size` takes of each harness of a pair; the two sides of an A/A arm share
        one harness, so it takes both sides' share."""
        return seeds[: 2 * size.seeds] if pair[0] == pair[1] else seeds[: size.seeds]

    @property
    def planned(self) -> Noise:
        return Noise(self.noise.base, self.noise.spread, self.noise.task, self.noise.seed)

    def level(self, look: int) -> float:
        """The two-sided level of the look (from 0); `alpha` where there are no looks."""
        return levels(self.sizes, self.planned, self.alpha)[look] if self.looks else self.alpha
