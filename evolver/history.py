"""What `evolver log` and `evolver diff` say: candidates with verdict and cost, and the effect between two harnesses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from evolver.compare import Comparison
from evolver.evidence.material import gather
from evolver.phrasing import count, dollars, p_value, percent, pp
from evolver.population import Population, population_of, standing
from evolver.records import Candidate, Decision, Interval, Rollout, Scorecard, Stage
from evolver.report import effect_of
from evolver.store import Store
from evolver.sums import total
from harnesses.harness import Harness
from harnesses.library import Library

WHY_CHARS = 160
JUDGED = ("race", "confirm")


@dataclass(frozen=True)
class Entry:
    """One candidate. `tags` are its names as a frozen harness and the lineages whose head it is; `rollouts` and
    `tokens` are those of its own attempts before its verdict (of the root: on dev), None where unknown."""

    candidate: Candidate
    decision: Decision | None
    tags: tuple[str, ...]
    rollouts: int
    tokens: int | None

    @property
    def harness_id(self) -> str:
        return self.candidate.harness_id

    @property
    def parents(self) -> tuple[str, ...]:
        return self.candidate.parents

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def verdict(self) -> str:
        return standing(self.candidate, self.decision)

    @property
    def effect(self) -> tuple[Interval | None, str]:
        return (None, "") if self.decision is None else effect_of(self.decision)

    @property
    def effect_text(self) -> str:
        effect, where = self.effect
        return where if effect is None else f"{pp(effect)} on {where}, n = {effect.n}"

    @property
    def cost_text(self) -> str:
        made = self.candidate
        parts = [made.author, *filter(None, ["+".join(made.components)]), f"{self.rollouts:,} rollouts"]
        parts.append(f"{count(self.tokens)} tokens")
        if made.author_tokens is not None or made.author_cost_usd is not None:
            parts.append(f"author's {count(made.author_tokens)} tokens, {dollars(made.author_cost_usd)}")
        if made.hidden_neutral:
            parts.append("an edit that can't matter, judged to count false accepts")
        return " · ".join(parts)

    @property
    def why(self) -> str:
        line = " ".join(self.candidate.manifest.why.split())
        return line if len(line) <= WHY_CHARS else f"{line[: WHY_CHARS - 1]}…"

    def plain(self) -> dict[str, JsonValue]:
        effect, where = self.effect
        made = self.candidate
        return {
            "name": made.name, "harness_id": made.harness_id, "parents": list(made.parents), "author": made.author,
            "components": list(made.components), "changes": list(made.changes), "why": made.manifest.why,
            "verdict": self.verdict, "effect": _as_json(effect), "measured_on": where,
            "reasons": list(self.decision.reasons) if self.decision else [], "tags": list(self.tags),
            "rollouts": self.rollouts, "tokens": self.tokens, "author_tokens": made.author_tokens,
            "author_cost_usd": made.author_cost_usd, "hidden_neutral": made.hidden_neutral,
            "proposed_at": made.proposed_at,
        }  # fmt: skip


def _as_json(interval: Interval | None) -> dict[str, JsonValue] | None:
    return None if interval is None else interval.model_dump(mode="json")


def history(store: Store) -> list[Entry]:
    """Every candidate of the run, the newest first."""
    population = population_of(store)
    tags = _tags(store, population)
    cards = {card.rollout_id: card for card in store.all(Scorecard)}
    played: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in store.all(Rollout):
        if rollout.key.purpose in JUDGED:
            played[rollout.key.harness_id].append(rollout)
    found = []
    for candidate in reversed(population.candidates):
        decision = population.decision_of.get(candidate.id)
        until = decision.decided_at if decision else float("inf")
        own = [r for r in played[candidate.harness_id] if r.started_at <= until]
        tokens = total(cards[r.id].tokens for r in own if r.id in cards)
        found.append(Entry(candidate, decision, tags.get(candidate.harness_id, ()), len(own), tokens))
    return found


def _tags(store: Store, population: Population) -> Mapping[str, tuple[str, ...]]:
    """Harness id → what it is called beside its name: frozen under a name, head of the lineage."""
    named: dict[str, list[str]] = defaultdict(list)
    if population.incumbent is not None:
        named[population.incumbent].append(f"HEAD of {store.config.lineage}")
    if (store.path / "library" / "HEAD").is_file():
        library = Library(store.path / "library")
        for tag, harness_id in library.tags().items():
            named[harness_id].append(tag)
        library.close()
    for stage in store.all(Stage):
        if stage.kind == "teacher":
            named[stage.harness_id].append(f"teacher {stage.teacher} from stage {stage.name} on")
    return {harness_id: tuple(words) for harness_id, words in named.items()}


# --- two harnesses ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Between:
    """B minus A: on the dev tasks that both played, or why there is nothing; and what a verdict found on `select`."""

    dev: Comparison | str
    flips: Mapping[str, int]
    select: Interval | None

    def lines(self) -> Iterator[str]:
        if isinstance(self.dev, str):
            yield f"effect: none, {self.dev}"
        else:
            found = self.dev
            saved = percent(found.saving) if found.saving.point is not None else f"not compared ({found.saving.method})"
            yield (
                f"effect: {pp(found.effect)} of success on dev, {found.tasks} of {found.n_tasks} tasks, "
                f"{found.attempts} paired attempts, {p_value(found.p_better)} (one-sided); tokens saved {saved}"
                + ("" if found.covered else "; too few are scored in both to conclude anything")
            )
            yield f"tasks: {self.flips['more']} solved more often, {self.flips['less']} less often"
        if self.select is not None:
            yield f"fresh confirmation on select: {pp(self.select)}, n = {self.select.n}"

    def plain(self) -> dict[str, JsonValue]:
        select = _as_json(self.select)
        if isinstance(self.dev, str):
            return {"dev": None, "why_none": self.dev, "select": select}
        found = self.dev
        return {
            "dev": _as_json(found.effect), "p_better": found.p_better, "tasks": found.tasks,
            "of": found.n_tasks, "attempts": found.attempts, "covered": found.covered,
            "tokens_saved": _as_json(found.saving), "more": self.flips["more"],
            "less": self.flips["less"], "select": select,
        }  # fmt: skip


def effect_between(store: Store, a: Harness, b: Harness) -> Between:
    """What the records say of `b` against `a`, paired by task, from every attempt on dev that there is."""
    if a.id == b.id:
        return Between("both are the same harness", Counter(), None)
    seen = gather(store, a)
    before, after = seen.rates(a.id), seen.rates(b.id)
    moved = [after[task] - before[task] for task in before.keys() & after.keys()]
    confirmed = [
        decision.confirmation
        for decision in seen.population.decisions
        if (decision.candidate_harness, decision.incumbent_harness) == (b.id, a.id)
    ]
    flips = Counter(more=sum(change > 0 for change in moved), less=sum(change < 0 for change in moved))
    return Between(seen.versus(b.id, a.id), flips, confirmed[-1] if confirmed else None)
