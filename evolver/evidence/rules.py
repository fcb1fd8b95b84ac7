"""How a candidate is judged, in words with this run's numbers, and what is left to spend."""

from __future__ import annotations

from collections.abc import Iterator

from evolver.budget import Spent
from evolver.compare import MIN_BOTH_SOLVE, MIN_COVERAGE
from evolver.config import Cap, RaceConfig
from evolver.decide import cheaper_line, confirm_level, confirm_steps, steps
from evolver.evidence.material import Material
from evolver.evidence.sheet import Cell, Column, Sheet
from evolver.guards import LIMITS
from evolver.ledger import ROLES
from evolver.records import LedgerEntry
from evolver.safeguards import GuardsConfig

OPEN = " (on average: each is asked once, and then those more often whose outcome is open)"


def acceptance(seen: Material) -> str:
    """The rule that decides, as Markdown. Its numbers are those that `evolver.decide` uses."""
    rules, spent = seen.store.config.race, seen.population.alpha_spent
    plan = steps(rules, seen.population.settled_attempts(seen.parent.id, seen.teacher))
    looks = ", ".join(str(step.attempts) for step in plan)
    fresh = ", ".join(str(step.attempts) for step in confirm_steps(rules))
    level = confirm_level(rules, spent)
    select = seen.store.config.tasks.select or seen.select_tasks
    route = [f"- {cheaper_line(rules, len(seen.tasks), select)}"] if select else []
    lines = [
        f"A candidate is raced against the incumbent on {len(seen.tasks)} dev tasks, looked at after {looks} "
        f"attempts a task{OPEN if rules.focus else ''}. It passes when it is shown (one-sided, "
        f"{100 * rules.screen_alpha:g} % over all looks) that it",
        "",
        "- **solves more** tasks, or",
        f"- is **not worse and cheaper**: success at most {100 * rules.margin:g} pp below the incumbent's, and at "
        f"least {100 * rules.min_saving:g} % of the tokens saved on tasks that both solve ({MIN_BOTH_SOLVE} or more of "
        "them). So taking something away can win.",
        "",
        f"It is dropped as futile once a lead of {100 * rules.min_effect:g} pp is unlikely (upper "
        f"{100 * rules.futility_level:g} % bound below it) and so is a saving. What passes is confirmed on fresh "
        f"attempts of both arms ({fresh} a task) at `select` tasks, which no author is ever shown. Only what is shown "
        "there again, in the same way, is promoted: an edit that fits the dev tasks alone fails here.",
        "",
        *_small_leads(rules),
        f"- errors: {spent:.4f} of {rules.lineage_alpha:g} spent for this lineage; the next confirmation has level "
        f"{level:.3g}",
        *route,
        f"- at least {100 * MIN_COVERAGE:.0f} % of the tasks and attempts must be scored in both arms",
        f"- every {rules.root_every} promotions the newest is compared with the root; a loss against it is a rejection",
        f"- no gain makes up for a guard that trips: {_guards(rules.guards)}",
        "- partial credit (the rubric) decides nothing",
        "- an added line that carries one task (an id, a phrase of it, a name or value of its files) is refused",
        "- the same tree again costs nothing and brings nothing; an edit that does not run is rejected after two "
        "attempts",
    ]
    return "\n".join(lines) + "\n"


def _small_leads(rules: RaceConfig) -> list[str]:
    if not rules.confirm_from:
        return []
    return [
        f"A lead of less than {100 * rules.confirm_from:g} pp is not confirmed at once: it waits, others build on it, "
        "and the most promising of those that wait is confirmed when the authors are done.",
        "",
    ]


def _guards(chosen: GuardsConfig) -> str:
    limits = {name: LIMITS[name] if (stated := getattr(chosen, name)) is None else stated for name in LIMITS}
    return ", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit) + " (growth or loss, 1 = 100 %)"


def settings(seen: Material) -> Sheet:
    """Every number of the rule, by its name in the config."""
    numbers = seen.store.config.race.model_dump(mode="json")
    rows: list[tuple[Cell, ...]] = [(name, "" if value is None else str(value)) for name, value in numbers.items()]
    return Sheet("race", "Numbers of the rule", "", (Column("name", "race."), Column("value", "value")), rows)


def budget(seen: Material) -> Sheet:
    """What each role, and all of them together, spent and may still spend."""
    entries = seen.store.all(LedgerEntry)
    rows: list[tuple[Cell, ...]] = []
    for role in ("all", *ROLES):
        spent = Spent()
        for entry in entries:
            if role in ("all", entry.role):
                spent.add(entry)
        cap = seen.store.config.caps if role == "all" else seen.store.config.caps.of(role)  # type: ignore[arg-type]
        if spent.calls or any(limit is not None for limit in (cap.rollouts, cap.tokens, cap.cost_usd)):
            rows.append((role, *_left(spent, cap)))
    columns = (
        Column("role", "role"), Column("rollouts", "rollouts", "count"), Column("rollouts_left", "left"),
        Column("tokens", "tokens", "count"), Column("tokens_left", "left"),
        Column("cost_usd", "cost", "dollars"), Column("cost_left", "left"),
    )  # fmt: skip
    return Sheet("budget", "Budget", "What the caps leave; `no cap` where the config sets none.", columns, rows)


def _left(spent: Spent, cap: Cap) -> Iterator[Cell]:
    tokens, cost = spent.unknown_replies
    takes = (
        (spent.rollouts, cap.rollouts, 0), (spent.tokens, cap.tokens, tokens), (spent.cost_usd, cap.cost_usd, cost),
    )  # fmt: skip
    for used, limit, unknown in takes:
        yield None if unknown else used
        yield "no cap" if limit is None else "unknown" if unknown else f"{max(0, limit - used):,.6g}"
