"""What the records of a run tell, for its pages and its report: leader, path of the incumbent, tree, channels."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol, TypeVar

from evolver.config import RunConfig
from evolver.freeze import TAG as CAPSULE
from evolver.intervals import nothing, wilson
from evolver.phrasing import or_why, pp, short
from evolver.population import Population
from evolver.records import (
    Candidate,
    ChannelRow,
    Decision,
    Distillation,
    Evaluation,
    Interval,
    LedgerEntry,
    Record,
    Stage,
)
from evolver.report import SHOWN_FIRST, effect_of
from evolver.stages import TAG
from evolver.store import Store
from harnesses.library import Library

R = TypeVar("R", bound=Record)


class Records(Protocol):
    """What a run has written: a `Store`, or a view of one state of it."""

    @property
    def path(self) -> Path: ...

    @property
    def config(self) -> RunConfig: ...

    def all(self, kind: type[R]) -> list[R]: ...


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


class Story:
    """Views over the records of a run. `names`: harness id → name; `tagged`: harness id → its tags."""

    def __init__(self, records: Records, names: Mapping[str, str], tagged: Mapping[str, tuple[str, ...]]) -> None:
        self.records = records
        self.tagged = tagged
        self.names = dict(names) | {c.harness_id: c.name for c in reversed(self.population.candidates)}

    @cached_property
    def population(self) -> Population:
        return Population(self.records.all(Candidate), self.records.all(Decision))

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        return self.records.all(Evaluation)

    @cached_property
    def harness_ids(self) -> list[str]:
        """Every harness of the run in the order in which it first appears (so that its colour never changes)."""
        proposed = [c.harness_id for c in self.population.candidates]
        judged = [h for d in self.population.decisions for h in (d.incumbent_harness, d.candidate_harness)]
        return list(dict.fromkeys([*proposed, *judged, *(e.harness_id for e in self.evaluations)]))

    @cached_property
    def student_models(self) -> set[str]:
        return {m for d in self.records.all(Distillation) for m in (d.student_model, d.base_model)}

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
        return self.names.get(harness_id, short(harness_id))

    @cached_property
    def harness_labels(self) -> dict[str, str]:
        """Harness id → its name, with the short id where two share one (what a page's address holds)."""
        return unique_labels({h: self.name(h) for h in self.harness_ids})

    def evaluation(self, harness_id: str, purpose: str | None = None) -> Evaluation | None:
        """The teacher's newest evaluation of a harness: for one purpose, or the one that the report shows."""
        for wanted in (purpose,) if purpose else SHOWN_FIRST:
            for made in reversed(self.evaluations):
                if (made.harness_id, made.purpose) == (harness_id, wanted) and made.model_id not in self.student_models:
                    return made
        return None

    def sentence(self) -> str:
        """Which harness leads, by how much, how sure (in Markdown)."""
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
        measured = f"{or_why(effect, pp)}, {effect.n} paired tasks ({where}, 95 % interval)."
        if last.routes == ("cheaper",):
            return f"**{ours}** took the place of **{theirs}**, being cheaper and not worse: {measured}"
        return f"**{ours}** leads **{theirs}** by {measured}"

    def path(self) -> list[PathPoint]:
        """The starting harness and every decided candidate, in the order of the decisions."""
        return self._path

    @cached_property
    def _path(self) -> list[PathPoint]:
        found: list[PathPoint] = []
        if self.root is not None:
            found.append(PathPoint("", self.name(self.root), "start", 0, self._success(self.root)))
        decided = self.population.decisions
        moments = self.tokens_until([d.decided_at for d in decided]) if decided else []
        for decision, spent in zip(decided, moments, strict=True):
            success = self._success(decision.candidate_harness)
            name = self.name(decision.candidate_harness)
            found.append(PathPoint(decision.candidate_id, name, self.verdict(decision), spent, success))
        return found

    def tokens_until(self, moments: Sequence[float]) -> list[int]:
        """Known tokens of all roles up to each moment (seconds since 1970)."""
        entries = sorted(self.records.all(LedgerEntry), key=lambda entry: entry.at)
        both = ((e.input_tokens, e.output_tokens) for e in entries)
        sums = [0, *accumulate(0 if a is None or b is None else a + b for a, b in both)]
        times = [entry.at for entry in entries]
        return [sums[bisect_right(times, moment)] for moment in moments]

    def verdict(self, decision: Decision) -> str:
        """The word that a decision is shown under: one on an edit that can't matter stands for nothing else."""
        return "neutral" if decision.candidate_id in self.population.hidden else decision.verdict

    @cached_property
    def stages(self) -> dict[str, list[Stage]]:
        """Harness id → the named steps at which the lineage stood on it."""
        found: dict[str, list[Stage]] = {}
        for stage in self.records.all(Stage):
            found.setdefault(stage.harness_id, []).append(stage)
        return found

    def tags(self, harness_id: str) -> list[str]:
        """What a harness is called beside its name: stages that stand on it, its capsules, its other tags."""
        stages = [
            f"stage {s.name}" + (f" (teacher {s.teacher})" if s.kind == "teacher" else "")
            for s in self.stages.get(harness_id, ())
        ]
        named = {f"{TAG}{s.name}" for s in self.stages.get(harness_id, ())}
        others = [tag for tag in self.tagged.get(harness_id, ()) if tag not in named]
        capsules = [tag.removeprefix(CAPSULE) for tag in others if tag.startswith(CAPSULE)]
        plain = [tag for tag in others if not tag.startswith(CAPSULE)]
        return [
            *stages,
            *([f"frozen as {', '.join(capsules)}"] if capsules else []),
            *([f"tagged {', '.join(plain)}"] if plain else []),
        ]

    def flags(self) -> dict[str, str]:
        """Candidate id → what stands above it in the tree: its first tag, and how many more there are."""
        found = {c.id: self.tags(c.harness_id) for c in self.population.candidates}
        return {
            candidate: said[0] + (f" +{len(said) - 1}" if len(said) > 1 else "")
            for candidate, said in found.items()
            if said
        }

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

    def terminal_shares(self, harnesses: Sequence[str]) -> dict[str, dict[str, Interval]]:
        """App → harness id → the terminal's share of its calls, the app whose share moved most first."""
        found: dict[str, dict[str, Interval]] = {}
        for harness in harnesses:
            for row in self.channel_rows(harness):
                calls = row.terminal_calls + row.gui_calls
                found.setdefault(row.app, {})[harness] = wilson(row.terminal_calls, calls, "calls")
        return {app: found[app] for app in sorted(found, key=lambda app: (-_moved(found[app]), app))}


def _moved(shares: Mapping[str, Interval]) -> float:
    ends = [i.point for i in shares.values() if i.point is not None]
    return max(ends) - min(ends) if ends else 0.0


def story_of(store: Store) -> Story:
    """The story of a whole run directory, its library included."""
    if not (store.path / "library" / "HEAD").is_file():
        return Story(store, {}, {})
    library = Library(store.path / "library")
    tags: dict[str, tuple[str, ...]] = {}
    for tag, tree in library.tags().items():
        tags[tree] = (*tags.get(tree, ()), tag)
    names = {tree: name for name, tree in reversed(library.names().items())}
    library.close()
    return Story(store, names, tags)
