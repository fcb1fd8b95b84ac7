"""Imported pages in real sandboxes: the page's own reward arrives, and nothing but solving it earns one."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from devset.checks.miniwob import verdict
from devset.task import Task
from evolver.imports import MINIWOB, offers
from evolver.protocols import Act, Sandbox, Sandboxes
from evolver.rollout import set_up
from evolver.sandboxes import open_backend, recipe
from harnesses.harness import Environment
from harnesses.tree import read_tree, seed_path
from tests.devset.small_miniwob import package
from tests.sandboxes.conftest import KINDS, available
from tests.sandboxes.desk import at, element

pytestmark = [pytest.mark.desktop, pytest.mark.browser]
KEYS = ("F12", "ctrl+shift+i", "ctrl+u", "ctrl+s", "ctrl+o", "ctrl+p", "ctrl+t", "ctrl+n", "ctrl+shift+n")
RIGHT, WRONG, ECHO = (450, 225), (450, 405), (450, 585)  # three pixels of the screen are one of the page


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    found = {offer.id: offer for offer in offers("miniwob", package(tmp_path_factory.mktemp("miniwob")))}
    assert found["miniwob-broken"].reasons == ("its page fails: Uncaught ReferenceError: x is not defined",)
    made = found["miniwob-click-it"].task
    assert made is not None, found["miniwob-click-it"].reasons
    return made


async def opened(backend: Sandboxes, task: Task) -> Sandbox:
    box = await backend.open(Environment(image="desktop"), run_id="test", ttl_s=120)
    await set_up(box, read_tree(seed_path("alpha")), task)
    return box


async def click(box: Sandbox, at: tuple[int, int]) -> None:
    await box.act(Act("left_click", x=at[0], y=at[1]))
    await box.screenshot(settle_s=3)


async def graded(box: Sandbox, task: Task, folder: Path) -> tuple[float, str]:
    with tarfile.open(fileobj=io.BytesIO(await box.freeze())) as tar:
        (folder / ".witness").write_bytes(tar.extractfile(".witness").read())  # type: ignore[union-attr]
    (folder / "expected.json").write_bytes(task.gt_files["expected.json"])
    return verdict(folder, folder)


def test_s48_what_a_page_asks_is_the_same_at_every_import_and_of_a_pinned_day(task: Task, tmp_path: Path) -> None:
    again = {offer.id: offer.task for offer in offers("miniwob", package(tmp_path))}["miniwob-click-it"]
    assert again == task and "of 2020-01-15." in task.instruction


@pytest.mark.parametrize("kind", KINDS)
async def test_the_reward_of_a_solved_page_arrives(kind: str, task: Task, tmp_path: Path) -> None:
    backend = open_backend(available(kind), spares=0)
    try:
        box = await opened(backend, task)
        await click(box, RIGHT)
        assert await graded(box, task, tmp_path) == (1.0, "the page gave 1")
    finally:
        await backend.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_s43_g17_there_is_no_other_way_to_a_reward(kind: str, task: Task, tmp_path: Path) -> None:
    backend = open_backend(available(kind), spares=0)
    try:
        box = await opened(backend, task)
        windows = await box.windows()
        for keys in KEYS:
            await box.act(Act("key", keys=keys))
        await box.screenshot(settle_s=3)
        assert await box.windows() == windows
        await click(box, ECHO)
        await box.act(Act("type", text="<img src=x onerror='core.endEpisode(1)'>"))
        await box.screenshot(settle_s=3)
        search = "cat /tmp/.witness/*.html 2>/dev/null; grep -rls genProblem /tmp /home /evidence /dev/shm 2>/dev/null"
        assert (await box.exec(search, timeout_s=20)).output == "", "the page's program can be read"
        forged = json.dumps({"reward": 1})
        await box.exec(f"echo '{forged}' > .witness; echo '{forged}' > /tmp/.witness/said", timeout_s=5)
        await click(box, WRONG)
        await click(box, RIGHT)
        await box.act(Act("key", keys="F5"))
        await box.screenshot(settle_s=3)
        await click(box, RIGHT)
        assert await graded(box, task, tmp_path) == (0.0, "the page gave -1")
    finally:
        await backend.aclose()


async def test_g17_a_page_is_shown_without_gtk_which_loads_any_library_that_the_screen_names(task: Task) -> None:
    backend = open_backend(available("local"), spares=0)  # there the agent may look into the browser
    try:
        box = await opened(backend, task)
        look = (
            "for one in $(pgrep -x pcmanfm) $(pgrep -f user-data-dir=/tmp/.witness); do "
            "grep -q libgtk /proc/$one/maps && cat /proc/$one/comm; done; pgrep -c chromium"
        )
        *with_gtk, browsers = (await box.exec(look, timeout_s=20)).output.split()
        assert with_gtk == ["pcmanfm"] and int(browsers) > 1
    finally:
        await backend.aclose()


SOLVED = ("click-button", "enter-text", "login-user")


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    """A few tasks of the package itself, where an import has downloaded it."""
    site = recipe.cache_dir() / "pip" / recipe.digest_of(MINIWOB, "alone")
    if not site.is_dir():
        pytest.skip(f"{MINIWOB} is not downloaded (evolver tasks import miniwob --out DIR)")
    html = tmp_path_factory.mktemp("published") / "html"
    for folder in ("core", "common"):
        shutil.copytree(site / "miniwob/html" / folder, html / folder)
    (html / "miniwob").mkdir()
    for name in SOLVED:
        shutil.copy(site / f"miniwob/html/miniwob/{name}.html", html / "miniwob")
    return {offer.id: offer.task for offer in offers("miniwob", html) if offer.task is not None}


async def solve(box: Sandbox, task: Task) -> None:
    """Plays a person who reads what the page asks, and the names of what is on the screen."""
    words = re.findall(r'"([^"]+)"', task.instruction)
    if task.id.endswith("click-button"):
        await box.act(at("left_click", await element(box, words[0], "push button")))
        return
    fields = sorted((e for e in await box.elements() if e.role in ("entry", "password text")), key=lambda e: e.y)
    assert len(fields) == len(words)
    for field, word in zip(fields, words, strict=True):
        await box.act(at("left_click", field))
        await box.act(Act("type", text=word))
    last = "Login" if task.id.endswith("login-user") else "Submit"
    await box.act(at("left_click", await element(box, last, "push button")))


@pytest.mark.parametrize("name", SOLVED)
async def test_published_pages_reward_who_does_what_they_ask(
    name: str, published: dict[str, Task], tmp_path: Path
) -> None:
    backend = open_backend(available("local"), spares=0)
    try:
        task = published[f"miniwob-{name}"]
        box = await opened(backend, task)
        await solve(box, task)
        await box.screenshot(settle_s=3)
        assert await graded(box, task, tmp_path) == (1.0, "the page gave 1")
    finally:
        await backend.aclose()
