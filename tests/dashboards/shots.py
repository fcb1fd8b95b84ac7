"""Takes pictures of the dashboard over a run: `python -m tests.dashboards.shots RUN --out FOLDER`.

The README's two are made with `python -m tests.dashboards.shots RUN --out docs/figures --pages overview replay`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from itertools import product
from pathlib import Path

import websockets

from dashboards.frames import click_points, seen_by
from dashboards.queries import open_run
from tests.dashboards.chromium import AT_REST, Tab, browser
from tests.dashboards.server import dashboard

PAGES = (
    "overview",
    "lineage",
    "compare",
    "frontier",
    "channels",
    "gap",
    "rollouts",
    "replay",
    "rounds",
    "propose",
    "freeze",
)
LOADING = "document.querySelector('[data-testid=stSkeleton]')"
SETTLE_S = 1.2  # Plotly draws, fonts load


def address(run: Path, page: str) -> str:
    """The page's address (the first one has none); of a replay that of the longest attempt that solved its task, at its
    last click on a screenshot if it is one that clicks."""
    if page != "replay":
        return "" if page == "overview" else page
    found = open_run(run)
    solved = found.page(1, {"outcome": "solved"}, 200) or found.page(1)
    solved.sort(key=lambda row: (row.channel in ("gui", "both"), row.turns or 0), reverse=True)
    for row in solved:
        rollout = found.rollout(row.id)
        for step in reversed(range(len(rollout.turns) if rollout else 0)):
            image = seen_by(rollout, step)
            if image is not None and click_points(rollout.turns[step].completion.calls, (image.width, image.height)):
                return f"replay?r={row.id}&step={step + 1}"
    return f"replay?r={solved[0].id}" if solved else page


async def look(tab: Tab, *, width: int, height: int, dark: bool) -> None:
    """The window's size and the reader's theme."""
    await tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    await tab.call("Emulation.setEmulatedMedia", features=[scheme])


async def shoot(asked: argparse.Namespace) -> None:
    asked.out.mkdir(parents=True, exist_ok=True)
    several = len(asked.themes) * len(asked.widths) > 1
    with (
        tempfile.TemporaryDirectory() as folder,
        dashboard(str(asked.run)) as server,
        browser(Path(folder) / "profile") as driven,
    ):
        async with websockets.connect(driven, max_size=2**28) as connection:
            tab = Tab(connection)
            for theme, width, page in product(asked.themes, asked.widths, asked.pages):
                await look(tab, width=width, height=asked.height, dark=theme == "dark")
                await tab.call("Page.navigate", url="about:blank")
                await tab.call("Page.navigate", url=f"{server.url}/{address(asked.run, page)}")
                await tab.until(f"document.querySelector('h1,h2,h3,.stAlert') && {AT_REST} && !{LOADING}")
                await asyncio.sleep(SETTLE_S)
                name = f"{page}-{theme}-{width}" if several else f"dashboard-{page}"
                await tab.picture(asked.out / f"{name}.png")
                print(asked.out / f"{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pages", nargs="+", default=PAGES, choices=PAGES)
    parser.add_argument("--themes", nargs="+", default=["light"], choices=("light", "dark"))
    parser.add_argument("--widths", nargs="+", type=int, default=[1440])
    parser.add_argument("--height", type=int, default=1000)
    asyncio.run(shoot(parser.parse_args()))


if __name__ == "__main__":
    main()
