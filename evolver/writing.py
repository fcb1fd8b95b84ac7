"""A language model writes new skills: one conversation a skill, each answer a tool call that holds a whole skill.

What is wrong with an answer goes back as the result of its call, a few times at most. What its scripts do is found out
in sandboxes alone. A skill is written to `quarantine/` first, and what is read back from there goes through the gate
(rules, wrong and other right solutions, fresh machines). When its verdict is on record, one that passed moves to
`skills/`; of any other the reasons lie beside it. Every call is in the ledger.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from devset.checks import CHECKS
from devset.families.skill import Family
from devset.forge.duplicates import Duplicates
from devset.forge.rules import violations
from devset.forge.sampler import Composed
from devset.forge.shapes import same_shape
from devset.forge.skills import (
    FORMAT,
    SHIPPED,
    SkillError,
    SkillSpec,
    family_of,
    parsed_skill,
    read_skill,
    signature,
    write_skill,
)
from devset.forge.taxonomy import Cell, taxonomy
from devset.forge.workflow import bound, task_of
from evolver.admission import Bench
from evolver.budget import Budget
from evolver.composed import prove
from evolver.disk import append_line, make_folder, records_in, sync
from evolver.errors import ProviderFailed
from evolver.protocols import Model, Request
from evolver.records import Completion, Finite, LedgerEntry, Message, Record, Text, ToolSpec
from evolver.store import Store
from evolver.sums import total
from harnesses.harness import Sampling

LOG, TAKEN, HELD = "skills.jsonl", "skills", "quarantine"
TOOL = "write_skill"
SAMPLING = Sampling(temperature=0.7, max_tokens=8_192)
LIMIT_S = 720.0  # of a model's calls for one skill
SEEDS = (1, 2, 3)
PARTNER = "text.append"
TRIES = 3  # of the gate, where our own machines are lost
SHOWN = 8  # reasons that are sent back

Outcome = Literal["admitted", "quarantined", "malformed", "stuck", "provider", "lost"]


class SkillVerdict(Record):
    """What became of one skill that was asked for.

    `admitted`: it is in use. `quarantined`: the gate refused its last version. `malformed`: no answer could be read.
    `stuck`: its calls took longer than the limit. `provider`: the endpoint gave up. `lost`: our machines did, which
    says nothing about it. `tokens` and `cost_usd` are of its calls, None where one is unknown.
    """

    id: str
    cell: str
    outcome: Outcome
    name: str | None
    calls: int
    reasons: tuple[str, ...]
    tokens: int | None
    cost_usd: Finite | None
    seconds: Finite
    gate_seconds: Finite
    at: Finite


@dataclass(frozen=True)
class Desk:
    """What skills are written with: the ledger's run, the model, the bench of the gate, the skills that there are, and
    what no skill may be again."""

    store: Store
    model: Model
    bench: Bench
    families: dict[str, Family]
    duplicates: Duplicates
    max_repairs: int = 2
    limit_s: float = LIMIT_S


@dataclass
class _Draft:
    """One skill in the making."""

    id: str
    cell: Cell
    messages: list[Message]
    entries: list[LedgerEntry] = field(default_factory=list)
    reasons: tuple[str, ...] = ()
    spec: SkillSpec | None = None
    answer: str = ""
    gate_s: float = 0.0


async def write_skills(desk: Desk, n: int) -> AsyncIterator[SkillVerdict]:
    """`n` skills in all, those of earlier calls included, whatever becomes of them. One that is stuck does not hold up
    the others. Raises BudgetSpent where a cap leaves no room for another call."""
    log = desk.store.path / LOG
    known = list(records_in(log, SkillVerdict))
    for verdict in known:
        _take(desk, verdict)  # a stop may have come between its verdict and this
    for verdict in known[:n]:
        yield verdict
    tried = {verdict.cell for verdict in known}
    for number in range(len(known) + 1, n + 1):
        cell = next_cell(desk.families, tried)
        verdict = await _write_one(desk, f"skill-{number}", cell)
        tried.add(verdict.cell)
        append_line(log, verdict.model_dump_json())
        _take(desk, verdict)
        yield verdict


def next_cell(families: Mapping[str, Family], tried: set[str]) -> Cell:
    """A cell that is wanted and was not tried yet, else the app with the fewest skills, of which another is wanted."""
    cells = taxonomy(families)
    for cell in cells:
        if not cell.skills and name_of(cell) not in tried:
            return cell
    apps = [cell.app for cell in cells if cell.skills]
    app = min(sorted(set(apps)), key=lambda one: (sum(t.startswith(f"{one}/") for t in tried), apps.count(one)))
    return Cell(app, "any", "other", note="something that no skill of this app does yet; choose object and verb")


def _take(desk: Desk, verdict: SkillVerdict) -> None:
    """Puts a skill that was admitted in use, unless it is already."""
    if verdict.outcome != "admitted" or verdict.name is None:
        return
    aside, place = (desk.store.path / folder / verdict.name for folder in (f"{HELD}/{verdict.id}", TAKEN))
    if not aside.is_dir():
        return
    make_folder(place.parent)
    aside.rename(place)
    sync((place.parent,))
    aside.parent.rmdir()
    desk.families[verdict.name] = family_of(read_skill(place))


def name_of(cell: Cell) -> str:
    return "/".join(cell.path)


async def _write_one(desk: Desk, skill_id: str, cell: Cell) -> SkillVerdict:
    began = time.monotonic()
    draft = _Draft(skill_id, cell, [_said("system", system_text()), _said("user", ask(cell, desk.families))])
    outcome = await _conversation(desk, draft)
    if outcome != "admitted":
        _say_why(draft, desk.store.path / HELD / skill_id)
    tokens = [count for entry in draft.entries for count in (entry.input_tokens, entry.output_tokens)]
    costs = [entry.cost_usd for entry in draft.entries]
    return SkillVerdict(
        id=skill_id,
        cell=name_of(cell),
        outcome=outcome,
        name=draft.spec.name if draft.spec else None,
        calls=sum(entry.calls for entry in draft.entries),
        reasons=draft.reasons,
        tokens=total(tokens),
        cost_usd=total(costs),
        seconds=round(time.monotonic() - began, 3),
        gate_seconds=round(draft.gate_s, 3),
        at=time.time(),
    )


async def _conversation(desk: Desk, draft: _Draft) -> Outcome:
    """Answers and what is wrong with them, until one is right or the repairs are used up."""
    outcome: Outcome = "malformed"
    left_s = desk.limit_s
    for _ in range(1 + desk.max_repairs):
        began = time.monotonic()
        try:
            answer = await _asked(desk, draft, left_s)
        except TimeoutError:
            draft.reasons = (f"the model's calls took longer than {desk.limit_s:g} s",)
            return "stuck"
        except ProviderFailed as error:
            draft.reasons = (str(error),)
            return "provider"
        left_s -= time.monotonic() - began
        try:
            draft.spec = _kept(_spec_of(answer), desk.store.path / HELD / draft.id)
        except SkillError as error:
            draft.reasons, draft.spec, outcome = (str(error),), None, "malformed"
        else:
            draft.reasons, lost = await _against(desk, draft)
            if lost:
                return "lost"
            if not draft.reasons:
                return "admitted"
            outcome = "quarantined"
        draft.messages += _sent_back(answer, draft.reasons)
    return outcome


async def _asked(desk: Desk, draft: _Draft, limit_s: float) -> Completion:
    """One call, charged with what came to nothing before it came back, or did not. Raises TimeoutError at the limit."""
    budget = Budget(desk.store, desk.store.config.caps)
    budget.check("author")
    request = Request(tuple(draft.messages), (tool_spec(),), SAMPLING, desk.store.config.seed + len(draft.entries))
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            completion = await desk.model.complete(request)
    finally:
        lost = budget.charge_spoiled("author", desk.model.id, request.spoiled)
        draft.entries += [] if lost is None else [lost]
    entry = budget.call_entry("author", desk.model.id, completion.usage, time.monotonic() - began)
    draft.entries.append(entry)
    budget.charge(entry)
    draft.answer = json.dumps([call.arguments for call in completion.calls]) if completion.calls else completion.text
    return completion


def _spec_of(answer: Completion) -> SkillSpec:
    """Raises SkillError, with all that is wrong."""
    if answer.invalid is not None:
        raise SkillError(f"the answer can't be used: {answer.invalid}")
    if answer.finish_reason == "length":
        raise SkillError(f"the answer was cut off at {SAMPLING.max_tokens:,} tokens: write a shorter skill")
    if [call.name for call in answer.calls] != [TOOL]:
        raise SkillError(f"expected one call of {TOOL}, got {[call.name for call in answer.calls] or 'text alone'}")
    return parsed_skill(answer.calls[0].arguments, TOOL)


def _kept(spec: SkillSpec, folder: Path) -> SkillSpec:
    """The skill as it is read back from below `folder`, where it takes the place of an earlier version: the gate runs
    what will be in use. Raises SkillError."""
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    write_skill(spec, folder / spec.name)
    sync((folder, *folder.rglob("*")))
    return read_skill(folder / spec.name)


async def _against(desk: Desk, draft: _Draft) -> tuple[tuple[str, ...], bool]:
    """What the gate has against the skill, and whether our own machines kept it from saying so."""
    assert draft.spec is not None
    try:
        family = family_of(draft.spec)
    except SkillError as error:
        return (str(error),), False
    if found := static_reasons(family, desk.families, desk.duplicates):
        return tuple(found), False
    began = time.monotonic()
    try:
        return await tried(family, desk.families, desk.bench)
    finally:
        draft.gate_s += time.monotonic() - began


async def tried(family: Family, families: Mapping[str, Family], bench: Bench) -> tuple[tuple[str, ...], bool]:
    """What the gate has against a skill by running it, and whether our own machines kept it from saying so."""
    reasons: tuple[str, ...] = ()
    for _ in range(TRIES):
        proofs = [proof async for proof in prove(_cases(family, families), bench)]
        reasons = tuple(dict.fromkeys(reason for proof in proofs for reason in proof.reasons))
        if not any(proof.lost for proof in proofs):
            return reasons, False
    return reasons, True


def static_reasons(family: Family, families: Mapping[str, Family], duplicates: Duplicates) -> list[str]:
    """What can be said against a skill beside those `families` without running anything."""
    if family.name in families:
        return [f"name: there is a skill {family.name!r} already"]
    if taken := next((n for n, other in families.items() if other.path == family.path), None):
        return [f"path: {'/'.join(family.path)} is what the skill {taken!r} does; write another one"]
    if twin := same_shape(family, families):
        return [f"it is the skill {twin!r} under another name: the same checks and the same commands"]
    found: list[str] = []
    for seed in SEEDS:
        try:
            flow = bound([family], (), seed)
            task = task_of(flow)
        except ValueError as error:
            found.append(f"slots: for some seeds they can't be filled: {error}")
            continue
        found += [f"{one.rule}: {one.why}" for one in violations(flow, task)]
        _, again = duplicates.twin(flow, task)
        found += ["its task is one that is held out"] if again is not None else []
    return list(dict.fromkeys(found))


def _cases(family: Family, families: Mapping[str, Family]) -> list[Composed]:
    """The skill alone, twice, and beside another one."""
    flows = [bound([family], (), seed) for seed in SEEDS[:2]]
    if (partner := families.get(PARTNER)) is not None:
        flows += [flow for flow in (bound([family, partner], (), SEEDS[2]),) if not violations(flow, task_of(flow))]
    return [Composed(flow, task_of(flow)) for flow in flows]


def _say_why(draft: _Draft, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reasons.txt").write_text("\n".join(draft.reasons) + "\n", encoding="utf-8")
    (folder / "answer.txt").write_text(draft.answer, encoding="utf-8")


# --- what is said to the model -----------------------------------------------------------------------------------


def tool_spec() -> ToolSpec:
    return ToolSpec(
        name=TOOL,
        description="Hands in one skill, whole.",
        parameters=SkillSpec.model_json_schema(),
    )


def system_text() -> str:
    """The format, the library of checks, and an example."""
    library = "\n".join(f"- {signature(name)}: {_first_line(name)}" for name in CHECKS)
    example = read_skill(SHIPPED / "text.largest-number").model_dump(mode="json", exclude_defaults=True)
    return (
        f"{FORMAT.read_text(encoding='utf-8')}\n## Checks\n\nPaths are relative to the home.\n\n{library}\n\n"
        f"## An example\n\n```json\n{json.dumps(example, ensure_ascii=False)}\n```\n\n"
        f"Answer with one call of `{TOOL}`. What comes back is either that it is taken or what is wrong with it; then "
        "hand in the whole skill again, mended."
    )


def ask(cell: Cell, families: Mapping[str, Family]) -> str:
    there = "\n".join(f"- {name}: {'/'.join(one.path)}: {one.title}" for name, one in families.items())
    return (
        f"Write a skill for {name_of(cell)}: {cell.note or 'choose what it is about'}.\n\n"
        f"These are there already; it must be none of them:\n{there}"
    )


def _sent_back(answer: Completion, reasons: Sequence[str]) -> list[Message]:
    """The answer, and what is wrong with it as the result of its call, or said where it made none."""
    told = "It is not taken:\n" + "\n".join(f"- {reason}" for reason in reasons[:SHOWN])
    if not answer.calls:
        spoken = Message(role="assistant", parts=(Text(text=answer.text or "(nothing that can be read)"),))
        return [spoken, _said("user", told)]
    spoken = Message(role="assistant", parts=(Text(text=answer.text),) if answer.text else (), calls=answer.calls)
    return [spoken, *(Message(role="tool", parts=(Text(text=told),), call_id=call.id) for call in answer.calls)]


def _said(role: Literal["system", "user"], text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))


def _first_line(check: str) -> str:
    return (CHECKS[check].__doc__ or "").strip().split("\n", maxsplit=1)[0]
