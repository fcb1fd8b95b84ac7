"""What evidence is made from: the attempts on dev and the verdicts of a run, and nothing of any other task."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from evolver.chat import Body
from evolver.compare import Arms, Comparison, attempts_in_common, compare
from evolver.errors import UsageError
from evolver.population import Population, final_cards, per_task, population_of, success_value
from evolver.records import Rollout, Score, Scorecard
from evolver.sent import bodies
from evolver.store import Store
from harnesses.harness import Harness

HIDDEN = "[hidden task]"
SPLIT = "dev"
# All that is told of what a check said; what it found and what it expected, names and values, is left out.
_SAID = frozenset((
    "is", "are", "was", "were", "be", "not", "no", "a", "an", "the", "of", "in", "at", "on", "has", "have", "had",
    "holds", "hold", "missing", "there", "still", "gone", "than", "as", "other", "more", "most", "least", "exactly",
    "only", "content", "expected", "file", "files", "folder", "archive", "readable", "read", "line", "lines", "row",
    "rows", "column", "columns", "cell", "cells", "sheet", "sheets", "named", "paragraph", "paragraphs", "slide",
    "slides", "title", "titles", "says", "say", "value", "values", "query", "answers", "answer", "number", "text",
    "entries", "bytes", "changed", "unchanged", "differs", "differ", "exists", "regular", "and", "should", "been",
    "can't", "time", "times", "json", "csv", "utf-8", "from", "found", "unpacks", "graded",
))  # fmt: skip
_VALUE = re.compile(r"(?<!\w)['\"]|[\[{(]")  # where a check begins to name what it found


@dataclass(frozen=True)
class Material:
    """`cards` maps harness id → its attempts on dev, one card each; `rollouts` maps rollout id → the rollout of a
    card. `hidden` names the tasks of other splits, and the attempts at them: no text of an author may show them;
    `select_tasks` is how many of select were played. `teacher` is the model that played all of it (the newest, where a
    run has changed its own)."""

    store: Store
    population: Population
    parent: Harness
    teacher: str
    cards: dict[str, list[Scorecard]]
    rollouts: dict[str, Rollout]
    hidden: tuple[str, ...]
    select_tasks: int

    @property
    def decided(self) -> int:
        """How many candidates were decided, without those that nobody is told of."""
        return len(self.population.decisions) - len(self.population.neutrals)

    @property
    def own(self) -> list[Scorecard]:
        """The parent's attempts."""
        return self.cards.get(self.parent.id, [])

    @cached_property
    def tasks(self) -> list[str]:
        """The dev tasks that anyone has played: what every harness is asked for."""
        return sorted({card.key.task_id for cards in self.cards.values() for card in cards})

    @cached_property
    def names(self) -> dict[str, str]:
        """Harness id → its candidate's name."""
        return {c.harness_id: self.told(c.name) for c in reversed(self.population.candidates)}

    def name(self, harness_id: str) -> str:
        return self.names.get(harness_id, harness_id[:12])

    def rollout(self, card: Scorecard) -> Rollout:
        return self.rollouts[card.rollout_id]

    def told(self, text: str) -> str:
        """A text that someone wrote, without the names of tasks that an author may not know."""
        for name in self.hidden:
            if name in text:
                text = text.replace(name, HIDDEN)
        return text

    def rates(self, harness_id: str) -> dict[str, float]:
        """Task id → share of its scored attempts that solved it."""
        return per_task(self.cards.get(harness_id, []), success_value)

    def versus(self, candidate: str, other: str) -> Comparison | str:
        """Candidate minus other on dev, from every attempt that there is now; or why they don't compare."""
        ours, theirs = self.cards.get(candidate, []), self.cards.get(other, [])
        if not ours or not theirs:
            return f"{self.name(other if ours else candidate)} was never played on dev by {self.teacher}"
        attempts = attempts_in_common(ours, theirs)
        rules, seed = self.store.config.race, self.store.config.seed
        try:
            found = compare(Arms(ours, theirs, len(self.tasks), attempts), rules, rules.alpha, seed)
        except UsageError as error:
            return str(error)
        return found if found.tasks else "no attempt was scored in both arms"

    def task_text(self, rollout: Rollout) -> str:
        """The first user message of the attempt as it was sent; empty when nothing was."""
        if rollout.requests_sha256 is None:
            return ""
        for message in _messages(bodies(self.store.blob(rollout.requests_sha256))[0]):
            if message.get("role") == "user":
                return text_of(message.get("content"))
        return ""


