"""OSWorld: set-up steps, getters and metrics of the format; what is refused and why; a task from JSON to its value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devset.checks.osworld import flags
from devset.importers.metrics import PIP, Metrics
from devset.importers.offer import ImportFailed, Offer
from devset.importers.osworld import offers
from devset.importers.steps import downloaded, unfit
from devset.task import Task
from tests.devset.trial import ROOT, make_home, run_script

# A small package in the shape of desktop-env's metrics.
PACKAGE = {
    "__init__.py": "from .general import (\n    exact_match,\n    sizes,\n    broken,\n    drawn\n)\n"
    "from .gone import lost\n",
    "general.py": """
import os
from skimage.metrics import ssim
from desktop_env.evaluators.metrics.shared import same

LIMIT = ssim

def exact_match(result, rules) -> float:
    print("compared", end="")
    return same(result, rules["expected"])

def sizes(result, expected, **options):
    if result is None:
        return 0.0
    return float(os.path.getsize(result) == os.path.getsize(expected)) * options.get("factor", 1)

def broken(result, rules):
    raise RuntimeError("no such thing")

def drawn(result, rules):
    return LIMIT(result)
""",
    "shared.py": "import numpy\n\ndef same(a, b):\n    return float(a == b)\n",
    "gone.py": "",
}
RULE = {"type": "rule", "rules": {"expected": "yes\n"}}
COMMAND = {"type": "vm_command_line", "command": "[ -d ~/Desktop/b ] && echo yes || echo no", "shell": True}
KEYS = "import pyautogui, time; pyautogui.hotkey('ctrl','s'); time.sleep(1); pyautogui.press('return')"
SAVING = {"type": "execute", "parameters": {"command": ["python", "-c", KEYS]}}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "desktop_env/evaluators/metrics"
    folder.mkdir(parents=True)
    for name, source in PACKAGE.items():
        (folder / name).write_text(source)
    return folder


def published(root: Path, evaluator: object, **changes: object) -> Path:
    task = {
        "id": "ab-1",
        "snapshot": "os",
        "instruction": "Rename a to b.",
        "config": [{"type": "execute", "parameters": {"command": "mkdir -p ~/Desktop/a", "shell": True}}],
        "related_apps": ["os"],
        "evaluator": evaluator,
        **changes,
    }
    (root / "os").mkdir(parents=True, exist_ok=True)
    (root / "os/ab-1.json").write_text(json.dumps(task))
    (root / "list.json").write_text('{"os": ["ab-1"]}')
    return root


def only(root: Path, package: Path) -> Offer:
    (offer,) = offers(root, package)
    return offer


def taken(root: Path, package: Path) -> Task:
    offer = only(root, package)
    assert offer.task is not None, offer.reasons
    return offer.task


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


def test_a_task_is_taken_in_and_graded_on_a_copy_of_the_home(tmp_path: Path, package: Path) -> None:
    evaluator = {"func": "exact_match", "result": COMMAND, "expected": RULE}
    task = taken(published(tmp_path / "in", evaluator), package)
    assert (task.id, task.category, task.apps, task.feasible) == ("osworld-ab-1", "os", ("terminal",), True)
    assert (
        task.channels == {"gui", "terminal"} and task.check_pip == PIP and task.setup.endswith("mkdir -p ~/Desktop/a\n")
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
    task = taken(root, package)
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
    task = taken(published(tmp_path / "in", evaluator), package)
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
    task = taken(published(tmp_path / "in", evaluator), package)
    home = make_home(task, tmp_path / "home")
    (home / "n.txt").write_text("12")
    (home / "m.txt").write_text("34")
    assert value(task, home, tmp_path) == 1.0


def test_s40_a_metric_that_raises_is_an_error_and_no_zero(tmp_path: Path, package: Path) -> None:
    task = taken(published(tmp_path / "in", {"func": "broken", "result": COMMAND, "expected": RULE}), package)
    done = graded(task, make_home(task, tmp_path / "home"), tmp_path)
    assert done.returncode != 0 and "no such thing" in done.stderr


def test_s43_links_of_the_agent_are_not_followed(tmp_path: Path, package: Path) -> None:
    file = {"type": "vm_file", "path": "/home/user/x.txt", "dest": "x.txt"}
    evaluator = {"func": "sizes", "result": file, "expected": {"type": "cache_file", "path": "gold.txt"}}
    root = published(tmp_path / "in", evaluator)
    (root / "gold.txt").write_text("secret")
    task = taken(root, package)
    home = make_home(task, tmp_path / "home")
    (home / "x.txt").symlink_to(root / "gold.txt")
    assert value(task, home, tmp_path) == 0.0


def test_s46_an_infeasible_task_wants_an_untouched_state(tmp_path: Path, package: Path) -> None:
    config = [{"type": "upload_file", "parameters": {"files": [
        {"local_path": "a.txt", "path": "/home/user/Desktop/a.txt"}]}}]  # fmt: skip
    root = published(tmp_path / "in", {"func": "infeasible"}, config=config)
    (root / "a.txt").write_text("a")
    task = taken(root, package)
    assert not task.feasible and task.channels == frozenset() and task.check_pip == ()
    home = make_home(task, tmp_path / "home")
    assert value(task, home, tmp_path) == 1.0
    (home / ".cache").mkdir()
    (home / ".cache/x").write_text("the desktop's own")
    assert value(task, home, tmp_path) == 1.0
    (home / "Desktop/b.txt").write_text("b")
    assert value(task, home, tmp_path) == 0.0
    (home / "Desktop/b.txt").unlink()
    (home / "Desktop/a.txt").write_text("changed")
    assert value(task, home, tmp_path) == 0.0


@pytest.mark.parametrize(
    ("output", "rules", "wanted"),
    [
        ("a=true\nb=true\n", {}, True),
        ("a=true\nb=false\n", {}, False),
        ("", {}, False),
        ("a=true\nb=false\n", {"checks": {"a": "true"}}, True),
        ("a=true\n", {"checks": {"a": "true", "c": "true"}}, False),
        ("a=true\nm=false\n", {"checks": {"a": "true"}, "m": "true"}, False),
        ("x,1\ny,2\n", {"expected": "x,1\ny,2"}, True),
        ("__MISSING__\n", {"expected": "x,1"}, False),
    ],
)
def test_flags_that_a_command_prints(output: str, rules: dict[str, object], wanted: bool) -> None:
    assert flags(output, rules) is wanted


# --- what is refused ---------------------------------------------------------------------------------------------


def step(kind: str, **parameters: object) -> dict[str, object]:
    return {"type": kind, "parameters": parameters}


EVALUATOR: dict[str, object] = {"func": "exact_match", "result": COMMAND, "expected": RULE}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (step("download", files=[{"url": "https://x.org/a", "path": "/home/user/a"}]), "needs the network"),
        (step("launch", command=["google-chrome", "--remote-debugging-port=1337"]), "needs the app google-chrome"),
        (step("launch", command="VLC_VERBOSE=-1 vlc --no-audio", shell=True), "needs the app vlc"),
        (step("change_wallpaper", path="/home/user/a.png"), "needs another desktop"),
        (step("chrome_open_tabs", urls_to_open=["https://x.org"]), "needs the network"),
        (step("execute", command=["gsettings", "set", "a", "b"]), "needs another desktop or another user: gsettings"),
        (step("execute", command="echo {CLIENT_PASSWORD} | sudo -S rm /var/log/x", shell=True), "needs root"),
        (step("execute", command="echo p | sudo -S apt-get install jq", shell=True), "needs the network"),
        (step("execute", command=["python", "-c", "import pyautogui; pyautogui.typewrite('x')"]), "drives the screen"),
        (step("open", path="/home/user/a.png"), "needs an app for .png"),
        (step("upload_file", files=[{"local_path": "no.txt", "path": "/home/user/a"}]), "an input file is missing"),
        (step("dance"), "a set-up step we lack: dance"),
    ],
)
def test_set_up_that_our_machine_cannot_do(
    tmp_path: Path, package: Path, entry: dict[str, object], reason: str
) -> None:
    offer = only(published(tmp_path / "in", EVALUATOR, config=[entry]), package)
    assert offer.task is None and any(reason in one for one in offer.reasons)


@pytest.mark.parametrize(
    ("evaluator", "reason"),
    [
        ({**EVALUATOR, "func": "unheard"}, "an evaluator we lack: unheard"),
        ({**EVALUATOR, "func": "drawn"}, "drawn needs skimage"),
        ({**EVALUATOR, "result": {"type": "accessibility_tree"}}, "needs a live machine: the accessibility tree"),
        ({**EVALUATOR, "result": {"type": "open_tabs_info"}}, "needs a live machine: the getter open_tabs_info"),
        ({**EVALUATOR, "expected": {"type": "cloud_file", "path": "https://x/a", "dest": "a"}}, "needs the network"),
        ({**EVALUATOR, "expected": {"type": "cache_file", "path": "no.txt"}}, "a reference file is missing: no.txt"),
        ({**EVALUATOR, "result": {"type": "vm_file", "path": "/etc/hosts", "dest": "h"}}, "not frozen: /etc/hosts"),
        ({**EVALUATOR, "result": {"type": "vm_file", "path": "/home/user/.config/a", "dest": "a"}}, "not frozen"),
        ({**EVALUATOR, "postconfig": [step("launch", command=["vlc"])]}, "its evaluation starts vlc"),
        ({**EVALUATOR, "postconfig": [step("execute", command=["python", "-c", "import pyautogui; "
          "pyautogui.hotkey('ctrl', 'q')"])]}, "its evaluation drives the screen"),
    ],
)  # fmt: skip
def test_evaluations_that_a_frozen_home_cannot_answer(
    tmp_path: Path, package: Path, evaluator: dict[str, object], reason: str
) -> None:
    offer = only(published(tmp_path / "in", evaluator), package)
    assert offer.task is None and any(reason in one for one in offer.reasons)


def test_an_app_that_our_machine_lacks_and_a_terminal_that_is_open(tmp_path: Path, package: Path) -> None:
    offer = only(published(tmp_path / "one", EVALUATOR, related_apps=["gimp"]), package)
    assert offer.reasons == ("needs the app gimp",)
    opens = step("execute", command=["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 'alt', 't')"])
    assert taken(published(tmp_path / "two", EVALUATOR, config=[opens]), package).channels == {"terminal"}


def test_downloads_are_served_from_a_cache_that_osworld_left(tmp_path: Path, package: Path) -> None:
    url = "https://x.org/files/in%20put.xlsx"
    cloud = {"type": "cloud_file", "path": ["https://x.org/a", "https://x.org/b"], "dest": ["a.txt", "b.txt"],
             "multi": True, "gives": [1]}  # fmt: skip
    file = {"type": "vm_file", "path": "/home/user/in.xlsx", "dest": "in.xlsx"}
    root = published(
        tmp_path / "in",
        {"func": "sizes", "result": file, "expected": cloud},
        config=[step("download", files=[{"url": url, "path": "/home/user/in.xlsx"}])],
    )
    assert only(root, package).reasons == (
        "needs the network: it downloads in put.xlsx", "needs the network: it downloads a",
        "needs the network: it downloads b",
    )  # fmt: skip
    for folder in ("cache/ab-1", "cache/other"):
        (root / folder).mkdir(parents=True)
        for name in (downloaded(url, "/home/user/in.xlsx"), "a.txt", "b.txt"):
            (root / folder / name).write_text(f"{folder} {name}")
    task = taken(root, package)
    assert task.exec_files["in.xlsx"].startswith(b"cache/ab-1") and task.gt_files["cache/a.txt"] == b"cache/ab-1 a.txt"
    assert json.loads(task.gt_files["osworld.json"])["expected"] == [{"type": "cache_file", "path": "b.txt"}]


def test_a_file_that_comes_after_a_command_is_put_there_after_it(tmp_path: Path, package: Path) -> None:
    config = [
        step("execute", command="rm -rf ~/Desktop/d", shell=True),
        step("upload_file", files=[{"local_path": "a b.txt", "path": "/home/user/Desktop/d/a b.txt"}]),
    ]
    root = published(tmp_path / "in", EVALUATOR, config=config)
    (root / "a b.txt").write_text("x")
    task = taken(root, package)
    assert task.exec_files == {} and list(task.hidden_files.values()) == [b"x"]
    assert task.setup.index("rm -rf") < task.setup.index("cp ")


@pytest.mark.parametrize(
    "command", ["cat ~/a", "find /home/user/Desktop -type f", "printf '<li>x</li>'", "ls 2>/dev/null"]
)
def test_commands_that_stay_in_the_home(command: str) -> None:
    assert unfit(command) is None


@pytest.mark.parametrize(
    "command", ["cat /etc/passwd", "ls ~/.local/bin", "gsettings get a b", "ls /tmp/x", "wget x.org"]
)
def test_commands_that_leave_it(command: str) -> None:
    assert unfit(command) is not None


def test_what_a_metric_needs_is_found_by_reading_its_source(package: Path) -> None:
    metrics = Metrics(package)
    needs = metrics.needs("exact_match")
    assert needs.module == "desktop_env.evaluators.metrics.general" and needs.lacking == frozenset()
    assert needs.absent == {"skimage"} and "desktop_env/evaluators/metrics/shared.py" in needs.files
    assert needs.files["desktop_env/evaluators/metrics/__init__.py"] == b""
    assert metrics.needs("drawn").lacking == {"skimage"}
    with pytest.raises(ImportFailed, match="lost: missing"):
        metrics.needs("lost")


@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        ({**EVALUATOR, "conj": "xor"}, "evaluator.conj: got 'xor'"),
        ({**EVALUATOR, "func": ["exact_match", "sizes"], "result": [COMMAND]},
         "evaluator.result: got 1, expected one for each of 2"),
        ({"func": "exact_match", "expected": RULE}, "evaluator.result: got null"),
        ({**EVALUATOR, "result": "x"}, "evaluator.result: got 'x'"),
        ({**EVALUATOR, "result": {"path": "x"}}, "evaluator.result.type: got None"),
        ({**EVALUATOR, "expected": {"type": "rule"}}, "evaluator.expected.rules: got None"),
        ({**EVALUATOR, "result": {"type": "vm_command_line"}}, "evaluator.result.command: got None"),
        ({**EVALUATOR, "expected": {"type": "cache_file", "path": "../x"}}, "evaluator.expected.path: got '../x'"),
        ({"func": 7}, "evaluator.func"),
        ({**EVALUATOR, "expected": {"type": "cloud_file", "path": "https://x.org/a"}}, "expected.dest: got None"),
    ],
)  # fmt: skip
def test_a_malformed_task_names_file_field_and_value(
    tmp_path: Path, package: Path, evaluator: dict[str, object], said: str
) -> None:
    (reason,) = only(published(tmp_path / "in", evaluator), package).reasons
    assert reason.startswith("malformed: ") and "ab-1.json" in reason and said in reason


def test_broken_json_is_told_of_and_a_folder_of_something_else_refused(tmp_path: Path, package: Path) -> None:
    root = published(tmp_path / "in", EVALUATOR)
    (root / "os/ab-1.json").write_text("{")
    assert only(root, package).reasons[0].startswith("malformed: ")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportFailed, match="no JSON file"):
        list(offers(tmp_path / "empty", package))
