"""What no gain makes up for: the guards that a candidate passes before it is promoted, each a test with its own error.

A guard stops only what is shown, never what is merely not excluded, so that few attempts cost no good edit its
promotion. All are pure functions of the scorecards of both arms and of `Facts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from evolver.compare import MIN_BOTH_SOLVE, Arms
from evolver.config import RaceConfig
from evolver.errors import UsageError
from evolver.intervals import DIFFERENCE, Tail, bound, mean_interval, nothing, pooled_p, t_bound
from evolver.phrasing import p_value
from evolver.population import by_task, final_cards, tally
from evolver.records import GuardResult, Interval, Scorecard

Guard = Literal["app", "tokens", "dollars", "seconds", "infra", "channel", "rubric"]
# A fall of ten points; a price at which two attempts of the incumbent could be had
# instead; a machine lost in one attempt of twenty; a third of an app's calls; as much as looks are warned of.
LIMITS: dict[Guard, float] = {
    "app": 0.1, "tokens": 1.0, "dollars": 1.0, "seconds": 1.0, "infra": 0.05, "channel": 0.3, "rubric": 0.1,
}  # fmt: skip
FLAGS: tuple[Guard, ...] = ("channel", "rubric")  # pointed out only, unless the config gives a limit
MIN_TASKS = 5  # tasks of an app before a shift of its channels is judged
LEAST_S = 1.0  # an attempt counts as that long at least: below it, the clock measures the machine
NO_APP = "no app"


@dataclass(frozen=True)
class Facts:
    """What guards need beside scorecards.

    `apps` maps a task's id to its apps, `terminal_share` a rollout's id to the share of terminal calls among its GUI
    and terminal calls (absent where it made none), `lost` gives (lost on our side, tries) of the candidate and of the
    incumbent.
    """

    apps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    terminal_share: Mapping[str, float] = field(default_factory=dict)
    lost: tuple[tuple[int, int], tuple[int, int]] | None = None


@dataclass(frozen=True)
class Sides:
    """The scored attempts of both arms by task, on the tasks that both have scored."""

    candidate: Mapping[str, Sequence[Scorecard]]
    incumbent: Mapping[str, Sequence[Scorecard]]

    @classmethod
    def of(cls, arms: Iterable[Arms]) -> Sides:
        found = list(arms)
        ours = by_task([c for a in found for c in final_cards(a.candidate) if c.success is not None])
        theirs = by_task([c for a in found for c in final_cards(a.incumbent) if c.success is not None])
        common = sorted(ours.keys() & theirs.keys())
        return cls({task: ours[task] for task in common}, {task: theirs[task] for task in common})

    def of_app(self, app: str, apps: Mapping[str, tuple[str, ...]]) -> list[str]:
        return [task for task in self.candidate if app in (apps.get(task) or (NO_APP,))]


@dataclass(frozen=True)
class _Seen:
    """A guard's measurement: `beyond` says that the limit is shown to be passed, None that too little is there."""

    interval: Interval
    beyond: bool | None
    words: str
    p_value: float | None = None
    subject: str = ""


class _Missing(Exception):
    """What a guard needs is not on record at all."""


def guard(
    arms: Sequence[Arms], facts: Facts, expected: Mapping[str, float], rules: RaceConfig, seed: int
) -> tuple[GuardResult, ...]:
    """Every guard's result on the attempts of `arms` together. `expected` maps an app to the change of its share of
    terminal calls that the candidate's manifest names.

    Raises UsageError for a guard whose limit the config gives and whose figures are not on record.
    """
    sides, chosen, found = Sides.of(arms), rules.guards, list[GuardResult]()
    error = chosen.error
    measures: dict[Guard, Callable[[float], list[_Seen]]] = {
        "app": lambda limit: _apps(sides, facts.apps, limit, (error, chosen.app_attempts), seed),
        "tokens": lambda limit: [_growth(sides, lambda card: card.tokens, limit, error, seed)],
        "dollars": lambda limit: [_growth(sides, lambda card: card.cost_usd, limit, error, seed)],
        "seconds": lambda limit: [_growth(sides, lambda card: max(LEAST_S, card.seconds), limit, error, seed)],
        "infra": lambda limit: [_lost(facts, limit, error)],
        "channel": lambda limit: _channels(sides, facts, expected, limit, seed),
        "rubric": lambda limit: [_rubric(sides, limit, error, seed)],
    }
    for name, measure in measures.items():
        stated: float | None = getattr(chosen, name)
        limit = LIMITS[name] if stated is None else stated
        if stated == 0:
            found.append(_result(name, "off", limit, _Seen(nothing("off"), None, "switched off in the config")))
            continue
        try:
            seen = measure(limit)
        except _Missing as missing:
            if stated is not None:
                raise UsageError(
                    f"race.guards.{name} = {limit:g} can't be held: {missing}; mend that, or set it to 0 (off)"
                ) from None
            seen = [_Seen(nothing(str(missing)), None, str(missing))]
        found += [_result(name, _outcome(name, one, stated), limit, one) for one in seen]
    return tuple(found)


