"""Splits: no instance, slot binding or files shared; a quarter of dev, select and test unseen; fixed balanced order."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from devset import splits
from devset.families import families
from devset.splits import (
    Sealed,
    SplitsChanged,
    SplitsOverlap,
    UnknownTask,
    find_task,
    load_split,
    ordered,
    renew,
    split_hash,
    spread,
    unseen_families,
)
from devset.task import SPLITS, Task, checker_hash, task_hash

ALL: dict[str, list[Task]] = {split: load_split(split, unsealed=True) for split in SPLITS}
PAIRS = list(combinations(SPLITS, 2))
CHECKS = Path(splits.__file__).parent / "checks"


def shown(task: Task) -> str:
    """What an agent is given: instruction and files, as one hash."""
    sha = hashlib.sha256(task.instruction.encode())
    for path, data in sorted(task.exec_files.items()):
        sha.update(path.encode() + b"\0" + hashlib.sha256(data).digest())
    return sha.hexdigest()


def slots(task: Task) -> tuple[str, str]:
    family = families().get(task.family)
    return task.family, repr(sorted(family.binding(int(task.id[-4:])).slots.items())) if family else task.id


def test_sizes_and_split_field() -> None:
    assert {split: len(tasks) for split, tasks in ALL.items()} | {"train": 0} == {
        "train": 0, "dev": 84, "select": 64, "test": 148,
    }  # fmt: skip
    assert len(ALL["train"]) >= 1000
    assert all(task.split == split for split, tasks in ALL.items() for task in tasks)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_g24_no_instance_in_two_splits(one: str, other: str) -> None:
    for identity in (lambda t: t.hash, lambda t: t.id, shown, slots):
        assert not {identity(t) for t in ALL[one]} & {identity(t) for t in ALL[other]}


def test_no_instance_twice_within_a_split() -> None:
    for tasks in ALL.values():
        for identity in (lambda t: t.hash, lambda t: t.id, shown, slots):
            assert Counter(identity(t) for t in tasks).most_common(1)[0][1] == 1


@pytest.mark.parametrize("split", ["dev", "select", "test"])
def test_g24_a_quarter_comes_from_families_that_train_never_sees(split: str) -> None:
    trained = {task.family for task in ALL["train"]}
    unseen = [task for task in ALL[split] if task.family not in trained]
    assert len(unseen) * 4 == len(ALL[split])
    assert {t.id for t in unseen} == {t.id for t in ALL[split] if not t.seen_in_training}
    assert {t.family for t in unseen} <= set(unseen_families())


def test_g24_no_skill_path_is_seen_and_unseen() -> None:
    paths = {name: family.path for name, family in families().items()}
    unseen = {paths[name] for name in unseen_families()}
    assert not unseen & {path for name, path in paths.items() if name not in unseen_families()}
    assert len(set(paths.values())) == len(paths)


def canonical(task: Task) -> str:
    """The wording with every slot of the family typed out."""
    family = families()[task.family]
    text = task.instruction
    values = family.binding(int(task.id[-4:])).slots
    for name, value in sorted(values.items(), key=lambda entry: -len(str(entry[1]))):
        text = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", f"<{family.slots[name].type}>", text)
    return text


def generated(tasks: list[Task]) -> list[Task]:
    return [task for task in tasks if task.family in families()]


def test_g21_other_names_are_the_same_template_and_templates_belong_to_one_family() -> None:
    owner: dict[str, str] = {}
    for task in (t for tasks in ALL.values() for t in generated(tasks)):
        assert owner.setdefault(canonical(task), task.family) == task.family
    assert len(owner) < sum(len(f.binding(0).wordings) for f in families().values()) * 3


def test_g23_boilerplate_is_not_contamination_but_a_shared_slot_would_be() -> None:
    """Wordings repeat across splits by design; what must not repeat is the part that the slots fill."""
    wordings = {split: {canonical(t) for t in generated(tasks)} for split, tasks in ALL.items()}
    assert wordings["train"] & wordings["test"]
    assert not {slots(t) for t in ALL["train"]} & {slots(t) for t in ALL["test"]}
    stolen = ALL["train"][0].model_copy(update={"id": ALL["test"][0].id, "split": "test"})
    assert shown(stolen) in {shown(t) for t in ALL["train"]}, "the measure finds a task that changed only its id"


def test_prefixes_are_balanced() -> None:
    for split in ("dev", "select", "test"):
        prefix = load_split(split, limit=20, unsealed=True)
        assert prefix == ALL[split][:20]
        assert sum(not t.seen_in_training for t in prefix) == 5
        assert max(Counter(t.family for t in prefix).values()) <= 2
    assert max(Counter(t.family for t in load_split("train", limit=60)).values()) <= 4
    assert ordered(list(reversed(ALL["dev"]))) == ALL["dev"]
    assert spread([[1, 2, 3, 4], [9]]) == [1, 2, 9, 3, 4]


def test_loading_is_fast_and_writes_nothing() -> None:
    before = {p: p.stat().st_mtime_ns for p in splits.FILE.parent.iterdir()}
    splits._checked.cache_clear()
    start = time.process_time()
    load_split("dev")
    assert time.process_time() - start < 0.5
    assert {p: p.stat().st_mtime_ns for p in splits.FILE.parent.iterdir() if p.name != "__pycache__"} == {
        p: when for p, when in before.items() if p.name != "__pycache__"
    }


def test_find_task() -> None:
    for task in (ALL["train"][3], ALL["test"][-1]):
        assert find_task(task.id, unsealed=True) == task
    assert find_task("files.rename-9999").split is None
    for wrong in ("files.rename", "files.rename-3", "nothing-0001", "../x"):
        with pytest.raises(UnknownTask, match="unknown task"):
            find_task(wrong)
    with pytest.raises(UnknownTask, match="train, dev, select, test"):
        load_split("tset")  # type: ignore[arg-type]


def test_the_test_split_is_sealed() -> None:
    with pytest.raises(Sealed, match="split 'test' is sealed"):
        load_split("test", 1)
    with pytest.raises(Sealed, match=r"task .* belongs to split 'test', which is sealed"):
        find_task(ALL["test"][0].id)
    assert load_split("test", 1, unsealed=True) == ALL["test"][:1] and find_task(ALL["select"][0].id)


def test_g25_a_split_that_would_share_a_task_is_not_written() -> None:
    splits.require_apart(ALL)
    stolen = ALL["train"][5].model_copy(update={"id": "stolen-0001", "split": "test"})
    with pytest.raises(
        SplitsOverlap, match=rf"'train' and 'test' share 1 tasks: {ALL['train'][5].id} and stolen-0001 \(1.00\)"
    ):
        splits.require_apart({**ALL, "test": [*ALL["test"], stolen]})


def test_a_changed_generator_stops_with_the_way_out() -> None:
    table = splits._table()
    changed = {**table, "families": {**table["families"], "gone.family": {"dev": [0, 1]}}}
    with pytest.raises(SplitsChanged, match=r"gone\.family.*--renew"):
        splits.checked("dev", changed)
    with pytest.raises(SplitsChanged, match=r"'dev'.*hash to .*--renew"):
        splits.checked("dev", {**table, "hashes": {**table["hashes"], "dev": "0" * 64}})


def test_the_file_is_what_renew_writes() -> None:
    assert splits.FILE.read_text() == renew()


def test_hash_covers_everything_but_the_split() -> None:
    task = ALL["dev"][0]
    assert task_hash(task) == task.hash == task_hash(task.model_copy(update={"split": None}))
    for change in (
        {"instruction": "x"},
        {"check": "x"},
        {"gt_files": {"a": b"1"}},
        {"exec_files": {}},
        {"family": "x"},
    ):
        assert task_hash(task.model_copy(update=change)) != task.hash
    assert split_hash(ALL["dev"]) == split_hash(reversed(ALL["dev"]))


def test_hash_covers_the_library_that_a_checker_runs_and_no_more() -> None:
    task = ALL["dev"][0]
    for changed, touched in (("records", True), ("home", True), ("__init__", True), ("osworld", False)):

        def source(name: str, changed: str = changed) -> str:
            return (CHECKS / f"{name}.py").read_text() + ("\n# more" if name == changed else "")

        assert (checker_hash(task.check, source) != checker_hash(task.check)) is touched, changed


def test_paths_of_files_stay_in_the_home() -> None:
    for task in (t for tasks in ALL.values() for t in tasks):
        for path in task.exec_files:
            assert not Path(path).is_absolute() and ".." not in Path(path).parts
