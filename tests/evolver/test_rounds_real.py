"""A round of real rollouts in real sandboxes, from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evolver.rounds.manifest import Manifest
from evolver.rounds.reader import check_round, trajectories
from evolver.rounds.view import read_round
from evolver.sandboxes import open_backend
from harnesses.harness import Environment
from tests.evolver.round_capsule import PRICE, made_capsule
from tests.evolver.test_cli import called


@pytest.mark.docker
@pytest.mark.slow
def test_a_round_plays_real_tasks_resumes_and_refuses_another_capsule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsule, out = made_capsule(tmp_path / "best"), tmp_path / "round"
    words = ("generate", str(capsule), "--tasks", "train", "--n", "4", "--out", str(out), "--set", "shard_units=2")
    code, _, said = called(capsys, *words, "--set", "cost_usd=0.0001")
    assert code == 4 and "cost_usd" in said
    code, shown, said = called(capsys, *words)
    assert code == 0, said
    closed = check_round(out)
    assert closed is not None and closed.rows == 4 and f"root {closed.root}" in shown
    view = read_round(out)
    assert view.state == "complete" and view.looks and view.spent_usd > 0
    kept = list(trajectories(out))
    assert kept and all(t.capsule_id == view.capsule_id and t.skills for t in kept)
    for one in kept:
        tokens = one.rollout.turns[0].completion.usage
        assert (tokens.input_tokens or 0) * PRICE.input > 0 and one.scorecard.success is True
    assert called(capsys, *words)[0] == 0 and Manifest.of(out).closed == closed
    other = Path(shutil.copytree(capsule, tmp_path / "other"))
    (other / "prices.json").write_text((other / "prices.json").read_text().replace("2.0", "3.0"))
    code, _, said = called(capsys, "generate", str(other), *words[2:])
    assert code == 2 and "prices.demonstrator.output: 2.0 → 3.0" in said


@pytest.mark.docker
@pytest.mark.slow
async def test_g39_what_one_round_ends_is_its_own(tmp_path: Path) -> None:
    """Two back ends at once, as two rounds have them: closing one leaves the other's machines alone."""
    one, other = (open_backend("docker", spares=0) for _ in range(2))
    try:
        mine = await one.open(Environment(image="terminal"), run_id="round", ttl_s=120)
        theirs = await other.open(Environment(image="terminal"), run_id="round", ttl_s=120)
        assert mine.id != theirs.id
        await one.aclose()
        ran = await theirs.exec("echo alive", timeout_s=30)
        assert ran.output.strip() == "alive"
    finally:
        await one.aclose()
        await other.aclose()
