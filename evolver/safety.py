"""What a report says of the run's own honesty: checks before it, false accepts during it, guards, and stages."""

from __future__ import annotations

from evolver.audit import SelfCheck
from evolver.intervals import wilson
from evolver.phrasing import percent
from evolver.population import Population, population_of
from evolver.records import Decision, GuardResult, Interval, Stage
from evolver.store import Store
from evolver.tables import Table

OUTCOMES = {"tripped": "stopped it", "flagged": "flagged", "unmeasured": "not judged", "off": "off"}
NEUTRAL = "edits that can't matter"


def false_accepts(population: Population) -> tuple[Interval, Interval]:
    """Of the hidden edits that were judged: the share that passed the race, and the share that was accepted."""
    judged = population.neutrals
    passed = sum(bool(decision.looks) and decision.looks[-1].verdict == "pass" for decision in judged)
    accepted = sum(decision.verdict == "promote" for decision in judged)
    return wilson(passed, len(judged), NEUTRAL), wilson(accepted, len(judged), NEUTRAL)


def safety_lines(store: Store) -> list[str]:
    """The checks before the run, and the live estimate of false accepts with its n."""
    rules = store.config.checks
    found = store.all(SelfCheck)
    checks = "; ".join(f"{c.check.replace('_', ' ')} {c.outcome.replace('_', ' ')} ({c.reason})" for c in found)
    lines = [f"checks before the run: {checks or ('not played yet' if rules.tasks else 'none (checks.tasks = 0)')}"]
    population = population_of(store)
    passed, accepted = false_accepts(population)
    if accepted.n:
        n = accepted.n
        lines.append(
            f"false accepts: {percent(accepted)} of {n} hidden edit{'s' * (n > 1)} that can't matter; "
            f"{percent(passed)} passed the race"
        )
    else:
        hidden = f"one candidate in {rules.neutral_every} is one" if rules.neutral_every else "checks.neutral_every = 0"
        lines.append(f"false accepts: unknown, no hidden edit that can't matter was judged ({hidden})")
    return lines


def guards_table(store: Store, names: dict[str, str]) -> Table:
    """What guards stopped, flagged or could not judge; those that held are counted."""
    rows, held = [], 0
    for decision in store.all(Decision):
        held += sum(result.outcome == "held" for result in decision.guards)
        name = names.get(decision.candidate_harness, decision.candidate_harness[:8])
        rows += [_row(name, r) for r in decision.guards if r.outcome not in ("held", "unmeasured")]
        unmeasured: dict[str, list[GuardResult]] = {}
        for result in decision.guards:
            if result.outcome == "unmeasured":
                unmeasured.setdefault(result.guard, []).append(result)
        rows += [_unmeasured(name, results) for results in unmeasured.values()]
    return Table(
        "Guards",
        ("candidate", "guard", "of", "outcome", "why"),
        tuple(rows),
        f"What no gain makes up for, asked of each candidate that would be promoted. Held: {held}.",
    )


def _row(name: str, result: GuardResult) -> tuple[str, str, str, str, str]:
    return name, result.guard, result.subject, OUTCOMES[result.outcome], result.reason


def _unmeasured(name: str, results: list[GuardResult]) -> tuple[str, str, str, str, str]:
    """One guard that had too little to judge by, for all the apps that it looked at."""
    reasons = dict.fromkeys(result.reason for result in results)
    of = ", ".join(result.subject for result in results if result.subject)
    return name, results[0].guard, of, OUTCOMES["unmeasured"], "; ".join(reasons)


def stages_table(store: Store, names: dict[str, str]) -> Table:
    """The named steps of the lineage in their order."""
    rows = tuple(
        (
            stage.name,
            "teacher swapped" if stage.kind == "teacher" else "harness",
            names.get(stage.harness_id, stage.harness_id[:8]),
            stage.teacher,
            stage.why,
        )
        for stage in store.all(Stage)
    )
    return Table(
        "Stages",
        ("stage", "step", "harness", "teacher", "why"),
        rows,
        "Named with `evolver stage`. Results on the two sides of a change of the teacher are never compared.",
    )
