"""What a run has spent, from its ledger alone, and the caps that stop it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evolver.config import Cap, Caps
from evolver.errors import BudgetSpent, UsageError
from evolver.records import LedgerEntry, Role, Usage
from evolver.store import Store
from evolver.sums import total

FREE = ("demonstrator", "student", "noop")  # model ids that begin so run on this machine and bill nobody


@dataclass
class Spent:
    """Sums over ledger entries. What is unknown is counted apart and never taken for 0 (`unknown_*`, in entries);
    `unknown_spoiled` are those of tries without a reply among the unknown tokens."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unknown_tokens: int = 0
    unknown_cost: int = 0
    unknown_spoiled: int = 0
    rollout_ids: set[str] = field(default_factory=set)

    @property
    def rollouts(self) -> int:
        return len(self.rollout_ids)

    @property
    def unknown_replies(self) -> tuple[int, int]:
        """Entries of unknown tokens, and of unknown cost, but for tries without a reply, which no cap waits for."""
        return max(0, self.unknown_tokens - self.unknown_spoiled), max(0, self.unknown_cost - self.unknown_spoiled)

    def add(self, entry: LedgerEntry) -> None:
        self.calls += entry.calls
        if entry.input_tokens is None or entry.output_tokens is None:
            self.unknown_tokens += 1
            self.unknown_spoiled += entry.spoiled
        self.tokens += (entry.input_tokens or 0) + (entry.output_tokens or 0)
        if entry.cost_usd is None:
            self.unknown_cost += 1
        self.cost_usd += entry.cost_usd or 0.0
        if entry.rollout_id is not None:
            self.rollout_ids.add(entry.rollout_id)


@dataclass(frozen=True)
class Need:
    """What one proposal takes: rollouts, and tokens and dollars a rollout, as far as they are known: the teacher's and
    the judge's apart.

    `before` counts the rollouts that come before the first proposal; `authored` is how many rollouts an author takes to
    propose (what they cost is not known before the first).
    """

    rollouts: int
    tokens: float | None = None
    cost_usd: float | None = None
    judge_tokens: float | None = None
    judge_cost_usd: float | None = None
    before: int = 0
    authored: int = 0


