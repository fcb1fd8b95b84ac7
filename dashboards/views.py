"""What the pages say, worked out from the records of a run: names, leader, path of the incumbent, tree, channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dashboards import words
from dashboards.queries import Run
from evolver.intervals import nothing, wilson
from evolver.population import Population, standing
from evolver.records import Candidate, ChannelRow, Decision, Distillation, Evaluation, Interval
from evolver.report import SHOWN_FIRST, effect_of


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
class Node:
    """One harness of the lineage tree; `x` is its generation, `y` its lane. `parents` are node ids."""

    id: str
    name: str
    verdict: str
    parents: tuple[str, ...]
    x: int
    y: float
    on_path: bool


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
        lead = f"**{self.name(last.candidate_harness)}** leads **{self.name(last.incumbent_harness)}**"
        effect, where = effect_of(last)
        if effect is None or effect.point is None:
            return f"{lead} (difference unknown)."
        return f"{lead} by {words.points(effect)}, {effect.n} paired tasks ({where}, 95 % interval)."

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
            verdict = "neutral" if decision.candidate_id in self.population.hidden else decision.verdict
            found.append(PathPoint(decision.candidate_id, name, verdict, spent, success))
        return found

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
        """The lineage as a tree: every proposed harness stays in it whatever became of it."""
        return layout(self.population, set(self.population.lineage))


def verdict_of(candidate: Candidate, decisions: Mapping[str, Decision]) -> str:
    return standing(candidate, decisions.get(candidate.id))


def layout(population: Population, on_path: set[str]) -> list[Node]:
    """Places: generation → x; leaves get lanes in the order of writing, a parent sits amid its children."""
    candidates = list(population.candidates)
    first = {c.harness_id: c.id for c in reversed(candidates)}
    ids = {c.id for c in candidates}
    parents: dict[str, tuple[str, ...]] = {}
    missing: dict[str, str] = {}
    for c in candidates:
        found = []
        for parent in c.parents:
            node = parent if parent in ids else first.get(parent)
            if node is None:
                node = f"missing:{parent}"
                missing[node] = parent
            found.append(node)
        parents[c.id] = tuple(p for p in found if p != c.id)
    order = [*missing, *(c.id for c in candidates)]
    depth = _depths(order, parents)
    lanes = _lanes(order, parents, depth)
    nodes = [
        Node(n, f"{words.short(h)}, not in this run", "missing", (), 0, lanes[n], False) for n, h in missing.items()
    ]
    for c in candidates:
        verdict = verdict_of(c, population.decision_of)
        leads = c.harness_id in on_path and first[c.harness_id] == c.id
        nodes.append(Node(c.id, c.name, verdict, parents[c.id], depth[c.id], lanes[c.id], leads))
    return nodes


def _depths(order: Sequence[str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """A parent is written before its child, so one pass is enough; a parent that comes later counts as generation 0."""
    depth: dict[str, int] = {}
    for node in order:
        depth[node] = 1 + max((depth.get(p, 0) for p in parents.get(node, ())), default=-1)
    return depth


def _lanes(order: Sequence[str], parents: Mapping[str, tuple[str, ...]], depth: Mapping[str, int]) -> dict[str, float]:
    children: dict[str, list[str]] = {node: [] for node in order}
    for node in order:
        for parent in parents.get(node, ())[:1]:
            children[parent].append(node)
    lanes: dict[str, float] = {}
    free = 0.0
    stack = [node for node in reversed(order) if not parents.get(node)]
    walked: list[str] = []
    while stack:
        node = stack.pop()
        walked.append(node)
        stack.extend(reversed(children[node]))
        if not children[node]:
            lanes[node], free = free, free + 1
    for node in reversed(walked):
        if children[node]:
            inner = [lanes[c] for c in children[node]]
            lanes[node] = sum(inner) / len(inner)
    return {node: lanes.get(node, free) for node in order}
