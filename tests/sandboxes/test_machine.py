"""A sandbox as a machine: files, bounds, isolation, freezing, the end of its time, and what is left of it."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from evolver.errors import SandboxLost, UsageError
from evolver.protocols import Sandbox, Sandboxes
from evolver.sandboxes.local import own_user
from evolver.sandboxes.machine import StateTooLarge, StateUnreadable
from harnesses.harness import Environment, Limits

TERMINAL = Environment(image="terminal")


def containers(run_id: str) -> list[str]:
    argv = ["docker", "ps", "-aq", "--filter", f"label=evolver.run={run_id}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def test_sandboxes_of_one_machine_have_users_of_their_own_whichever_process_started_them() -> None:
    """The kernel counts processes by user: two sandboxes of one user would share the bound of one."""
    code = (
        "import sys; from evolver.sandboxes.local import own_user\n"
        "user, held = own_user(); print(user, flush=True); sys.stdin.read()"
    )
    one, first = own_user()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        again, second = own_user()
        other.kill()
    with first, second:
        assert len({one, theirs, again}) == 3


async def test_the_home_is_whole_before_the_first_command(terminal: Sandbox, desktop: Sandbox) -> None:
    for box in (terminal, desktop):
        assert (await box.exec("ls -d ~/Desktop ~/Documents ~/Downloads", timeout_s=20)).exit_code == 0
        await box.close()


async def test_files_go_in_and_out_byte_for_byte(terminal: Sandbox) -> None:
    data = os.urandom(3_000_000)
    await terminal.write("deep/er/file.bin", data, mode=0o755)
    assert await terminal.read("/home/user/deep/er/file.bin") == data
    assert (await terminal.bash("stat -c '%a %U' deep/er/file.bin", timeout_s=5)).output == "755 user\n"


async def test_reading_what_is_no_file_fails_at_once(terminal: Sandbox) -> None:
    await terminal.bash("mkfifo pipe; mkdir dir", timeout_s=5)
    with pytest.raises(FileNotFoundError):
        await terminal.read("none")
    for path in ("pipe", "dir", "/dev/zero", "/etc/shadow"):
        with pytest.raises(OSError):
            await terminal.read(path)


async def test_the_agent_has_no_rights_and_the_system_is_read_only(terminal: Sandbox) -> None:
    ran = await terminal.bash("id -u; grep -E 'CapEff|CapPrm|CapAmb|NoNewPrivs' /proc/self/status", timeout_s=5)
    lines = ran.output.split()
    assert lines[0] == "1000" and lines[-1] == "1"
    assert all(int(value, 16) == 0 for value in lines[2:-2:2])
    ran = await terminal.bash(
        "cat /etc/shadow; touch /usr/x /etc/x /opt/evolver/inside/x; ls -d /var/cache/evolver /root/*", timeout_s=5
    )
    assert ran.exit_code != 0 and ran.output.count("enied") + ran.output.count("Read-only") >= 4


async def test_there_is_no_network(terminal: Sandbox) -> None:
    ran = await terminal.bash("tail -n +3 /proc/net/dev | cut -d: -f1; exec 3<>/dev/tcp/1.1.1.1/53", timeout_s=5)
    assert ran.output.split()[0] == "lo" and "unreachable" in ran.output


async def test_a_sandbox_makes_no_sandboxes_of_its_own(terminal: Sandbox) -> None:
    for command in ("unshare --user true", "unshare --user --map-root-user --net true", "unshare --mount true"):
        assert (await terminal.exec(command, timeout_s=5)).exit_code, command


async def test_s56_the_environment_holds_what_is_listed_and_nothing_of_the_host(terminal: Sandbox) -> None:
    known = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TERM", "PAGER", "GIT_PAGER", "PWD",
             "DEBIAN_FRONTEND", "PYTHONDONTWRITEBYTECODE", "XDG_RUNTIME_DIR", "SHLVL", "_", "OLDPWD"}  # fmt: skip
    for run in (terminal.exec, terminal.bash):
        names = (await run("env -0 | cut -z -d= -f1 | tr '\\0' '\\n'", timeout_s=5)).output.split()
        assert "HOME" in names and not set(names) - known
    assert (await terminal.exec("cat /proc/1/environ", timeout_s=5)).exit_code != 0


async def test_grader_libraries_are_there_but_not_for_the_agent(terminal: Sandbox) -> None:
    code = "python3 -c 'import openpyxl, pptx, docx, odf'"
    assert (await terminal.exec(code, timeout_s=10)).exit_code == 1
    ran = await terminal.exec(code, timeout_s=10, env={"PYTHONPATH": "/opt/evolver/site"})
    assert ran.exit_code == 0, ran.output


async def test_disk_processes_and_memory_are_bounded(backend: Sandboxes) -> None:
    limits = Limits(memory_mb=256, pids=64, disk_mb=64)
    box = await backend.open(Environment(image="terminal", limits=limits), run_id="test", ttl_s=60)
    ran = await box.bash("head -c 100M /dev/zero > big; stat -c %s big", timeout_s=20)
    assert "No space left" in ran.output
    await box.bash("rm big", timeout_s=5)
    fork = "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(2)\n        os._exit(0)"
    await box.write("fork.py", fork.encode())
    assert "Resource temporarily unavailable" in (await box.exec("python3 fork.py", timeout_s=15)).output
    await asyncio.sleep(2.5)
    ran = await box.exec("python3 -c 'print(len(bytearray(600 << 20)))'", timeout_s=20)
    assert ran.exit_code == 137 or "MemoryError" in ran.output, ran
    assert (await box.exec("echo alive", timeout_s=10)).output == "alive\n"
    assert await box.freeze()


async def test_s04_freeze_kills_the_agent_first_and_returns_its_home(terminal: Sandbox) -> None:
    await terminal.write("Desktop/report.txt", b"done")
    await terminal.bash(
        "mkdir -p .config/app .cache; echo s > .config/app/s; ln -s /etc/passwd link; mkfifo fifo", timeout_s=5
    )
    await terminal.bash("(setsid bash -c 'while :; do date >> tick; done' &) ; sleep 0.2", timeout_s=5)
    with tarfile.open(fileobj=io.BytesIO(await terminal.freeze())) as tar:
        members = {member.name: member for member in tar.getmembers()}
        report = tar.extractfile("Desktop/report.txt")
        assert report is not None and report.read() == b"done"
    assert not any(name.startswith(("/", "./.", ".config", ".cache", "..")) for name in members)
    assert members["link"].linkname == "/etc/passwd"
    with pytest.raises(SandboxLost, match="frozen"):
        await terminal.bash("true", timeout_s=5)


async def test_a_home_beyond_the_cap_is_the_harness_s_fault(backend: Sandboxes) -> None:
    box = await backend.open(Environment(image="terminal", limits=Limits(disk_mb=512)), run_id="test", ttl_s=60)
    await box.bash("truncate -s 400M sparse", timeout_s=20)
    with pytest.raises(StateTooLarge) as caught:
        await box.freeze()
    assert caught.value.blame == "harness"


async def test_a_very_deep_tree_is_frozen_within_the_freezing_s_own_deadline(terminal: Sandbox) -> None:
    code = "import os\nfor _ in range(1500):\n  os.mkdir('d')\n  os.chdir('d')"
    await terminal.bash(f'python3 -c "{code}"', timeout_s=20)
    assert len(await terminal.freeze()) > 1_000_000


async def test_a_home_that_the_agent_shut_is_its_own_failure(terminal: Sandbox) -> None:
    await terminal.bash("chmod 000 /home/user", timeout_s=5)
    with pytest.raises(StateUnreadable, match="can't be read") as caught:
        await terminal.freeze()
    assert caught.value.blame == "harness"


async def test_the_machine_ends_by_itself_when_its_time_is_over(backend: Sandboxes) -> None:
    box = await backend.open(TERMINAL, run_id="test-ttl", ttl_s=1)
    await asyncio.sleep(3.5)
    with pytest.raises(SandboxLost, match="time"):
        await box.bash("echo late", timeout_s=5)
    if backend.name == "docker":
        assert containers("test-ttl") == []


async def test_s07_sixteen_at_once(backend: Sandboxes) -> None:
    async def one(number: int) -> str:
        box = await backend.open(TERMINAL, run_id="test", ttl_s=120)
        ran = await box.bash(f"echo {number}", timeout_s=60)
        await box.close()
        return ran.output.strip()

    assert await asyncio.gather(*(one(number) for number in range(16))) == [str(number) for number in range(16)]


async def test_a_package_that_an_edit_drops_is_gone_and_one_that_it_adds_is_there(backend: Sandboxes) -> None:
    """xdotool out, python-pptx in; and again from the parent's side, so that what was built for one stays with it."""
    if backend.name == "local" and os.geteuid() != 0:
        pytest.skip("apt packages on the local back end need root")
    parent = Environment(image="terminal", apt=("xdotool",))
    child = Environment(image="terminal", pip=("python-pptx==1.0.2",))
    for environment, found in ((parent, ["xdotool"]), (child, ["pptx"]), (parent, ["xdotool"]), (TERMINAL, [])):
        box = await backend.open(environment, run_id="test", ttl_s=60)
        ran = await box.exec(
            "command -v xdotool >&2 && echo xdotool; python3 -c 'import pptx' && echo pptx", timeout_s=20
        )
        assert [line for line in ran.output.splitlines() if line in ("xdotool", "pptx")] == found
        await box.close()


