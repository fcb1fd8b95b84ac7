"""The agent's shell: state, hangs, timeouts, floods, and what a command can't do to the machine's own control."""

from __future__ import annotations

import time

import pytest

from evolver.protocols import Sandbox


async def test_s03_a_timed_out_command_is_dead_with_all_that_it_started(terminal: Sandbox) -> None:
    command = "sleep 301 & (setsid sleep 302 &); nohup sleep 303 & bash -c 'sleep 304; true'"
    started = time.monotonic()
    ran = await terminal.bash(command, timeout_s=1)
    assert ran.timed_out and ran.exit_code is None and "killed after 1 s" in ran.notice
    assert time.monotonic() - started < 6
    assert (await terminal.exec("pgrep -a sleep", timeout_s=5)).output == ""
    assert (await terminal.bash("echo next", timeout_s=5)).output == "next\n"


async def test_s03_exec_leaves_nothing_after_its_timeout_either(terminal: Sandbox) -> None:
    ran = await terminal.exec("setsid sleep 305 & sleep 306", timeout_s=1)
    assert ran.timed_out and ran.exit_code is None
    assert (await terminal.exec("pgrep -a sleep", timeout_s=5)).output == ""


@pytest.mark.parametrize(
    "command",
    ["cat <<EOF\nnever ends", "echo 'open", 'echo "open', "cat", "python3", "less", "read line", "while :; do :; done"],
)
async def test_s26_what_would_wait_for_ever_returns_and_the_next_command_works(terminal: Sandbox, command: str) -> None:
    started = time.monotonic()
    await terminal.bash(command, timeout_s=2)
    assert time.monotonic() - started < 8
    ran = await terminal.bash("echo alive", timeout_s=5)
    assert (ran.exit_code, ran.output) == (0, "alive\n")


async def test_s27_state_lasts_from_command_to_command(terminal: Sandbox) -> None:
    await terminal.bash("mkdir -p e; cd e; export V='a b'; f() { echo \"f $1\"; }", timeout_s=5)
    await terminal.bash("sleep 311 &", timeout_s=5)
    ran = await terminal.bash('pwd; echo "$V"; f x; jobs | wc -l', timeout_s=5)
    assert ran.output.splitlines() == ["/home/user/e", "a b", "f x", "1"]


async def test_s27_exit_is_reported_and_a_new_shell_answers(terminal: Sandbox) -> None:
    ran = await terminal.bash("echo bye; exit 3", timeout_s=5)
    assert (ran.exit_code, ran.output, ran.timed_out) == (3, "bye\n", False)
    assert "a new one was started" in ran.notice
    assert (await terminal.bash("echo hi", timeout_s=5)).notice == ""


async def test_s27_background_jobs_outlive_a_later_timeout(terminal: Sandbox) -> None:
    await terminal.bash("sleep 312 &", timeout_s=5)
    await terminal.bash("sleep 60", timeout_s=1)
    assert "sleep 312" in (await terminal.exec("pgrep -a sleep", timeout_s=5)).output


async def test_s28_ten_megabytes_are_cut_head_and_tail_with_a_count(terminal: Sandbox) -> None:
    ran = await terminal.bash("echo first; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo last", timeout_s=30)
    assert ran.exit_code == 0 and len(ran.output) < 17_000
    assert ran.output.startswith("first\n") and ran.output.endswith("last\n")
    assert ran.truncated_chars == 10_000_000 + len("first\n\nlast\n") - 16_000
    assert f"{ran.truncated_chars} characters left out" in ran.output


async def test_s28_binary_output_is_valid_text_and_the_shell_lives(terminal: Sandbox) -> None:
    ran = await terminal.bash("head -c 100000 /dev/urandom; printf '\\xe4\\xbd'", timeout_s=10)
    ran.output.encode("utf-8")
    assert "\0" not in ran.output and ran.exit_code == 0
    assert (await terminal.bash("echo ü", timeout_s=5)).output == "ü\n"


async def test_exit_codes_can_not_be_forged(terminal: Sandbox) -> None:
    ran = await terminal.bash("printf '0\\0' >&199; printf '0\\0' > /proc/$$/fd/199; (exit 7)", timeout_s=5)
    assert ran.exit_code == 7
    assert (await terminal.bash("echo in step", timeout_s=5)).output.endswith("in step\n")


async def test_s06_killing_everything_leaves_control_alive(terminal: Sandbox) -> None:
    for command in ("killall -9 python3", "pkill -9 -f server.py", "kill -9 1", "kill -9 -1", "kill -TERM 1"):
        await terminal.bash(command, timeout_s=5)
    assert (await terminal.bash("echo alive", timeout_s=5)).output == "alive\n"


async def test_a_fresh_command_gets_the_environment_asked_for(terminal: Sandbox) -> None:
    ran = await terminal.exec("echo $A; pwd; exit 4", timeout_s=5, env={"A": "1"})
    assert (ran.exit_code, ran.output) == (4, "1\n/home/user\n")


async def test_s48_clock_zone_and_language_are_pinned(terminal: Sandbox) -> None:
    assert (await terminal.bash("date +%Z; echo $LANG", timeout_s=5)).output == "UTC\nC.UTF-8\n"
