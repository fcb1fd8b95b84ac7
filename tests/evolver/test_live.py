"""An attempt can be watched while it is played, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

from evolver.lab import Attempt
from evolver.live import FOLDER, Playing, playing, watched, worker
from evolver.protocols import Request
from evolver.records import Completion, Rollout, RolloutKey, Turn
from evolver.rollout import Job
from evolver.testing import ScriptedModel
from tests.evolver.test_lab import lab, root, tasks
from tests.evolver.test_rollout import DONE, LIST


class Watching(ScriptedModel):
    """Looks at what is being played whenever it is asked."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__([LIST, LIST, DONE])
        self.run_dir = run_dir
        self.seen: list[list[Playing]] = []

    async def complete(self, request: Request) -> Completion:
        self.seen.append(playing(self.run_dir))
        return await super().complete(request)


async def test_finished_turns_are_there_before_the_attempt_ends_and_nothing_after_it(tmp_path: Path) -> None:
    model = Watching(tmp_path)
    here = lab(tmp_path, model)
    await here.score([Attempt(root(here), tasks(1)[0], "race", 0)])
    (rollout,) = here.store.all(Rollout)
    assert [[(one.id, one.key, len(one.turns)) for one in seen] for seen in model.seen] == [
        [(rollout.id, rollout.key, n)] for n in range(3)
    ]
    assert model.seen[-1][0].turns == rollout.turns[:2]
    assert playing(tmp_path) == [] and not list((tmp_path / FOLDER).iterdir())


async def test_an_attempt_on_the_sealed_split_is_never_shown(tmp_path: Path) -> None:
    model = Watching(tmp_path)
    here = lab(tmp_path, model)
    await here.score([Attempt(root(here), tasks(1)[0].model_copy(update={"split": "test"}), "test", 0)])
    assert model.seen == [[], [], []]


async def test_a_place_that_takes_no_bytes_does_the_attempt_no_harm(tmp_path: Path) -> None:
    here = lab(tmp_path, ScriptedModel([LIST, DONE]))
    (tmp_path / FOLDER).write_text("a file where the folder should be")
    (card,) = await here.score([Attempt(root(here), tasks(1)[0], "race", 0)])
    assert card.success is True


def test_half_a_line_and_another_shape_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "r-1.jsonl").write_text('{"key": {"purp')
    (tmp_path / FOLDER / "r-2.jsonl").write_text('{"id": 1}\n')
    assert playing(tmp_path) == []


def test_what_the_job_itself_asks_is_still_asked(tmp_path: Path) -> None:
    asked: list[int] = []

    def goes_on(turns: object) -> bool:
        asked.append(1)
        return False

    key = RolloutKey.model_construct(split="dev", purpose="race", harness_id="h", model_id="m", task_id="t",
                                     task_hash="h", attempt=0, seed=0)  # fmt: skip
    job = Job(key=key, rollout_id="r-1", harness=None, task=None, model=None, run_id="", goes_on=goes_on)  # type: ignore[arg-type]
    turns: list[Turn] = []
    with watched(tmp_path, job) as shown:
        assert shown.goes_on(turns) is False and asked == [1]


def test_the_process_that_drives_a_run_is_seen_without_disturbing_it(tmp_path: Path) -> None:
    store = lab(tmp_path, ScriptedModel([])).store
    assert worker(store.path) is None
    with store.working():
        assert worker(store.path) == os.getpid()
    assert worker(store.path) is None
