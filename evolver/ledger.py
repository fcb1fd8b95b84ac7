"""What a run has cost, in one place: each role (author, teacher, judge, annotator, student) with its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from evolver.budget import Spent
from evolver.phrasing import UNKNOWN, dollars
from evolver.records import Distillation, LedgerEntry, Role, Rollout
from evolver.store import Store
from evolver.tables import Table

ROLES: tuple[Role, ...] = ("author", "teacher", "judge", "annotator", "student")
TRAINING = "training"


@dataclass(frozen=True)
class Line:
    """One model in one role, or a role's or the run's sum (`model` is empty). What is unknown is counted in entries.

    `seconds` adds up over workers: the time that attempts, calls and training took, not the clock on the wall.
    """

    role: str
    model: str
    spent: Spent
    seconds: float
    unknown_seconds: int = 0

    def plain(self) -> dict[str, JsonValue]:
        return {
            "role": self.role,
            "model": self.model,
            "rollouts": self.spent.rollouts,
            "calls": self.spent.calls,
            "tokens": self.spent.tokens,
            "unknown_tokens": self.spent.unknown_tokens,
            "cost_usd": self.spent.cost_usd,
            "unknown_cost": self.spent.unknown_cost,
            "seconds": self.seconds,
            "unknown_seconds": self.unknown_seconds,
        }


def ledger(store: Store) -> list[Line]:
    """A line a role and model in the order of `ROLES` (a role that spent nothing has one line without a model), one for
    the training of students where there was any, and the sum."""
    entries = store.all(LedgerEntry)
    lasted = {r.id: max(0.0, r.finished_at - r.started_at) for r in store.all(Rollout)}
    lines: list[Line] = []
    for role in ROLES:
        models = sorted({entry.model_id for entry in entries if entry.role == role})
        for model in models or [""]:
            lines.append(_line(role, model, [e for e in entries if (e.role, e.model_id) == (role, model)], lasted))
    trained = store.all(Distillation)
    if trained:
        lines.append(Line("student", TRAINING, Spent(), sum(d.train_s for d in trained)))
    total = _line("total", "", entries, lasted)
    seconds, unknown = sum(line.seconds for line in lines), sum(line.unknown_seconds for line in lines)
    return [*lines, Line("total", "", total.spent, seconds, unknown)]


def _line(role: str, model: str, entries: Sequence[LedgerEntry], lasted: dict[str, float]) -> Line:
    """An entry that has no time of its own took as long as its rollout, unless it was the judge's."""
    spent, seconds, unknown = Spent(), 0.0, 0
    for entry in entries:
        spent.add(entry)
        took = entry.seconds
        if took is None and entry.role != "judge" and entry.rollout_id is not None:
            took = lasted.get(entry.rollout_id)
        seconds += took or 0.0
        unknown += took is None
    return Line(role, model, spent, seconds, unknown)


def ledger_table(store: Store) -> Table:
    """Calls, tokens, cost and time by role and model, each billed call once."""
    lines = ledger(store)
    if lines[-1].spent.calls == 0 and lines[-1].seconds == 0:
        lines = []
    return Table(
        "Ledger",
        ("role", "model", "rollouts", "calls", "tokens", "cost", "time"),
        tuple((line.role, line.model, *_said(line)) for line in lines),
        "The demonstrator and students run on this machine and cost nothing by declaration. Time adds up over workers.",
        frozenset({"rollouts", "calls", "tokens", "cost", "time"}),
    )


def _said(line: Line) -> tuple[str, str, str, str, str]:
    spent = line.spent
    tokens = _known(f"{spent.tokens:,}", spent.tokens, spent.unknown_tokens)
    cost = _known(dollars(spent.cost_usd), spent.cost_usd, spent.unknown_cost)
    time = _known(_duration(line.seconds), line.seconds, line.unknown_seconds)
    return f"{spent.rollouts:,}", f"{spent.calls:,}", tokens, cost, time


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _known(text: str, value: float, unknown: int) -> str:
    if not unknown:
        return text
    entries = "entry" if unknown == 1 else "entries"
    return f"at least {text} ({unknown:,} {entries} unknown)" if value else UNKNOWN
