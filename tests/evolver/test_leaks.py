"""Lines that carry a task: what is found, what is not taken for it, and what is not told."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from devset.families import families
from devset.task import Criterion, Rubric, Split, Task, task_hash
from evolver.leaks import Leaks
from harnesses.tree import SEEDS, read_tree, seed_path

PER_FAMILY = 2


def instances(split: Split, first_seed: int) -> list[Task]:
    """Two tasks of every family, as the splits have them."""
    made = [family.instance(first_seed + n) for family in families().values() for n in range(PER_FAMILY)]
    return [task.model_copy(update={"split": split}) for task in made]


DEV, SELECT = instances("dev", 1_000), instances("select", 2_000)
LEAKS = Leaks(DEV, SELECT)


def written(text: str) -> Mapping[str, bytes]:
    return {"prompt/system.md": text.encode()}


def told(text: str, path: str = "prompt/system.md", leaks: Leaks = LEAKS) -> list[str]:
    return [str(leak) for leak in leaks.added({}, {path: text.encode()})]


def a_task(instruction: str, **fields: object) -> Task:
    plain = Task(
        id="own.task-x1", hash="", family="own.task", instruction=instruction, category="os", apps=("files",),
        channels=frozenset({"terminal"}), check="",
        rubric=Rubric(criteria=(Criterion(id="done", description="It is done."),)),
    )  # fmt: skip
    task = Task.model_validate({**dict(plain), **fields})
    return task.model_copy(update={"hash": task_hash(task)})


def test_e20_every_instruction_of_dev_and_of_select_is_found() -> None:
    for task in (*DEV, *SELECT):
        assert told(f"Remember: {task.instruction}"), task.id


def test_e20_an_id_is_found_in_every_split_however_it_is_joined() -> None:
    for task in DEV:
        assert told(f"on {task.id}, think twice")[0].endswith(f"carries the id of a task ({task.id!r})"), task.id
    sealed = [family.instance(3_000 + n).id for family in families().values() for n in range(3)]
    for name in (*(task.id for task in SELECT), *sealed):
        assert told(f"if it is `{name}`:") == ["prompt/system.md, line 1: carries the id of a task"]
    assert told(f'case "{DEV[0].id.replace("-", "_").replace(".", "_").upper()}" in') != []


@pytest.mark.parametrize(("family", "seed"), [("files.rename", 1_000), ("csv.sum", 1_001), ("cross.ticket-row", 1_000)])
def test_e20_names_of_files_codes_and_answers_are_found(family: str, seed: int) -> None:
    task = next(task for task in DEV if task.id == f"{family}-{seed}")
    for path in task.exec_files:
        name = path.rpartition("/")[2]
        assert told(f"cat ~/{path}") and told(name.rpartition(".")[0]), name


def test_e20_the_answer_of_a_task_is_found_in_a_program_and_never_in_a_number_of_the_settings() -> None:
    one, other = (
        a_task(f"Sum the column of {name}.csv.", id=f"own.sum-{n}", family="own.sum", check=f"grade({answer})")
        for n, (name, answer) in enumerate((("red-list", 48_713), ("blue-list", 50_021)))
    )
    leaks = Leaks([one, other])
    assert "a value of one task of dev ('48713')" in told("echo 48713", "files/sum.sh", leaks)[0]
    assert told("max_chars = 48713", "scaffold.toml", leaks) == []


def test_e20_a_phrase_over_two_lines_and_a_name_of_a_file_are_found() -> None:
    leaks = Leaks([a_task("The list is out of order, so put all of its lines into alphabetical order")])
    found = told("Think.\nIf so, put all of its\nlines into alphabetical\norder.", leaks=leaks)
    assert found == ["prompt/system.md, line 2: carries the words of one task of dev ('so put all of its lines')"]
    [leak] = LEAKS.added({}, {f"files/{DEV[0].id}.sh": b"true\n"})
    assert str(leak) == f"files/{DEV[0].id}.sh, its name: carries the id of a task ('{DEV[0].id}.sh')"


def test_e20_what_of_a_held_out_task_was_found_is_not_told() -> None:
    for task in SELECT:
        for line in told(task.instruction):
            quoted = line.partition("carries ")[2].partition("'")[2]
            assert not quoted or any(
                quoted[:-2] in " ".join(t.instruction.lower().split()) or "dev" in line for t in DEV
            )
    only_select = Leaks([], SELECT)
    assert {line.partition("carries ")[2] for task in SELECT for line in told(task.instruction, leaks=only_select)} <= {
        "the words of a task that is held out",
        "a value of a task that is held out",
    }


def test_g23_the_seeds_and_what_families_share_carry_no_task() -> None:
    alpha = read_tree(seed_path("alpha")).files
    for seed in SEEDS:
        files = read_tree(seed_path(seed)).files
        assert LEAKS.added(alpha, files) == [] and LEAKS.added({}, files) == []
    for line in (
        "Every other given file is as it was: touch nothing that was not asked for.",
        "Save the workbook as xlsx, in the same place on the Desktop, before you end.",
        "Files are in /home/user/Desktop and /home/user/Documents. Look at the extension: .csv, .docx, .xlsx, .tar.gz.",
        "Use python-pptx, openpyxl or `sed -i`; awk -F, 'NR>1{s+=$4}END{print s}' sums a column.",
        "max_steps = 48, left_click, 32768 tokens, 1920x1080, at the end of the document",
        "Sort with LC_ALL=C sort; count with wc -l; list with ls -S | head -1.",
    ):
        assert told(line) == [], line


def test_what_the_parent_said_already_is_nobody_s_leak_now() -> None:
    line = f"Note: {DEV[0].id}\n".encode()
    old = {"prompt/system.md": b"Plan.\n" + line}
    assert LEAKS.added(old, {"prompt/system.md": line + b"Plan.\nAct.\n", "prompt/notes/bash.md": line}) == []
    assert len(LEAKS.added({"prompt/system.md": b"Plan.\n"}, old)) == 1


def test_short_instructions_quotes_and_ids_without_a_number_count_too() -> None:
    leaks = Leaks(
        [a_task("Click the blue okay button", id="minutes-action-points"), a_task("Type 'Nice weather' there")]
    )
    assert told("then click the blue okay button", leaks=leaks) != []
    assert told("write nice weather", leaks=leaks) != []
    assert told("see minutes-action-points", leaks=leaks) != []
    assert told("click a blue button, type text there", leaks=leaks) == []


def test_a_tree_as_large_as_may_be_is_looked_at_in_seconds() -> None:
    line = b"for name in sorted(os.listdir(folder)): print(name, os.path.getsize(name))  # in order of names\n"
    began = time.monotonic()
    assert LEAKS.added({}, {"files/large.py": line * 10_000, "files/raw": bytes(range(256)) * 400}) == []
    assert time.monotonic() - began < 10
