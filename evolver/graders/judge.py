"""Grades `judge` criteria: a model reads the frozen state, the trajectory and the last screenshot, and picks choices.

Any OpenAI-compatible model, another one than the teacher. A reply that can't be read leaves the criteria unscored; it
is never taken for the lowest choice. Where no reply comes at all, what is to be graded waits for the next start. Every
call is charged to the run's one ledger under role `judge`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from devset.task import Criterion, Task
from evolver.budget import Budget
from evolver.calls import split_reasoning
from evolver.chat import PLAIN
from evolver.config import JudgeConfig
from evolver.errors import Blamed, JudgeSilent, ProviderFailed, UsageError
from evolver.graders.evidence import BOUNDS, changes_text, cut, last_image, trajectory_text
from evolver.protocols import Model, Request
from evolver.records import Completion, Image, Message, Rollout, Score, Text
from evolver.score import score_of
from evolver.store import Store
from harnesses.harness import Sampling

VERSION = 1  # of the request's layout below; its words are in judge.md
ASKS = 2  # a reply that can't be read is asked for once more
WHY_CHARS = 500
PROMPT = Path(__file__).with_name("judge.md")


@dataclass(frozen=True)
class Verdict:
    choice: str
    why: str


@dataclass(frozen=True)
class Shown:
    """The messages of a request, with the PNG bytes of the frames that they name."""

    messages: tuple[Message, ...]
    frames: Mapping[str, bytes]


class BadReply(ValueError):
    """A reply that is not exactly what was asked for; the message says why."""


class Refused(Exception):
    """The endpoint, which has answered others, refuses this request."""


def signature_of(config: JudgeConfig) -> str:
    """What a judge is called in scores and calibrations: model, layout version, and the sha256 (12 digits) of the
    prompt and of every setting that shapes its request. Another signature is another judge."""
    shape: list[JsonValue] = [PROMPT.read_text(encoding="utf-8"), list(BOUNDS), ASKS]
    shape += [config.sees_screen, config.temperature, config.max_tokens]
    shape += [] if config.model.dialect == PLAIN else [config.model.dialect.model_dump(mode="json")]
    digest = hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:12]
    return f"judge:{config.model.model}:v{VERSION}-{digest}"


class JudgeGrader:
    """`model` answers as `config` says; screenshots come from `store`, whose ledger its calls are charged to."""

    name = "judge"

    def __init__(self, config: JudgeConfig, model: Model, store: Store) -> None:
        self.signature = signature_of(config)
        self.model_id = model.id
        self._config = config
        self._model = model
        self._store = store
        self._budget = Budget(store, store.config.caps)
        self._prompt = PROMPT.read_text(encoding="utf-8")
        self._answered = False

    async def grade(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> list[Score]:
        """One score per criterion, in order, all from one reply; value None and the reason where there is no answer.

        Raises `BudgetSpent` when a cap is reached before a call, and `UsageError` when the endpoint refuses the first
        request of all (key, address); a later refusal is about that one request (too long, filtered): unscored. Raises
        `JudgeSilent` when it does not answer: the frozen state can be graded later, and nobody has to play it again.
        """
        try:
            verdicts = await self._asked(criteria, rollout, self._shown(criteria, task, rollout, state))
        except ProviderFailed as error:
            raise JudgeSilent(f"the judge {self.model_id} does not answer: {error}; run it again to go on") from error
        except (Blamed, BadReply, Refused) as error:
            kind = error.kind if isinstance(error, Blamed) else "refused" if isinstance(error, Refused) else "reply"
            return [self._score(c, None, f"unscored, {kind}: {error}") for c in criteria]
        return [self._score(c, _value(c, verdicts[c.id].choice), _said(verdicts[c.id])) for c in criteria]

    async def aclose(self) -> None:
        return None

    async def _asked(self, criteria: Sequence[Criterion], rollout: Rollout, shown: Shown) -> dict[str, Verdict]:
        sampling = Sampling(temperature=self._config.temperature, max_tokens=self._config.max_tokens)
        last = BadReply("never asked")
        for ask in range(ASKS):
            self._budget.check("judge")
            request = Request(messages=shown.messages, tools=(), sampling=sampling, seed=ask, frames=shown.frames)
            asked = time.monotonic()
            try:
                completion = await self._complete(request)
            finally:
                self._budget.charge_spoiled("judge", self.model_id, request.spoiled, rollout.id)
            self._charge(completion, rollout, time.monotonic() - asked)
            await self._store.settled()
            try:
                return verdicts_in(completion, criteria)
            except BadReply as error:
                last = error
        raise last

    async def _complete(self, request: Request) -> Completion:
        try:
            completion = await self._model.complete(request)
        except UsageError as error:
            if self._answered:
                raise Refused(str(error)) from error
            raise
        self._answered = True
        return completion

    def _charge(self, completion: Completion, rollout: Rollout, seconds: float) -> None:
        self._budget.charge(self._budget.call_entry("judge", self.model_id, completion.usage, seconds, rollout.id))

    def _shown(self, criteria: Sequence[Criterion], task: Task, rollout: Rollout, state: bytes) -> Shown:
        image = last_image(rollout) if self._config.sees_screen else None
        seen = "It is attached." if image else "There is none."
        evidence = "\n\n".join(
            (
                f"## The home folder at the end\n\n{changes_text(task, state)}",
                f"## What the agent did\n\n{trajectory_text(rollout)}",
                f"## The last picture of the screen\n\n{seen}",
            )
        )
        mark = f"evidence-{hashlib.sha256(evidence.encode()).hexdigest()[:12]}"  # nobody can write it into the evidence
        asked = (
            f"# Instruction to the agent\n\n{task.instruction}\n\n# Criteria\n\n"
            f"{chr(10).join(map(_question, criteria))}\n\n<{mark}>\n{evidence}\n</{mark}>"
        )
        parts: tuple[Text | Image, ...] = (Text(text=asked), image) if image else (Text(text=asked),)
        frames = {} if image is None else {image.frame_id: self._store.blob(image.frame_id)}
        system = Message(role="system", parts=(Text(text=self._prompt),))
        return Shown((system, Message(role="user", parts=parts)), frames)

    def _score(self, criterion: Criterion, value: float | None, explanation: str) -> Score:
        return score_of(criterion, value, cut(explanation, WHY_CHARS), self.signature)


def verdicts_in(completion: Completion, criteria: Sequence[Criterion]) -> dict[str, Verdict]:
    """Criterion → verdict. Raises BadReply unless the reply is one JSON object (in a code fence or not) that names
    exactly these criteria, each with one of its own choices and a reason."""
    if completion.invalid is not None:
        raise BadReply(completion.invalid)
    text = split_reasoning(completion.text)[1].strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text.partition("\n")[2][:-3]
    try:
        said = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise BadReply(f"expected one JSON object ({error}), got {text[:200]!r}") from error
    if not isinstance(said, dict) or set(said) != {c.id for c in criteria}:
        named = sorted(said) if isinstance(said, dict) else type(said).__name__
        raise BadReply(f"expected the criteria {sorted(c.id for c in criteria)}, got {named}")
    return {criterion.id: _verdict(criterion, said[criterion.id]) for criterion in criteria}


def _verdict(criterion: Criterion, said: JsonValue) -> Verdict:
    labels = [choice.label for choice in criterion.choices]
    if not isinstance(said, dict) or set(said) != {"why", "choice"}:
        raise BadReply(f"{criterion.id}: expected why and choice, got {str(said)[:200]!r}")
    choice, why = said["choice"], said["why"]
    if choice not in labels or not isinstance(choice, str) or not isinstance(why, str):
        raise BadReply(f"{criterion.id}: expected one of {labels} and a sentence, got {str(said)[:200]!r}")
    return Verdict(choice, why)


def _once(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """An object in which no name comes twice: of two answers neither counts."""
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def _question(criterion: Criterion) -> str:
    choices = [f"  - {choice.label}: {choice.description}" for choice in criterion.choices]
    return "\n".join([f"{criterion.id}: {criterion.description} Choices, from worst to best:", *choices])


def _value(criterion: Criterion, label: str) -> float:
    return next(choice.value for choice in criterion.choices if choice.label == label)


def _said(verdict: Verdict) -> str:
    return f"{verdict.choice}: {verdict.why}"