def _outcome(name: Guard, seen: _Seen, stated: float | None) -> Literal["held", "tripped", "flagged", "unmeasured"]:
    if seen.beyond is None:
        return "unmeasured"
    if not seen.beyond:
        return "held"
    return "flagged" if name in FLAGS and stated is None else "tripped"


def _result(
    name: Guard, outcome: Literal["held", "tripped", "flagged", "unmeasured", "off"], limit: float, seen: _Seen
) -> GuardResult:
    return GuardResult(
        guard=name, subject=seen.subject, outcome=outcome, interval=seen.interval, limit=limit, p_value=seen.p_value,
        reason=seen.words,
    )  # fmt: skip


def said(results: Sequence[GuardResult]) -> list[str]:
    """The reasons that a decision keeps: what tripped or was flagged, what could not be judged, and that the rest
    held."""
    words = {"tripped": "guard", "flagged": "flagged", "unmeasured": "guard not judged", "off": "guard off"}
    lines = [
        f"{words[r.outcome]}: {r.guard}{f' of {r.subject}' if r.subject else ''}: {r.reason}"
        for r in results
        if r.outcome in ("tripped", "flagged")
    ]
    for outcome in ("unmeasured", "off"):
        names = dict.fromkeys(f"{r.guard} ({r.subject or r.reason})" for r in results if r.outcome == outcome)
        lines += [f"{words[outcome]}: {', '.join(names)}"] if names else []
    held = dict.fromkeys(r.guard for r in results if r.outcome == "held")
    return [*lines, f"guards held: {', '.join(held)}"] if held else lines


# --- the measures ----------------------------------------------------------------------------------------------------


def _apps(
    sides: Sides, apps: Mapping[str, tuple[str, ...]], limit: float, needs: tuple[float, int], seed: int
) -> list[_Seen]:
    """A fall of an app's success by more than `limit`, which the exact test shows with a share of the error: all apps
    together stop a neutral edit with the error. `needs` = (error, attempts in each arm)."""
    error, least = needs
    names = sorted({app for task in sides.candidate for app in apps.get(task) or (NO_APP,)})
    tasks = {app: sides.of_app(app, apps) for app in names}
    played = {
        app: min(sum(len(side[task]) for task in tasks[app]) for side in (sides.candidate, sides.incumbent))
        for app in names
    }
    judged = sum(n >= least for n in played.values())
    found = []
    for app in names:
        tallies = [(tally(sides.incumbent[task]), tally(sides.candidate[task])) for task in tasks[app]]
        falls = [theirs[0] / theirs[1] - ours[0] / ours[1] for theirs, ours in tallies]
        interval, enough = mean_interval(falls, seed, DIFFERENCE), played[app] >= least
        if not enough or interval.point is None:
            found.append(_Seen(interval, None, f"{played[app]} attempts an arm, {least} are needed", subject=app))
            continue
        p = pooled_p(tallies)
        words = (
            f"success falls by {100 * interval.point:.1f} pp{_span(interval)} on {len(falls)} tasks, "
            f"{p_value(p)} (at most {100 * limit:g} pp may be lost, level {error / judged:.3g})"
        )
        beyond = interval.point > limit and p <= error / judged
        found.append(_Seen(interval, beyond, words, p, app))
    return found


