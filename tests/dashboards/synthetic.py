"""A run of any size with made-up results, for what is asked of the pages at scale: lines are written, not records."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from evolver.config import RunConfig
from evolver.records import (
    Candidate,
    ChannelRow,
    Decision,
    Evaluation,
    LedgerEntry,
    Look,
    Manifest,
    Rollout,
    RolloutKey,
    Score,
    Scorecard,
    ToolCall,
    Turn,
)
from evolver.store import Store
from tests.dashboards.fixture_run import START, TEACHER, called, ci

APPS = ("calc", "writer", "files", "mousepad", "impress", "terminal")
FIRST, NAME, TASK, HARNESS = "r-FIRST", "r-NAME", "t-TASK", "HARNESS"
ATTEMPT, AT, DONE = 987654321, 123456789.25, "DONE"


@dataclass(frozen=True)
class Size:
    rollouts: int
    candidates: int
    turns: int = 3
    text: int = 600  # characters of the results of a turn
    tasks: int = 50


def build(path: Path, size: Size) -> None:
    """Writes a run in which the harnesses play the same tasks in turn."""
    store = Store.create(path, RunConfig())
    _judging(store, size)
    draw = random.Random(0)
    lines = {name: _template(name, size) for name in ("rollouts", "scorecards", "ledger")}
    logs = {name: (path / f"{name}.jsonl").open("w") for name in lines}
    for n in range(size.rollouts):
        who, played = n % size.candidates, n // size.candidates
        solved = draw.random() < 0.3 + 0.5 * who / size.candidates
        parts = (
            (NAME, f"r-{n:016x}"), (TASK, f"task-{played % size.tasks:03d}"), (HARNESS, f"{who:040x}"),
            (str(ATTEMPT), str(played // size.tasks)), (str(AT), str(START + n)), (APPS[0], APPS[played % len(APPS)]),
            (f'"{DONE}"', "true" if solved else "false"),
        )  # fmt: skip
        for name, line in lines.items():
            for old, new in parts:
                line = line.replace(old, new)
            logs[name].write(line)
    for log in logs.values():
        log.close()


def _template(name: str, size: Size) -> str:
    key = RolloutKey(
        purpose="race", harness_id=HARNESS, model_id=TEACHER, task_id=TASK, task_hash="h", split="dev",
        attempt=ATTEMPT, seed=0,
    )  # fmt: skip
    if name == "ledger":
        entry = LedgerEntry(
            id=f"l-{NAME}", role="teacher", model_id=TEACHER, calls=size.turns, input_tokens=900, output_tokens=60,
            cost_usd=0.0, rollout_id=NAME, at=AT,
        )  # fmt: skip
        return entry.model_dump_json() + "\n"
    if name == "scorecards":
        score = Score(criterion="right", weight=1, required=True, value=1.0, explanation="x" * 80, grader="program")
        card = Scorecard(
            rollout_id=NAME, key=key, checker_hash="c", scores=(score,), success=True, rubric=0.5, channel="both",
            tokens=960, cost_usd=0.0, seconds=30.0,
        )  # fmt: skip
        return card.model_dump_json().replace('"success":true', f'"success":"{DONE}"') + "\n"
    rollout = Rollout(
        id=NAME, key=key, loaded_harness_id=HARNESS, image_digest="sha256:0", apps=(APPS[0],), category="office",
        turns=tuple(turn(n, size.text) for n in range(size.turns)), stop_reason="finished", started_at=AT,
        finished_at=AT,
    )  # fmt: skip
    return rollout.model_dump_json() + "\n"


def turn(number: int, text: int) -> Turn:
    call = ToolCall(id=f"call-{number}", name="bash", arguments={"command": f"python3 step{number}.py"})
    return called(number, call, f"result {number} " + "y" * text, f"step {number}", f"reason {number}")


def _judging(store: Store, size: Size) -> None:
    draw = random.Random(1)
    incumbent = 0
    for n in range(size.candidates):
        harness, parent = f"{n:040x}", f"{incumbent:040x}"
        success = 0.2 + 0.7 * n / size.candidates
        store.write(
            Candidate(
                id=f"c-{n}", name=f"candidate-{n}", harness_id=harness, parents=(parent,) if n else (),
                author=("structured", "llm", "random")[n % 3], components=("P",) if n else (),
                changes=("prompt.system: 90 → 120 words (+4 −1 lines)",), manifest=Manifest(why=f"reason {n}"),
                proposed_at=START + 10 * n,
            )
        )  # fmt: skip
        store.write(_evaluation(harness, n, success))
        if n:
            verdict = "promote" if n % 60 == 0 else "keep" if n % 25 == 0 else "reject"
            store.write(
                Decision(
                    id=f"d-{n}", candidate_id=f"c-{n}", candidate_harness=harness, incumbent_harness=parent,
                    verdict=verdict, confirmation=None, confirmation_p=None, alpha_spent=0.001, flip_rate_aa=0.05,
                    looks=(Look(attempts=1, effect=ci(draw.uniform(-0.2, 0.2), -0.3, 0.3), p_value=0.2, alpha=0.01,
                                verdict="futile"),),
                    flip_rate_ab=0.1, tokens_per_solved=1_500.0, incumbent_tokens_per_solved=1_600.0,
                    reasons=("measured on dev",), decided_at=START + 10 * n + 5,
                )
            )  # fmt: skip
            incumbent = n if verdict == "promote" else incumbent


def _evaluation(harness: str, number: int, success: float) -> Evaluation:
    rows = tuple(
        ChannelRow(
            app=app, rollouts=8, gui_calls=10, terminal_calls=10, none_turns=1, switches=2, tokens=9_000, seconds=60.0,
            success_by_channel={"gui": ci(0.5, 0.2, 0.8, 4), "terminal": ci(0.6, 0.3, 0.9, 4)},
        )
        for app in APPS
    )  # fmt: skip
    tokens = 900.0 + 37 * (number * 7919 % 500)
    return Evaluation(
        id=f"e-{number}", purpose="race", harness_id=harness, model_id=TEACHER, split="dev", seed=0, attempts=1,
        n_tasks=50, n_unscored=0, success=ci(success, success - 0.1, min(1, success + 0.1), 50), success_seen=None,
        success_unseen=None, rubric=ci(success, success - 0.1, min(1, success + 0.1), 50),
        tokens_per_task=ci(tokens, 0.8 * tokens, 1.2 * tokens, 50), tokens_per_solved=tokens / success, cost_usd=None,
        seconds_per_task=3.0, channels=rows, tasks_sha256="t" * 64,
    )  # fmt: skip
