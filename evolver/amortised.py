"""What a task costs when a model writes each one, and when it writes skills out of which any number is forged.

Both sides come from the ledger of a run in which skills were written. That a task written by itself costs what a skill
does that the gate lets in, failed ones included, is assumed, not measured; forged, that is a one-off cost, and spreads
over the tasks. What is unknown stays unknown: skills that a person wrote have no cost in any ledger, and are counted
beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evolver.composed import Proof
from evolver.records import LedgerEntry
from evolver.sums import total
from evolver.writing import SkillVerdict


@dataclass(frozen=True)
class OneOff:
    """What writing skills came to: `usd` and `tokens` are None as soon as one call's are unknown."""

    skills: int
    tried: int
    calls: int
    usd: float | None
    tokens: int | None
    seconds: float
    gate_seconds: float


@dataclass(frozen=True)
class Side:
    """One way to get `tasks` tasks: dollars, tokens and machine seconds a task, the one-off cost included."""

    way: str
    tasks: int
    usd_per_task: float | None
    tokens_per_task: float | None
    gate_seconds_per_task: float | None


def one_off(entries: Iterable[LedgerEntry], verdicts: Sequence[SkillVerdict]) -> OneOff:
    """From the author's entries of the ledger, each billed call once, and the verdicts on what it wrote."""
    own = [entry for entry in entries if entry.role == "author"]
    return OneOff(
        skills=sum(verdict.outcome == "admitted" for verdict in verdicts),
        tried=len(verdicts),
        calls=sum(entry.calls for entry in own),
        usd=total(entry.cost_usd for entry in own),
        tokens=total(count for entry in own for count in (entry.input_tokens, entry.output_tokens)),
        seconds=sum(entry.seconds or 0.0 for entry in own),
        gate_seconds=sum(verdict.gate_seconds for verdict in verdicts),
    )


def agent_first(spent: OneOff) -> Side:
    """Every task written by the model, taken to cost what a skill does: None a task while none was let in."""
    n = spent.skills
    return Side("written one by one", n, _share(spent.usd, n), _share(spent.tokens, n), _share(spent.gate_seconds, n))


def forged(spent: OneOff, n: int, proofs: Sequence[Proof] = ()) -> Side:
    """`n` tasks out of the skills; `proofs` are those of the sample that was run, whose time is spread as well."""
    gate = spent.gate_seconds + sum(gate.seconds for proof in proofs for gate in proof.gates)
    return Side("forged", n, _share(spent.usd, n), _share(spent.tokens, n), _share(gate, n))


def _share(whole: float | None, n: int) -> float | None:
    return whole / n if whole is not None and n else None
