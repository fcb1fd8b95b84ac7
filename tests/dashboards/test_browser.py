"""What only a browser shows: the first deep link after a start, a click on the tree, the way back from a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.records import Rollout
from evolver.store import Store
from tests.dashboards.paired_run import Way, make, outcomes, play
from tests.dashboards.server import dashboard

websockets = pytest.importorskip("websockets", reason="websockets is not installed")
from tests.dashboards.chromium import AT_REST, Tab, browser, says  # noqa: E402

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
            # The list page and its filter survive a look at a replay.
            await page.call("Page.navigate", url=f"{server.url}/rollouts?r_outcome=solved&r_page=2")
            await page.until(says("page 2 of 2"))
            await page.call("Page.navigate", url=f"{server.url}/replay?r=r-0000000000000010&step=2")
            await page.until(says("compute the total"))
            await page.value("history.back()")
            await page.until(says("page 2 of 2"))
            assert await page.value("new URLSearchParams(location.search).get('r_outcome')") == "solved"


FRAME = "document.querySelector('[data-testid=stImage] img')"
PAGE = "document.querySelector('[data-testid=stMainBlockContainer]')"


async def test_u41_keys_step_through_frames_in_full_width_that_are_never_cropped(
    whole_run: Path, tmp_path: Path
) -> None:
    with dashboard(str(whole_run)) as server, browser(tmp_path / "profile") as address:
        async with websockets.connect(address, max_size=2**26) as connection:
            page = Tab(connection)
            await page.call("Page.navigate", url=f"{server.url}/replay?r=r-0000000000000010&step=1&wide=true")
            await page.until(f"{says('Turn 1')} && {AT_REST} && {FRAME}?.naturalWidth > 0")
            for key, turn in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
                await page.press(key)
                await page.until(f"{says(f'Turn {turn}')} && {AT_REST} && {FRAME}?.complete")
                assert await page.value(f"{FRAME}.clientWidth > 0.85 * {PAGE}.clientWidth")
                shape = "{0}.{1}Width / {0}.{1}Height"
                ratios = [await page.value(shape.format(FRAME, which)) for which in ("natural", "client")]
                assert ratios[0] == pytest.approx(16 / 9, rel=0.01) == ratios[1]
                assert await page.value(f"getComputedStyle({FRAME}).objectFit") not in ("cover", "none")
            for key, number in (("j", 15), ("k", 16)):
                await page.press(key)
                await page.until(f"{says(f'r-{number:016x} ·')} && {says('Turn 1')} && {AT_REST}")


async def test_u16_what_is_written_meanwhile_waits_until_the_reader_asks(run_copy: Path, tmp_path: Path) -> None:
    with dashboard(str(run_copy)) as server, browser(tmp_path / "profile") as address:
        async with websockets.connect(address, max_size=2**26) as connection:
            page = Tab(connection)
            await page.call("Page.navigate", url=f"{server.url}/rollouts?r_page=2")
            await page.until(f"{says('120 of 120 rollouts · page 2 of 3')} && {AT_REST}")
            store = Store.open(run_copy)
            store.append(store.all(Rollout)[3].model_copy(update={"id": "r-fresh"}))
            await page.until(says("new records"))
            assert await page.value(says("120 of 120 rollouts · page 2 of 3")), (
                "the list is not redrawn under the reader"
            )
            button = "[...document.querySelectorAll('button')].find(b => b.innerText.includes('new records'))"
            await page.value(f"{button}.click()")
            await page.until(says("121 of 121 rollouts · page 2 of 3"))


async def test_u32_the_cells_of_a_comparison_are_addresses_that_open_their_rollouts(tmp_path: Path) -> None:
    store, ids = make(tmp_path / "runs" / "one", "alpha", "beta1")
    play(store, ids["alpha"], outcomes(2, 8))
    play(store, ids["beta1"], outcomes(5, 8), Way(tokens=300))
    with dashboard(str(tmp_path / "runs")) as server, browser(tmp_path / "profile") as address:
        async with websockets.connect(address, max_size=2**26) as connection:
            page = Tab(connection)
            await page.call("Page.navigate", url=f"{server.url}/compare?base=alpha&cand=beta1")
            link = "document.querySelector(\"a[href*='pairs=only_b']\")"
            assert await page.until(f"{link}?.innerText") == "3 only B solves it"
            await page.call("Page.navigate", url=str(await page.value(f"{link}.href")))
            await page.until(f"{says('3 of 16 rollouts')} && {says('only B solves it')}")
            # A row of that list leads to the replay of B's attempt, and A's is the one named beside it.
            b, a = (f"r-{ids[name][-6:]}-demonstrator-race-task-003-0" for name in ("beta1", "alpha"))
            await page.call("Page.navigate", url=f"{server.url}/replay?r={b}&beside={a}")
            await page.until(f"document.querySelector('[data-testid=stSelectbox] input')?.value.includes('{a}')")
