"""One attempt: every way it can end has one documented outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from devset.task import Criterion, Rubric, Task
from evolver.errors import ProviderFailed, SandboxLost, UsageError
from evolver.protocols import Model, Ran, Request, Sandboxes
from evolver.records import Completion, Rollout, RolloutKey
from evolver.rollout import FINISH_CHECK, Job, never, run_rollout
from evolver.testing import FailingModel, FakeSandbox, FakeSandboxes, ScriptedModel, reply
from harnesses.harness import Harness
from harnesses.tree import read_tree

DONE = reply("All done.", ("computer_use", {"action": "terminate", "status": "success"}))
LIST = reply("List the files.", ("bash", {"command": "ls"}))
SCREEN = (1920, 1080)


def harness(seed: str = "beta1", **scaffold: object) -> Harness:
    base = read_tree(Path("harnesses/seeds") / seed)
    return base.model_copy(update={"scaffold": base.scaffold.model_copy(update=scaffold)})


def task(**fields: object) -> Task:
    return Task.model_validate(
        {
            "id": "t-1",
            "hash": "h",
            "family": "f",
            "instruction": "List the files.",
            "category": "os",
            "apps": ("shell",),
            "channels": frozenset({"terminal"}),
            "rubric": Rubric(criteria=(Criterion(id="done", description="done"),)),
            "check": "print('{}')",
            **fields,
        }
    )


def sandbox() -> FakeSandbox:
    return FakeSandbox({"ls": Ran(0, "a.txt\n"), "false": Ran(1, "")}, SCREEN)


async def play(
    model: Model, h: Harness | None = None, t: Task | None = None, machines: Sandboxes | None = None
) -> tuple[Rollout, bytes | None]:
    h, t = h or harness(), t or task()
    key = RolloutKey(
        purpose="adhoc",
        harness_id=h.id,
        model_id=model.id,
        task_id=t.id,
        task_hash=t.hash,
        split=None,
        attempt=0,
        seed=0,
    )
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> str:
        name = f"blob-{len(blobs)}"
        blobs[name] = data
        return name

    answers = getattr(model, "answers_others", never)
    job = Job(key=key, rollout_id="r-1", harness=h, task=t, model=model, run_id="run", answers=answers)
    return await run_rollout(job, machines or FakeSandboxes(sandbox), put)


async def test_a_plain_attempt() -> None:
    rollout, state = await play(ScriptedModel([LIST, DONE]))
    assert (rollout.stop_reason, rollout.error) == ("finished", None)
    assert [t.channel for t in rollout.turns] == ["terminal", "none"]
    assert rollout.turns[0].results[0].text == "a.txt"
    assert state is not None and rollout.state_sha256 is not None


@pytest.mark.parametrize(
    ("completion", "stop"),
    [
        (reply("I think it is done, terminate."), "bad_replies"),
        (reply("", invalid="the tool call's JSON is cut off"), "bad_replies"),
        (reply("Fly.", ("fly", {})), "step_limit"),
        (reply("No.", ("computer_use", {"action": "terminate", "status": "failure", "reason": "no"})), "infeasible"),
        (DONE, "finished"),
    ],
)
async def test_s32_every_kind_of_reply_has_one_outcome(completion: Completion, stop: str) -> None:
    rollout, state = await play(ScriptedModel([completion]), harness(max_steps=5))
    assert rollout.stop_reason == stop
    assert state is not None, "whatever the model did, what it left is graded"


async def test_s32_calls_over_the_limit_and_after_an_error_are_not_run() -> None:
    many = reply("Many.", *[("bash", {"command": "ls"})] * 4)
    wrong_first = reply("Wrong first.", ("bash", {"command": ""}), ("bash", {"command": "ls"}))
    rollout, _ = await play(ScriptedModel([many, wrong_first, DONE]), harness(max_calls_per_turn=2))
    assert [r.is_error for r in rollout.turns[0].results] == [False, False, True, True]
    assert [r.is_error for r in rollout.turns[1].results] == [True, True]
    assert "not run" in rollout.turns[1].results[1].text


async def test_s35_the_step_limit_counts_turns_and_still_scores_the_state() -> None:
    many = reply("Many.", *[("bash", {"command": "ls"})] * 15)
    for completion in (LIST, many):
        rollout, state = await play(ScriptedModel([completion]), harness(max_steps=4))
        assert (rollout.stop_reason, len(rollout.turns)) == ("step_limit", 4)
        assert state is not None


async def test_s10_a_failed_setup_costs_no_token() -> None:
    model = ScriptedModel([DONE])
    rollout, state = await play(model, t=task(setup="false"))
    assert rollout.error is not None and (rollout.error.kind, rollout.error.blame) == ("setup", "task")
    assert not model.requests and state is None


class Full(FakeSandbox):
    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        raise OSError("no space left on device")


async def test_s10_files_that_do_not_fit_are_a_failed_setup_of_one_attempt() -> None:
    machines = FakeSandboxes(lambda: Full({}, SCREEN))
    rollout, state = await play(ScriptedModel([DONE]), t=task(exec_files={"a.txt": b"a"}), machines=machines)
    assert rollout.error is not None and (rollout.error.kind, rollout.error.blame) == ("setup", "task")
    assert "no space left" in rollout.error.message and state is None


class Dying(FakeSandbox):
    async def bash(self, command: str, *, timeout_s: float) -> Ran:
        raise SandboxLost("out of memory")


async def test_s05_a_lost_sandbox_ends_the_attempt_without_another_call() -> None:
    model = ScriptedModel([LIST, DONE])
    rollout, state = await play(model, machines=FakeSandboxes(lambda: Dying({}, SCREEN)))
    assert rollout.error is not None and rollout.error.blame == "sandbox" and "memory" in rollout.error.message
    assert len(model.requests) == 1 and state is None


async def test_s38_a_reply_whose_calls_lose_the_sandbox_is_still_billed() -> None:
    rollout, _ = await play(ScriptedModel([LIST]), machines=FakeSandboxes(lambda: Dying({}, SCREEN)))
    assert [(turn.completion, turn.results) for turn in rollout.turns] == [(LIST, ())]


async def test_s36_a_dead_endpoint_is_the_providers_failure() -> None:
    rollout, state = await play(FailingModel(ProviderFailed("no answer in 120 s")))
    assert rollout.error is not None and rollout.error.blame == "provider"
    assert state is None


class RefusingModel(ScriptedModel):
    """Plays `answers` replies, then refuses every call of the attempt for good."""

    answers, others = 1, True

    async def answers_others(self) -> bool:
        return self.others

    async def complete(self, request: Request) -> Completion:
        if len(self.requests) >= self.answers:
            raise UsageError("HTTP 400: the context is too long")
        return await super().complete(request)


@pytest.mark.parametrize("others", [True, False])
async def test_e13_a_refusal_half_way_keeps_the_record_of_the_calls_that_were_billed(others: bool) -> None:
    model = RefusingModel([LIST])
    model.others = others
    rollout, state = await play(model)
    assert len(rollout.turns) == 1 and state is None and rollout.stop_reason == "error"
    assert rollout.error is not None and "context is too long" in rollout.error.message
    assert (rollout.error.kind, rollout.error.outage) == (("refused", False) if others else ("provider", True))


async def test_a_refusal_of_the_first_call_is_wrong_input() -> None:
    with pytest.raises(UsageError, match="bad key"):
        await play(FailingModel(UsageError("bad key")))


async def test_the_finish_check_asks_once() -> None:
    rollout, _ = await play(ScriptedModel([DONE]), harness(finish_check=True))
    assert rollout.stop_reason == "finished"
    assert [t.results[0].text == FINISH_CHECK for t in rollout.turns] == [True, False]


@pytest.mark.parametrize(("when", "looks"), [("every_turn", 2), ("after_gui", 0)])
async def test_the_screen_is_shown_when_the_harness_says_so(when: str, looks: int) -> None:
    observation = harness().scaffold.observation.model_copy(update={"when": when})
    rollout, _ = await play(ScriptedModel([LIST, DONE]), harness(observation=observation))
    seen = [rollout.first, *[t.observed for t in rollout.turns]]
    assert sum(o.image is not None for o in seen) == looks
