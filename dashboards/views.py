"""The story of a run as the pages tell it: what needs the long logs is asked of the database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from dashboards import shelf
from dashboards.queries import Played, Run
from evolver.evidence.verdicts import Foretold, borne_out
from evolver.figures.tree import Node, folded, layout
from evolver.population import final_cards, per_task, success_value
from evolver.records import Candidate, Purpose
from evolver.story import Story as Told
from evolver.story import unique_labels

RACE: tuple[str, Purpose] = ("dev", "race")


def story(run: Run) -> Story:
    """The story of one state of a run; every visitor of that state reads the same."""
    return _story(run, shelf.tagged(run.path))


class Story(Told):
    """Views over one state of a run."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.library_names(), run.tags())
        self.run = run

    @cached_property
    def harness_labels(self) -> dict[str, str]:
        """Harness id → its name, with the short id where two share one (what a page's address holds)."""
        ids = list(dict.fromkeys([*self.harness_ids, *self.run.distinct("harness_id")]))
        return unique_labels({h: self.name(h) for h in ids})

    @cached_property
    def candidate_labels(self) -> dict[str, str]:
        """Candidate id → its name, with the id where two share one (what a page's address holds)."""
        return unique_labels({c.id: c.name for c in self.population.candidates})

    def tokens_until(self, moments: Sequence[float]) -> list[int]:
        return self.run.tokens_until(moments)

    def attempts_before(self) -> dict[str, Played]:
        """Candidate id → what its own attempts at dev and select took before its verdict."""
        until = {c.id: float("inf") for c in self.population.candidates}
        until |= {d.candidate_id: d.decided_at for d in self.population.decisions}
        return self.run.played([(c.id, c.harness_id, until[c.id]) for c in self.population.candidates])

    def predictions(self, candidate: Candidate) -> list[Foretold]:
        """What the candidate's author foretold of dev tasks that both it and its parent were scored on."""
        if not candidate.parents:
            return []
        parent = self.parent_harness(candidate.parents[0])
        teachers = [m for split, purpose, m in self.run.kinds(candidate.harness_id) if (split, purpose) == RACE]
        if not teachers:
            return []
        decision = self.population.decision_of.get(candidate.id)
        teacher = decision.teacher if decision and decision.teacher in teachers else teachers[-1]
        before, after = (
            per_task(final_cards(self.run.cards(h, (*RACE, teacher))), success_value)
            for h in (parent, candidate.harness_id)
        )
        return borne_out(candidate.manifest, {t: after[t] - before[t] for t in before.keys() & after.keys()})

    def parent_harness(self, parent: str) -> str:
        """The harness id of a parent, which old records name by its candidate's id."""
        return next((c.harness_id for c in self.population.candidates if c.id == parent), parent)

    def nodes(self) -> list[Node]:
        """The lineage as a tree: every proposed harness stays in it whatever became of it, in a large one folded."""
        return folded(layout(self.population, set(self.population.lineage)))


@lru_cache(maxsize=8)
def _story(run: Run, tagged: int) -> Story:
    return Story(run)
