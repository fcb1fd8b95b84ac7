"""Optuna as an author: turns one to three knobs of its parent, guided by how earlier turns came out, or at random.

The study is rebuilt from the run's records before every proposal (success lead up, token ratio down), so nothing but
the records is ever stored, and the same records and seed always give the same proposal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evolver.authors.proposal import proposal
from evolver.authors.space import Value, as_changes, knobs_of, value_of
from evolver.config import RandomAuthor
from evolver.config import StructuredAuthor as StructuredConfig
from evolver.population import Population, point_of, population_of
from evolver.protocols import Evidence, Proposal
from evolver.records import Candidate, Decision, Manifest
from evolver.store import Store
from harnesses.edit import with_changes
from harnesses.harness import Harness
from harnesses.library import Library
from harnesses.tree import HarnessError, Tree, harness_from_files

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

MOST_CHANGES = 3
GUIDED_ASKS = 50  # so many asks that bring only known trees mean that the sampler is stuck: the rest is random
Standings = dict[str, tuple[float, float]]  # (success, log of tokens per solved task), the root's subtracted
ASKS = 250  # an author that finds nothing new in so many asks has nothing more to propose


class Structured:
    """At most `config.n` candidates under `name`. Random search is the same author without guidance: its baseline."""

    def __init__(self, config: StructuredConfig | RandomAuthor, store: Store, library: Library, name: str = "") -> None:
        self.name = name or config.kind
        self._guided = isinstance(config, StructuredConfig)
        self._n = config.n
        self._knobs = knobs_of(config.space)
        self._store = store
        self._library = library

    async def propose(self, evidence: Evidence) -> Proposal | None:
        population = population_of(self._store)
        made = sum(candidate.author == self.name for candidate in population.candidates)
        if made >= self._n:
            return None
        parent = self._library.get(evidence.parent_harness)
        study = self._study(population, seed := self._store.config.seed * 1_000 + made)
        name = f"{self.name}-{made + 1}-"  # a crash may have left a tree of this name without its candidate record
        known = population.harness_ids | {i for n, i in self._library.names().items() if not n.startswith(name)}
        for asked in range(ASKS):
            if asked == GUIDED_ASKS:
                study.sampler = _random_sampler(seed)
            trial = study.ask()
            settings = self._ask(trial, parent)
            tree = _edited(parent, settings)
            if tree is None or harness_from_files(tree).id in known:
                _fail(study, trial)
                continue
            name += harness_from_files(tree).id[:6]
            return proposal(parent, tree, self.name, name, Manifest(why=self._why(parent, settings, study)))
        return None

    def _ask(self, trial: Trial, parent: Harness) -> dict[str, Value]:
        """Which knobs to turn, and to what; a knob that already stands there is left out."""
        settings: dict[str, Value] = {}
        for position in range(trial.suggest_int("changes", 1, min(MOST_CHANGES, len(self._knobs)))):
            knob = str(trial.suggest_categorical(f"knob_{position}", list(self._knobs)))
            value = trial.suggest_categorical(f"to.{knob}", list(self._knobs[knob]))
            if isinstance(value, str | int) and value != value_of(parent, knob):
                settings[knob] = value
        return settings

    def _study(self, population: Population, seed: int) -> Study:
        """All decided candidates that this space can express, as finished trials in the order of their decisions."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        guided = optuna.samplers.TPESampler(seed=seed, n_startup_trials=5)
        sampler = guided if self._guided else _random_sampler(seed)
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        found = standings(population)
        for decision in population.decisions:
            trial = self._trial(population, decision, found)
            if trial is not None:
                study.add_trial(trial)
        return study

    def _trial(self, population: Population, decision: Decision, stands: Standings) -> FrozenTrial | None:
        from optuna.trial import TrialState, create_trial

        candidate = population.candidate(decision.candidate_harness)
        if candidate is None or not candidate.parents:
            return None
        settings = self._turned(self._library.get(candidate.parents[0]), self._library.get(candidate.harness_id))
        if not 1 <= len(settings) <= MOST_CHANGES:
            return None
        params: dict[str, Value] = {"changes": len(settings)}
        for position, (knob, value) in enumerate(settings.items()):
            params |= {f"knob_{position}": knob, f"to.{knob}": value}
        outcome = None if decision.candidate_harness not in stands else step_of(stands, candidate)
        return create_trial(
            state=TrialState.FAIL if outcome is None else TrialState.COMPLETE,
            params=params,
            distributions={name: self._distribution(name) for name in params},
            values=outcome,
        )

    def _turned(self, parent: Harness, child: Harness) -> dict[str, Value]:
        moved = {knob: value_of(child, knob) for knob in self._knobs if value_of(child, knob) != value_of(parent, knob)}
        return {knob: value for knob, value in moved.items() if value in self._knobs[knob]}

    def _distribution(self, name: str) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution, IntDistribution

        if name == "changes":
            return IntDistribution(1, min(MOST_CHANGES, len(self._knobs)))
        return CategoricalDistribution(self._knobs[name[3:]] if name.startswith("to.") else list(self._knobs))

    def _why(self, parent: Harness, settings: dict[str, Value], study: Study) -> str:
        moves = ", ".join(f"{knob} {value_of(parent, knob)} → {value}" for knob, value in settings.items())
        alike = [t for t in study.trials if t.values and any(t.params.get(f"to.{k}") == v for k, v in settings.items())]
        if not alike:
            return f"{moves}: not tried before in this run."
        lead = sum(t.values[0] for t in alike) / len(alike)
        return f"{moves}: {len(alike)} earlier candidate(s) with part of this moved success by {100 * lead:+.1f} pp."


def _edited(parent: Harness, settings: dict[str, Value]) -> Tree | None:
    """The changed tree; None when nothing would change or the combination is no valid harness."""
    if not settings:
        return None
    try:
        return with_changes(parent, as_changes(parent, settings))
    except HarnessError:
        return None


def _random_sampler(seed: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def _fail(study: Study, trial: Trial) -> None:
    from optuna.trial import TrialState

    study.tell(trial, state=TrialState.FAIL)


def standings(population: Population) -> Standings:
    """Harness id → where it stands against the root, along the decisions; one without a look has no standing."""
    found: Standings = {} if population.root is None else {population.root.harness_id: (0.0, 0.0)}
    for decision in population.decisions:
        base = found.get(decision.incumbent_harness)
        lead = decision.looks[-1].effect.point if decision.looks else None
        if base is not None and lead is not None:
            ours, theirs = point_of(decision.tokens_per_solved), point_of(decision.incumbent_tokens_per_solved)
            ratio = math.log(ours / theirs) if ours and theirs else 0.0
            found[decision.candidate_harness] = (base[0] + lead, base[1] + ratio)
    return found


def step_of(stands: Standings, candidate: Candidate) -> Sequence[float] | None:
    """What a candidate's edit did to its parent, which need not be the incumbent that it was measured against:
    (success lead in 0..1, log of its tokens per solved task over the parent's)."""
    before, after = stands.get(candidate.parents[0]), stands[candidate.harness_id]
    return None if before is None else [after[0] - before[0], after[1] - before[1]]