def gather(store: Store, parent: Harness) -> Material:
    """Reads the run: attempts on dev of the parent and of what was proposed, one card an attempt. Everything else of a
    task stays outside, and so do edits that only test the rule: who is told of them is no longer tested by them."""
    cards: dict[str, list[Scorecard]] = defaultdict(list)
    hidden: dict[str, None] = {}
    raced = [card for card in store.all(Scorecard) if card.key.split == SPLIT and card.key.purpose == "race"]
    teacher = raced[-1].key.model_id if raced else store.config.teacher_id
    population = population_of(store)
    shown = {c.harness_id for c in population.candidates if not c.hidden_neutral} | {parent.id}
    for card in raced:
        if card.key.model_id == teacher and card.key.harness_id in shown:
            cards[card.key.harness_id].append(card)
    for rollout in store.all(Rollout):
        if rollout.key.split != SPLIT:
            hidden |= {rollout.key.task_id: None, rollout.id: None}
    final = {harness_id: final_cards(found) for harness_id, found in cards.items()}
    wanted = {card.rollout_id for found in final.values() for card in found}
    return Material(
        store=store,
        population=population,
        parent=parent,
        teacher=teacher,
        cards=final,
        rollouts={r.id: r for r in store.all(Rollout) if r.id in wanted},
        hidden=tuple(sorted(hidden, key=len, reverse=True)),
        select_tasks=len({r.key.task_id for r in store.all(Rollout) if r.key.split == "select"}),
    )


def text_of(content: JsonValue) -> str:
    """The text of a chat message's content, pictures left out."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("type") == "text")


def _messages(body: Body) -> list[dict[str, JsonValue]]:
    messages = body.get("messages")
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


# --- words for what happened in an attempt ---------------------------------------------------------------------------


def failed(card: Scorecard) -> tuple[str, ...]:
    """The required criteria that an attempt did not meet."""
    return tuple(score.criterion for score in card.scores if score.required and score.value != 1)


def said(score: Score) -> str:
    """What a check said, without any name or value: it knows the answer, and an author must not. A judge's words are
    left out whole."""
    if score.grader != "program":
        return ""
    words: list[str] = []
    for word in [*_VALUE.split(score.explanation)[0].split(), "…" if _VALUE.search(score.explanation) else ""]:
        plain = word.strip(".,;:").lower()
        shown = plain if plain in _SAID else "…" if plain else ""
        if shown and (shown != "…" or words[-1:] != ["…"]):
            words.append(shown)
        if plain == "expected":  # what follows is the answer
            break
    return " ".join(words)


_KINDS = (
    re.compile(r"\b([A-Z][A-Za-z]*(?:Error|Exception|Exit))\b"),
    re.compile(
        r"(command not found|No such file or directory|Permission denied|there is no tool|syntax error|killed after)",
        re.IGNORECASE,
    ),
    re.compile(r"\((exit code \d+)\)\s*$"),
)
_BAD_END = re.compile(r"\((exit code \d+|killed after [^)]*)\)\s*$")


def error_kind(rollout: Rollout) -> str:
    """The last thing that went wrong in an attempt, in a word or two: its own error, else that of its last bad call."""
    if rollout.error is not None:
        return rollout.error.kind
    for turn in reversed(rollout.turns):
        if turn.completion.invalid is not None:
            return "unusable reply"
        for result in reversed(turn.results):
            if not result.is_error and not _BAD_END.search(result.text):
                continue
            found = next((match for kind in _KINDS if (match := kind.search(result.text))), None)
            return "refused action" if found is None else found.group(1).lower()
    return "none"


def main_channel(rollout: Rollout) -> str:
    """The channel that most turns used; "both" when no one channel leads, "none" when nothing was touched."""
    used = Counter(turn.channel for turn in rollout.turns if turn.channel != "none").most_common(2)
    if not used:
        return "none"
    return "both" if len(used) == 2 and used[0][1] == used[1][1] else used[0][0]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean; None when a value is unknown or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
