"""Skills as directories: what is read, what is refused with which words; a written skill is a family like any other."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest
from pydantic import ValidationError

from devset.families import families
from devset.forge.fills import SlotSpec, filled
from devset.forge.rules import violations
from devset.forge.sampler import Sampler
from devset.forge.settings import Settings
from devset.forge.shapes import same_shape, shapes
from devset.forge.skills import SHIPPED, SkillError, family_of, parsed_skill, read_skill, read_skills, write_skill
from devset.forge.taxonomy import taxonomy, wanted
from devset.forge.workflow import bound, task_of
from devset.task import task_hash
from tests.devset.tiny_skills import executed, facts_of, seldom_filled

KNOWN = families()
SKILLS = {family.name: family for family in read_skills(SHIPPED)}
REVERSE = read_skill(SHIPPED / "text.reverse-lines")


@pytest.mark.parametrize("name", SKILLS)
def test_a_shipped_skill_stands_its_trial_alone_and_beside_another(name: str, tmp_path: Path) -> None:
    alone = bound([SKILLS[name]], (), 7)
    assert violations(alone, task_of(alone)) == []
    facts = facts_of(alone, tmp_path / "alone")
    assert not any(facts.mutants.values()) and all(facts.equivalents.values()) and len(facts.equivalents) >= 1
    assert {"1: misplaced", "1: touched", "1 left out"} <= set(facts.mutants) and facts.changed == []
    assert executed(alone, tmp_path / "alone") == {}
    beside = bound([SKILLS[name], KNOWN["text.append"]], (), 8)
    assert violations(beside, task_of(beside)) == [] and executed(beside, tmp_path / "beside") == {}


def test_a_skill_survives_its_directory_and_makes_the_same_tasks(tmp_path: Path) -> None:
    names = {"one short": "true", "one-short": "false", "kürzer": "printf 'a\\r'\r\n: 1"}
    odd = REVERSE.model_copy(update={"name": "text.odd", "mutants": names})
    for spec in (odd, REVERSE):
        write_skill(spec, tmp_path / spec.name)
        again = read_skill(tmp_path / spec.name)
        assert again == spec
    one, other = family_of(again).instance(5), SKILLS[REVERSE.name].instance(5)
    assert one == other and one.hash == task_hash(one)
    assert one.hash != SKILLS[REVERSE.name].instance(6).hash


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"writes": ["../.bashrc"]}, "must lie below"),
        ({"files": {"/etc/passwd": "x"}}, "must lie below"),
        ({"wordings": ["Turn {{source}} and {{nothing}}.", "Turn {{source}} and {{nothing}} round."]}, "is no slot"),
        ({"wordings": ["Turn {{source}} into {{target}}.", "Turn {{source}} round."]}, "the same slots"),
        ({"wordings": ["Turn {{source.name}} round."] * 2}, "its name in braces"),
        ({"wordings": ["Turn {{lines[9]}} round."] * 2}, "its name in braces"),
        ({"wordings": ["Turn {{source:>2000000000}} round."] * 2}, "its name in braces"),
        ({"wordings": [" "] * 2}, "pattern"),
        ({"oracle": [{"summary": "Turn\nrm it", "command": "true"}]}, "a summary is one line"),
        ({"oracle": [{"summary": "Turn", "command": "true\n# step: more\nfalse"}]}, "no line of a command"),
        ({"mutants": dict.fromkeys(("../a", "b/c", ".d"), "true")}, "pattern"),
        ({"mutants": {"one": "true"}}, "at least 3"),
        ({"post": [{"criterion": "a", "description": "b", "checks": [{"name": "os_system", "slots": {}}]}]}, "library"),
        (
            {"post": [{"criterion": "a", "description": "b", "checks": [{"name": "absent", "slots": {"pth": "x"}}]}]},
            "path",
        ),
        ({"exec": "print(1)"}, "Extra inputs"),
        ({"name": "Text Reverse"}, "pattern"),
    ],
)
def test_what_is_wrong_with_a_skill_is_said(change: dict[str, object], said: str) -> None:
    with pytest.raises(SkillError, match=f"there: .*{said}"):
        parsed_skill({**REVERSE.model_dump(mode="json"), **change}, "there")


def with_slot(options: list[str], **changes: object) -> dict[str, object]:
    """The fields of a skill with one slot more, `word`."""
    fields = REVERSE.model_dump(mode="json")
    word = {"type": "text", "draw": "choice", "options": options}
    return {**fields, "slots": {**fields["slots"], "word": word}, **changes}


@pytest.mark.parametrize("where", ["files", "writes"])
@pytest.mark.parametrize("word", ["../../../.bashrc", "x/../../../../y", "a\nb", "", "/etc/passwd"])
def test_no_value_of_a_slot_leads_a_path_out_of_the_home(where: str, word: str) -> None:
    """Each passes as a template; filled, it would be written wherever the program that forges may write."""
    path = "Desktop/{{word}}"
    fields = with_slot([word], **{where: {path: "evil"} if where == "files" else [path]})
    with pytest.raises(SkillError, match="must lie below Desktop"):
        family_of(parsed_skill(fields, "there"))


def test_a_wording_is_text_around_slots_whatever_braces_it_has() -> None:
    """str.format fills it in on this machine, so nothing of it but the name of a slot may be a field."""
    odd = "Turn {source!r} {0.__class__} }} {{{source}}} into {{target}}."
    task = family_of(REVERSE.model_copy(update={"wordings": (odd, odd)})).instance(3)
    slots = SKILLS[REVERSE.name].binding(3).slots
    assert task.instruction == f"Turn {{source!r}} {{0.__class__}} }}}} {{{slots['source']}}} into {slots['target']}."


def test_slots_that_can_not_be_filled_are_said_and_none_grows_without_end() -> None:
    """Each `replaced` below squares the length: three of them would take more memory than there is."""
    fields = REVERSE.model_dump(mode="json")
    unknown = [{"criterion": "a", "description": "{{nothing}}", "checks": fields["post"][0]["checks"]}]
    slots = {
        name: {"type": "text", "draw": "choice", "options": [text]} for name, text in (("no", ""), ("a", "x" * 200))
    }
    for name, of in (("b", "a"), ("c", "b"), ("d", "c")):
        slots[name] = {"type": "text", "how": "replaced", "of": [of, "no", of]}
    for changes, said in (
        ({"post": unknown}, "nothing"),
        ({"slots": {**fields["slots"], **slots}}, "slot 'b'.*10,000"),
    ):
        with pytest.raises(SkillError, match=said):
            family_of(parsed_skill({**fields, **changes}, "there"))


def test_a_slot_that_a_seed_can_not_fill_costs_a_draw_and_not_the_set() -> None:
    sampler = Sampler({REVERSE.name: seldom_filled(SKILLS[REVERSE.name])}, Settings(single=1.0, sizes=(1,)))
    assert len(list(islice(sampler, 10))) == 10
    assert sampler.draws.refused["slots"] > 10 and "slot 'word'" in sampler.draws.examples["slots"]


def test_a_secret_is_in_no_wording() -> None:
    fields = read_skill(SHIPPED / "text.largest-number").model_dump(mode="json")
    fields["wordings"] = ["Write {{most}} of {{source}} into {{target}}."] * 2
    with pytest.raises(SkillError, match="which is a nonce"):
        parsed_skill(fields, "there")


def test_slots_are_drawn_or_computed_in_their_order() -> None:
    from random import Random

    specs = {
        "rows": SlotSpec(type="text", draw="items", count=4),
        "counts": SlotSpec(type="numbers", draw="numbers", count=4),
        "table": SlotSpec(type="text", how="rows", of=("rows", "counts")),
        "at": SlotSpec(type="count", how="index_of_largest", of=("counts",)),
        "most": SlotSpec(type="text", how="nth", of=("rows", "at")),
        "loud": SlotSpec(type="text", how="replaced", of=("rows", "most", "most")),
    }
    made = filled(specs, Random(3))
    assert made == filled(specs, Random(3)) != filled(specs, Random(4))
    rows, counts = made["rows"], made["counts"]
    assert isinstance(rows, tuple) and isinstance(counts, tuple)
    assert made["table"] == tuple(f"{a},{b}" for a, b in zip(rows, counts, strict=True))
    assert made["most"] == rows[list(counts).index(max(counts))] and made["loud"] == rows  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not listed before it"):
        filled({"a": specs["table"]}, Random(0))
    with pytest.raises(ValueError, match="expected numbers"):
        filled({"rows": specs["rows"], "s": SlotSpec(type="number", how="sum", of=("rows",))}, Random(0))
    for wrong in ({"type": "text"}, {"type": "text", "draw": "item", "how": "sum"}, {"type": "text", "draw": "choice"}):
        with pytest.raises(ValidationError):
            SlotSpec.model_validate(wrong)


def test_a_directory_that_is_broken_is_named(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / REVERSE.name, tmp_path / "text.other-name")
    with pytest.raises(SkillError, match=r"expected the folder's name 'text\.other-name'"):
        list(read_skills(tmp_path))
    (tmp_path / "text.other-name" / "oracle.sh").unlink()
    with pytest.raises(SkillError, match="can't be read"):
        list(read_skills(tmp_path))


def test_no_two_skills_are_of_one_shape_and_a_renamed_one_is_found() -> None:
    known = {**KNOWN, **SKILLS}
    assert [name for name in known if same_shape(known[name], known)] == []
    fields = REVERSE.model_dump(mode="json")
    twin = parsed_skill({**fields, "name": "text.backwards", "path": ["notes", "list", "turn"]}, "there")
    assert same_shape(family_of(twin), known) == REVERSE.name
    assert len(shapes(KNOWN["files.rename"])) == 1


def test_the_taxonomy_is_what_the_skills_are_and_what_is_wanted() -> None:
    cells = taxonomy({**KNOWN, **SKILLS})
    assert {cell.path for cell in cells if cell.skills} == {f.path for f in (*KNOWN.values(), *SKILLS.values())}
    assert {cell.path for cell in cells if not cell.skills} <= {cell.path for cell in wanted()}
    assert all(cell.note for cell in wanted()) and any(not cell.skills for cell in cells)
    assert all(cell.channels for cell in cells if cell.skills)
