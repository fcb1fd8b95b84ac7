"""Harbor: what a Dockerfile and a test script become, what is refused, and a task from its files to its reward."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devset.checks.harbor import reward_in
from devset.importers.dockerfile import commands_of, read_image, rewritten
from devset.importers.harbor import offers
from devset.importers.offer import ImportFailed, Offer, Refusals
from devset.importers.testscript import offline
from devset.task import Task
from tests.devset.trial import ROOT, make_home

INSTALLED = frozenset({"git", "jq"})
TEST = """#!/bin/bash
apt-get update && apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh
source "$HOME/.local/bin/env"

if uvx \\
  --with pytest==8.4.1 \\
  -w requests==2.32.3 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
PLAIN = """grep -qx right /app/answer.txt && value=1 || value=0
echo "looked at $(pwd)"
echo $value > /logs/verifier/reward.txt
"""
FILES = {
    "task.toml": 'schema_version = "1.4"\n[metadata]\nlicense = "MIT"\ncategory = "file-operations"\n'
    "[verifier]\ntimeout_sec = 20.0\n[agent]\ntimeout_sec = 9000.0\n",
    "instruction.md": "Write right into /app/answer.txt.",
    "environment/Dockerfile": "# base\nFROM ubuntu:24.04\nRUN apt-get update && apt-get install -y \\\n    git tmux\n"
    "WORKDIR /app\nCOPY data/ /app/data/\nCOPY run.sh ./\nRUN mkdir -p /app/out && touch /app/out/x\n",
    "environment/data/a.txt": "see /app/run.sh",
    "environment/run.sh": "#!/bin/sh\n",
    "solution/solve.sh": "#!/bin/bash\nprintf 'right\\n' > /app/answer.txt\n",
    "tests/test.sh": PLAIN,
}


def published(folder: Path, **changes: str | None) -> Path:
    """The task `right`, with some of its files (`__` for `/`) changed or left out."""
    files: dict[str, str | None] = {**FILES, **{name.replace("__", "/"): text for name, text in changes.items()}}
    for name, text in files.items():
        if text is not None:
            (folder / "right" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "right" / name).write_text(text)
    return folder


def only(folder: Path) -> Offer:
    (offer,) = offers(folder, INSTALLED)
    return offer


def test_a_task_is_imported(tmp_path: Path) -> None:
    task = only(published(tmp_path)).task
    assert isinstance(task, Task)
    assert (task.id, task.category, task.channels) == ("harbor-right", "os", frozenset({"terminal"}))
    assert "Write right into /home/user/app/answer.txt." in task.instruction
    assert "working directory of this task is /home/user/app" in task.instruction
    assert task.exec_files == {"app/data/a.txt": b"see /home/user/app/run.sh", "app/run.sh": b"#!/bin/sh\n"}
    assert "chmod +x /home/user/app/run.sh" in task.setup and "mkdir -p /home/user/app/out" in task.setup
    assert task.limits.agent_timeout_s == 1500 and "1500 s instead of 9000" in task.source
    assert "licence: MIT" in task.source and "origin: Harbor task right" in task.source
    assert (
        task.check_pip == ("pytest==8.4.1",)
        and b"/tmp/harbor/logs/verifier/reward.txt" in task.gt_files["tests/test.sh"]
    )
    assert task.oracle.terminal is not None and "solve.sh" in task.oracle.terminal[0].command


def test_g20_only_instruction_md_says_what_is_asked(tmp_path: Path) -> None:
    toml = FILES["task.toml"] + '[task]\nname = "a/right"\ndescription = "Placeholder."\n'
    root = published(tmp_path, **{"task.toml": toml, "task.yaml": "instruction: Placeholder.\n"})
    task = only(root).task
    assert (
        task is not None and task.instruction.startswith("Write right into ") and "Placeholder" not in task.instruction
    )


