"""What flows between skills, how instructions read, and the sample: even, without duplicates, the same for a seed."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from devset.directory import read_task_dir, write_task_dir
from devset.families import families
from devset.families.skill import fields_of
from devset.forge.flow import DoesNotFit, output_of, spliced
from devset.forge.lanes import edges_of
from devset.forge.ports import INPUTS, OUTPUTS, fits
from devset.forge.sampler import Composed, Sampler, coverage_of
from devset.forge.settings import Settings, Shares, Target
from devset.forge.wording import drawn, joined
from devset.forge.workflow import Edge, bound, for_training, instruction, task_of
from devset.overlap import items_of, overlaps
from devset.splits import load_split
from devset.task import Oracle, task_hash
from tests.devset.tiny_skills import executed, flow, node

KNOWN = families()
FEEDS = [(a, b) for a in OUTPUTS for b in KNOWN if fits(a, b) is not None]
# Every source and every slot that can be fed at least once.
SPAN = {**{b: (a, b) for a, b in FEEDS}, **{a: (a, b) for a, b in FEEDS if b == "text.append"}}
word = re.compile(r"(?<!\w)Emma(?!\w)")


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("echo Emma > f", 'echo "$(cat ~/v)" > f'),
        ("sed 's/a/Emma/' f", "sed 's/a/'\"$(cat ~/v)\"'/' f"),
        ("python3 -c \"print('Emma')\"", "python3 -c \"print('$(cat ~/v)')\""),
        ("echo \\'Emma", 'echo \\\'"$(cat ~/v)"'),
        ("echo EmmaEmma", "echo EmmaEmma"),
    ],
)
def test_a_value_is_read_whatever_quotes_it_stands_in(command: str, wanted: str) -> None:
    assert spliced(command, word, "cat ~/v") == wanted


def test_every_port_is_of_a_skill_and_says_what_the_skill_says() -> None:
    for name, port in OUTPUTS.items():
        made = KNOWN[name].binding(5)
        value, reader = output_of(KNOWN[name], made)
        assert port.path.format(**made.slots) in made.writes and reader and value in str(made.post)
        assert fields_of(port.phrase) <= set(made.slots)
    for (name, slot), port in INPUTS.items():
        said = {field for wording in KNOWN[name].binding(5).wordings for field in fields_of(wording)}
        assert slot in said and not KNOWN[name].slots[slot].nonce
        assert all(fields_of(wording) == (said - {slot}) | {"value"} for wording in port.wordings), (name, slot)


@pytest.mark.parametrize(("source", "target"), sorted(set(SPAN.values())))
def test_c6_what_flows_is_really_read(source: str, target: str, tmp_path: Path) -> None:
    made_by = [KNOWN[name].binding(5) for name in (source, target)]
    if any("terminal" not in Oracle(terminal=made.terminal, gui=made.gui).channels for made in made_by):
        pytest.skip("not to be run by a terminal")
    chosen = [KNOWN[source], KNOWN[target]]
    made = bound(chosen, edges_of(chosen), seed=11)
    value, _ = output_of(KNOWN[source], made.nodes[0].made)
    assert not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", instruction(made))
    assert executed(made, tmp_path) == {}


def test_a_slot_that_does_not_fit_is_refused() -> None:
    chosen, edge = [KNOWN["csv.sum"], KNOWN["text.append"]], Edge(0, 1, "line")
    shown = KNOWN["text.append"].binding(5)
    family = replace(
        chosen[1], bind=lambda rng: replace(shown, files={"Desktop/x.txt": str(shown.slots["line"]).encode()})
    )
    with pytest.raises(DoesNotFit, match="given file"):
        bound([chosen[0], family], [edge], seed=1)
    more = replace(chosen[1], bind=lambda rng: replace(shown, wordings=("{line} and {before} into {name}",)))
    with pytest.raises(DoesNotFit, match="don't say all"):
        bound([chosen[0], more], [edge], seed=1)


def test_an_instruction_reads_like_a_persons() -> None:
    parts = ["Sort the list.", "What is in it? Save it.", "Rename the file."]
    said = [(part, part) for part in parts]
    texts = {joined(said, [False, False, False], Random(seed)) for seed in range(30)}
    assert len(texts) == 5
    for text in texts:
        assert all(part[1:] in text for part in parts) and "ll words: what" not in text
        assert not any(after in text for after in ("Then", "After that", "order"))
    assert all(
        "order" in t or "hen" in t or "After" in t
        for s in range(9)
        if (t := joined(said, [False, True, False], Random(s)))
    )
    named = [("Sort it.", "Sort it."), ("{who} has moved.", "Emma has moved.")]
    assert all("emma" not in joined(named, [False, False], Random(seed)) for seed in range(9))
    wordings = ("Rename {a} and leave everything else as it is.", "Call {a} something else.")
    assert {drawn(wordings, Random(seed)) for seed in range(9)} == {wordings[1]}  # the rest of the task is no "else"
    assert drawn(wordings[:1], Random(0)) == wordings[0]


def sample(n: int, **settings: object) -> tuple[list[Composed], Sampler]:
    sampler = Sampler(KNOWN, Settings.model_validate(settings))
    return list(islice(sampler, n)), sampler


@pytest.mark.parametrize("size", [2, 3])
def test_the_sample_is_even_and_the_same_for_a_seed(size: int) -> None:
    fields: dict[str, object] = {"sizes": [size], "single": 0, "held_out": True}
    made, sampler = sample(60, **fields)
    assert [m.task.hash for m in made] == [m.task.hash for m in sample(60, **fields)[0]]
    assert [m.task.hash for m in made] != [m.task.hash for m in sample(60, **fields, seed=1)[0]]
    assert len({m.id for m in made}) == len({m.task.hash for m in made}) == 60
    used = Counter(skill for m in made for skill in m.flow.skills)
    assert max(used.values()) <= 4 * (60 * size / len(sampler.lanes.starts("multi", size))) and len(used) > 25
    found = sampler.coverage()
    assert found.tasks == 60 and found.paths >= 55 and found.effective > 50 and 5 <= found.flows <= 50
    for one in made:
        assert one.task.skills == one.flow.skills == one.task.skill_ids and len(one.task.skills) == size
        assert one.task.hash == task_hash(one.task) and one.task.category == "multi_app"
        assert not any(skill in one.task.instruction for skill in one.task.skills)
        assert one.task.channels == one.task.oracle.channels and "terminal" in one.task.channels


def test_lanes_keep_their_ratio_and_hold_what_they_say() -> None:
    made, sampler = sample(100)
    for upto in (10, 34, 100):
        assert abs(sum(m.lane == "single" for m in made[:upto]) - 0.6176 * upto) <= 1
    for one in made:
        assert (one.lane == "single") == (len(one.task.apps) == 1), one.id
        assert one.task.seen_in_training, "what is held out is left out"
        assert one.task.id.startswith("multi.") == (len(one.flow.nodes) > 1)
    assert {len(m.flow.nodes) for m in made} == {1, 2, 3}
    alone = [m for m in made if len(m.flow.nodes) == 1]
    assert all(m.task == KNOWN[m.task.family].instance(m.flow.nodes[0].seed) for m in alone)
    assert sum(sampler.counts.lanes.values()) == 100


def test_a_template_has_so_many_instances_and_no_more() -> None:
    few = {name: KNOWN[name] for name in ("csv.lookup", "text.append", "files.rename")}
    sampler = Sampler(few, Settings(sizes=(1, 2), single=0.5, cap=2, alone=3, floor=0))
    made = list(sampler)
    counts = Counter(m.flow.path for m in made)
    assert max(n for path, n in counts.items() if "+" in path) == 2 and max(counts.values()) == 3
    assert sampler.draws.refused["template"] >= 1


def test_a_retired_skill_is_in_no_task() -> None:
    made, _ = sample(40, retired=["text.append", "csv.sum"])
    assert not {"text.append", "csv.sum"} & {skill for m in made for skill in m.flow.skills}


def test_targets_are_drawn_as_often_as_they_are_to_be() -> None:
    targets = (
        Target(skill="csv.sum", weight=3, sizes=(1, 2)),
        Target(skill="sheets.set-cell", weight=1, sizes=(2,), channel="gui"),
    )
    made, _ = sample(120, targets=targets, fresh=["web.form"], alone=500, cap=100)
    sources = Counter(m.source for m in made)
    assert abs(sources["targets"] - 72) <= 3 and abs(sources["coverage"] - 36) <= 3 and abs(sources["fresh"] - 12) <= 3
    weak = [m for m in made if m.source == "targets"]
    assert all({"csv.sum", "sheets.set-cell"} & set(m.flow.skills) and len(m.flow.nodes) <= 2 for m in weak)
    by_gui = [m for m in weak if "sheets.set-cell" in m.flow.skills and "csv.sum" not in m.flow.skills]
    assert by_gui and all("gui" in m.task.channels for m in by_gui)
    assert sum("csv.sum" in m.flow.skills for m in weak) > len(weak) / 2
    with pytest.raises(ValueError, match="must be 1 together"):
        Shares(targets=0.9)


def test_coverage_counts_templates_and_not_tasks() -> None:
    even = coverage_of({"a": 5, "b": 5, "c | x": 5}, {("s", "t"): 15}, {"s": 15, "t": 15}, known=3)
    assert (even.tasks, even.paths, even.effective, even.pairs, even.possible_pairs, even.flows) == (
        15,
        3,
        3.0,
        1,
        3,
        5,
    )
    uneven = coverage_of({"a": 98, "b": 1, "c": 1}, {}, {}, known=0)
    assert uneven.effective == pytest.approx(math.exp(-0.98 * math.log(0.98) - 0.02 * math.log(0.01)), abs=0.01)


def test_g21_other_names_are_the_same_template() -> None:
    chosen = [KNOWN["csv.lookup"], KNOWN["text.append"]]
    one, other = (bound(chosen, edges_of(chosen), seed) for seed in (1, 2))
    assert task_of(one).hash != task_of(other).hash and task_of(one).id != task_of(other).id
    assert one.path == other.path and task_of(one).family == task_of(other).family
    beside = bound(chosen, [], 1)  # without what flows it is another one
    assert beside.path != one.path
    assert beside.path == bound(chosen[::-1], [], 1).path  # and order is none where nothing flows
    sampler = Sampler({f.name: f for f in chosen}, Settings(sizes=(2,), single=0, cap=3))
    assert len(list(sampler)) == 3 and sampler.draws.refused["template"] >= 1


def test_g21_no_two_of_a_sample_are_near_duplicates() -> None:
    tasks = [m.task for m in sample(80, sizes=[2], single=0)[0]]
    found = {(p.a, p.b) for p in overlaps(items_of(tasks), items_of(tasks)) if p.a != p.b}
    families_of = {t.id: t.family for t in tasks}
    assert not {(a, b) for a, b in found if families_of[a] != families_of[b]}


def test_g24_a_composition_with_a_skill_held_out_is_not_for_training() -> None:
    held, seen = "csv.filter", "text.append"
    assert KNOWN[held].held_out and not KNOWN[seen].held_out
    assert for_training([seen, "csv.lookup"], KNOWN) and not for_training([seen, held], KNOWN)
    twin = replace(KNOWN[seen], name="text.twin", path=KNOWN[held].path)  # the same skill path under another name
    assert not for_training(["text.twin"], {**KNOWN, "text.twin": twin})
    for one in sample(40, sizes=[3], single=0, held_out=True)[0]:
        assert one.task.seen_in_training == (not any(KNOWN[s].held_out for s in one.flow.skills)), one.id


def test_g24_compositions_share_no_files_with_the_splits() -> None:
    instances = [set(task.exec_files.items()) for split in ("train", "dev", "select") for task in load_split(split)]
    for one in sample(20)[0]:
        assert not any(files and files <= set(one.task.exec_files.items()) for files in instances), one.id


def test_a_composed_task_survives_its_directory(tmp_path: Path) -> None:
    for one in sample(9)[0]:
        write_task_dir(one.task, tmp_path / one.id)
        assert read_task_dir(tmp_path / one.id) == one.task


def test_only_composed_tasks_hash_their_skills() -> None:
    task = task_of(flow(node("apple"), node("bread")))
    assert task_hash(task.model_copy(update={"skills": ("a", "b")})) != task.hash
    single = KNOWN["files.rename"].instance(0)
    assert single.skills == () and single.skill_ids == ("files.rename",) and task_hash(single) == single.hash


def test_setups_run_apart_and_fail_together() -> None:
    task = task_of(flow(node("apple", setup="cd Desktop"), node("bread", setup="exit 3")))
    assert task.setup == "( cd Desktop\n) || exit 1\n( exit 3\n) || exit 1"


def test_a_window_is_closed_before_the_next_skill_needs_the_desktop() -> None:
    chosen = [KNOWN["text.append"], KNOWN["files.rename"], KNOWN["sheets.set-cell"]]
    task = task_of(bound(chosen, [], 1))
    assert task.channels == {"gui", "terminal"} and task.oracle.gui is not None
    summaries = [step.summary for step in task.oracle.gui if step.summary]
    assert summaries.count("Close the window") == 1  # renaming opens none, and the last may stay open
    assert task.limits.agent_timeout_s == 900
