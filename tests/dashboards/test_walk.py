"""Every page in a real browser over the records of a real loop, by keyboard too, in both themes; and both actions."""

from __future__ import annotations

import base64
import io
import json
import re
import stat
import zipfile
from pathlib import Path

import pytest
from PIL import Image as Picture

from evolver.records import Candidate
from evolver.store import Store
from harnesses.library import Library
from tests.dashboards.looped_run import looped
from tests.dashboards.server import dashboard
from tests.dashboards.test_looks import contrast

websockets = pytest.importorskip("websockets", reason="websockets is not installed")
from tests.dashboards.chromium import AT_REST, Tab, browser, says  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Page → words that stand on it and on no other one.
PAGES = {
    "": "The incumbent, by tokens spent",
    "lineage": "what was tried and refused",
    "compare": "what did it change",
    "frontier": "What does a point of success cost",
    "channels": "where does it type",
    "gap": "Does the better teacher make the better student",
    "rollouts": "What really happened in each attempt",
    "rounds": "what has it produced",
    "propose": "What should be tried next",
    "freeze": "What should a generation round be played with",
}
LOADING = "document.querySelector('[data-testid=stSkeleton]')"
BROKEN = "document.querySelector('[data-testid=stException], [data-testid=stAlertContentError]')"
# Words in the colour that they have, on the nearest ground that is painted; faint ones only because they can't be used.
PALE = """
(() => {
  const opaque = c => { const p = c.match(/[\\d.]+/g).map(Number); return p.length < 4 || p[3] >= 0.99 };
  const up = (e, found) => { for (; e; e = e.parentElement) found(getComputedStyle(e)) };
  const ground = e => {
    const seen = [];
    up(e, style => seen.push(style.backgroundColor));
    return seen.find(opaque) ?? getComputedStyle(document.querySelector('.stApp')).backgroundColor;
  };
  const faint = e => { let share = 1; up(e, style => { share *= Number(style.opacity) }); return share };
  const ink = e => e.tagName === 'text' ? getComputedStyle(e).fill : getComputedStyle(e).color;
  const words = ['p', 'h2', 'h3', 'li', 'text', 'code'].map(kind => `.stMain ${kind}`).join(', ');
  return JSON.stringify([...document.querySelectorAll(words)]
    .filter(e => e.textContent.trim() && e.getClientRects().length)
    .filter(e => !e.closest('[disabled], [aria-disabled=true], .modebar'))
    .map(e => [ink(e), ground(e), faint(e), e.textContent.slice(0, 40)]));
})()
"""


def blended(text: str, ground: str, opacity: float) -> tuple[str, str]:
    """Two colours of the browser as hex; the text as it looks through its own and its parents' opacity."""
    front, back = ([float(v) for v in re.findall(r"[\d.]+", colour)] for colour in (text, ground))
    share = opacity * (front[3] if len(front) > 3 else 1.0)
    mixed = [round(share * f + (1 - share) * b) for f, b in zip(front[:3], back[:3], strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed), "#{:02x}{:02x}{:02x}".format(*(round(b) for b in back[:3]))


async def goto(tab: Tab, url: str, words: str) -> None:
    await tab.call("Page.navigate", url="about:blank")
    await tab.call("Page.navigate", url=url)
    await tab.until(f"{says(words)} && {AT_REST}")
    assert not await tab.value(f"{BROKEN}?.innerText"), url


async def follow(tab: Tab, page: str, words: str) -> None:
    """A page by its link in the navigation, with its charts drawn."""
    links = "[...document.querySelectorAll('[data-testid=stTopNavLink]')]"
    await tab.value(f"{links}.find(a => new URL(a.href).pathname === '/{page}').click()")
    await tab.until(f"{says(words)} && {AT_REST} && !{LOADING}")
    assert not await tab.value(f"{BROKEN}?.innerText"), page


async def typed(tab: Tab, label: str, text: str, key: str = "Tab") -> None:
    """Text into the field with this label, as from a keyboard, and the key that ends it."""
    field = f"document.querySelector('[aria-label={json.dumps(label)}]')"
    await tab.until(f"!!{field}")
    await tab.value(f"{field}.focus(); {field}.select()")
    await tab.call("Input.insertText", text=text)
    await tab.press(key)
    await tab.until(AT_REST)


async def pressed(tab: Tab, words: str) -> None:
    """The button with these words, found and pressed as a keyboard does it."""
    button = f"[...document.querySelectorAll('.stMain button')].find(b => b.innerText.includes({json.dumps(words)}))"
    await tab.until(f"!!{button} && !{button}.disabled")
    await tab.value(f"{button}.focus()")
    await tab.press("Enter")


async def test_every_page_and_both_actions(tmp_path: Path) -> None:
    run = await looped(tmp_path / "runs" / "looped")
    with dashboard(str(run)) as server, browser(tmp_path / "profile") as address:
        async with websockets.connect(address, max_size=2**28) as connection:
            tab = Tab(connection)
            await every_page_can_be_read_in_both_themes(tab, server.url)
            await the_navigation_is_walked_by_keyboard(tab, server.url)
            await a_candidate_is_edited_checked_and_queued(tab, server.url, run)
            await a_folder_that_leads_out_is_refused(tab, server.url, tmp_path)
            await a_promoted_harness_is_frozen_by_a_process_of_its_own(tab, server.url, run)


async def every_page_can_be_read_in_both_themes(tab: Tab, url: str) -> None:
    """U37 on what the browser really shows: each word against the ground that it stands on."""
    for scheme, width in (("light", 1280), ("dark", 1920)):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await tab.call("Emulation.setEmulatedMedia", features=[feature])
        await tab.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=1080, deviceScaleFactor=1, mobile=False
        )
        await goto(tab, url, PAGES[""])
        for page, words in PAGES.items():
            await follow(tab, page, words)
            for text, ground, opacity, said in json.loads(str(await tab.value(PALE))):
                ink, paper = blended(text, ground, opacity)
                assert contrast(ink, paper) >= 4.5, f"{page or 'overview'}, {scheme}: {said!r} {ink} on {paper}"
            assert await tab.value("document.documentElement.scrollWidth <= window.innerWidth"), f"{page}: too wide"
            shot = base64.b64decode(str((await tab.call("Page.captureScreenshot", format="png"))["data"]))
            assert Picture.open(io.BytesIO(shot)).size == (width, 1080)


