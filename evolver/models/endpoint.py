"""Manners towards an endpoint: one limiter for all of its callers, and how long to wait before trying again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from weakref import WeakKeyDictionary

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 20.0
QUIET_S, APART_S = 5.0, 30.0  # a call without success for so long is told of, an endpoint's once in so long

log = logging.getLogger(__name__)


class Limiter:
    """At most `concurrency` callers at once, and no call before the time that the endpoint asked for (`hold`).

    A caller keeps its slot while it waits to try again: an endpoint in trouble gets fewer calls, not more.
    `answered` says whether the endpoint ever did, whatever it said; `throttled` counts the calls that it turned away as
    too many.
    """

    def __init__(self, concurrency: int) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._not_before = 0.0
        self._door = asyncio.Lock()
        self.answered = False
        self.throttled = 0
        self._told = float("-inf")

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        async with self._slots:
            yield

    async def ready(self) -> None:
        """Waits until calls are welcome again, and a little longer so that not all come at once."""
        if wait := self.held_s:
            await asyncio.sleep(wait + random.uniform(0.0, 0.5))
        # Through the door one by one: a hundred calls that begin together would all be sent when the last one is ready.
        async with self._door:
            await asyncio.sleep(0)

    @property
    def held_s(self) -> float:
        """For how much longer the endpoint wants to be left alone."""
        return max(0.0, self._not_before - time.monotonic())

    def hold(self, seconds: float) -> None:
        """Makes every caller wait: the endpoint said that it is too busy for this long."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def warn(self, what: str, seconds: float) -> None:
        """Says what is wrong with a call that has been tried for so long: who waits should know what for."""
        now = time.monotonic()
        if seconds >= QUIET_S and now >= self._told + APART_S:
            self._told = now
            log.warning("%s; trying again for %.0f s now", what, seconds)


_limiters: WeakKeyDictionary[AbstractEventLoop, dict[str, Limiter]] = WeakKeyDictionary()


def limiter_for(url: str, concurrency: int) -> Limiter:
    """The one limiter of an endpoint in this event loop; the first caller's `concurrency` holds."""
    of_loop = _limiters.setdefault(asyncio.get_running_loop(), {})
    return of_loop.setdefault(url, Limiter(concurrency))


def asked_delay_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` (or `retry-after-ms`) asks for; None when it is absent or makes no sense."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * scale)
        except (KeyError, ValueError):
            continue
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError, TypeError):
        return None


def delay_s(attempt: int, asked: float | None) -> float:
    """Wait before the next try: what was asked for, and on top a jitter that grows with the number of tries."""
    ceiling: float = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**attempt)
    return (asked or 0.0) + random.uniform(0.1, 1.0) * ceiling
