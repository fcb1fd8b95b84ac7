"""Imported pages in real sandboxes: the page's own reward arrives, and nothing but solving it earns one."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from devset.checks.miniwob import verdict
from devset.task import Task
from evolver.imports import offers
from evolver.protocols import Act, Sandbox, Sandboxes
from evolver.rollout import set_up
from evolver.sandboxes import open_backend
from harnesses.harness import Environment
from harnesses.tree import read_tree, seed_path
from tests.devset.small_miniwob import package
from tests.sandboxes.conftest import KINDS, available

pytestmark = [pytest.mark.desktop, pytest.mark.browser]
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
        for keys in ("F12", "ctrl+shift+i", "ctrl+u", "ctrl+s", "ctrl+o", "ctrl+p"):
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