async def the_navigation_is_walked_by_keyboard(tab: Tab, url: str) -> None:
    await goto(tab, url, PAGES[""])
    focus = "document.activeElement?.innerText ?? ''"
    for _ in range(12):
        await tab.press("Tab")
        if "Lineage" in str(await tab.value(focus)):
            break
    await tab.press("Enter")
    await tab.until(f"{says(PAGES['lineage'])} && location.pathname === '/lineage'")


async def a_candidate_is_edited_checked_and_queued(tab: Tab, url: str, run: Path) -> None:
    await goto(tab, f"{url}/propose", PAGES["propose"])
    await typed(tab, "environment.toml", 'image = "nowhere"\npip = []\n')
    await tab.until(says("expected one of"))
    await tab.until(says("environment.toml must be mended first"))
    await tab.until(says("the files are no harness yet"))
    await typed(tab, "environment.toml", 'image = "desktop"\npip = ["openpyxl"]\n')
    await tab.until(says("environment.pip"))
    await tab.until(says("no reason is given"))
    await typed(tab, "name", "fewer packages")
    await typed(tab, "why it should be better (needed)", "two packages are never used")
    await pressed(tab, "Queue as a candidate")
    await tab.until(says("waits. It is raced when the run goes on"))
    made = Store.open(run).all(Candidate)[-1]
    assert (made.name, made.author, made.manifest.why) == ("fewer-packages", "human", "two packages are never used")
    library = Library(run / "library")
    assert library.parents_of(made.harness_id) == made.parents and made.components == ("E",)
    library.close()


async def a_folder_that_leads_out_is_refused(tab: Tab, url: str, tmp_path: Path) -> None:
    """Uploads are checked on the server: here a zip with a symbolic link, then a directory that lacks files."""
    await goto(tab, f"{url}/propose", PAGES["propose"])
    await pressed(tab, "upload a zip")
    await upload(tab, "a zip of a harness directory", linked_zip(tmp_path / "linked.zip"))
    await tab.until(says("files/passwd: expected a plain file, got a symbolic link"))
    await pressed(tab, "upload a directory")
    folder = tmp_path / "my-harness"
    (folder / "prompt").mkdir(parents=True)
    (folder / "prompt" / "system.md").write_text("You work on a desktop.\n")
    await upload(tab, "a harness directory", folder)
    await tab.until(says("missing; every harness has one"))
    await tab.until(says("the files are no harness yet"))


async def upload(tab: Tab, label: str, path: Path) -> None:
    named = f"document.querySelector('[data-testid=stFileUploader] label')?.innerText.trim() === {json.dumps(label)}"
    await tab.until(f"{named} && {AT_REST}")
    field = "document.querySelector('[data-testid=stFileUploader] input[type=file]')"
    handle = (await tab.call("Runtime.evaluate", expression=field))["result"]["objectId"]
    await tab.call("DOM.setFileInputFiles", files=[str(path)], objectId=handle)


def linked_zip(path: Path) -> Path:
    link = zipfile.ZipInfo("files/passwd")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(link, "/etc/passwd")
    return path


async def a_promoted_harness_is_frozen_by_a_process_of_its_own(tab: Tab, url: str, run: Path) -> None:
    await goto(tab, f"{url}/freeze", PAGES["freeze"])
    short = str(await tab.until("document.body.innerText.match(/type (\\w{8}) to confirm/)?.[1]"))
    await typed(tab, "name of the capsule", "from-the-page")
    await tab.until(says(f"the confirmation is not {short}"))
    await typed(tab, f"type {short} to confirm", short)
    await pressed(tab, "Freeze")
    await tab.until(says("$ evolver freeze"))
    said = (run / "freeze-from-the-page.log").read_text()
    assert said.startswith(f"$ evolver freeze {run} {short}") and "--name from-the-page" in said
    await tab.until(says("from-the-page · done") + " || " + says("from-the-page · ended with exit code"))
