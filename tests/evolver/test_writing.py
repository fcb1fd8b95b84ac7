"""A scripted endpoint writes skills: taken, refused, malformed, cut off and stuck; all of it on record and paid for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from devset.families import families
from devset.forge.duplicates import Duplicates
from devset.forge.sets import forge_of, skills_of
from devset.forge.settings import Settings
from devset.forge.skills import SHIPPED, family_of, parsed_skill, read_skill, write_skill
from devset.forge.taxonomy import Cell, wanted
from evolver.admission import Bench
from evolver.amortised import OneOff, agent_first, forged, one_off
from evolver.budget import Budget
from evolver.commands.admission import opened_bench
from evolver.config import OpenAISpec, RunConfig
from evolver.disk import append_line, records_in
from evolver.errors import BudgetSpent, SandboxLost
from evolver.models.openai import OpenAIModel
from evolver.protocols import Ran
from evolver.records import LedgerEntry
from evolver.store import Store
from evolver.testing import FakeSandbox
from evolver.writing import HELD, LOG, TAKEN, Desk, Outcome, SkillVerdict, next_cell, static_reasons, write_skills
from tests.devset.tiny_skills import seldom_filled
from tests.evolver.endpoint_server import Reply, calls, chat, serving
from tests.evolver.test_cli import called
from tests.evolver.test_composed import bench, machine

MODEL = "writer"
# A right skill that is none of ours: the numbered lines of a list.
GOOD: dict[str, object] = {
    **read_skill(SHIPPED / "text.reverse-lines").model_dump(mode="json", exclude_defaults=True),
    "name": "text.shout-lines",
    "title": "Write the lines of a file in capitals",
    "path": ["text", "lines", "shout"],
    "wordings": [
        "Write the lines of {{source}}.txt on the Desktop in capitals into {{target}}.txt beside it.",
        "I want {{target}}.txt on the Desktop: what {{source}}.txt there says, in capital letters.",
    ],
    "oracle": [
        {
            "summary": "Write it in capitals",
            "command": "tr a-z A-Z < ~/Desktop/{{source}}.txt > ~/Desktop/{{target}}.txt",
        }
    ],
    "mutants": {
        "copied": "cp ~/Desktop/{{source}}.txt ~/Desktop/{{target}}.txt",
        "small letters": "tr A-Z a-z < ~/Desktop/{{source}}.txt > ~/Desktop/{{target}}.txt",
        "one line short": "tr a-z A-Z < ~/Desktop/{{source}}.txt | head -n 5 > ~/Desktop/{{target}}.txt",
    },
    "equivalents": {"sed": "sed 's/.*/\\U&/' ~/Desktop/{{source}}.txt > ~/Desktop/{{target}}.txt"},
}
GOOD["slots"] = {**GOOD["slots"], "back": {"type": "text", "how": "upper", "of": ["lines"]}}  # type: ignore[dict-item]
UNSOUND = {
    **GOOD,
    "mutants": {**GOOD["mutants"], "right": "tr a-z A-Z < ~/Desktop/{{source}}.txt > ~/Desktop/{{target}}.txt"},
}  # type: ignore[dict-item]
MALFORMED = {**GOOD, "post": []}


def hands_in(*skills: dict[str, object]) -> Reply:
    return chat(calls(*(("write_skill", json.dumps(skill)) for skill in skills)), finish="tool_calls")


def config(url: str, **fields: object) -> RunConfig:
    model = {"kind": "openai", "model": MODEL, "base_url": url, "retry_for_s": 0}
    return RunConfig.model_validate(
        {
            "authors": [{"kind": "llm", "model": model, "max_repairs": 1}],
            "prices": {MODEL: {"input": 1.0, "output": 1.0}},
            **fields,
        }
    )


def desk(folder: Path, given: RunConfig, at: Bench, limit_s: float = 60) -> Desk:
    store = Store.create(folder, given)
    spec = given.authors[0].model
    assert isinstance(spec, OpenAISpec)
    known = skills_of(Settings())
    return Desk(store, OpenAIModel(spec), at, known, Duplicates(known), max_repairs=1, limit_s=limit_s)


def lost(sandbox: FakeSandbox, command: str) -> Ran:
    raise SandboxLost("gone")


def broken(sandbox: FakeSandbox, command: str) -> Ran:
    return Ran(1, "Traceback")


async def written(place: Desk, n: int = 1) -> list[SkillVerdict]:
    return [verdict async for verdict in write_skills(place, n)]


def outcomes(verdicts: Sequence[SkillVerdict]) -> list[Outcome]:
    return [verdict.outcome for verdict in verdicts]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap (Debian: apt-get install bubblewrap)")
async def test_a_skill_is_mended_until_the_gate_lets_it_in_and_then_it_is_one_like_any(tmp_path: Path) -> None:
    with serving(hands_in(UNSOUND), hands_in(GOOD)) as endpoint:
        async with opened_bench("local", 1) as at:
            place = desk(tmp_path / "run", config(endpoint.url), at)
            [verdict] = await written(place)
    assert (verdict.outcome, verdict.name, verdict.calls) == ("admitted", "text.shout-lines", 2)
    told = endpoint.requests[1]["messages"][-1]
    assert told["role"] == "tool" and "mutant succeeds: 1: right" in str(told["content"])
    assert (verdict.tokens, verdict.cost_usd) == (36, pytest.approx(36e-6))
    folder = place.store.path / TAKEN
    assert read_skill(folder / "text.shout-lines").path == ("text", "lines", "shout")
    forge = forge_of(Settings(skills=(str(folder),), fresh=("text.shout-lines",)))
    assert "text.shout-lines" in {
        s for made, _ in zip(forge.sampler, range(12), strict=False) for s in made.flow.skills
    }


async def test_what_is_malformed_is_told_a_few_times_and_never_run(tmp_path: Path) -> None:
    nothing = machine(broken)
    text = chat({"content": "Here is a fine skill."})
    with serving(hands_in(MALFORMED), text) as endpoint:
        place = desk(tmp_path / "run", config(endpoint.url), bench(nothing))
        [verdict] = await written(place)
    assert verdict.outcome == "malformed" and verdict.calls == 2 and nothing.opened == []
    first, second = endpoint.requests
    assert "post" in str(second["messages"][-1]["content"]) and len(second["messages"]) == len(first["messages"]) + 2
    assert first["tools"][0]["function"]["name"] == "write_skill" and "text_is(" in str(first["messages"][0])
    assert "text alone" in verdict.reasons[0]
    held = place.store.path / HELD / verdict.id
    assert "text alone" in (held / "reasons.txt").read_text() and not (place.store.path / TAKEN).exists()


async def test_what_the_gate_refuses_is_quarantined_and_our_own_failure_is_not_its_fault(tmp_path: Path) -> None:
    for answer, outcome in ((broken, "quarantined"), (lost, "lost")):
        with serving(hands_in(GOOD)) as endpoint:
            place = desk(tmp_path / outcome, config(endpoint.url), bench(machine(answer)))
            [verdict] = await written(place)
        assert verdict.outcome == outcome and verdict.name == "text.shout-lines"
        assert "text.shout-lines" not in place.families and not (place.store.path / TAKEN).exists()
        assert "shout" in (place.store.path / HELD / verdict.id / "answer.txt").read_text()


async def test_g45_a_stuck_call_ends_at_its_limit_is_classified_and_the_batch_goes_on(tmp_path: Path) -> None:
    slow = hands_in(GOOD)
    slow.delay_s = 20.0
    with serving(slow, chat({"content": "no"})) as endpoint:
        place = desk(tmp_path / "run", config(endpoint.url), bench(machine(broken)), limit_s=4)
        stuck, next_one = await written(place, 2)
    assert (stuck.outcome, stuck.calls, stuck.tokens, stuck.cost_usd) == ("stuck", 1, None, None)
    assert "longer than 4 s" in stuck.reasons[0] and stuck.seconds < slow.delay_s
    assert next_one.outcome == "malformed" and next_one.tokens == 36
    entries = place.store.all(LedgerEntry)
    assert [entry.role for entry in entries] == ["author"] * 3 and entries[0].cost_usd is None  # billed or not: unknown
    with serving(Reply(status=500, body={"error": {"message": "down"}})) as endpoint:
        down = desk(tmp_path / "down", config(endpoint.url), bench(machine(broken)))
        assert outcomes(await written(down)) == ["provider"]


async def test_what_the_gate_ran_is_what_is_in_use_whenever_it_was_stopped(tmp_path: Path) -> None:
    """A verdict comes first, then the skill is put in use: a stop between leaves no skill without a verdict."""
    with serving(hands_in(GOOD)) as endpoint:
        place = desk(tmp_path / "run", config(endpoint.url), bench(machine(broken)))
        [refused] = await written(place)
    held = place.store.path / HELD / refused.id
    assert family_of(read_skill(held / "text.shout-lines")).name == "text.shout-lines"
    assert {path.name for path in held.iterdir()} == {"text.shout-lines", "reasons.txt", "answer.txt"}

    other = desk(tmp_path / "stopped", config(endpoint.url), bench(machine(broken)))
    aside = other.store.path / HELD / "skill-1" / "text.shout-lines"
    write_skill(parsed_skill(GOOD, "there"), aside)
    assert await written(other, 0) == [] and aside.is_dir() and "text.shout-lines" not in other.families
    admitted = refused.model_copy(update={"outcome": "admitted", "reasons": ()})
    append_line(other.store.path / LOG, admitted.model_dump_json())
    for _ in range(2):
        assert await written(other, 1) == [admitted]
        assert [path.name for path in (other.store.path / TAKEN).iterdir()] == ["text.shout-lines"]
        assert "text.shout-lines" in other.families and not aside.parent.exists()


async def test_a_skill_that_its_directory_can_not_hold_is_told(tmp_path: Path) -> None:
    check = {"name": "text_is", "slots": {"path": "Desktop/{{target}}.txt", "expected": [None]}}
    null = {**GOOD, "post": [{"criterion": "a", "description": "b", "checks": [check]}]}
    with serving(hands_in(null), chat({"content": "no"})) as endpoint:
        place = desk(tmp_path / "run", config(endpoint.url), bench(machine(broken)))
        [verdict] = await written(place)
    assert verdict.outcome == "malformed" and "can't be written" in str(endpoint.requests[1]["messages"][-1])


async def test_it_goes_on_where_it_was_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    given = config("http://127.0.0.1:1/v1")
    with serving(chat({"content": "no"})) as endpoint:
        place = desk(tmp_path / "run", config(endpoint.url), bench(machine(broken)))
        first = await written(place, 1)
        both = await written(place, 2)
        assert both[0] == first[0] and len(endpoint.requests) == 4
        again = await written(place, 2)
        assert again == both and len(endpoint.requests) == 4
        assert list(records_in(place.store.path / LOG, SkillVerdict)) == both
        assert len({verdict.cell for verdict in both}) == 2
        store = Store.create(tmp_path / "capped", config(endpoint.url, caps={"author": {"tokens": 1}}))
        capped = replace(place, store=store)
        with pytest.raises(BudgetSpent, match=r"author\.tokens"):
            await written(capped, 2)
        assert Budget(store, given.caps).spent("author").calls == 1


def test_a_skill_that_is_there_is_told_apart_without_running_it() -> None:
    families = skills_of(Settings())
    known = families, Duplicates(families)
    shipped = read_skill(SHIPPED / "text.reverse-lines")
    assert "already" in static_reasons(family_of(shipped), *known)[0]
    renamed = shipped.model_copy(update={"name": "text.backwards"})
    assert "is what the skill 'text.reverse-lines' does" in static_reasons(family_of(renamed), *known)[0]
    moved = renamed.model_copy(update={"path": ("text", "list", "turn")})
    assert "under another name" in static_reasons(family_of(moved), *known)[0]
    odd = seldom_filled(family_of(parsed_skill(GOOD, "there")))
    assert "slots: for some seeds they can't be filled: slot 'word'" in static_reasons(odd, *known)[0]


def test_cells_are_wanted_first_and_then_where_there_is_least() -> None:
    known, cells = families(), wanted()
    assert next_cell(known, set()) in cells
    tried = {"/".join(cell.path) for cell in cells}
    other = next_cell(known, tried)
    assert other == Cell(other.app, "any", "other", note=other.note) and other.app in {
        f.path[0] for f in known.values()
    }
    assert next_cell(known, tried | {f"{other.app}/any/other"}).app != other.app


def test_costs_stand_side_by_side_and_what_is_unknown_stays_so() -> None:
    def entry(n: int, cost: float | None, role: str = "author") -> LedgerEntry:
        fields = {"id": f"led-{n}", "role": role, "model_id": MODEL, "calls": 2, "at": 0.0, "seconds": 3.0}
        return LedgerEntry.model_validate(fields | {"input_tokens": 600, "output_tokens": 400, "cost_usd": cost})

    def verdict(n: int, outcome: Outcome) -> SkillVerdict:
        return SkillVerdict(
            id=f"skill-{n}", cell="a/b/c", outcome=outcome, name=None, calls=2, reasons=(), tokens=1, cost_usd=0.0,
            seconds=1.0, gate_seconds=10.0, at=0.0,
        )  # fmt: skip

    verdicts = [verdict(0, "admitted"), verdict(1, "quarantined"), verdict(2, "admitted")]
    spent = one_off([entry(0, 0.5), entry(1, 0.25), entry(2, 0.25), entry(3, 9.0, "teacher")], verdicts)
    assert spent == OneOff(skills=2, tried=3, calls=6, usd=1.0, tokens=3_000, seconds=9.0, gate_seconds=30.0)
    one, many = agent_first(spent), forged(spent, 10_000)
    assert (one.tasks, one.usd_per_task, one.gate_seconds_per_task) == (2, 0.5, 15.0)
    assert (many.tasks, many.usd_per_task, many.tokens_per_task) == (10_000, 0.0001, 0.3)
    unknown = one_off([entry(0, 0.5), entry(1, None)], verdicts)
    assert unknown.usd is None and agent_first(unknown).usd_per_task is None is forged(unknown, 9).usd_per_task
    none = one_off([], [])
    assert (none.usd, agent_first(none).usd_per_task) == (0, None)


def test_a_directory_is_checked_before_anything_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "forge", "check", str(tmp_path), "--backend", "local")
    assert code == 2 and "skill.toml" in err
    shutil.copytree(SHIPPED / "text.reverse-lines", tmp_path / "text.reverse-lines")
    code, said, _ = called(capsys, "forge", "check", str(tmp_path / "text.reverse-lines"), "--backend", "local")
    assert code == 1 and "refused: name: there is a skill" in said


def test_commands_write_and_say_what_it_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.toml").write_text("")
    code, _, err = called(capsys, "forge", "write", str(tmp_path / "none.toml"), "--out", str(tmp_path / "x"))
    assert code == 2 and 'kind = "llm"' in err
    with serving(chat({"content": "no"})) as endpoint:
        text = f'[[authors]]\nkind = "llm"\nmax_repairs = 0\n[authors.model]\nkind = "openai"\nmodel = "{MODEL}"\n'
        text += f'base_url = "{endpoint.url}"\n[prices."{MODEL}"]\ninput = 1\noutput = 1\n'
        (tmp_path / "my.toml").write_text(text)
        words = ("forge", "write", str(tmp_path / "my.toml"), "--out", str(tmp_path / "run"), "--n", "1")
        code, said, err = called(capsys, *words, "--backend", "local")
    assert code == 1 and "malformed" in said and "0 of 1 skills admitted" in err
    code, said, err = called(capsys, "forge", "cost", str(tmp_path / "run"), "--n", "500", "--json")
    found = json.loads(said)
    assert code == 0 and found["one_off"]["calls"] == 1 and found["one_off"]["usd"] == pytest.approx(18e-6)
    assert [(side["way"], side["tasks"]) for side in found["sides"]] == [("written one by one", 0), ("forged", 500)]
    assert found["sides"][0]["usd_per_task"] is None
    code, said, err = called(capsys, "forge", "cost", str(tmp_path / "run"))
    assert code == 0 and "unknown" in said and "100,000" in said and "0 of 1 skills admitted" in err
    assert "assumed, not measured" in err and "cheaper" not in err