def graded(task: Task, home: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The check program as its own process, with the machine's paths below `tmp_path`."""
    gt, live, harbor = (tmp_path / name for name in ("gt", "live", "harbor"))
    for name, data in task.gt_files.items():
        text = data.decode().replace("/home/user", str(live)).replace("/tmp/harbor", str(harbor))
        (gt / name).parent.mkdir(parents=True, exist_ok=True)
        (gt / name).write_text(text)
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", task.check, str(home), str(gt)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def test_the_tests_run_on_a_copy_of_the_home_and_give_the_reward(tmp_path: Path) -> None:
    task = only(published(tmp_path / "in")).task
    assert task is not None
    home = make_home(task, tmp_path / "home")
    before = sorted(home.rglob("*"))
    untouched = json.loads(graded(task, home, tmp_path).stdout)
    assert untouched["reward"]["value"] == 0.0 and "/live/app" in untouched["reward"]["explanation"]
    assert sorted(home.rglob("*")) == before
    (home / "app/answer.txt").write_text("right\n")
    assert json.loads(graded(task, home, tmp_path).stdout)["reward"]["value"] == 1.0


def test_g09_a_reward_that_the_agent_planted_is_not_read(tmp_path: Path) -> None:
    task = only(published(tmp_path / "in", tests__test__sh=None, **{"tests__test.sh": "true\n"})).task
    assert task is not None
    home = make_home(task, tmp_path / "home")
    for place in (home / "logs/verifier", tmp_path / "harbor/logs/verifier"):
        place.mkdir(parents=True)
        (place / "reward.txt").write_text("1")
    done = graded(task, home, tmp_path)
    assert done.returncode != 0 and "wrote no reward" in done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 3", "wrote no reward"), ("echo nan > /logs/verifier/reward.txt", "finite"), ("sleep 60", "did not end")],
)
def test_g12_tests_without_a_good_reward_are_an_error_and_no_zero(tmp_path: Path, script: str, said: str) -> None:
    toml = "[verifier]\ntimeout_sec = 1.0\n"
    task = only(published(tmp_path / "in", **{"tests__test.sh": script, "task.toml": toml})).task
    assert task is not None
    done = graded(task, make_home(task, tmp_path / "home"), tmp_path)
    assert done.returncode != 0 and said in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({"reward.txt": "0.5\n"}, 0.5),
        ({"reward.txt": "0", "reward.json": '{"reward": 1, "speed": 7}'}, 1.0),
        ({"reward.json": '{"quality": 0.25}'}, 0.25),
        ({}, None),
        ({"reward.txt": "inf"}, None),
        ({"reward.txt": "good"}, None),
        ({"reward.json": '{"a": 1, "b": 0}'}, None),
        ({"reward.json": '{"reward": true}'}, None),
        ({"reward.json": '{"reward": "1"}'}, None),
    ],
)
def test_g10_reward_files_and_which_of_them_counts(tmp_path: Path, files: dict[str, str], value: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    if value is None:
        with pytest.raises(ValueError, match="reward"):
            reward_in(tmp_path)
    else:
        assert reward_in(tmp_path) == value


def test_g13_a_test_script_loses_its_installers_and_keeps_the_rest() -> None:
    refusals = Refusals()
    script, packages = offline(TEST, INSTALLED, refusals)
    assert refusals.reasons == []
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert packages == ("pytest-json-ctrf==0.3.5", "pytest==8.4.1", "requests==2.32.3")
    assert "if python3 -P -m pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA; then" in script
    assert not any(word in script for word in ("curl", "apt-get", "uvx", "astral", "source"))


@pytest.mark.parametrize(
    ("line", "left", "packages"),
    [
        ("uv run pytest /tests -q", "python3 -P -m pytest /tests -q", ("pytest==8.4.1",)),
        ("uvx -p 3.13 -w pytest==8.3.0 pytest t.py", "python3 -P -m pytest t.py", ("pytest==8.3.0",)),
        ("uvx --with=numpy==2.2.0 --with pytest==8.4.1 pytest t.py", "python3 -P -m pytest t.py",
         ("numpy==2.2.0", "pytest==8.4.1")),
        ("pytest t.py || exit 1", "python3 -P -m pytest t.py || exit 1", ("pytest==8.4.1",)),
        ("uv init && uv add pytest==8.4.1 'numpy>=2'", ":", ("numpy", "pytest==8.4.1")),
        ("pip install --quiet pandas==2.2.3", ":", ("pandas==2.2.3",)),
        ("if ! command -v uv; then\n  (set -o pipefail; curl -f https://astral.sh/uv/1/install.sh | sh) || exit $?\nfi",
         "if ! command -v uv; then\n:\nfi", ()),
        ("python3 /tests/check.py", "python3 /tests/check.py", ()),
        ("pip install pandas==2.2.3 # that's all", ":", ("pandas==2.2.3",)),
        ("set -e", "set -e", ()),
        ("# curl https://x.org", "# curl https://x.org", ()),
        ("curl localhost:8000/health", "curl localhost:8000/health", ()),
    ],
)  # fmt: skip
def test_lines_of_test_scripts(line: str, left: str, packages: tuple[str, ...]) -> None:
    refusals = Refusals()
    assert offline(line, INSTALLED, refusals) == (left, packages)
    assert refusals.reasons == []


def test_the_tests_import_nothing_from_the_folder_of_the_agent(tmp_path: Path) -> None:
    for name in ("pytest.py", "types.py", "_pytest/__init__.py"):
        (tmp_path / "app" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "app" / name).write_text("raise SystemExit(0)")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text("def test_x():\n    assert False\n")
    script, _ = offline(f"pytest {tmp_path}/tests -q -p no:cacheprovider", INSTALLED, Refusals())
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path / "app", env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "1 failed" in done.stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("wget https://x.org/data.csv", "its tests need the network: wget"),
        ("apt-get install -y nodejs", "its tests need the Debian package nodejs"),
        ("pip install -r /tests/requirements.txt", "its tests install from a file"),
        ("pip install git+https://x.org/y.git", "expected NAME or NAME==VERSION"),
    ],
)
def test_test_scripts_that_need_more_are_refused(line: str, reason: str) -> None:
    refusals = Refusals()
    offline(line, INSTALLED, refusals)
    assert reason in " | ".join(refusals.reasons)


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("FROM nvidia/cuda:12", "needs the image nvidia/cuda:12"),
        ("FROM python:3.12 AS a\nFROM debian:12", "several stages"),
        ("FROM debian:12\nRUN apt-get install -y gcc", "needs the Debian package gcc"),
        ("FROM python:3.12-slim\nRUN pip install --no-cache-dir numpy==2.1", "needs the pip package numpy==2.1"),
        ("FROM debian:12\nRUN git clone https://x.org/r.git", "builds its image from the network"),
        ("FROM debian:12\nRUN useradd -m bob", "builds its image as root"),
        ("FROM debian:12\nENV API_URL=http://x", "needs the environment variable API_URL"),
        ("FROM debian:12\nCOPY a.conf /etc/app/a.conf", "needs files of its own in /etc"),
        ("FROM debian:12\nCOPY nothing /app/", "copies nothing, which is missing"),
        ("FROM debian:12\nCOPY --from=other /x /y", "copies from another image"),
        ('FROM debian:12\nCMD ["nginx", "-g", "daemon off;"]', "its image starts a program"),
        ("FROM debian:12\nRUN <<EOF\napt-get update\nEOF", "here-document"),
    ],
)
def test_images_that_our_machine_cannot_be_are_refused(tmp_path: Path, dockerfile: str, reason: str) -> None:
    (tmp_path / "a.conf").write_text("x")
    (tmp_path / "Dockerfile").write_text(dockerfile)
    refusals = Refusals()
    read_image(tmp_path / "Dockerfile", INSTALLED, refusals)
    assert len(refusals.reasons) == 1 and reason in refusals.reasons[0]


