"""Commands that drive a run: one at a time, resumable, and ended in one line."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from evolver.commands.stopping import again, finished
from evolver.config import RunConfig, load_config
from evolver.records import Decision, Ending, LedgerEntry, Rollout
from evolver.store import Store
from tests.evolver.children import stopped
from tests.evolver.test_cli import ROOT, called


def test_two_commands_never_drive_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo = load_config(ROOT / "evolver" / "demo.toml")
    store = Store.create(tmp_path / "run", demo)
    with store.working():
        code, _, err = called(capsys, "demo", "--out", str(store.path))
        assert code == 2 and f"process {os.getpid()}" in err
        code, _, err = called(capsys, "demo", "--out", str(store.path), "--fresh")
        assert code == 2 and store.path.exists()


def test_e14_a_cap_spent_already_is_wrong_input_and_a_raised_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, words = tmp_path / "c.toml", ("run", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run"))
    config.write_text("min_proposals = 0\n[caps]\nrollouts = 0")
    code, out, err = called(capsys, *words)
    if code == 3:
        pytest.skip(err.strip())
    assert code == 2 and "caps.rollouts = 0 is spent" in err
    assert "state: stopped before the end (budget): caps.rollouts = 0 is spent" in out
    store = Store.open(tmp_path / "run")
    assert [ending.reason for ending in store.all(Ending)] == ["budget"] and store.all(Rollout) == []
    config.write_text("min_proposals = 0\n[caps]\nrollouts = 0\ncost_usd = 1.5")
    assert called(capsys, *words)[0] == 2
    again = Store.open(tmp_path / "run")
    assert again.run_id == store.run_id and again.config.caps.cost_usd == 1.5


def test_a_missing_key_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teacher = "[teacher]\nkind='openai'\nmodel='m'\napi_key_env='NO_SUCH_KEY_HERE'\n[prices]\nm={input=1,output=1}"
    (tmp_path / "c.toml").write_text(teacher)
    code, _, err = called(capsys, "run", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run"))
    if code == 3:
        pytest.skip(err.strip())
    assert code == 2 and "set the environment variable NO_SUCH_KEY_HERE" in err.splitlines()[-1]


# Tasks that alpha gives up at once: what a starved machine does to a slow GUI makes no difference between two runs.
SMALL = """
lineage = "small"
tasks = { dev = 3, select = 2, families = ["csv.*"] }
race = { attempts = [1], confirm_attempts = 1 }
authors = [{ kind = "human", harness = "beta1", why = "a terminal" }]
distil = { max_promotions = 0 }
checks = { tasks = 0 }
"""


@pytest.mark.slow
def test_e12_killed_anywhere_a_run_comes_to_the_same_decisions_with_no_rollout_repeated(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)

    def words(out: str) -> list[str]:
        return [sys.executable, "-m", "evolver", "run", str(tmp_path / "small.toml"), "--out", str(tmp_path / out)]

    whole = subprocess.run(words("whole"), capture_output=True, text=True, cwd=ROOT)
    if whole.returncode == 3:
        pytest.skip(whole.stderr.strip())
    assert whole.returncode == 0, whole.stderr
    for rollouts in (3, 13):  # of 16: in the race and in its confirmation
        child = subprocess.Popen(words("killed"), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while child.poll() is None and _lines(tmp_path / "killed" / "rollouts.jsonl") < rollouts:
            time.sleep(0.05)
        child.kill()
        assert child.wait() == -signal.SIGKILL
    assert subprocess.run(words("killed"), cwd=ROOT, capture_output=True).returncode == 0
    one, two = Store.open(tmp_path / "whole"), Store.open(tmp_path / "killed")

    def decided(store: Store) -> list[tuple[object, ...]]:
        return [(d.candidate_id, d.verdict, d.looks, d.confirmation, d.confirmation_p) for d in store.all(Decision)]

    assert decided(one) == decided(two) and len(decided(one)) == 1
    assert sorted(r.id for r in one.all(Rollout)) == sorted(r.id for r in two.all(Rollout))
    assert len({entry.rollout_id for entry in two.all(LedgerEntry)}) == len(two.all(LedgerEntry))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_an_unreachable_endpoint_is_one_line_that_names_it(tmp_path: Path) -> None:
    teacher = "kind='openai', model='m', base_url='http://127.0.0.1:9/v1'"
    (tmp_path / "c.toml").write_text(f"teacher = {{ {teacher} }}\nallow_unpriced = true\ntasks = {{ dev = 2 }}")
    done = subprocess.run(
        [sys.executable, "-m", "evolver", "run", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run")],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OPENAI_API_KEY": "none"},
    )  # fmt: skip
    assert done.returncode in (2, 3) and "Traceback" not in done.stderr
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())  # no sandbox back end here
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("evolver: ")]
    assert len(said) == 1 and "127.0.0.1:9" in said[0] and "does not answer" in said[0]
    assert Store.open(tmp_path / "run").all(Ending)[-1].reason == "failed"


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_that_is_stopped_ends_its_clean_up_and_says_how_to_go_on(
    stop: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), stop)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            done.append("closed")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(typer.Exit) as end:
        finished(work())
    assert end.value.exit_code == code and done == ["closed"] and signal.getsignal(signal.SIGTERM) == before
    assert f"Resume: {again(sys.argv[1:])}\n" in capsys.readouterr().err


def test_the_resume_line_keeps_every_option_and_can_be_pasted_into_a_shell() -> None:
    words = ["judge", "calibrate", "runs/my run", "--tasks", "40", "--fresh"]
    assert again(words) == "evolver judge calibrate 'runs/my run' --tasks 40"


@pytest.mark.slow
def test_a_gap_without_students_is_wrong_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = {"tasks": {"test": 1, "families": ["csv.*"]}, "distil": {"recipe": str(tmp_path / "none.yaml")}}
    store = Store.create(tmp_path / "run", RunConfig.model_validate(settings))
    code, _, err = called(capfd, "gap", str(store.path), "beta1", "beta2")
    if code == 3:
        pytest.skip(err.strip())
    assert code == 2 and "can't read recipe" in err and "has no students to compare under beta1 and beta2" in err


@pytest.mark.slow
def test_a_gate_that_is_terminated_stops_cleanly(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    code, err = stopped(("tasks", "admit", "--split", "dev", "--log", str(log)), log.exists)
    assert code == 143 and "Resume: evolver tasks admit" in err and "Traceback" not in err


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_with_130_and_the_resume_line(tmp_path: Path) -> None:
    for stop, wanted in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        log = tmp_path / "run" / "rollouts.jsonl"
        code, err = stopped(("demo", "--out", str(tmp_path / "run")), log.exists, stop, after_s=2.0)
        assert code == wanted and "Traceback" not in err
        assert f"Resume: evolver demo --out {tmp_path / 'run'}" in err
        assert Store.open(tmp_path / "run").all(Ending)[-1].reason == "interrupted"
