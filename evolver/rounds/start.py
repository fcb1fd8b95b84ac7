"""From a capsule and a set of tasks to a round under way: everything is checked before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from evolver.budget import Budget
from evolver.capsules import OpenedCapsule, differences, open_capsule, read_lock
from evolver.config import ModelSpec, OpenAISpec, RunConfig
from evolver.disk import make_folder, replace
from evolver.errors import UsageError
from evolver.executors.local import LocalCrew
from evolver.faults import faults
from evolver.protocols import Crew, Probe
from evolver.rounds.book import NANO
from evolver.rounds.driver import Driver, Rules, Tell
from evolver.rounds.folder import Plan, Round
from evolver.rounds.manifest import Closed, Manifest
from evolver.rounds.play import RolloutSpec
from evolver.rounds.probes import ANSWER_TOKENS, CASES, most_tokens
from evolver.rounds.rows import Limits
from evolver.rounds.tasks import source_of
from evolver.rounds.watch import Schedule, Watch
from evolver.safeguards import Count, Positive, Section
from evolver.store import Store
from harnesses.library import Library
from harnesses.tree import Tree

LOCK = "capsule.json"  # of the capsule that the round was planned for


class RoundSettings(Section):
    """How a round is played; all but the limits of what is kept and `shard_units` may be others when it is resumed.

    `workers` play one unit each at a time, on the Ray cluster at `address` (empty: one that is started here). Nothing
    is begun that could make the round cost more than `cost_usd`. A unit may take `deadline_s`. Endpoint and judge are
    looked at every `probe_every` calls, the machines every second time (0: never). Longer trajectories than `max_turns`
    and `max_tokens` are rejected. `found_in` is the run that the harness was found in, whose cost counts once. After an
    alarm a round goes on with `after_alarm`, which says what was mended, and is recorded.
    """

    workers: Positive = 2
    address: str = ""
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    deadline_s: Annotated[float, Field(gt=0)] = 1_800.0
    probe_every: Count = 250
    shard_units: Positive = 500
    max_turns: Positive | None = None
    max_tokens: Positive | None = None
    found_in: Path | None = None
    after_alarm: str = ""


@dataclass(frozen=True)
class Wanted:
    """What is asked for: `n` units of the tasks of a set; None is every task once."""

    capsule: Path
    task_set: str
    out: Path
    n: int | None = None
    executor: Literal["local", "ray"] = "local"
    settings: RoundSettings = RoundSettings()


def settings_of(given: Sequence[str]) -> RoundSettings:
    """From `name=value` each. Raises UsageError naming the setting that is unknown or has a wrong value."""
    pairs = [one.partition("=") for one in given]
    if wrong := [one for one, (_, sign, _) in zip(given, pairs, strict=True) if not sign]:
        raise UsageError(f"--set {wrong[0]}: expected NAME=VALUE; names: {', '.join(RoundSettings.model_fields)}")
    try:
        return RoundSettings.model_validate({name: value for name, _, value in pairs})
    except ValidationError as error:
        raise UsageError(f"--set: {faults(RoundSettings, error)}") from None


async def generate(wanted: Wanted, tell: Tell, say: Callable[[str], None]) -> Closed:
    """Starts the round, or goes on with it, until it is complete.

    Raises UsageError for a capsule that drifted or is another than the round's, Alarm, BudgetSpent, NotReady.
    """
    _require_same_capsule(wanted)
    opened = open_capsule(wanted.capsule)
    source = source_of(wanted.task_set, opened.capsule.held_out)
    refs = source.refs()
    config = opened.config
    make_folder(wanted.out)
    store = Store.create(wanted.out, config)
    with Store.lock(wanted.out):
        _keep_capsule(wanted, opened)
        plan = Plan(
            capsule_id=opened.id,
            capsule=str(wanted.capsule),
            harness_id=opened.harness.id,
            model_id=config.teacher_id,
            task_set=source.name,
            tasks=refs,
            units=wanted.n or len({ref.hash for ref in refs}),
            shard_units=wanted.settings.shard_units,
            limits=Limits(wanted.settings.max_turns, wanted.settings.max_tokens),
            one_off_usd=one_off_usd(wanted.settings.found_in),
        )
        round_ = Round.open(wanted.out, plan)
        try:
            watch = Watch(round_.book, _schedule(wanted, config), plan.units)
            _see_to_alarm(watch, wanted)
            rules = _rules(wanted, opened, Budget(store, config.caps))
            if round_.manifest.closed is not None:
                return round_.manifest.closed
            spec = RolloutSpec(
                wanted.capsule.resolve(),
                opened.id,
                wanted.out.resolve(),
                source.name,
                tuple(refs),
                plan.limits,
            )
            say(
                f"round of {plan.units:,} units on {plan.task_set}, {wanted.settings.workers} {wanted.executor} workers"
            )
            crew = _crew(wanted, spec)
            try:
                return await Driver(round_, crew, rules, watch, tell).run()
            finally:
                await crew.aclose()
        finally:
            round_.close()


def one_off_usd(run: Path | None) -> float | None:
    """What a run spent in all to find its harnesses, in $; None where nobody says, or some of it is unknown."""
    if run is None:
        return None
    store = Store.open(run)
    spent = Budget(store, store.config.caps).spent()
    return None if spent.unknown_cost else spent.cost_usd


def tries_of(spec: ModelSpec) -> int:
    """The most tries of one call that can end at the endpoint's time limit, each of which may be billed."""
    return 1 + int(spec.retry_for_s // spec.timeout_s) if isinstance(spec, OpenAISpec) else 1


def call_usd(opened: OpenedCapsule, budget: Budget) -> tuple[float | None, float | None]:
    """The most that one call of the teacher, and one of the judge, can cost: a full window and a full reply. None
    without a price; a judge that is not there costs nothing."""
    scaffold, judge = opened.harness.scaffold, opened.config.judge
    call = budget.price(opened.config.teacher_id, scaffold.window_tokens, scaffold.sampling.max_tokens)
    return call, budget.price(judge.model.model, scaffold.window_tokens, judge.max_tokens) if judge else 0.0


def _most_tries(spec: ModelSpec, calls: int, deadline_s: float) -> int:
    """The most tries of so many calls within `deadline_s`, of which each that comes to nothing takes a time limit."""
    if not isinstance(spec, OpenAISpec):
        return calls
    return calls + min(calls * (tries_of(spec) - 1), int(deadline_s // spec.timeout_s))


def worst_usd(opened: OpenedCapsule, budget: Budget, deadline_s: float) -> float | None:
    """The most that one unit can cost: every call at its most, tried until it is given up or `deadline_s` are over.
    None without a price."""
    call, graded = call_usd(opened, budget)
    if call is None or graded is None:
        return None
    config, judge = opened.config, opened.config.judge
    asks = _most_tries(judge.model, opened.capsule.retry.judge_asks, deadline_s) if judge else 0
    return call * _most_tries(config.teacher, opened.harness.scaffold.max_steps, deadline_s) + graded * asks


def probes_usd(opened: OpenedCapsule, budget: Budget) -> dict[Probe, float]:
    """The most that a look at endpoint and judge can cost; what has no price is left out. The machines cost nothing."""
    config = opened.config
    calls = [budget.price(config.teacher_id, most, ANSWER_TOKENS) for most in most_tokens()]
    found: dict[Probe, float] = {"endpoint": tries_of(config.teacher) * sum(one or 0.0 for one in calls)}
    if config.judge is not None:
        one = (call_usd(opened, budget)[1] or 0.0) * tries_of(config.judge.model)
        found["judge"] = one * opened.capsule.retry.judge_asks * sum(CASES.values())
    return found


def _rules(wanted: Wanted, opened: OpenedCapsule, budget: Budget) -> Rules:
    worst = worst_usd(opened, budget, wanted.settings.deadline_s)
    if wanted.settings.cost_usd is not None and worst is None:
        raise UsageError("cost_usd can't be held: a model of this capsule has no price, so no unit has a worst case")
    return Rules(
        deadline_s=wanted.settings.deadline_s,
        unit_nusd=round((worst or 0.0) * NANO),
        call_nusd=round(max(usd or 0.0 for usd in call_usd(opened, budget)) * NANO),
        probe_nusd={probe: round(usd * NANO) for probe, usd in probes_usd(opened, budget).items()},
        cap_nusd=None if wanted.settings.cost_usd is None else round(wanted.settings.cost_usd * NANO),
        tries=opened.capsule.retry.tries,
        workers=wanted.settings.workers,
    )


def _schedule(wanted: Wanted, config: RunConfig) -> Schedule:
    if not wanted.settings.probe_every:
        return Schedule()
    every: dict[Probe, int] = {"environment": 2 * wanted.settings.probe_every}
    if isinstance(config.teacher, OpenAISpec):
        every["endpoint"] = wanted.settings.probe_every
    if config.judge is not None:
        every["judge"] = wanted.settings.probe_every
    return Schedule(every)


def _crew(wanted: Wanted, spec: RolloutSpec) -> Crew:
    if wanted.executor == "local":
        return LocalCrew(spec, wanted.settings.workers)
    from evolver.executors.ray import RayCrew

    return RayCrew(spec, wanted.settings.workers, wanted.settings.address or None)


def _require_same_capsule(wanted: Wanted) -> None:
    """A round belongs to one capsule: another one is refused, field by field."""
    if not Manifest.of(wanted.out).is_open:
        return
    found = differences(read_lock(wanted.out), read_lock(wanted.capsule))
    if found:
        shown = "; ".join(map(str, found[:12])) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
        raise UsageError(f"{wanted.out} is a round of another capsule than {wanted.capsule}: {shown}")


def _keep_capsule(wanted: Wanted, opened: OpenedCapsule) -> None:
    replace(wanted.out / LOCK, (wanted.capsule / LOCK).read_bytes())
    library = Library(wanted.out / "library")
    try:
        tree = Tree(opened.harness.files, opened.harness.executable)
        library.add(tree, name=wanted.capsule.name, message=f"capsule {opened.id}")
    finally:
        library.close()


def _see_to_alarm(watch: Watch, wanted: Wanted) -> None:
    if watch.alarm is None:
        return
    if not wanted.settings.after_alarm.strip():
        raise UsageError(
            f"{wanted.out} was stopped by an alarm: {watch.alarm}. What was made since it was last known to be right "
            "is marked suspect. When the cause is mended, go on with --set 'after_alarm=what was mended'"
        )
    watch.forgive(wanted.settings.after_alarm)
