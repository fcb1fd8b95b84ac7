"""How fast the dashboard is in a real browser over 100,000 rollouts and 500 candidates, on two cores.

Goals: the first paint within 2 s, a change of page within 1 s, no rerun that sends more than 300 kB.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import websockets

from tests.dashboards.chromium import AT_REST, Tab, browser, says
from tests.dashboards.server import dashboard
from tests.dashboards.synthetic import Size, build

SIZE = Size(rollouts=100_000, candidates=500)
FIRST_S, CHANGE_S, MOST_KB = 2.0, 1.0, 300.0
REPEATS = 3
CORES = 2
# Page → words that stand on it and on no other one.
PAGES = {
    "Lineage": "what was tried and refused",
    "Compare": "what did it change",
    "Frontier": "What does a point of success cost",
    "Channels": "where does it type",
    "Rollouts": "What really happened in each attempt",
    "Overview": "Last 10 of 499 decisions",
}


@dataclass(frozen=True)
class Seen:
    """Seconds from asking until a page stood at rest, and the kB that came for it."""

    what: str
    seconds: float
    kb: float

    def __str__(self) -> str:
        return f"{self.what} {self.seconds:.2f} s, {self.kb:.0f} kB"


async def until_at_rest(tab: Tab, words: str) -> None:
    await tab.until(f"{says(words)} && {AT_REST}")


async def visit(tab: Tab, what: str, url: str, words: str) -> Seen:
    """A page that is opened by its address."""
    await tab.call("Page.navigate", url="about:blank")
    before, began = tab.received, time.monotonic()
    await tab.call("Page.navigate", url=url)
    await until_at_rest(tab, words)
    return Seen(what, time.monotonic() - began, (tab.received - before) / 1e3)


async def change(tab: Tab, page: str, words: str) -> Seen:
    """A page that is chosen in the navigation of another."""
    links = "[...document.querySelectorAll('[data-testid=stTopNavLink]')]"
    link = f"{links}.find(a => a.innerText.includes({json.dumps(page)}))"
    await tab.until(f"!!{link}")
    before, began = tab.received, time.monotonic()
    await tab.value(f"{link}.click()")
    await until_at_rest(tab, words)
    return Seen(page, time.monotonic() - began, (tab.received - before) / 1e3)


async def measure(folder: Path) -> tuple[Seen, list[Seen], list[Seen]]:
    """The very first paint of a new server, that of later visitors, and every change of page."""
    with dashboard(str(folder / "run")) as server, browser(folder / "profile") as address:
        async with websockets.connect(address, max_size=2**28) as connection:
            tab = Tab(connection)
            await tab.call("Network.enable")
            first = await visit(tab, "first paint of a new server", server.url, PAGES["Overview"])
            later = [await visit(tab, "first paint", server.url, PAGES["Overview"]) for _ in range(REPEATS)]
            changes = [await change(tab, page, words) for _ in range(REPEATS) for page, words in PAGES.items()]
            replay = f"{server.url}/replay?r=r-{SIZE.rollouts - 7:016x}"
            later += [await visit(tab, "replay", replay, "Turn 1") for _ in range(REPEATS)]
            return first, later, changes


def main() -> int:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "run", SIZE)
        first, later, changes = asyncio.run(measure(Path(folder)))
    paint = sorted((one for one in later if one.what == "first paint"), key=lambda one: one.seconds)[REPEATS // 2]
    slowest = max(changes[len(PAGES) :], key=lambda one: one.seconds)
    largest = max((first, *later, *changes), key=lambda one: one.kb)
    for one in (first, *later, *changes):
        print(f"  {one}")
    met = paint.seconds <= FIRST_S and slowest.seconds <= CHANGE_S and largest.kb <= MOST_KB
    print(
        f"dashboard: {SIZE.rollouts:,} rollouts, {SIZE.candidates} candidates: first paint {paint.seconds:.2f} s (goal "
        f"{FIRST_S:g}), {first.seconds:.2f} s of a new server; slowest change of page {slowest.seconds:.2f} s to "
        f"{slowest.what} (goal {CHANGE_S:g}); largest rerun {largest.kb:.0f} kB (goal {MOST_KB:g}) "
        f"{'goals met' if met else 'short of goal'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
