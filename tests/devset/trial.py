"""Runs our own trusted oracle scripts on a plain folder as the home, and grades it the way the platform does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from devset.checks import evaluate
from devset.task import Task

ROOT = Path(__file__).parents[2]


def make_home(task: Task, home: Path) -> Path:
    for folder in ("Desktop", "Documents", "Downloads"):
        (home / folder).mkdir(parents=True)
    for name, data in task.exec_files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    return home


def run_script(home: Path, script: str) -> subprocess.CompletedProcess[str]:
    """`script` under bash with `home` as HOME; the venv's python3 comes first, for the office libraries."""
    env = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    return subprocess.run(["bash", "-c", script], cwd=home, env=env, capture_output=True, text=True, timeout=60)


def run_check(task: Task, home: Path, gt: Path) -> dict[str, dict[str, float | str]]:
    """The check program as its own process, which sees nothing of this repository but `devset.checks`."""
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", task.check, str(home), str(gt)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    verdicts: dict[str, dict[str, float | str]] = json.loads(done.stdout)
    return verdicts


def passes(task: Task, home: Path) -> bool:
    """The verdict of the very checks that the program consists of, in this process (a start costs 0.1 s and more)."""
    namespace: dict[str, dict[str, list[tuple[str, dict[str, object]]]]] = {}
    program = task.check.replace("from devset.checks import grade\n\ngrade(", "criteria = (")
    exec(program, namespace)
    return all(evaluate(home, calls)[0] == 1.0 for calls in namespace["criteria"].values())
