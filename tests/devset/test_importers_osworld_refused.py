"""OSWorld: set-up, evaluations and metrics that our machine can't offer, and what is no task at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devset.importers.metrics import Metrics
from devset.importers.offer import ImportFailed
from devset.importers.osworld import offers
from devset.importers.steps import downloaded
from tests.devset.published_osworld import COMMAND, RULE, imported, only, published


def step(kind: str, **parameters: object) -> dict[str, object]:
    return {"type": kind, "parameters": parameters}


EVALUATOR: dict[str, object] = {"func": "exact_match", "result": COMMAND, "expected": RULE}
FLAGS: dict[str, object] = {"func": "check_os_x", "result": COMMAND}


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
        (step("execute", command="echo p | sudo -S bash -c 'rm -rf /var/log/x'", shell=True), "needs root"),
        (step("execute", command="echo p | sudo -S -u bob touch ~/a", shell=True), "needs root"),
        (step("execute", command="mkdir ~/a && echo p | sudo -S chown -R root ~/a", shell=True), "needs root"),
        (step("execute", command=["convert", "a.png", "b.png"]), "its set-up needs the program convert"),
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
        ({**FLAGS, "expected": {"type": "rule", "rules": {"expected_total": "T=9"}}}, "with the rule expected_total"),
        ({**FLAGS, "expected": {"type": "rule", "rules": {"present": "a"}}}, "with the rule present"),
        ({**FLAGS, "expected": {"type": "rule", "rules": {"checks": {"a": True}}}}, "with the rule a"),
        ({**FLAGS, "expected": {"type": "rule", "rules": {"checks": "true"}}}, "with the rule checks"),
        ({**FLAGS, "expected": {"type": "rule", "rules": {"checks": {"checks": {}}}}}, "with the rule checks"),
        ({**FLAGS, "expected": {"type": "rule", "rules": {"expected": "x", "a": "true"}}}, "with the rule expected"),
        ({**FLAGS, "expected": {"type": "rule", "rules": {"expected": 9}}}, "with the rule expected"),
        ({**FLAGS, "options": {"loose": True}}, "with more than a rule"),
        ({**FLAGS, "expected": COMMAND}, "with more than a rule"),
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


@pytest.mark.parametrize(
    ("metric", "rules", "heeded"),
    [
        ("x", {}, {}),
        ("x", {"expected": "a=1"}, {"expected": "a=1"}),
        ("x", {"checks": {"a": "true", "b": "7 MB"}}, {"checks": {"a": "true", "b": "7 MB"}}),
        ("x", {"checks": {"a": "true"}, "b": "true"}, {"checks": {"a": "true", "b": "true"}}),
        ("file_permissions", {"permissions": {"a.sh": "755"}}, {"checks": {"perm_a.sh": "755"}}),
        ("copy_filter", {"present": ["a"], "absent": ["b"], "extra_checks": {"n": "2"}},
         {"checks": {"present_a": "true", "absent_b": "true", "n": "2"}}),
        ("php_line_count", {"expected_total": "TOTAL=9"}, {}),
    ],
)  # fmt: skip
def test_rules_of_flags_that_are_known(
    tmp_path: Path, package: Path, metric: str, rules: object, heeded: object
) -> None:
    evaluator = {**FLAGS, "func": f"check_os_{metric}", "expected": {"type": "rule", "rules": rules}}
    task = imported(published(tmp_path / "in", evaluator), package)
    assert json.loads(task.gt_files["osworld.json"])["expected"] == [{"type": "rule", "rules": heeded}]


def test_what_several_metrics_share_is_written_once(tmp_path: Path, package: Path) -> None:
    evaluator = {"func": ["exact_match", "sizes"], "result": COMMAND, "expected": [RULE, {}], "options": {"factor": 1}}
    spec = json.loads(imported(published(tmp_path / "in", evaluator), package).gt_files["osworld.json"])
    assert (spec["result"], spec["expected"]) == ([COMMAND, COMMAND], [RULE, None])
    assert spec["options"] == [{"factor": 1}, {"factor": 1}]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"interactive": True}, "needs a user who answers"),
        ({"instruction": None, "phases": [{"instruction": "a"}, {"instruction": "b"}]}, "needs a user who answers"),
        ({"evaluator": {**EVALUATOR, "file": "evaluator.py"}}, "brings its own evaluator: evaluator.py"),
        ({"instruction": " "}, "instruction: got none"),
    ],
)
def test_tasks_with_more_than_an_instruction_and_an_evaluator(
    tmp_path: Path, package: Path, changes: dict[str, object], reason: str
) -> None:
    root = published(tmp_path / "in", EVALUATOR)
    task = json.loads((root / "os/ab-1.json").read_text()) | changes
    (root / "os/ab-1.json").write_text(json.dumps({key: value for key, value in task.items() if value is not None}))
    assert reason in only(root, package).reasons[0]


def test_g27_ids_are_apart_where_collections_share_one_or_it_cannot_be_read(tmp_path: Path, package: Path) -> None:
    root = published(tmp_path / "in", EVALUATOR)
    (root / "os/L1_os_ab-1.json").write_text((root / "os/ab-1.json").read_text())
    for place in ("per_task/os/L2_os_ab-1", "per_task/os/x", "per_task/os/y"):
        (root / place).mkdir(parents=True)
        text = (root / "os/ab-1.json").read_text() if "ab-1" in place else "{"
        (root / place / "task.json").write_text(text)
    found = {offer.origin: offer.id for offer in offers(root, package)}
    assert found == {
        "os/L1_os_ab-1.json": "osworld-l1_os_ab-1",
        "os/ab-1.json": "osworld-ab-1",
        "per_task/os/L2_os_ab-1/task.json": "osworld-l2_os_ab-1",
        "per_task/os/x/task.json": "osworld-per_task-os-x-task",
        "per_task/os/y/task.json": "osworld-per_task-os-y-task",
    }


def test_an_app_that_our_machine_lacks_and_a_terminal_that_is_open(tmp_path: Path, package: Path) -> None:
    offer = only(published(tmp_path / "one", EVALUATOR, related_apps=["gimp"]), package)
    assert offer.reasons == ("needs the app gimp",)
    opens = step("execute", command=["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 'alt', 't')"])
    assert imported(published(tmp_path / "two", EVALUATOR, config=[opens]), package).channels == {"terminal"}


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
    task = imported(root, package)
    assert task.exec_files["in.xlsx"].startswith(b"cache/ab-1") and task.gt_files["cache/a.txt"] == b"cache/ab-1 a.txt"
    assert json.loads(task.gt_files["osworld.json"])["expected"] == [{"type": "cache_file", "path": "b.txt"}]


def test_a_file_that_comes_after_a_command_is_put_there_after_it(tmp_path: Path, package: Path) -> None:
    config = [
        step("execute", command="rm -rf ~/Desktop/d", shell=True),
        step("upload_file", files=[{"local_path": "a b.txt", "path": "/home/user/Desktop/d/a b.txt"}]),
    ]
    root = published(tmp_path / "in", EVALUATOR, config=config)
    (root / "a b.txt").write_text("x")
    task = imported(root, package)
    assert task.exec_files == {} and list(task.hidden_files.values()) == [b"x"]
    assert task.setup.index("rm -rf") < task.setup.index("cp ")


def test_links_out_of_the_dataset_are_refused(tmp_path: Path, package: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    evaluator = {"func": "sizes", "result": {"type": "vm_file", "path": "/home/user/x.txt", "dest": "x.txt"},
                 "expected": {"type": "cache_file", "path": "gold.txt"}}  # fmt: skip
    root = published(tmp_path / "in", evaluator)
    (root / "assets").mkdir()
    for place in (root / "assets/gold.txt", root / "os/gold.txt"):  # found by name, and beside the task
        place.symlink_to(tmp_path / "secret.txt")
        assert only(root, package).reasons == ("a reference file is missing: gold.txt",)
        place.unlink()
    (root / "gold.txt").write_text("gold")
    (root / "os/gold.txt").symlink_to("../gold.txt")
    assert imported(root, package).gt_files["cache/gold.txt"] == b"gold"
    (root / "os/ab-1.json").rename(tmp_path / "ab-1.json")
    (root / "os/ab-1.json").symlink_to(tmp_path / "ab-1.json")
    assert "ab-1.json: leads out of " in only(root, package).reasons[0]


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


def test_one_odd_task_does_not_end_the_import(tmp_path: Path, package: Path) -> None:
    root = published(tmp_path / "in", EVALUATOR)
    long = {**EVALUATOR, "expected": {"type": "cache_file", "path": "x" * 300}}
    other = json.loads((root / "os/ab-1.json").read_text()) | {"id": "ab-0", "evaluator": long}
    (root / "os/ab-0.json").write_text(json.dumps(other))
    (root / "os/gone.json").symlink_to(root / "os/nowhere")
    odd, right, gone = offers(root, package)
    assert right.task is not None and "ab-0.json: can't be read: OSError" in odd.reasons[0]
    assert gone.reasons[0].startswith("malformed: ") and "gone.json: missing" in gone.reasons[0]


def test_broken_json_is_told_of_and_a_folder_of_something_else_refused(tmp_path: Path, package: Path) -> None:
    root = published(tmp_path / "in", EVALUATOR)
    (root / "os/ab-1.json").write_text("{")
    assert only(root, package).reasons[0].startswith("malformed: ")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportFailed, match="no JSON file"):
        list(offers(tmp_path / "empty", package))
