"""Reasoning for turns that have none: a model writes down why the teacher took the step that it took.

The teacher's actions stay as they are; so does its record. What a model wrote is a record of its own, with its name,
and every call is in the run's ledger under role `annotator`. A reply that can't be used leaves its turn as it was, and
is not asked for again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolver.calls import call_text, parse_object, split_reasoning
from evolver.errors import Blamed, NotReady
from evolver.executors.local import LocalExecutor
from evolver.graders.evidence import trajectory_text
from evolver.lab import Lab
from evolver.protocols import Model, Request
from evolver.records import Annotation, Completion, Message, Rollout, Scorecard, Text, Turn
from harnesses.harness import Sampling

PROMPT = Path(__file__).with_name("annotate.md")
VERSION = 1
MOST_CHARS = 1_200
MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SAMPLING = Sampling(temperature=0.0, max_tokens=1_024)
Scored = Sequence[tuple[Rollout, Scorecard]]


@dataclass(frozen=True)
class Annotated:
    """`scored` with reasoning filled in, in the order given; `by` says who wrote that of (rollout id, turn)."""

    scored: Scored
    by: Mapping[tuple[str, int], str]
    unusable: int

    def turns_of(self, rollout_id: str, turns: Sequence[int]) -> tuple[int, ...]:
        """Those of a rollout's turns whose reasoning the annotator wrote."""
        return tuple(turn for turn in turns if (rollout_id, turn) in self.by)


class BadReply(ValueError):
    """A reply that is not the one JSON object that was asked for; the message says why."""


async def annotate(lab: Lab, model: Model, instructions: Mapping[str, str], scored: Scored, workers: int) -> Annotated:
    """Fills in the reasoning of the turns of successful rollouts that a student may learn from and that have none.

    What was asked for before is not asked again. Raises BudgetSpent at a cap, UsageError when the endpoint refuses,
    NotReady when it does not answer.
    """
    signature = signature_of(model)
    wanted = [(rollout, turn) for rollout, card in scored if card.success is True for turn in _silent(rollout)]
    missing = [(r, t) for r, t in wanted if lab.store.get(Annotation, _id(signature, r, t)) is None]

    async def one(item: tuple[Rollout, Turn]) -> None:
        rollout, turn = item
        lab.record(await _asked(lab, model, rollout, turn, instructions[rollout.key.task_id]))

    label, done = f"reasoning by {model.id}", 0
    lab.tell(label, done, len(missing), {})
    async for _ in LocalExecutor(workers).map(one, missing):
        done += 1
        lab.tell(label, done, len(missing), {})
    return annotated(scored, [a for a in lab.store.all(Annotation) if a.annotator == signature])


def annotated(scored: Scored, annotations: Iterable[Annotation]) -> Annotated:
    """The rollouts with what the annotations say in place of missing reasoning; nothing else of them changes."""
    notes = {(a.rollout_id, a.turn): a for a in annotations}
    mine = {key: note for key, note in notes.items() if key[0] in {rollout.id for rollout, _ in scored}}
    filled = [(_filled(rollout, mine), card) for rollout, card in scored]
    by = {key: note.annotator for key, note in mine.items() if note.reasoning is not None}
    return Annotated(filled, by, len(mine) - len(by))


def signature_of(model: Model) -> str:
    """Who annotates: model, version, and the sha256 (12 digits) of the prompt. Another one writes other reasoning."""
    return f"{model.id}:v{VERSION}-{hashlib.sha256(PROMPT.read_bytes()).hexdigest()[:12]}"


def _silent(rollout: Rollout) -> list[Turn]:
    """Turns to learn from without reasoning: no slips, no broken replies."""
    return [t for t in rollout.turns if t.slip is None and t.completion.invalid is None and not t.completion.reasoning]


def _filled(rollout: Rollout, notes: Mapping[tuple[str, int], Annotation]) -> Rollout:
    turns = []
    for turn in rollout.turns:
        note = notes.get((rollout.id, turn.index))
        if note is not None and note.reasoning is not None and not turn.completion.reasoning:
            said = turn.completion.model_copy(update={"reasoning": note.reasoning})
            turn = turn.model_copy(update={"completion": said})
        turns.append(turn)
    return rollout.model_copy(update={"turns": tuple(turns)})


async def _asked(lab: Lab, model: Model, rollout: Rollout, turn: Turn, instruction: str) -> Annotation:
    lab.budget.check("annotator")
    request = Request(messages=_messages(rollout, turn, instruction), tools=(), sampling=SAMPLING, seed=turn.index)
    began = time.monotonic()
    reasoning, fault = None, ""
    try:
        try:
            reply = await model.complete(request)
        finally:
            lab.budget.charge_spoiled("annotator", model.id, request.spoiled, rollout.id)
        _charge(lab, model, reply, rollout, time.monotonic() - began)
        reasoning = reasoning_in(reply)
    except BadReply as error:
        fault = str(error)
    except Blamed as error:
        raise NotReady(f"the annotator {model.id} does not answer: {error}; run the same command again") from error
    signature = signature_of(model)
    return Annotation(
        id=_id(signature, rollout, turn),
        rollout_id=rollout.id,
        turn=turn.index,
        annotator=signature,
        reasoning=reasoning,
        fault=fault,
        at=time.time(),
    )


def reasoning_in(reply: Completion) -> str:
    """The reasoning that a reply holds. Raises BadReply for anything but the object that was asked for."""
    if reply.invalid is not None or reply.finish_reason == "length":
        raise BadReply(reply.invalid or "the reply was cut off")
    try:
        found = parse_object(split_reasoning(reply.text)[1].strip())
    except ValueError as error:
        raise BadReply(f"not JSON: {error}") from error
    text = found.get("reasoning")
    if set(found) != {"reasoning"} or not isinstance(text, str) or not text.strip():
        raise BadReply("expected an object with exactly `reasoning`, a text that is not empty")
    if len(text) > MOST_CHARS or any(mark in text for mark in MARKUP):
        raise BadReply(f"the reasoning must have at most {MOST_CHARS} characters and none of {', '.join(MARKUP)}")
    return text.strip()


def _messages(rollout: Rollout, turn: Turn, instruction: str) -> tuple[Message, ...]:
    before = rollout.model_copy(update={"turns": rollout.turns[: turn.index]})
    steps = trajectory_text(before).rpartition("\n")[0] if before.turns else "None: this is the first step."
    calls = "\n".join(call_text(call.name, call.arguments) for call in turn.completion.calls)
    parts = (
        f"## Task\n\n{instruction}",
        f"## Steps so far\n\n{steps}",
        f"## Next step\n\n{turn.completion.text}\n{calls}",
    )
    return (
        Message(role="system", parts=(Text(text=PROMPT.read_text(encoding="utf-8").strip()),)),
        Message(role="user", parts=(Text(text="\n\n".join(parts)),)),
    )


def _charge(lab: Lab, model: Model, reply: Completion, rollout: Rollout, seconds: float) -> None:
    lab.budget.charge(lab.budget.call_entry("annotator", model.id, reply.usage, seconds, rollout.id))


def _id(signature: str, rollout: Rollout, turn: Turn) -> str:
    return f"note-{hashlib.sha256(f'{signature}|{rollout.id}|{turn.index}'.encode()).hexdigest()[:16]}"
