"""How much of a round may be under way: less where the endpoint turns calls away, nothing while it is down, and never
more than the money that is left could pay for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

Clock = Callable[[], float]
WINDOW, SHARE, LEAST = 20, 0.5, 6  # outcomes looked at; the share of failures that is an outage; failures it takes
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 300.0


@dataclass
class Window:
    """Leases at once: one more after a whole window without trouble, half after calls were turned away (additive
    increase, multiplicative decrease: Chiu and Jain 1989, https://doi.org/10.1016/0169-7552(89)90019-6).

    `asked_s` (Retry-After) keeps new leases back for so long.
    """

    most: int
    clock: Clock = time.monotonic
    size: float = field(init=False)
    _until: float = field(default=float("-inf"), init=False)
    _cut_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.size = float(self.most)

    @property
    def open(self) -> int:
        """Leases that may be under way now; 0 while the endpoint wants to be left alone."""
        return 0 if self.clock() < self._until else max(1, int(self.size))

    def heard(self, throttled: int, asked_s: float, began: float) -> None:
        """One lease is back; it began at `began`. Leases that began before the last cut say nothing new."""
        if not throttled:
            self.size = min(float(self.most), self.size + 1 / max(1.0, self.size))
            return
        now = self.clock()
        if began >= self._cut_at:
            self.size, self._cut_at = max(1.0, self.size / 2), now
        self._until = max(self._until, now + asked_s)


@dataclass
class Breaker:
    """Stops handing out units while most of what comes back failed on our side, then tries one at a time, waiting
    twice as long after each further failure; the first that comes back sound closes it again."""

    clock: Clock = time.monotonic
    opened: int = 0
    _seen: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW), init=False)
    _until: float | None = field(default=None, init=False)
    _pause_s: float = field(default=FIRST_PAUSE_S, init=False)

    @property
    def tripped(self) -> bool:
        return self._until is not None

    def limit(self, window: int) -> int:
        """Leases that may be under way: `window` in peace, 0 in a pause, 1 to try."""
        if self._until is None:
            return window
        return 1 if self.clock() >= self._until else 0

    def heard(self, sound: bool) -> None:
        """One unit is back; `sound` unless it failed through no fault of the agent."""
        self._seen.append(sound)
        if self._until is not None:
            if sound:
                self._until, self._pause_s = None, FIRST_PAUSE_S
                self._seen.clear()
            elif self.clock() >= self._until:
                self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s)
                self._until = self.clock() + self._pause_s
            return
        failed = self._seen.count(False)
        if failed >= LEAST and failed > SHARE * len(self._seen):
            self._until = self.clock() + self._pause_s
            self.opened += 1


@dataclass(frozen=True)
class Purse:
    """A cap in nano-dollars (None: none) and the most that one unit can cost. Nothing is begun that could pass the
    cap together with what is under way."""

    cap: int | None
    unit: int

    def units(self, spent: int, reserved: int, most: int) -> int:
        """How many of `most` units may be begun."""
        if self.cap is None:
            return most
        left = max(0, self.cap - spent - reserved)
        return min(most, left // self.unit) if self.unit else (most if left else 0)

    def covers(self, nusd: int, spent: int, reserved: int) -> bool:
        """Whether something that may cost so much may be begun."""
        return self.cap is None or not nusd or spent + reserved + nusd <= self.cap
