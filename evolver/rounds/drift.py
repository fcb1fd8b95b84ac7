"""Whether an instrument has drifted: a test that may be looked at after every observation, with a bounded chance that a
whole round without drift raises any alarm.

The statistic is the mean of one CUSUM of e-values for each alternative share q: the betting martingale
prod((q/p)^x ((1-q)/(1-p))^(1-x)) (Waudby-Smith and Ramdas 2024, https://doi.org/10.1093/jrsssb/qkad009), restarted
whenever it falls below 1 so that a late change is seen as fast as an early one. That mean is at most the sum, over all
looks, of the mean martingale that starts there; this sum grows by 1 a look on average, so over `looks` looks it reaches
c with a chance of at most looks/c (Doob's inequality): with c = looks / level it is at most `level`.
"""

from __future__ import annotations

import functools
import math

from evolver.records import Finite, Record

FACTORS = (1.25, 1.5, 2.0, 4.0, 8.0, 32.0)  # alternatives, as multiples of the expected odds
BOUND_LEVEL = 0.001  # with which the first looks bound what is to be expected
LEAST = 1e-4


class Tally(Record):
    """Looks so far, and how many of them were off."""

    seen: int = 0
    off: int = 0

    def more(self, seen: int, off: int) -> Tally:
        return Tally(seen=self.seen + seen, off=self.off + off)


class Settings(Record):
    """A chart's: looks are off with a chance of `expected` (0..1) at most while nothing has drifted, or of what the
    first `burn_in` of them bound it at, if that is more. `looks` is how often it will be told at most."""

    expected: Finite
    looks: int
    burn_in: int = 0
    level: Finite = 0.005


class Chart(Record):
    """One instrument as far as it was looked at; every look makes the next chart.

    `first` are the looks that set it up, `later` those that it judges. Of each alternative, `logs` is the logarithm of
    its martingale and `starts` the mark that was given when that was last (re)started.
    """

    settings: Settings
    first: Tally = Tally()
    later: Tally = Tally()
    logs: tuple[Finite, ...] = (0.0,) * len(FACTORS)
    starts: tuple[int, ...] = (0,) * len(FACTORS)
    highest: Finite = 0.0

    @property
    def good(self) -> int:
        """The mark at which there was last no sign of a drift: the start of the alternative that tells most."""
        return self.starts[self.logs.index(max(self.logs))]

    @property
    def expected(self) -> float:
        """The share of looks that may be off; 1.0 when every one of the first was, which nothing can exceed."""
        shown = upper_share(self.first.off, self.first.seen) if self.first.seen else 0.0
        return max(self.settings.expected, shown, LEAST)

    @property
    def ready(self) -> bool:
        return self.first.seen >= self.settings.burn_in

    @property
    def statistic(self) -> float:
        """Logarithm of the mean over the alternatives."""
        return _mean_log(self.logs)

    @property
    def threshold(self) -> float:
        """What the statistic has to reach for an alarm."""
        return math.log(max(1, self.settings.looks) / self.settings.level)

    @property
    def alarm(self) -> bool:
        return self.highest >= self.threshold

    def looked(self, seen: int, off: int, mark: int) -> Chart:
        """After `seen` more looks, `off` of which were; `mark` says when that was, in whatever the caller counts."""
        if not self.ready:
            return self.model_copy(update={"first": self.first.more(seen, off), "starts": (mark,) * len(FACTORS)})
        expected, logs = self.expected, []
        for log, factor in zip(self.logs, FACTORS, strict=True):
            # q = factor * p / scale, with odds factor times those of p; written so that p may be 1
            scale = 1 - expected + factor * expected
            logs.append(max(log, 0.0) + off * math.log(factor) - seen * math.log(scale))
        starts = tuple(mark if log <= 0 else start for log, start in zip(logs, self.starts, strict=True))
        highest = max(self.highest, _mean_log(logs))
        later = self.later.more(seen, off)
        return self.model_copy(update={"later": later, "logs": tuple(logs), "starts": starts, "highest": highest})


@functools.cache
def upper_share(hits: int, n: int, level: float = BOUND_LEVEL) -> float:
    """The upper Clopper-Pearson bound of a share, 0..1."""
    if hits >= n:
        return 1.0
    from scipy.stats import beta

    return float(beta.ppf(1 - level, hits + 1, n - hits))


def _mean_log(logs: tuple[float, ...] | list[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(one - top) for one in logs) / len(logs))
