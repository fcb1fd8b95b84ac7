"""The step annotator: reasoning is added, actions stay, every call is billed, and nothing is asked twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.annotate import annotate, annotated, reasoning_in, signature_of
from evolver.config import Cap, Caps, RunConfig
from evolver.errors import BudgetSpent, NotReady, ProviderFailed
from evolver.executors.local import LocalExecutor
from evolver.lab import Lab
from evolver.protocols import UNKNOWN_USAGE, Request
from evolver.records import Annotation, Completion, LedgerEntry, Rollout, Scorecard, ToolCall, Turn
from evolver.store import Store
from evolver.testing import FailingModel, FakeSandbox, FakeSandboxes, ScriptedModel, reply
from harnesses.library import Library
from tests.evolver.cards import a_card
from tests.evolver.rollouts import a_rollout, a_turn

LS = ToolCall(id="call_0", name="bash", arguments={"command": "ls"})
GOOD = reply('{"reasoning": "I must see what is there first."}')


def a_lab(path: Path, **caps: Cap) -> Lab:
    store = Store.create(path, RunConfig(allow_unpriced=True, caps=Caps(**caps)))  # type: ignore[arg-type]
    return Lab(store, Library(path / "library"), FakeSandboxes(FakeSandbox), [], ScriptedModel([]), LocalExecutor(1))


def step(index: int, **fields: object) -> Turn:
    return a_turn("terminal", (LS,), f"Step {index}").model_copy(
        update={"index": index, "summary": f"Step {index}", **fields}
    )


def scored(*turns: Turn, success: bool = True) -> list[tuple[Rollout, Scorecard]]:
    rollout = a_rollout(turns=turns)
    return [(rollout, a_card("b", 0, success).model_copy(update={"rollout_id": rollout.id}))]


TASK = {"dev-0": "List the files."}


async def test_reasoning_is_added_and_the_teachers_actions_stay(tmp_path: Path) -> None:
    lab, model, before = a_lab(tmp_path), ScriptedModel([GOOD], model_id="thinker"), scored(step(0), step(1))
    found = await annotate(lab, model, TASK, before, 2)
    [(rollout, _)], [(plain, _)] = found.scored, before
    assert [turn.completion.reasoning for turn in rollout.turns] == ["I must see what is there first."] * 2
    for mine, theirs in zip(rollout.turns, plain.turns, strict=True):
        assert mine.completion.calls == theirs.completion.calls and mine.completion.text == theirs.completion.text
    assert plain.turns[0].completion.reasoning == ""
    assert found.by == {("r", 0): signature_of(model), ("r", 1): signature_of(model)} and found.unusable == 0
    entries = lab.store.all(LedgerEntry)
    assert [entry.role for entry in entries] == ["annotator"] * 2 and {e.model_id for e in entries} == {"thinker"}


async def test_a_step_is_asked_for_with_what_came_before_it_and_nothing_later(tmp_path: Path) -> None:
    model = ScriptedModel([GOOD])
    await annotate(a_lab(tmp_path), model, TASK, scored(step(0), step(1), step(2)), 1)
    second = model.requests[1].messages[1].parts[0].text  # type: ignore[union-attr]
    assert "List the files." in second and "Step 0" in second and "Step 1" in second and "Step 2" not in second


async def test_what_can_not_be_used_leaves_its_turn_as_it_was_and_is_counted(tmp_path: Path) -> None:
    lab = a_lab(tmp_path)
    model = ScriptedModel([reply("I think so."), reply('{"reasoning": "a </think> b"}'), GOOD])
    found = await annotate(lab, model, TASK, scored(step(0), step(1), step(2)), 1)
    [(rollout, _)] = found.scored
    assert [bool(turn.completion.reasoning) for turn in rollout.turns] == [False, False, True]
    assert found.unusable == 2 and [bool(a.fault) for a in lab.store.all(Annotation)] == [True, True, False]
    assert len(lab.store.all(LedgerEntry)) == 3  # what could not be used is billed all the same
    again = ScriptedModel([GOOD])
    repeated = await annotate(lab, again, TASK, scored(step(0), step(1), step(2)), 1)
    assert again.requests == [] and repeated.unusable == 2 and repeated.by == found.by


async def test_turns_that_nobody_learns_from_are_not_asked_for(tmp_path: Path) -> None:
    lab, model = a_lab(tmp_path), ScriptedModel([GOOD])
    said = a_turn().completion.model_copy(update={"reasoning": "Mine."})
    cases = scored(step(0, slip="skipped: Step 0"), step(1, completion=said)) + scored(step(0), success=False)
    found = await annotate(lab, model, TASK, cases, 1)
    assert model.requests == [] and found.by == {}
    assert found.scored[0][0].turns[1].completion.reasoning == "Mine."


async def test_e14_a_cap_of_the_annotator_stops_before_the_call(tmp_path: Path) -> None:
    lab, model = a_lab(tmp_path, annotator=Cap(tokens=1)), ScriptedModel([GOOD])
    with pytest.raises(BudgetSpent, match=r"caps\.annotator\.tokens"):
        await annotate(lab, model, TASK, scored(step(0), step(1)), 1)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"reasoning": ""}', '{"reasoning": 3}', '{"reasoning": "a", "more": 1}', '["a"]', '{"reasoning": "'],
)
def test_only_the_object_that_was_asked_for_is_reasoning(text: str) -> None:
    with pytest.raises(ValueError):
        reasoning_in(reply(text))


def test_a_reply_that_thinks_first_is_read() -> None:
    assert reasoning_in(reply('<think>hm</think>{"reasoning": " So. "}')) == "So."


def test_annotations_of_other_rollouts_change_nothing() -> None:
    note = Annotation(id="n", rollout_id="another", turn=0, annotator="m", reasoning="x", at=1.0)
    before = scored(step(0))
    assert annotated(before, [note]).scored[0][0] == before[0][0] and annotated(before, [note]).by == {}


class Hanging(FailingModel):
    """Each of its calls times out."""

    async def complete(self, request: Request) -> Completion:
        request.spoiled.append(UNKNOWN_USAGE)
        return await super().complete(request)


async def test_e13_a_call_that_timed_out_is_on_the_ledger_as_unknown(tmp_path: Path) -> None:
    lab = a_lab(tmp_path, annotator=Cap(tokens=1_000))
    for _ in range(2):  # the cap does not wait for what nobody can say
        with pytest.raises(NotReady, match="the annotator failing does not answer"):
            await annotate(lab, Hanging(ProviderFailed("ReadTimeout")), TASK, scored(step(0)), 1)
    found = [(e.role, e.calls, e.input_tokens, e.spoiled) for e in lab.store.all(LedgerEntry)]
    assert found == [("annotator", 1, None, True)] * 2
