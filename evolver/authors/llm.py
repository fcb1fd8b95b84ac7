"""A language model as an author: one proposal is a rollout of an authoring harness in a machine of its own.

The parent's tree lies in its home to be changed, the evidence in /evidence. What it leaves is read from the frozen home
alone and passes the gate; what the gate refuses goes back as the next user message, on the tree as it was left. Every
attempt is a record, so a run that was cut off goes on from the last one, and none is paid for twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from devset.task import Criterion, Rubric, Task, TaskLimits, task_hash
from evolver.authors.claims import Known, read_manifest
from evolver.authors.gate import Gate, Refused
from evolver.authors.home import FOLDER, MANIFEST, Home, read_home
from evolver.authors.human import free_name, read_named
from evolver.authors.proposal import proposal
from evolver.config import LLMAuthor as LLMConfig
from evolver.errors import BudgetSpent, NotReady, UsageError
from evolver.lab import TRIES, Lab, rollout_id
from evolver.protocols import Evidence, Model, Proposal
from evolver.records import Candidate, FailedProposal, LedgerEntry, Manifest, Rollout, RolloutKey, Turn
from evolver.rollout import EVIDENCE, Job
from evolver.sums import total
from harnesses.diff import diff
from harnesses.harness import Harness
from harnesses.tree import HarnessError, Tree, harness_from_files, tree_files

SHIPPED = Path(__file__).parents[2] / "harnesses" / "author"
ROUNDS_MOST = 50  # cut-off attempts do not count as repairs; a cap that is raised by crumbs must end somewhere
STEPS_TOLD = 40
REASON_CHARS = 1_000
MACHINE_S = 1_800.0  # of the author's commands, in all
CHARS_A_TOKEN = 3


@dataclass
class Draft:
    """Where a proposal stands: its parent, what lies in the home, and what was said of each version so far."""

    number: int
    parent: Harness
    tree: Tree
    failed: tuple[FailedProposal, ...]
    manifest: bytes | None = None
    refused: list[tuple[str, ...]] = field(default_factory=list)
    repairs: int = 0
    rollouts: list[Rollout] = field(default_factory=list)

    def take(self, home: Home) -> None:
        self.manifest = home.manifest
        if home.tree:
            self.tree = home.tree


class LLMAuthor:
    """At most `config.n` proposals under `name`, failed ones included."""

    def __init__(self, config: LLMConfig, lab: Lab, gate: Gate, known: Known, model: Model, name: str = "llm") -> None:
        """Raises UsageError for an authoring harness that is not there, or that has no terminal."""
        self.name = name
        self._config, self._lab, self._gate, self._known, self._model = config, lab, gate, known, model
        self._patience_s = config.model.timeout_s + config.model.retry_for_s  # of one call
        self._harness = read_named(config.harness or str(SHIPPED))
        if "terminal" not in self._harness.channels:
            raise UsageError(f"authors.harness {config.harness!r}: expected a bash or program tool, as it edits files")

    async def propose(self, evidence: Evidence) -> Proposal | None:
        """Raises BudgetSpent when a cap leaves no room for another call, and NotReady when the model does not answer;
        what was written up to then goes on at the next start."""
        known = len(self._lab.store.all(FailedProposal))
        while (number := self._made() + 1) <= self._config.n:
            made = await self._proposal(number, evidence, self._lab.store.since(FailedProposal, known))
            if made is not None:
                return made
        return None

    def _made(self) -> int:
        store = self._lab.store
        authors = [*(c.author for c in store.all(Candidate)), *(f.author for f in store.all(FailedProposal))]
        return authors.count(self.name)

    async def _proposal(self, number: int, evidence: Evidence, failed: Sequence[FailedProposal]) -> Proposal | None:
        """The proposal that comes out of the first attempt or of a repair; None once it has failed, on record. The
        evidence does not know of those that `failed` since it was gathered."""
        draft = self._draft(number, evidence, failed)
        for attempt in range(ROUNDS_MOST):
            if draft.repairs > self._config.max_repairs:
                break
            rollout = await self._attempt(draft, attempt, evidence)
            try:
                return await self._judged(draft, rollout)
            except Refused as error:
                cut_off = rollout.stop_reason == "cap"
                draft.refused.append(("You were cut off before you had finished.",) if cut_off else error.reasons)
                draft.repairs += not cut_off
        self._lab.record(self._failure(draft))
        return None

    def _draft(self, number: int, evidence: Evidence, failed: Sequence[FailedProposal]) -> Draft:
        """The parent is the one that earlier attempts of this proposal began with, else that of the evidence."""
        prefix = _task_id(self.name, number, "")
        earlier = [r for r in self._lab.store.all(Rollout) if r.key.task_id.startswith(prefix)]
        parent = earlier[0].key.task_id.removeprefix(prefix) if earlier else evidence.parent_harness
        harness = self._lab.harness(parent)
        return Draft(number, harness, tree_files(harness), tuple(failed), rollouts=earlier)

    async def _attempt(self, draft: Draft, attempt: int, evidence: Evidence) -> Rollout:
        """The attempt of this number that came to an end: as recorded, or run now. Our failures are tried again."""
        of_number = [r for r in draft.rollouts if r.key.attempt == attempt]
        for _ in range(TRIES):
            if of_number and _ended(of_number[-1]):
                return of_number[-1]
            self._lab.budget.check("author")
            job = self._job(draft, attempt, evidence, retry_of=of_number[-1].id if of_number else None)
            self._lab.tell(f"author {self.name}, proposal {draft.number}, attempt {attempt + 1}", 0, 1, {})
            rollout, _ = await self._lab.run(job, "author")
            self._lab.tell(f"author {self.name}, proposal {draft.number}, attempt {attempt + 1}", 1, 1, {})
            of_number.append(rollout)
            draft.rollouts.append(rollout)
            if rollout.error is not None and rollout.error.blame == "provider":
                break
        if _ended(of_number[-1]):
            return of_number[-1]
        why = of_number[-1].error
        raise NotReady(
            f"author {self.name} ({self._model.id}) got no proposal done: {why.kind if why else 'error'}: "
            f"{why.message if why else ''}; mend it and run it again, what was written before is kept"
        )

    def _job(self, draft: Draft, attempt: int, evidence: Evidence, *, retry_of: str | None) -> Job:
        lab, harness = self._lab, self._harness
        lab.library.add(
            tree_files(harness), name=free_name(lab.library, "author", harness.id), message="an authoring harness"
        )
        task = author_task(self.name, draft, ask(draft, evidence, harness.scaffold.window_tokens * CHARS_A_TOKEN // 2))
        key = RolloutKey(
            purpose="author", harness_id=harness.id, model_id=self._model.id, task_id=task.id, task_hash=task.hash,
            split=None, attempt=attempt, seed=lab.config.seed,
        )  # fmt: skip
        return Job(
            key=key,
            rollout_id=rollout_id(key, len(draft.rollouts)),
            harness=harness,
            task=task,
            model=self._model,
            run_id=lab.store.run_id,
            retry_of=retry_of,
            ttl_s=lab.config.sandbox.ttl_s + harness.scaffold.max_steps * self._patience_s,
            keys=lab.keys,
            evidence={"README.md": evidence.summary.encode(), **evidence.files},
            goes_on=self._affords,
        )

    def _affords(self, turns: Sequence[Turn]) -> bool:
        """Whether the caps leave room for a call after these, which are in no ledger yet."""
        usages = [turn.completion.usage for turn in turns]
        inputs, outputs = (sum(u.input_tokens or 0 for u in usages), sum(u.output_tokens or 0 for u in usages))
        cost = self._lab.budget.price(self._model.id, inputs, outputs)
        try:
            self._lab.budget.check("author", tokens=inputs + outputs, cost_usd=cost or 0.0)
        except BudgetSpent:
            return False
        return True

    async def _judged(self, draft: Draft, rollout: Rollout) -> Proposal:
        """What an attempt left, as a candidate. Raises Refused with everything that is wrong with it."""
        if rollout.state_sha256 is None:
            raise Refused([rollout.error.message if rollout.error else "nothing was left"])
        home = read_home(self._lab.store.blob(rollout.state_sha256))
        draft.take(home)
        reasons, tree = list(home.faults), home.tree
        harness: Harness | None = None
        manifest: Manifest | None = None
        try:
            if not home.faults:
                harness = self._gate.checked(draft.parent, tree)
        except Refused as error:
            reasons += error.reasons
        try:
            manifest = read_manifest(home.manifest, self._known)
        except Refused as error:
            reasons += error.reasons
        if reasons or harness is None or manifest is None:
            raise Refused(reasons)
        await self._gate.buildable(harness)
        made = proposal(draft.parent, tree, self.name, f"{self.name}-{draft.number}-{harness.id[:6]}", manifest)
        tokens, cost = self._paid(draft)
        paid = made.candidate.model_copy(update={"author_tokens": tokens, "author_cost_usd": cost})
        return Proposal(paid, tree)

    def _paid(self, draft: Draft) -> tuple[int | None, float | None]:
        """Tokens and $ of all attempts at this proposal, from the ledger; None where one is unknown."""
        ids = {rollout.id for rollout in draft.rollouts}
        entries = [entry for entry in self._lab.store.all(LedgerEntry) if entry.rollout_id in ids]
        tokens = [count for e in entries for count in (e.input_tokens, e.output_tokens)]
        return total(tokens), total(e.cost_usd for e in entries)

    def _failure(self, draft: Draft) -> FailedProposal:
        tokens, cost = self._paid(draft)
        why, changes = "", tuple[str, ...]()
        with suppress(Refused):
            why = read_manifest(draft.manifest, self._known).why
        with suppress(HarnessError):
            changes = diff(draft.parent, harness_from_files(draft.tree)).changes
        return FailedProposal(
            id=f"failed-{_task_id(self.name, draft.number, draft.parent.id[:12])}",
            author=self.name,
            parent=draft.parent.id,
            reasons=tuple("; ".join(reasons)[:REASON_CHARS] for reasons in draft.refused),
            why=why,
            changes=changes,
            rollout_ids=tuple(rollout.id for rollout in draft.rollouts),
            author_tokens=tokens,
            author_cost_usd=cost,
            failed_at=time.time(),
        )


def _task_id(name: str, number: int, parent: str) -> str:
    return f"author.{name}-{number}.{parent}"


def _ended(rollout: Rollout) -> bool:
    """Whether an attempt is over: it left a home, or has itself to blame that there is none."""
    return rollout.error is None or rollout.error.blame == "harness"


def author_task(name: str, draft: Draft, instruction: str) -> Task:
    """What the author is asked, with the tree as it stands in its home; nothing grades it."""
    files = {f"{FOLDER}/{path}": data for path, data in draft.tree.items()}
    if draft.manifest is not None:
        files[MANIFEST] = draft.manifest
    programs = " ".join(quote(f"{FOLDER}/{path}") for path in sorted(draft.tree.executable))
    task = Task(
        id=_task_id(name, draft.number, draft.parent.id),
        hash="",
        family="author",
        instruction=instruction,
        category="os",
        apps=("terminal",),
        channels=frozenset({"terminal"}),
        rubric=Rubric(criteria=(Criterion(id="proposal", description="A proposal that passes the gate is left."),)),
        limits=TaskLimits(agent_timeout_s=MACHINE_S),
        exec_files=files,
        setup=f"chmod +x -- {programs}" if programs else "",
        check="",
    )
    return task.model_copy(update={"hash": task_hash(task)})


def ask(draft: Draft, evidence: Evidence, most_chars: int) -> str:
    """The evidence's summary, what else lies in /evidence, and what became of earlier versions."""
    summary = evidence.summary
    if len(summary) > most_chars:
        summary = f"{summary[:most_chars]}\n... the rest is in {EVIDENCE}/README.md"
    parts = [summary.strip()] if summary.strip() else []
    if evidence.files:
        listed = "\n".join(f"- {path} ({len(data):,} bytes)" for path, data in sorted(evidence.files.items()))
        parts.append(f"# Files in {EVIDENCE}\n\n{listed}")
    if draft.failed:
        said = "\n".join(f"- {one.why or 'no reason given'}: {one.reasons[-1]}" for one in draft.failed)
        parts.append(f"# What failed since\n\n{said}")
    if draft.refused:
        left = [rollout for rollout in draft.rollouts if rollout.state_sha256 is not None]
        steps = [turn.summary for rollout in left for turn in rollout.turns][-STEPS_TOLD:]
        parts.append("# Your steps so far\n\n" + "\n".join(f"- {step}" for step in steps))
        said = "\n".join(f"- {reason[:REASON_CHARS]}" for reason in draft.refused[-1])
        parts.append(
            "# Your proposal is not taken yet\n\n"
            f"{said}\n\nharness/ and manifest.json are as you left them (what is no plain file is gone, what could "
            "not be read at all is as before). Mend this, then end again."
        )
    return "\n\n".join(parts)
