"""What the pages say, worked out from the records of a run: names, leader, path of the incumbent, tree, channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dashboards import words
from dashboards.queries import Played, Run
from dashboards.tree import Node, folded, layout
from evolver.evidence.verdicts import Foretold, borne_out
from evolver.intervals import nothing, wilson
from evolver.population import Population, final_cards, per_task, success_value
from evolver.records import Candidate, ChannelRow, Decision, Distillation, Evaluation, Interval, Purpose, Stage
from evolver.report import SHOWN_FIRST, effect_of
from evolver.stages import TAG

RACE: tuple[str, Purpose] = ("dev", "race")


def unique_labels(names: Mapping[str, str]) -> dict[str, str]:
    """Id → its name, or name and id where the name stands for several."""
    shared = Counter(names.values())
    return {key: name if shared[name] == 1 else f"{name} {key}" for key, name in names.items()}


@dataclass(frozen=True)
class PathPoint:
    """One judged harness: known tokens of the whole run when it was judged, and its success on dev."""

    candidate: str
    name: str
    verdict: str
    tokens: int
    success: Interval


@dataclass(frozen=True)
class Story:
    """Views over one state of a run."""

    run: Run
    names: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        proposed = {c.harness_id: c.name for c in reversed(self.population.candidates)}
        object.__setattr__(self, "names", self.run.library_names() | proposed)

    @cached_property
    def population(self) -> Population:
        return Population(self.run.all(Candidate), self.run.all(Decision))

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        return self.run.all(Evaluation)

    @cached_property
    def harness_ids(self) -> list[str]:
        """Every harness of the run in the order in which it first appears (so that its colour never changes)."""
        proposed = [c.harness_id for c in self.population.candidates]
        judged = [h for d in self.population.decisions for h in (d.incumbent_harness, d.candidate_harness)]
        return list(dict.fromkeys([*proposed, *judged, *(e.harness_id for e in self.evaluations)]))

    @cached_property
    def student_models(self) -> set[str]:
        return {m for d in self.run.all(Distillation) for m in (d.student_model, d.base_model)}

    @property
    def root(self) -> str | None:
        if self.population.root:
            return self.population.root.harness_id
        return self.population.decisions[0].incumbent_harness if self.population.decisions else None

    @property
    def incumbent(self) -> str | None:
        promoted = self.population.promotions
        return promoted[-1].candidate_harness if promoted else self.root

    def name(self, harness_id: str) -> str:
        return self.names.get(harness_id, words.short(harness_id))

    @cached_property
    def harness_labels(self) -> dict[str, str]:
        """Harness id → its name, with the short id where two share one (what a page's address holds)."""
        ids = list(dict.fromkeys([*self.harness_ids, *self.run.distinct("harness_id")]))
        return unique_labels({h: self.name(h) for h in ids})

    @cached_property
    def candidate_labels(self) -> dict[str, str]:
        """Candidate id → its name, with the id where two share one (what a page's address holds)."""
        return unique_labels({c.id: c.name for c in self.population.candidates})

    def evaluation(self, harness_id: str, purpose: str | None = None) -> Evaluation | None:
        """The teacher's newest evaluation of a harness: for one purpose, or the one that the report shows."""
        for wanted in (purpose,) if purpose else SHOWN_FIRST:
            for made in reversed(self.evaluations):
                if (made.harness_id, made.purpose) == (harness_id, wanted) and made.model_id not in self.student_models:
                    return made
        return None

    def sentence(self) -> str:
        """Which harness leads, by how much, how sure."""
        if self.root is None or self.incumbent is None:
            return "No harness has been judged yet."
        decided = self.population.decisions
        if not self.population.promotions:
            tried = f"{len(decided)} candidate{'s' * (len(decided) != 1)} decided, none promoted"
            return f"**{self.name(self.root)}**, the starting harness, is still the incumbent: {tried}."
        last = self.population.promotions[-1]
        ours, theirs = self.name(last.candidate_harness), self.name(last.incumbent_harness)
        effect, where = effect_of(last)
        if effect is None or effect.point is None or effect.low is None:
            return f"**{ours}** leads **{theirs}** (difference unknown)."
        measured = f"{words.points(effect)}, {effect.n} paired tasks ({where}, 95 % interval)."
        if effect.low > 0:
            return f"**{ours}** leads **{theirs}** by {measured}"
        return f"**{ours}** took the place of **{theirs}**, being cheaper and not worse: {measured}"

    def path(self) -> list[PathPoint]:
        """The starting harness and every decided candidate, in the order of the decisions."""
        found: list[PathPoint] = []
        if self.root is not None:
            found.append(PathPoint("", self.name(self.root), "start", 0, self._success(self.root)))
        decided = self.population.decisions
        moments = self.run.tokens_until([d.decided_at for d in decided]) if decided else []
        for decision, spent in zip(decided, moments, strict=True):
            success = self._success(decision.candidate_harness)
            name = self.name(decision.candidate_harness)
            found.append(PathPoint(decision.candidate_id, name, self.verdict(decision), spent, success))
        return found

    def verdict(self, decision: Decision) -> str:
        """The word that a decision is shown under: one on an edit that can't matter stands for nothing else."""
        return "neutral" if decision.candidate_id in self.population.hidden else decision.verdict

    @cached_property
    def stages(self) -> dict[str, list[Stage]]:
        """Harness id → the named steps at which the lineage stood on it."""
        found: dict[str, list[Stage]] = {}
        for stage in self.run.all(Stage):
            found.setdefault(stage.harness_id, []).append(stage)
        return found

    def tags(self, harness_id: str) -> list[str]:
        """What a harness is called beside its name: the stages that stand on it, the names it is frozen under."""
        stages = [
            f"stage {s.name}" + (f" (teacher {s.teacher})" if s.kind == "teacher" else "")
            for s in self.stages.get(harness_id, ())
        ]
        named = {f"{TAG}{s.name}" for s in self.stages.get(harness_id, ())}
        return stages + [f"frozen as {tag}" for tag in self.run.frozen().get(harness_id, ()) if tag not in named]

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

    def _success(self, harness_id: str) -> Interval:
        made = self.evaluation(harness_id, "race")
        return made.success if made else nothing("no evaluation on dev")

    def channel_rows(self, harness_id: str) -> tuple[ChannelRow, ...]:
        made = self.evaluation(harness_id)
        return made.channels if made else ()

    def terminal_share(self, harness_id: str) -> Interval:
        rows = self.channel_rows(harness_id)
        terminal = sum(r.terminal_calls for r in rows)
        return wilson(terminal, terminal + sum(r.gui_calls for r in rows), "calls")

    def nodes(self) -> list[Node]:
        """The lineage as a tree: every proposed harness stays in it whatever became of it, in a large one folded."""
        return folded(layout(self.population, set(self.population.lineage)))