def _growth(sides: Sides, value: Callable[[Scorecard], float | None], limit: float, error: float, seed: int) -> _Seen:
    """Growth of what a solved attempt takes, task by task where both arms solve it."""
    logs, free = [], 0
    for task in sides.candidate:
        solved = [[value(c) for c in side[task] if c.success] for side in (sides.candidate, sides.incumbent)]
        if not all(solved):
            continue
        known = [[v for v in part if v is not None] for part in solved]
        if [len(part) for part in known] != [len(part) for part in solved]:
            raise _Missing(f"it is unknown for a solved attempt on {task}")
        ours, theirs = (sum(part) / len(part) for part in known)
        if ours > 0 and theirs > 0:
            logs.append(math.log(ours / theirs))
        else:
            free += 1
    if free and not logs:
        return _Seen(nothing("nothing is billed"), False, "nothing is billed in either arm")
    if len(logs) < MIN_BOTH_SOLVE:
        why = f"{len(logs)} tasks that both solve, {MIN_BOTH_SOLVE} are needed"
        return _Seen(nothing(why), None, why)
    found = mean_interval(logs, seed)
    low, point, high = (None if x is None else math.expm1(x) for x in (found.low, found.point, found.high))
    interval = Interval(point=point, low=low, high=high, n=found.n, method=found.method)
    least = math.expm1(t_bound(logs, Tail("lower", error)))
    words = (
        f"{100 * (point or 0):+.0f} %{_span(interval)} on {found.n} tasks that both solve, at least "
        f"{100 * least:+.0f} % at level {error:g} (at most {100 * limit:+g} %)"
    )
    return _Seen(interval, least > limit, words)


def _lost(facts: Facts, limit: float, error: float) -> _Seen:
    if facts.lost is None:
        raise _Missing("the tries of both arms are not given")
    from scipy.stats import fisher_exact

    (ours, tries), (theirs, others) = facts.lost
    if not tries or not others:
        return _Seen(nothing("no try"), None, "no try in one of the arms")
    p = float(fisher_exact([[ours, tries - ours], [theirs, others - theirs]], alternative="greater").pvalue)
    point = ours / tries - theirs / others
    interval = Interval(point=point, low=None, high=None, n=tries, method="difference of shares; Fisher's exact test")
    words = (
        f"{ours} of {tries} tries lost on our side against {theirs} of {others}, {p_value(p)} "
        f"(at most {100 * limit:g} pp more, level {error:g})"
    )
    return _Seen(interval, point > limit and p <= error, words, p)


def _channels(sides: Sides, facts: Facts, expected: Mapping[str, float], limit: float, seed: int) -> list[_Seen]:
    if not facts.terminal_share:
        raise _Missing("no call of either channel is on record")
    found = []
    for app in sorted({app for apps in facts.apps.values() for app in apps}):
        shifts = []
        for task in sides.of_app(app, facts.apps):
            ours, theirs = (_shares(side[task], facts) for side in (sides.candidate, sides.incumbent))
            if ours and theirs:
                shifts.append(sum(ours) / len(ours) - sum(theirs) / len(theirs) - expected.get(app, 0.0))
        interval = mean_interval(shifts, seed, DIFFERENCE)
        if len(shifts) < MIN_TASKS or interval.low is None or interval.high is None:
            found.append(_Seen(interval, None, f"{len(shifts)} tasks, {MIN_TASKS} are needed", subject=app))
            continue
        planned = f" beyond the expected {100 * expected[app]:+.0f}" if app in expected else ", none was expected"
        words = (
            f"the share of terminal calls shifts by {100 * (interval.point or 0):+.0f} pp{_span(interval)}{planned} on "
            f"{len(shifts)} tasks (at most {100 * limit:g} pp)"
        )
        found.append(_Seen(interval, interval.low > limit or interval.high < -limit, words, subject=app))
    return found


def _rubric(sides: Sides, limit: float, error: float, seed: int) -> _Seen:
    """How much more partial credit grew than success: credit without success is what a reward hack looks like."""
    leads = []
    for task in sides.candidate:
        parts = [
            [c.rubric - float(c.success or False) for c in side[task] if c.rubric is not None]
            for side in (sides.candidate, sides.incumbent)
        ]
        if all(parts):
            leads.append(sum(parts[0]) / len(parts[0]) - sum(parts[1]) / len(parts[1]))
    interval, lower = mean_interval(leads, seed, DIFFERENCE), bound(leads, Tail("lower", error), seed, DIFFERENCE)
    if lower is None:
        return _Seen(interval, None, f"{len(leads)} tasks with a rubric score in both arms")
    words = (
        f"the rubric score gains {100 * (interval.point or 0):+.1f} pp{_span(interval)} more than success "
        f"(at most {100 * limit:g} pp): look at the checks"
    )
    return _Seen(interval, lower > limit, words)


def _shares(cards: Sequence[Scorecard], facts: Facts) -> list[float]:
    return [facts.terminal_share[card.rollout_id] for card in cards if card.rollout_id in facts.terminal_share]


def _span(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return ""
    return f" [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"