def test_what_a_dockerfile_copies_and_runs(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "d/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "Dockerfile").write_text(
        "ARG V=12\nFROM debian:${V}\nENV DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8\nWORKDIR /srv\nWORKDIR sub\n"
        'COPY --chown=1:1 *.txt /data/\nCOPY a.txt renamed.txt\nCOPY ["d", "/srv/d"]\nADD . all/\n'
        "RUN chown -R x /srv && rm -rf /var/lib/apt/lists/* && echo 'a && b; c' > /srv/e; true\nCMD [\"/bin/bash\"]\n"
    )
    refusals = Refusals()
    image = read_image(tmp_path / "Dockerfile", INSTALLED, refusals)
    assert refusals.reasons == [] and image.workdir == "/srv/sub" and image.roots == {"/srv", "/data"}
    assert set(image.files) == {
        "/data/a.txt", "/data/b.txt", "/srv/sub/renamed.txt", "/srv/d/c.txt",
        "/srv/sub/all/a.txt", "/srv/sub/all/b.txt", "/srv/sub/all/d/c.txt",
    }  # fmt: skip
    assert image.commands == ["cd /srv/sub && echo 'a && b; c' > /srv/e"]


def test_an_image_of_terminal_bench_starts_in_app(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("x")
    base = "ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624"
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nCOPY run.sh .\nRUN chmod +x run.sh\n")
    refusals = Refusals()
    image = read_image(tmp_path / "Dockerfile", INSTALLED, refusals)
    assert refusals.reasons == [] and set(image.files) == {"/app/run.sh"}
    assert image.commands == ["cd /app && chmod +x run.sh"]


def test_paths_move_and_nothing_that_only_looks_like_one() -> None:
    text = "cd /app; cat '/app/x' /app.txt /apple a/app $HOME/app https://x.org/app /root/.ssh ~/app"
    moved = "cd /home/user/app; cat '/home/user/app/x' /home/user/app.txt /apple a/app $HOME/app https://x.org/app "
    assert rewritten(text, {"/app", "/root"}) == f"{moved}/home/user/.ssh ~/app"
    assert commands_of("a && 'b && c'; d") == ["a", "'b && c'", "d"]


def test_places_that_only_the_instruction_names_move_too(tmp_path: Path) -> None:
    changes = {
        "instruction.md": "Write right into /tmp/a/out.txt, /opt/report and /data/out.csv; GET /api/users says who.",
        "tests__test.sh": 'export PATH="$HOME/.local/bin:$PATH"\n'
        "cat /tmp/a/out.txt /opt/report /data/out.csv\ncurl localhost/api/users\necho 1 > /logs/verifier/reward.txt\n",
        "solution__solve.sh": "echo right > /opt/report\n",
    }
    task = only(published(tmp_path, **changes)).task
    assert task is not None and "mkdir -p /home/user/opt\nmkdir -p /home/user/tmp\n" in task.setup
    test = task.gt_files["tests/test.sh"].decode()
    for text in (task.instruction, test):
        for path in ("/tmp/a/out.txt", "/opt/report", "/data/out.csv"):
            assert f" /home/user{path}" in text
        assert "/home/user/api" not in text
    assert "/tmp/harbor/logs/verifier/reward.txt" in test


def test_a_temporary_file_of_the_tests_stays_where_it_is(tmp_path: Path) -> None:
    task = only(published(tmp_path, **{"tests__test.sh": PLAIN + "date > /tmp/now\n"})).task
    assert task is not None and b"date > /tmp/now" in task.gt_files["tests/test.sh"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task.toml": "[environment]\ngpus = 1\n"}, "needs a GPU"),
        ({"task.toml": "[environment]\nos = 'windows'\n"}, "needs another system than Linux"),
        ({"task.toml": "[environment]\nallowed_hosts = ['x.org']\n"}, "needs the network"),
        ({"task.toml": "[[environment.mcp_servers]]\nname = 'x'\n"}, "needs MCP servers"),
        ({"task.toml": "[[steps]]\nname = 'one'\n"}, "needs several steps"),
        ({"task.toml": "[verifier.env]\nKEY = '${KEY}'\n"}, "its tests need a secret: KEY"),
        ({"environment__docker-compose.yaml": "services: {}"}, "needs several containers"),
        (
            {"environment__Dockerfile": None, "task.toml": "[environment]\ndocker_image = 'x:1'\n"},
            "needs the image x:1",
        ),
        ({"solution__solve.sh": "pip install numpy\n"}, "its solution needs the network"),
        ({"tests__test_x.py": "open('/etc/passwd')"}, "its tests look at what is not frozen: /etc/passwd"),
        ({"tests__test_x.py": "open('/opt/x/y')"}, "its tests look at what is not frozen: /opt/x/y"),
        ({"tests__test_x.py": "open('/root/.config/x')"}, "not frozen: /home/user/.config"),
        (
            {"tests__test_x.py": "(Path.home() / '.cache/x').read_text()"},
            "its tests look at what is not frozen: home()",
        ),
    ],
)
def test_what_a_task_needs_and_we_lack_is_its_reason(
    tmp_path: Path, changes: dict[str, str | None], reason: str
) -> None:
    offer = only(published(tmp_path, **changes))
    assert offer.task is None and any(reason in one for one in offer.reasons)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task.toml": "[verifier]\ntimeout_sec = 'long'\n"}, "task.toml: verifier.timeout_sec: got 'long'"),
        ({"task.toml": "[verifier\n"}, "task.toml: expected TOML"),
        ({"instruction.md": None}, "instruction.md: missing"),
        ({"instruction.md": " \n"}, "instruction.md: got an empty file"),
        ({"tests__test.sh": None}, "tests/test.sh: missing"),
        ({"environment__Dockerfile": "FROM debian:12\n{}\n"}, "Dockerfile: got '{}'"),
        ({"environment__Dockerfile": "FROM debian:12\nRUN apt-get install 'git\n"}, "Dockerfile: can't be read: "),
        ({"environment__Dockerfile": "FROM debian:12\nCOPY\n"}, "Dockerfile: can't be read: "),
        ({"tests__test.sh": "pip install 'x"}, "tests/test.sh: can't be read: "),
        ({"tests__Dockerfile": "RUN pip install 'x"}, "tests/Dockerfile: can't be read: "),
        ({"task.toml": "[environment]\nworkdir = 'app'\n"}, "task.toml: environment.workdir: got 'app'"),
    ],
)
def test_a_malformed_task_names_file_and_value(tmp_path: Path, changes: dict[str, str | None], said: str) -> None:
    (reason,) = only(published(tmp_path, **changes)).reasons
    assert reason.startswith("malformed: ") and said in reason and "\n" not in reason


@pytest.mark.parametrize("name", ["environment", "tests", "solution", "instruction.md", "task.toml"])
def test_links_in_a_task_are_refused(tmp_path: Path, name: str) -> None:
    folder = published(tmp_path / "in") / "right"
    assert only(folder.parent).task is not None
    (folder / name).rename(tmp_path / "away")
    (folder / name).symlink_to(tmp_path / "away")
    (reason,) = only(folder.parent).reasons
    assert reason == f"malformed: {folder / name}: expected a regular file"


def test_a_folder_without_tasks_is_refused_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=r"no task\.toml below it"):
        list(offers(tmp_path, INSTALLED))
