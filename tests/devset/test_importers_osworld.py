"""OSWorld: a task from its JSON to its value, with files, references, metrics and how they are joined."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devset.checks.osworld import flags
from devset.importers.metrics import PIP
from devset.task import Task
from tests.devset.published_osworld import COMMAND, RULE, SAVING, imported, published
from tests.devset.trial import ROOT, make_home, run_script


def graded(task: Task, home: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The check program as its own process, with the machine's paths below `tmp_path`."""
    gt = tmp_path / "gt"
    for name, data in task.gt_files.items():
        (gt / name).parent.mkdir(parents=True, exist_ok=True)
        (gt / name).write_bytes(data)
    config = json.loads((gt / "osworld.json").read_text())
    if "home" in config:
        config |= {"home": str(tmp_path / "live"), "cache": str(tmp_path / "cache")}
        (gt / "osworld.json").write_text(json.dumps(config))
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", task.check, str(home), str(gt)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def value(task: Task, home: Path, tmp_path: Path) -> float:
    done = graded(task, home, tmp_path)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout.splitlines()[-1])["done"]["value"])


def test_a_task_is_imported_and_graded_on_a_copy_of_the_home(tmp_path: Path, package: Path) -> None:
    evaluator = {"func": "exact_match", "result": COMMAND, "expected": RULE}
    task = imported(published(tmp_path / "in", evaluator), package)
    assert (task.id, task.category, task.apps, task.feasible) == ("osworld-ab-1", "os", ("terminal",), True)
    assert (
        task.channels == {"gui", "terminal"} and task.check_pip == PIP and "sh -c 'mkdir -p ~/Desktop/a'" in task.setup
    )
    home = make_home(task, tmp_path / "home")
    assert run_script(home, task.setup).returncode == 0
    assert value(task, home, tmp_path) == 0.0
    (home / "Desktop/a").rename(home / "Desktop/b")
    assert value(task, home, tmp_path) == 1.0


def test_files_references_and_options(tmp_path: Path, package: Path) -> None:
    file = {"type": "vm_file", "path": "/home/user/Desktop/x.xlsx", "dest": "x.xlsx"}
    evaluator = {
        "postconfig": [{"type": "activate_window", "parameters": {"window_name": "x"}}, SAVING],
        "func": "sizes", "result": file, "expected": {"type": "cache_file", "path": "x_gold.xlsx"},
        "options": {"factor": 0.5},
    }  # fmt: skip
    config = [
        {"type": "upload_file", "parameters": {"files": [
            {"local_path": "assets/x.xlsx", "path": "/home/user/Desktop/x.xlsx"}]}},
        {"type": "open", "parameters": {"path": "/home/user/Desktop/x.xlsx"}},
    ]  # fmt: skip
    root = published(tmp_path / "in", evaluator, config=config, related_apps=["libreoffice calc"])
    (root / "assets").mkdir()
    (root / "assets/x.xlsx").write_bytes(b"ab")
    (root / "assets/x_gold.xlsx").write_bytes(b"abc")
    task = imported(root, package)
    assert task.apps == ("libreoffice_calc",) and task.category == "office"
    assert task.exec_files == {"Desktop/x.xlsx": b"ab"} and task.gt_files["cache/x_gold.xlsx"] == b"abc"
    assert [(app.command, app.window) for app in task.open] == [("soffice --calc /home/user/Desktop/x.xlsx", "x.xlsx")]
    assert "Save your work" in task.instruction and "the agent saves itself" in task.source
    home = make_home(task, tmp_path / "home")
    assert value(task, home, tmp_path) == 0.0
    (home / "Desktop/x.xlsx").write_bytes(b"xyz")
    assert value(task, home, tmp_path) == 0.5
    (home / "Desktop/x.xlsx").unlink()
    assert value(task, home, tmp_path) == 0.0


@pytest.mark.parametrize(
    ("conj", "answers", "wanted"),
    [("and", "yn", 0.0), ("and", "yy", 1.0), ("or", "yn", 1.0), ("or", "nn", 0.0)],
)
def test_several_metrics_and_how_they_are_joined(
    tmp_path: Path, package: Path, conj: str, answers: str, wanted: float
) -> None:
    results = [{"type": "vm_command_line", "command": ["cat", f"~/{i}.txt"]} for i in range(2)]
    evaluator = {"func": ["exact_match"] * 2, "conj": conj, "result": results, "expected": [RULE, RULE]}
    task = imported(published(tmp_path / "in", evaluator), package)
    home = make_home(task, tmp_path / "home")
    for i, answer in enumerate(answers):
        (home / f"{i}.txt").write_text({"y": "yes\n", "n": "no\n"}[answer])
    assert value(task, home, tmp_path) == wanted


def test_output_of_a_command_after_the_agent_is_a_reference(tmp_path: Path, package: Path) -> None:
    evaluator = {
        "postconfig": [{"type": "command", "parameters": {"command": ["cat", "~/n.txt"], "stdout": "n.out"}}],
        "func": "sizes",
        "result": {"type": "vm_file", "path": "/home/user/m.txt", "dest": "m.txt"},
        "expected": {"type": "cache_file", "path": "n.out"},
    }
    task = imported(published(tmp_path / "in", evaluator), package)
    home = make_home(task, tmp_path / "home")
    (home / "n.txt").write_text("12")
    (home / "m.txt").write_text("34")
    assert value(task, home, tmp_path) == 1.0


def test_s40_a_metric_that_raises_is_an_error_and_no_zero(tmp_path: Path, package: Path) -> None:
    task = imported(published(tmp_path / "in", {"func": "broken", "result": COMMAND, "expected": RULE}), package)
    done = graded(task, make_home(task, tmp_path / "home"), tmp_path)
    assert done.returncode != 0 and "no such thing" in done.stderr


