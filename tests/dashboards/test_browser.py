"""What only a browser shows: the first deep link after a start, a click on the tree, the way back from a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboards.server import dashboard

websockets = pytest.importorskip("websockets", reason="websockets is not installed")
from tests.dashboards.chromium import Tab, browser, says  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.slow]


async def test_u15_deep_link_click_and_way_back(whole_run: Path, tmp_path: Path) -> None:
    with dashboard(str(whole_run)) as server, browser(tmp_path / "profile") as address:
        async with websockets.connect(address, max_size=2**26) as connection:
            page = Tab(connection)
            # The very first request of a new server is a deep link, and it opens inside the frame.
            await page.call("Page.navigate", url=f"{server.url}/lineage?h=wide")
            await page.until(says("wide should need fewer turns"))
            await page.until(says("slip rate 0.05"))
            # A click on a mark of the tree opens that candidate and lands in the address.
            await page.until(
                "document.querySelectorAll('.js-plotly-plot .scatterlayer .trace .points path').length > 4"
            )
            await page.click(".js-plotly-plot .scatterlayer .trace:nth-last-child(3) .points path")
            await page.until("new URLSearchParams(location.search).get('h') === 'beta2'")
            await page.until(says("beta2 should need fewer turns"))
            # U15: the list page and its filter survive a look at a replay.
            await page.call("Page.navigate", url=f"{server.url}/rollouts?r_outcome=solved&r_page=2")
            await page.until(says("page 2 of 2"))
            await page.call("Page.navigate", url=f"{server.url}/replay?r=r-0000000000000010&step=2")
            await page.until(says("compute the total"))
            await page.value("history.back()")
            await page.until(says("page 2 of 2"))
            assert await page.value("new URLSearchParams(location.search).get('r_outcome')") == "solved"
