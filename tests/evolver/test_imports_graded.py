"""Imported tasks from their published files to a verdict, in real sandboxes: the gate admits what is sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devset.importers import harbor, osworld
from devset.importers.offer import made
from devset.task import Task
from evolver.admission import Admission, admit
from evolver.commands.admission import opened_bench
from evolver.imports import EVALUATORS
from evolver.sandboxes.rootfs import pip_layer

pytestmark = [pytest.mark.docker, pytest.mark.slow]
TEST = """#!/bin/bash
curl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh
source $HOME/.local/bin/env
uvx --with pytest==8.4.1 pytest /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
OUTPUTS = """import pathlib, socket, subprocess

def test_answer():
    assert pathlib.Path("/app/answer.txt").read_text() == "right\\n"

def test_program_of_the_agent_runs():
    assert subprocess.run(["/app/tool.sh"], capture_output=True, text=True).stdout == "tool\\n"

def test_no_network():
    try:
        socket.create_connection(("1.1.1.1", 53), 2)
    except OSError:
        return
    raise AssertionError("the network is there")
"""
HARBOR = {
    "task.toml": "[verifier]\ntimeout_sec = 60.0\n",
    "instruction.md": "Write right into /app/answer.txt and make /app/tool.sh say tool.",
    "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY tool.sh /app/\n",
    "environment/tool.sh": "#!/bin/sh\necho nothing\n",
    "solution/solve.sh": "echo right > /app/answer.txt\nprintf '#!/bin/sh\\necho tool\\n' > /app/tool.sh\n",
    "tests/test.sh": TEST,
    "tests/test_outputs.py": OUTPUTS,
}


async def admitted(*tasks: Task) -> list[Admission]:
    async with opened_bench("docker", 2, frozenset(task.id for task in tasks)) as bench:
        return [verdict async for verdict in admit(tasks, bench)]


async def test_s41_g13_a_harbor_task_with_its_oracle_and_a_broken_one(tmp_path: Path) -> None:
    for name, solution in (("sound", HARBOR["solution/solve.sh"]), ("wrong", "echo wrong > /app/answer.txt\n")):
        for path, text in {**HARBOR, "solution/solve.sh": solution}.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    tasks = [offer.task for offer in harbor.offers(tmp_path, frozenset())]
    verdicts = {v.task_id: v for v in await admitted(*(task for task in tasks if task))}
    sound, wrong = verdicts["harbor-sound"], verdicts["harbor-wrong"]
    assert sound.admitted and sound.proven and sound.reasons == ()
    assert not wrong.admitted and not wrong.crashed and "oracle (terminal) does not succeed" in wrong.reasons[0]


async def test_g19_osworld_metrics_as_published_and_an_infeasible_task(tmp_path: Path) -> None:
    from openpyxl import Workbook

    for name, cell in (("book.xlsx", 1), ("book_gold.xlsx", 2)):
        book = Workbook()
        book.active["A1"] = cell
        book.save(tmp_path / name)
    files = [{"local_path": "book.xlsx", "path": "/home/user/Desktop/book.xlsx"}]
    table = {
        "func": "compare_table",
        "result": {"type": "vm_file", "path": "/home/user/Desktop/book.xlsx", "dest": "book.xlsx"},
        "expected": {"type": "cache_file", "path": "book_gold.xlsx"},
        "options": {"rules": [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]},
    }
    for name, evaluator in (("table", table), ("never", {"func": "infeasible"})):
        config = [{"type": "upload_file", "parameters": {"files": files}}]
        task = {"id": name, "instruction": "Make A1 2.", "config": config, "evaluator": evaluator}
        (tmp_path / f"{name}.json").write_text(json.dumps(task))
    metrics = pip_layer((EVALUATORS,), alone=True) / "desktop_env/evaluators/metrics"
    tasks = {offer.id: offer.task for offer in osworld.offers(tmp_path, metrics)}
    table_task, never = tasks["osworld-table"], tasks["osworld-never"]
    assert table_task and never
    solved = {**table_task.exec_files, "Desktop/book.xlsx": (tmp_path / "book_gold.xlsx").read_bytes()}
    free = table_task.model_copy(update={"id": "free", "exec_files": solved})
    verdicts = {v.task_id: v for v in await admitted(made(table_task), never, made(free))}
    assert verdicts["osworld-table"].admitted and verdicts["osworld-table"].reasons == ()
    assert verdicts["osworld-never"].admitted and verdicts["osworld-never"].controls.fail  # type: ignore[union-attr]
    assert verdicts["free"].reasons == ("the untouched state succeeds",)


async def test_links_and_python_are_there_for_set_up_and_evaluation(tmp_path: Path) -> None:
    program = "import os; print(os.readlink('/home/user/current'))"
    command = f'python -c "{program}" | grep -qx /home/user/v2 && [ -e ~/current ] && echo yes'
    task = {
        "id": "link",
        "instruction": "Make current a link to v2.",
        "config": [
            {"type": "execute", "parameters": {"command": "rm gone; python -c \"open('v2', 'w')\"", "shell": True}}
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": command, "shell": True},
            "expected": {"type": "rule", "rules": {"expected": "yes\n"}},
        },
    }
    (tmp_path / "link.json").write_text(json.dumps(task))
    metrics = pip_layer((EVALUATORS,), alone=True) / "desktop_env/evaluators/metrics"
    (offer,) = osworld.offers(tmp_path, metrics)
    assert offer.task, offer.reasons
    linked = offer.task.model_copy(update={"id": "free", "setup": f"{offer.task.setup}ln -s /home/user/v2 current\n"})
    verdicts = {v.task_id: v for v in await admitted(offer.task, made(linked))}
    assert verdicts["osworld-link"].admitted and verdicts["osworld-link"].reasons == ()
    assert verdicts["free"].reasons == ("the untouched state succeeds",)