def test_s43_links_of_the_agent_are_not_followed(tmp_path: Path, package: Path) -> None:
    file = {"type": "vm_file", "path": "/home/user/x.txt", "dest": "x.txt"}
    evaluator = {"func": "sizes", "result": file, "expected": {"type": "cache_file", "path": "gold.txt"}}
    root = published(tmp_path / "in", evaluator)
    (root / "gold.txt").write_text("secret")
    task = imported(root, package)
    home = make_home(task, tmp_path / "home")
    (home / "x.txt").symlink_to(root / "gold.txt")
    assert value(task, home, tmp_path) == 0.0


def test_s46_an_infeasible_task_wants_an_untouched_state(tmp_path: Path, package: Path) -> None:
    config = [{"type": "upload_file", "parameters": {"files": [
        {"local_path": "a.txt", "path": "/home/user/Desktop/a.txt"}]}}]  # fmt: skip
    root = published(tmp_path / "in", {"func": "infeasible"}, config=config)
    (root / "a.txt").write_text("a")
    task = imported(root, package)
    assert not task.feasible and task.channels == frozenset() and task.check_pip == ()
    home = make_home(task, tmp_path / "home")
    assert value(task, home, tmp_path) == 1.0
    (home / ".cache").mkdir()
    (home / ".cache/x").write_text("the desktop's own")
    assert value(task, home, tmp_path) == 1.0
    (home / "Desktop/b.txt").write_text("b")
    assert value(task, home, tmp_path) == 0.0
    (home / "Desktop/b.txt").unlink()
    (home / "Desktop/up").symlink_to("..")
    assert value(task, home, tmp_path) == 0.0
    (home / "Desktop/up").unlink()
    (home / "Desktop/a.txt").write_text("changed")
    assert value(task, home, tmp_path) == 0.0


def test_a_program_that_our_machine_lacks_is_no_zero_and_one_of_the_agent_is(tmp_path: Path, package: Path) -> None:
    scripts = {
        "gone": "~/gone.sh",
        "odd": "bash ~/odd.sh",
        "sly": "bash ~/sly.sh",
        "ours": "nosuchprogram ~/x && echo yes",
        "plain": "echo yes",
    }
    said = {}
    for name, command in scripts.items():
        result = {"type": "vm_command_line", "command": command, "shell": True}
        evaluator = {"func": "exact_match", "result": result, "expected": RULE}
        task = imported(published(tmp_path / name, evaluator), package)
        home = make_home(task, tmp_path / name / "home")
        (home / "odd.sh").write_text("nosuchprogram")
        (home / "sly.sh").write_text("printf 'sh: 1: %s: not found\\n' nosuchprogram sly.sh bash >&2")
        done = graded(task, home, tmp_path / name)
        said[name] = json.loads(done.stdout.splitlines()[-1])["done"]["value"] if done.returncode == 0 else done.stderr
    assert said == {
        "gone": 0.0,
        "odd": 0.0,
        "sly": 0.0,
        "plain": 1.0,
        "ours": "a program of the evaluation is not here: nosuchprogram\n",
    }


def test_a_program_of_the_agent_that_is_missing_is_a_zero_without_a_shell_too(tmp_path: Path, package: Path) -> None:
    result = {"type": "vm_command_line", "command": ["/home/user/run.sh"]}
    task = imported(published(tmp_path / "in", {"func": "exact_match", "result": result, "expected": RULE}), package)
    assert value(task, make_home(task, tmp_path / "home"), tmp_path) == 0.0


def test_set_up_goes_on_as_the_original_does(tmp_path: Path, package: Path) -> None:
    commands = [
        "cd Desktop && mkdir a && rm ~/missing",
        "echo x > here.txt",
        "echo p | sudo -S bash -c 'mkdir ~/b; touch ~/b/c'",
    ]
    steps: list[dict[str, object]] = [{"command": command, "shell": True} for command in commands]
    config = [{"type": "execute", "parameters": given} for given in (*steps, {"command": ["touch", "~/d e"]})]
    evaluator = {"func": "exact_match", "result": COMMAND, "expected": RULE}
    task = imported(published(tmp_path / "in", evaluator, config=config), package)
    home = make_home(task, tmp_path / "home")
    done = run_script(home, task.setup.replace("/home/user", str(home)))
    assert done.returncode == 0, done.stderr
    for path in ("Desktop/a", "here.txt", "b/c", "d e"):
        assert (home / path).exists(), path
    lacking = imported(published(tmp_path / "in", evaluator, config=[
        {"type": "execute", "parameters": {"command": "nosuchprogram x", "shell": True}}]), package)  # fmt: skip
    assert run_script(home, lacking.setup).returncode != 0


@pytest.mark.parametrize(
    ("output", "rules", "wanted"),
    [
        ("a=true\nb=true\n", {}, True),
        ("a=true\nb=false\n", {}, False),
        ("", {}, False),
        ("a=true\nb=false\n", {"checks": {"a": "true"}}, True),
        ("a=true\n", {"checks": {"a": "true", "c": "true"}}, False),
        ("a=true\nm=false\n", {"checks": {"a": "true"}, "m": "true"}, False),
        ("a=true\nm=true\n", {"checks": {"a": "true"}, "m": "false"}, False),
        ("x,1\ny,2\n", {"expected": "x,1\ny,2"}, True),
        ("__MISSING__\n", {"expected": "x,1"}, False),
    ],
)
def test_flags_that_a_command_prints(output: str, rules: dict[str, object], wanted: bool) -> None:
    assert flags(output, rules) is wanted
