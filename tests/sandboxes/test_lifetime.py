"""What is left of a container when its run, its owner, its clock or its removal goes wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import APIError

from devset.task import Criterion, Rubric, Task
from evolver.controls import NoopModel
from evolver.errors import SandboxLost
from evolver.protocols import Sandboxes
from evolver.records import Rollout, RolloutKey
from evolver.rollout import Job, run_rollout
from evolver.sandboxes import old_versions, open_backend, reap
from evolver.sandboxes.docker import DockerSandboxes, boot_id, connect, old_images, process_mark, remove_image
from evolver.sandboxes.docker import reap as reap_with
from harnesses.harness import Environment
from harnesses.tree import read_tree, seed_path

pytestmark = pytest.mark.docker
TERMINAL = Environment(image="terminal")


def listed(run_id: str, form: str = "{{.ID}}") -> list[str]:
    argv = ["docker", "ps", "-a", "--format", form, "--filter", f"label=evolver.run={run_id}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


async def play(sandboxes: Sandboxes, run_id: str, setup: str = "") -> tuple[Rollout, bytes | None]:
    """One attempt of a model that ends at once."""
    harness = read_tree(seed_path("beta1")).model_copy(update={"environment": TERMINAL})
    task = Task(
        id="t-1", hash="h", family="f", instruction="Nothing.", category="os", apps=("shell",),
        channels=frozenset({"terminal"}), rubric=Rubric(criteria=(Criterion(id="done", description="done"),)),
        check="print('{}')", exec_files={"kept.txt": b"kept"}, setup=setup,
    )  # fmt: skip
    key = RolloutKey(
        purpose="adhoc", harness_id=harness.id, model_id="noop", task_id="t-1", task_hash="h", split=None, attempt=0,
        seed=0,
    )  # fmt: skip
    job = Job(key=key, rollout_id=f"{run_id}-r1", harness=harness, task=task, model=NoopModel(), run_id=run_id)
    return await run_rollout(job, sandboxes, lambda data: f"{len(data)}")


async def test_s05_a_container_that_dies_is_a_lost_sandbox() -> None:
    backend = open_backend("docker", spares=0)
    box = await backend.open(TERMINAL, run_id="test-dies", ttl_s=60)
    await asyncio.to_thread(subprocess.run, ["docker", "kill", box.id], check=True, capture_output=True)
    with pytest.raises(SandboxLost, match="ended during"):
        await box.bash("true", timeout_s=5)
    await backend.aclose()


async def test_s01_a_closed_back_end_leaves_nothing_spares_included() -> None:
    backend = open_backend("docker", spares=2)
    await backend.open(TERMINAL, run_id="test-left", ttl_s=60)
    deadline = time.monotonic() + 40
    while (found := len(listed("test-left"))) != 3:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)
    await backend.aclose()
    assert listed("test-left") == []


KILLED = """
import asyncio
from evolver.sandboxes import open_backend
from harnesses.harness import Environment
async def main():
    backend = open_backend("docker", spares=0)
    await backend.open(Environment(image="terminal"), run_id="test-killed", ttl_s=300)
    print("open", flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
"""


def test_s02_nothing_outlives_a_killed_runner() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None and runner.stdout.readline() == "open\n"
        runner.send_signal(signal.SIGKILL)
    reap()
    assert listed("test-killed") == []


def test_s02_reap_removes_orphans_and_leaves_the_living() -> None:
    image = asyncio.run(_image())
    names = {
        "evolver.run": "test-orphan",
        "evolver.pid": "4194999:1",
        "evolver.boot": boot_id(),
        "evolver.expiry": "9999999999",
    }
    labels = [part for name, value in names.items() for part in ("--label", f"{name}={value}")]
    argv = ["docker", "run", "-d", "--network", "none", *labels, image, "sleep", "300"]
    subprocess.run(argv, check=True, capture_output=True)
    assert len(listed("test-orphan")) == 1
    assert reap() >= 1
    assert listed("test-orphan") == []


async def test_s10_a_set_up_that_fails_in_the_container_costs_no_turn_and_leaves_no_container() -> None:
    backend = open_backend("docker", spares=0)
    try:
        rollout, state = await play(backend, "test-s10", setup="cat no-such-file")
    finally:
        await backend.aclose()
    assert rollout.error is not None and (rollout.error.kind, rollout.error.blame) == ("setup", "task")
    assert "No such file" in rollout.error.message and not rollout.turns and state is None
    assert listed("test-s10") == []


class Clumsy:
    """The daemon's client, whose first `failures` removals fail."""

    def __init__(self, failures: int) -> None:
        self._client, self.failures, self.tries = connect(), failures, 0
        self.images, self.info, self.api = self._client.images, self._client.info, self

    def __getattr__(self, name: str) -> object:
        return getattr(self._client.api, name)

    def remove_container(self, *args: object, **options: object) -> None:
        self.tries += 1
        if self.tries <= self.failures:
            raise APIError("the device is busy")
        self._client.api.remove_container(*args, **options)


async def test_s08_a_failed_removal_is_reported_and_tried_again_and_the_score_survives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Clumsy(failures=3)
    backend = DockerSandboxes(client, spares=0)  # type: ignore[arg-type]
    rollout, state = await play(backend, "test-s08")
    assert rollout.error is None and rollout.stop_reason == "finished" and state
    assert "was not removed: the device is busy" in caplog.text
    await backend.aclose()
    assert listed("test-s08") == []


async def test_s08_what_can_never_be_removed_is_named_and_ends_no_run(caplog: pytest.LogCaptureFixture) -> None:
    client = Clumsy(failures=10**6)
    backend = DockerSandboxes(client, spares=0)  # type: ignore[arg-type]
    image = await backend.prepare(TERMINAL)
    owner = {"evolver.run": "test-s08b", "evolver.owner": backend.owner}
    held = connect().containers.run(image, ["sleep", "60"], detach=True, network_mode="none", labels=owner)
    try:
        with caplog.at_level(logging.ERROR):
            await backend.aclose()
        assert client.tries and "run `evolver sandbox reap`" in caplog.text
    finally:
        held.remove(force=True)


@pytest.fixture
def sleeping() -> Iterator[dict[str, dict[str, str]]]:
    """Containers that do nothing, by name, with the labels of: a run on this boot, and two of another boot."""
    client, at = connect(), time.time()
    image = asyncio.run(_image())
    mine = {"evolver.boot": boot_id(), "evolver.pid": process_mark(os.getpid())}
    other = {"evolver.boot": "another", "evolver.pid": process_mark(os.getpid())}
    labels = {
        "mine": {**mine, "evolver.expiry": f"{at - 9e6:.0f}"},
        "over": {**other, "evolver.expiry": f"{at - 10:.0f}"},
        "later": {**other, "evolver.expiry": f"{at + 600:.0f}"},
    }
    made = [
        client.containers.run(
            image, ["sleep", "300"], detach=True, network_mode="none", name=f"test-s09-{name}",
            labels={"evolver.run": "test-s09", **own},
        )
        for name, own in labels.items()
    ]  # fmt: skip
    yield labels
    for container in made:
        try:
            container.remove(force=True)
        except docker.errors.NotFound:
            continue


def test_s09_the_wall_clock_ends_nothing_whose_owner_lives_on_this_boot(sleeping: dict[str, dict[str, str]]) -> None:
    """A laptop that slept: by the wall clock the machine is long over, by the clock that counts it is not."""
    reap()
    assert sorted(listed("test-s09", "{{.Names}}")) == ["test-s09-later", "test-s09-mine"]
    reap_with(connect(), now=time.time() + 1_000)
    assert listed("test-s09", "{{.Names}}") == ["test-s09-mine"]


async def test_s09_a_live_machine_outlives_a_clock_that_jumps_ahead() -> None:
    backend = open_backend("docker", spares=0)
    try:
        box = await backend.open(TERMINAL, run_id="test-jump", ttl_s=60)
        reap_with(connect(), now=time.time() + 1e9)
        assert (await box.bash("echo alive", timeout_s=5)).output == "alive\n"
    finally:
        await backend.aclose()


async def test_a_machine_is_named_after_its_rollout_a_spare_too() -> None:
    backend = open_backend("docker", spares=1)
    try:
        for number in range(2):  # the second one takes the spare, if it is there by now
            await backend.open(TERMINAL, run_id="test-name", ttl_s=60, rollout_id=f"named-{number}")
            for _ in range(200):
                if len(listed("test-name")) == number + 2:
                    break
                await asyncio.sleep(0.05)
        assert {"evolver-named-0", "evolver-named-1"} <= set(listed("test-name", "{{.Names}}"))
    finally:
        await backend.aclose()


INTERRUPTED = """
import asyncio, sys
from evolver.sandboxes import open_backend
from harnesses.harness import Environment
async def main():
    backend = open_backend("docker", spares=1)
    try:
        box = await backend.open(Environment(image="terminal"), run_id="test-ctrl-c", ttl_s=300)
        print("open", flush=True)
        await box.bash("sleep 300", timeout_s=300)
    finally:
        await backend.aclose()
asyncio.run(main())
"""


def networks() -> str:
    return subprocess.run(["docker", "network", "ls", "-q"], capture_output=True, text=True, check=True).stdout


async def test_e40_no_sandbox_needs_a_network_of_docker_s_not_even_with_an_allow_list() -> None:
    before, backend = networks(), open_backend("docker", spares=0)
    try:
        for environment in (TERMINAL, Environment(image="terminal", network="allowlist", allowlist=("shop.test",))):
            box = await backend.open(environment, run_id="test-e40", ttl_s=60)
            mode = connect().api.inspect_container(box.id)["HostConfig"]["NetworkMode"]
            assert mode == "none" and networks() == before
    finally:
        await backend.aclose()
    assert networks() == before


def test_s01_ctrl_c_leaves_no_container_no_network_and_no_file(tmp_path: Path) -> None:
    before = networks()
    env = os.environ | {"TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as runner:
        assert runner.stdout is not None and runner.stdout.readline() == "open\n"
        time.sleep(0.3)
        runner.send_signal(signal.SIGINT)
        assert runner.wait(30)
    assert listed("test-ctrl-c") == [] and networks() == before and not list(tmp_path.iterdir())


def test_images_of_other_versions_are_named_and_removed_only_when_told_so() -> None:
    client = connect()
    image = client.images.get(asyncio.run(_image()))
    name = "evolver/base:0000000000000000"
    image.tag(*name.split(":"))
    try:
        assert name in old_images(client) and image.tags[0] not in old_images(client)
        assert name in old_versions()
        assert client.images.get(name)
    finally:
        assert remove_image(client, name) == ""
    assert name not in old_images(client) and remove_image(client, name)


async def _image() -> str:
    backend = open_backend("docker", spares=0)
    try:
        return await backend.prepare(TERMINAL)
    finally:
        await backend.aclose()