async def test_pip_packages_come_and_go_with_the_environment(backend: Sandboxes, terminal: Sandbox) -> None:
    assert (await terminal.exec("python3 -c 'import iniconfig'", timeout_s=10)).exit_code == 1
    box = await backend.open(Environment(image="terminal", pip=("iniconfig==2.0.0",)), run_id="test", ttl_s=60)
    assert (
        await box.bash("python3 -c 'import iniconfig; print(iniconfig.__name__)'", timeout_s=10)
    ).output == "iniconfig\n"
    assert box.image_digest != terminal.image_digest


async def test_a_package_that_does_not_exist_is_named(backend: Sandboxes) -> None:
    with pytest.raises(UsageError, match="iniconfig==99"):
        await backend.prepare(Environment(image="terminal", pip=("iniconfig==99",)))
    with pytest.raises(UsageError, match="no-such-package-here"):
        await backend.prepare(Environment(image="terminal", apt=("jq", "no-such-package-here")))


def test_without_docker_auto_is_local_and_says_why() -> None:
    code = "from evolver.sandboxes import open_backend; print(open_backend().name)"
    env = os.environ | {"DOCKER_HOST": "tcp://127.0.0.1:9"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "local\n" and "no Docker daemon answers" in done.stderr


def test_trees_of_other_versions_are_named_and_removed_only_when_told_so(tmp_path: Path) -> None:
    old = tmp_path / "rootfs" / "0123456789abcdef"
    (old / "etc").mkdir(parents=True)
    (old / "etc/passwd").write_text("x" * 10_000)
    env = os.environ | {"EVOLVER_CACHE": str(tmp_path), "DOCKER_HOST": "tcp://127.0.0.1:9"}
    for options, stays in (([], True), (["--images"], False)):
        argv = [str(Path(sys.executable).with_name("evolver")), "sandbox", "reap", *options]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        assert str(old) in done.stdout + done.stderr and old.exists() is stays


async def test_evidence_is_read_and_where_there_are_users_nothing_changes_it(kind: str, terminal: Sandbox) -> None:
    await terminal.write("/evidence/rollouts/one.md", b"what happened\n", mode=0o444)
    assert (await terminal.exec("cat /evidence/rollouts/one.md", timeout_s=5)).output == "what happened\n"
    changes = "cd /evidence; echo more >> rollouts/one.md; rm -f rollouts/one.md; mv rollouts b; chmod 777 .; touch a"
    await terminal.exec(f"({changes}) 2>/dev/null", timeout_s=5)
    if kind == "docker":  # a sandbox of one user can't keep anything from it, so nothing is ever read back from there
        listed = await terminal.exec("find /evidence -type f; cat /evidence/rollouts/one.md", timeout_s=5)
        assert listed.output == "/evidence/rollouts/one.md\nwhat happened\n"