class Budget:
    """The one ledger of a run with its caps. Sums follow the store, so a child process's spending counts too."""

    def __init__(self, store: Store, caps: Caps) -> None:
        self._store = store
        self._caps = caps
        self._read = 0
        self._total = Spent()
        self._by_role: dict[Role, Spent] = {}

    def spent(self, role: Role | None = None) -> Spent:
        """Sums of one role, or of the whole run."""
        entries = self._store.since(LedgerEntry, self._read)
        for entry in entries:
            self._total.add(entry)
            self._by_role.setdefault(entry.role, Spent()).add(entry)
        self._read += len(entries)
        return self._total if role is None else self._by_role.get(role, Spent())

    def check(self, role: Role, *, tokens: int = 0, cost_usd: float = 0.0) -> None:
        """Call before each rollout and each call of a judge. Raises `BudgetSpent` naming the cap that is reached.

        `tokens` and `cost_usd` were taken already and are not in the ledger yet.
        """
        for name, spent, cap in (("", self.spent(), self._caps), (f"{role}.", self.spent(role), self._caps.of(role))):
            more = replace(spent, tokens=spent.tokens + tokens, cost_usd=spent.cost_usd + cost_usd)
            _hold(f"caps.{name}", more, cap)

    def proposals(self, need: Need) -> tuple[int, str] | None:
        """How many proposals the caps still buy, and the cap that binds first; None where no cap says."""
        tokens = None if need.tokens is None else need.tokens + (need.judge_tokens or 0)
        cost = None if need.cost_usd is None else need.cost_usd + (need.judge_cost_usd or 0)
        played, one = (need.before, need.rollouts), (0, 1)  # rollouts before the first proposal, and for each
        takes: tuple[tuple[Role | None, str, float | None, tuple[int, int]], ...] = (
            (None, "rollouts", 1.0, (need.before, need.rollouts + need.authored)),
            (None, "tokens", tokens, played),
            (None, "cost_usd", cost, played),
            ("teacher", "rollouts", 1.0, played),
            ("teacher", "tokens", need.tokens, played),
            ("teacher", "cost_usd", need.cost_usd, played),
            ("judge", "tokens", need.judge_tokens, played),
            ("judge", "cost_usd", need.judge_cost_usd, played),
            ("author", "rollouts", float(need.authored), one),
        )
        bought: list[tuple[int, str]] = []
        for role, what, each, (before, per) in takes:
            cap = self._caps.of(role) if role else self._caps
            limit: float | None = getattr(cap, what)
            if limit is not None and each:
                left = limit - getattr(self.spent(role), what) - each * before
                name = f"caps.{role}.{what}" if role else f"caps.{what}"
                bought.append((max(0, int(left / (each * per))), f"{name} = {limit:,}"))
        return min(bought, default=None)

    def charge(self, entry: LedgerEntry) -> None:
        """Writes one entry (`Store.settled` makes it durable; a rollout's is made again where a crash lost it).

        Raises `UsageError` after writing it when its price is unknown and that isn't allowed.
        """
        self._store.write(entry)
        unknown = entry.cost_usd is None and entry.calls and not entry.spoiled
        if unknown and not self._store.config.allow_unpriced:
            priced = entry.model_id in self._store.config.prices
            why = "the endpoint reported no token counts" if priced else "it has no price"
            mend = "use an endpoint that reports usage" if priced else f'add [prices."{entry.model_id}"] to the config'
            raise UsageError(
                f"a call to {entry.model_id!r} as {entry.role} has no known cost ({why}), so no cap could hold: "
                f"{mend}, or set allow_unpriced = true, and run it again"
            )

    def call_entry(
        self, role: Role, model_id: str, usage: Usage | None, seconds: float, rollout_id: str | None = None
    ) -> LedgerEntry:
        """The entry of one call outside of a rollout's own; no `usage` = nobody knows what it took."""
        taken = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        return LedgerEntry(
            id=f"led-{role}-{uuid.uuid4().hex}",
            role=role,
            model_id=model_id,
            calls=1,
            input_tokens=taken[0],
            output_tokens=taken[1],
            cost_usd=self.price(model_id, *taken) if usage is not None else None,
            rollout_id=rollout_id,
            at=time.time(),
            seconds=max(0.0, seconds),
        )

    def charge_spoiled(
        self, role: Role, model_id: str, spoiled: Sequence[Usage], rollout_id: str | None = None
    ) -> LedgerEntry | None:
        """Writes what those tries of a call that got no reply may have cost, which stops nothing; None without any.

        A rollout's own are charged with its turns (evolver.lab).
        """
        if not spoiled:
            return None
        entry = self.spoiled(self.call_entry(role, model_id, None, 0.0, rollout_id), spoiled)
        self._store.write(entry)
        return entry

    def spoiled(self, like: LedgerEntry, tries: Sequence[Usage]) -> LedgerEntry:
        """The entry of tries without a reply, beside that of a call or rollout whose time has theirs in it."""
        tokens_in, tokens_out = total(t.input_tokens for t in tries), total(t.output_tokens for t in tries)
        found: dict[str, object] = {
            "id": f"{like.id}-spoiled",
            "calls": len(tries),
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "cost_usd": self.price(like.model_id, tokens_in, tokens_out),
            "seconds": 0.0,
            "spoiled": True,
        }
        return like.model_copy(update=found)

    def price(self, model_id: str, input_tokens: int | None, output_tokens: int | None) -> float | None:
        """Cost in $ of so many tokens, None when unknown. What has no price and runs here costs 0 by declaration."""
        price = self._store.config.prices.get(model_id)
        if price is None and model_id.startswith(FREE):
            return 0.0
        if price is None or input_tokens is None or output_tokens is None:
            return None
        return (input_tokens * price.input + output_tokens * price.output) / 1e6


def _hold(prefix: str, spent: Spent, cap: Cap) -> None:
    caps = (("tokens", spent.tokens, cap.tokens), ("cost_usd", spent.cost_usd, cap.cost_usd))
    for name, used, limit in (*caps, ("rollouts", spent.rollouts, cap.rollouts)):
        if limit is not None and used >= limit:
            raise BudgetSpent(
                f"{prefix}{name} = {limit:,} is spent ({used:,} used): raise it in the config and run it again"
            )
    if cap.tokens is not None and (unknown := spent.unknown_replies[0]):
        raise UsageError(
            f"{prefix}tokens can't be held: {unknown} ledger entries have unknown token counts; "
            "remove that cap, or use an endpoint that reports usage"
        )
