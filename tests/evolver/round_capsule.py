"""A released capsule of a seed, for rounds on real or fake machines: what it was promoted for is made up, the rest is
as it is here and now."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from devset.splits import load_split
from devset.task import checker_hash
from evolver.capsules import Contents, write_capsule
from evolver.capsules.folder import RELEASE, document, round_settings
from evolver.capsules.machine import images_of
from evolver.config import ModelSpec, Price, RunConfig
from evolver.intervals import wilson
from evolver.records import Release
from evolver.sandboxes import open_backend
from harnesses.capsule import Digests, EvidencePin, ImagePin, PriceList, PricePin, StatedInterval, TaskList, TaskPin
from harnesses.tree import read_tree, seed_path

PRICE = Price(input=0.5, output=2.0)  # of the demonstrator, so that its rounds have a bill
NOTHING = StatedInterval(point=1.0, low=0.3, high=1.0, n=2, method="made up")
FAKE_IMAGE = ImagePin(digest="sha256:fake", deb={}, pip={}, graders={})


def made_capsule(path: Path, seed: str = "beta1", backend: str = "docker", teacher: ModelSpec | None = None) -> Path:
    """Writes the capsule `path`; asks a sandbox of the back end what is installed in it."""
    harness = read_tree(seed_path(seed))

    async def asked() -> tuple[ImagePin, ImagePin]:
        sandboxes = open_backend(backend, spares=0)  # type: ignore[arg-type]
        try:
            return await images_of(harness.environment, sandboxes)
        finally:
            await sandboxes.aclose()

    return write_made_capsule(path, seed, backend, asyncio.run(asked()), teacher)


def write_made_capsule(
    path: Path,
    seed: str,
    backend: str,
    images: tuple[ImagePin, ImagePin] = (FAKE_IMAGE, FAKE_IMAGE),
    teacher: ModelSpec | None = None,
    held_out: Digests | None = None,
) -> Path:
    harness, tasks = read_tree(seed_path(seed)), load_split("select", 2)
    models = {} if teacher is None else {"teacher": teacher}
    config = RunConfig.model_validate({"prices": {"demonstrator": PRICE, "gpt-x": PRICE}, **models})
    pins = [
        TaskPin(
            id=task.id, hash=task.hash, checker=checker_hash(task.check), split=task.split,
            seen_in_training=task.seen_in_training, carried=False, solved=1, scored=1,
        )
        for task in tasks
    ]  # fmt: skip
    evidence = EvidencePin(
        run_id="made-up", decision_id="dec-1", candidate_id="cand-1", incumbent=harness.id, effect=NOTHING,
        p_value=None, success=NOTHING, attempts=1, tokens_per_solved=None, incumbent_tokens_per_solved=None,
    )  # fmt: skip
    settings = round_settings(config, backend)
    prices = {name: PricePin(input=price.input, output=price.output) for name, price in config.prices.items()}
    contents = Contents(
        harness=harness,
        settings=settings,
        config=RunConfig.model_validate({**settings, "prices": config.prices}),
        task_list=TaskList(name="select", tasks=tuple(pins)),
        tasks=tasks,
        prices=PriceList(prices_on="2026-01-01", prices=prices),
        evidence=evidence,
        image=images[0],
        grading=images[1],
        files={},
        held_out=held_out or {},
    )
    capsule = write_capsule(contents, path)
    (path / RELEASE).write_bytes(
        document(
            Release(
                id="rel-1", freeze_id="frz-1", name=path.name, capsule_id=capsule.id, harness_id=harness.id,
                verdict="released", success=wilson(2, 2, "tasks"), expected=wilson(2, 2, "tasks"), n_tasks=2,
                attempts=1, n_unscored=0, reasons=(), tag="made-up", at=time.time(),
            )
        )
    )  # fmt: skip
    return path
