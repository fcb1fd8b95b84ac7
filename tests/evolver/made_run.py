"""Runs made record by record, for tests of what is told of them: attempts turn by turn, candidates, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from devset.task import Split
from evolver.config import RunConfig
from evolver.records import (
    Candidate,
    Channel,
    Completion,
    Decision,
    FailedProposal,
    Failure,
    Flip,
    Interval,
    Look,
    Manifest,
    Purpose,
    Rollout,
    RolloutKey,
    Score,
    Scorecard,
    StopReason,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
)
from evolver.store import Store
from harnesses.harness import Harness
from harnesses.tree import read_tree, seed_path

PARENT: Harness = read_tree(seed_path("beta1"))
ROOT, CHILD = read_tree(seed_path("alpha")).id, "c" * 40
TEACHER = "demonstrator"
Words = Sequence[tuple[str, str]]  # (command, what it printed), turn by turn


def turns(words: Words, channel: Channel = "terminal", error: bool = False) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            index=number, request_sha256="", summary=f"step {number}", channel=channel, model_s=0.5, tools_s=0.5,
            completion=Completion(
                text=f"I run {command}", calls=(ToolCall(id="1", name="bash", arguments={"command": command}),),
                usage=Usage(input_tokens=90, output_tokens=10, counted_by="tokenizer"),
            ),
            results=(ToolResult(call_id="1", text=printed, is_error=error),),
        )
        for number, (command, printed) in enumerate(words)
    )  # fmt: skip


def score(value: float | None, criterion: str = "done", explanation: str = "", required: bool = True) -> Score:
    return Score(
        criterion=criterion, weight=1, required=required, value=value, explanation=explanation, grader="program"
    )


class Made:
    """A run directory that attempts are put into."""

    def __init__(self, path: Path, config: RunConfig | None = None) -> None:
        self.store = Store.create(path, config or RunConfig())
        self.store.append(self.candidate("alpha", ROOT, None))
        self.store.append(parent := self.candidate("beta1", PARENT.id, ROOT))
        self.decide(parent, "promote", 0.5)

    @staticmethod
    def candidate(name: str, harness_id: str, parent: str | None, author: str = "llm", **fields: object) -> Candidate:
        made = {
            "id": f"cand-{name}", "name": name, "harness_id": harness_id, "parents": (parent,) if parent else (),
            "author": author, "components": ("T",), "changes": ("tools: + bash",),
            "manifest": Manifest(why=f"{name} helps"), "proposed_at": 1.0,
        }  # fmt: skip
        return Candidate.model_validate(made | fields)

    def propose(self, name: str, harness_id: str = CHILD, author: str = "llm", **manifest: object) -> Candidate:
        """A child of the parent, recorded."""
        told = Manifest.model_validate({"why": f"{name} helps"} | manifest)
        made = self.candidate(name, harness_id, PARENT.id, author, manifest=told)
        self.store.append(made)
        return made

    def decide(self, of: Candidate, verdict: str, lead: float, **fields: object) -> Decision:
        effect = Interval(point=lead, low=lead - 0.1, high=lead + 0.1, n=3, method="as written down")
        look = Look(attempts=1, effect=effect, p_value=0.5, alpha=0.05, verdict="futile")
        made = {
            "id": f"dec-{of.name}", "candidate_id": of.id, "candidate_harness": of.harness_id,
            "incumbent_harness": of.parents[0], "verdict": verdict, "looks": (look,), "confirmation": None,
            "confirmation_p": None, "alpha_spent": 0.002, "flip_rate_aa": None, "flip_rate_ab": None,
            "tokens_per_solved": None, "incumbent_tokens_per_solved": None, "reasons": (f"{of.name} was seen",),
            "decided_at": 9.0,
        }  # fmt: skip
        decision = Decision.model_validate(made | fields)
        self.store.append(decision)
        return decision

    def attempt(
        self, harness: str, task: str, success: bool | None, number: int = 0, words: Words = (("ls", "a"),),
        *, purpose: Purpose = "race", split: Split = "dev", stop: StopReason = "finished",
        error: Failure | None = None, played: tuple[Turn, ...] = (), scores: tuple[Score, ...] = (),
        rubric: float | None = None,
    ) -> str:  # fmt: skip
        """One attempt with its card; returns the rollout's id. What is not said follows from words and success."""
        played = played or turns(words)
        key = RolloutKey(
            purpose=purpose, harness_id=harness, model_id=TEACHER, task_id=task, task_hash=f"h-{task}", split=split,
            attempt=number, seed=0,
        )  # fmt: skip
        name = f"r-{harness[:6]}-{task}-{number}"
        self.store.write(
            Rollout(
                id=name, key=key, loaded_harness_id=harness, image_digest="d", apps=("terminal",), category="os",
                turns=played, stop_reason=stop, error=error, started_at=2.0, finished_at=4.0,
            )
        )  # fmt: skip
        value = None if success is None else float(success)
        self.store.write(
            Scorecard(
                rollout_id=name, key=key, checker_hash="c", scores=scores or (score(value),), success=success,
                rubric=value if rubric is None else rubric, channel="terminal", tokens=100 * len(played), cost_usd=0.0,
                seconds=2.0, error=error,
            )
        )  # fmt: skip
        return name


def flips(*told: tuple[str, float]) -> tuple[Flip, ...]:
    return tuple(Flip(task_id=task, probability=probability) for task, probability in told)


def refused(author: str = "llm", why: str = "", reasons: tuple[str, ...] = ("it does not parse",)) -> FailedProposal:
    return FailedProposal(
        id="failed", author=author, parent=PARENT.id, reasons=reasons, why=why, rollout_ids=(), author_tokens=None,
        author_cost_usd=None, failed_at=1.0,
    )  # fmt: skip
