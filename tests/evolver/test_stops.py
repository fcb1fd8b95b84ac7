"""When a run does not start: its caps are judged before the root is paid for, and never held against a resume."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from evolver.config import Caps, DistilConfig, HumanAuthor, RaceConfig, RunConfig, TaskLimitsConfig
from evolver.errors import UsageError
from evolver.lab import Lab
from evolver.loop import run
from evolver.protocols import Request
from evolver.records import Decision, Record, Rollout
from evolver.stops import Stop
from tests.evolver.cards import Coin, coin_lab, split_tasks
from tests.evolver.test_loop import Crash, CrashAfter
from tests.evolver.test_selfcheck import no_student

ROOT, PROPOSAL = 12, 72  # rollouts: 12 tasks, then 2 attempts of the candidate and 4 more of the incumbent on each
HEARING = 40  # 2 attempts of both on 10 tasks of select


def config(caps: Caps, saturation: float = 0.98) -> RunConfig:
    return RunConfig(
        root="alpha",
        tasks=TaskLimitsConfig(dev=12, select=10),
        race=RaceConfig(attempts=(1, 2), confirm_attempts=2, saturation=saturation),
        authors=(HumanAuthor(kind="human", harness="beta1", why="a shell"),),
        distil=DistilConfig(max_promotions=0),
        caps=caps,
    )


def even(request: Request) -> tuple[float, int]:
    return 0.5, 500


class CrashAtRollout(CrashAfter):
    """Ends the program after so many rollouts."""

    def on_record(self, record: Record) -> None:
        if isinstance(record, Rollout):
            super().on_record(record)


async def test_e16_caps_are_judged_with_the_rollouts_of_the_root_before_it_plays(tmp_path: Path) -> None:
    exact, short = Caps(rollouts=ROOT + HEARING + 3 * PROPOSAL), Caps(rollouts=ROOT + HEARING + 3 * PROPOSAL - 1)
    lab = coin_lab(tmp_path / "short", config(short), model := Coin(even))
    with pytest.raises(UsageError, match="buys 2 proposals"):
        await run(lab, tasks=split_tasks, distil=no_student)
    assert model.calls == 0
    lab = coin_lab(tmp_path / "exact", config(exact), Coin(even))
    assert (await run(lab, tasks=split_tasks, distil=no_student)).reason is Stop.AUTHORS_DONE


@pytest.mark.parametrize("played", [1, 7, 12, 13, 30])
async def test_e12_e16_a_run_whose_caps_just_sufficed_resumes_wherever_it_was_cut_off(
    tmp_path: Path, played: int
) -> None:
    def lab() -> Lab:
        return coin_lab(tmp_path / "run", config(Caps(rollouts=ROOT + HEARING + 3 * PROPOSAL)), Coin(even))

    cut = lab()
    cut.observers.append(CrashAtRollout(played))
    with pytest.raises(Crash):
        await run(cut, tasks=split_tasks, distil=no_student)
    resumed = lab()
    assert (await run(resumed, tasks=split_tasks, distil=no_student)).reason is Stop.AUTHORS_DONE
    assert len(resumed.store.all(Decision)) == 1


async def test_e34_e12_a_root_is_judged_by_its_first_attempts_alone(tmp_path: Path) -> None:
    """It solves a third of the tasks at first, and all of them in the race against its first candidate."""
    turns = count()

    def lucky_later(request: Request) -> tuple[float, int]:
        candidate = any(tool.name == "bash" for tool in request.tools)
        return (0.0 if candidate else float(next(turns) >= 8), 100)

    for _ in range(2):
        lab = coin_lab(tmp_path / "run", config(Caps(), saturation=0.6), Coin(lucky_later))
        assert (await run(lab, tasks=split_tasks, distil=no_student)).reason is Stop.AUTHORS_DONE
        assert [d.verdict for d in lab.store.all(Decision)] == ["reject"]
