"""A small real run, written record by record through the Store, for tests of the pages."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image as Picture
from PIL import ImageDraw

from evolver.config import RunConfig
from evolver.records import (
    Candidate,
    ChannelRow,
    Completion,
    Decision,
    Distillation,
    Ending,
    Evaluation,
    Failure,
    Gap,
    Image,
    Interval,
    LedgerEntry,
    Look,
    Manifest,
    Observed,
    Rollout,
    RolloutKey,
    Score,
    Scorecard,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
)
from evolver.store import Store
from harnesses.library import Library

TEACHER = "demonstrator(slip_rate=0.05)"
START = 1_780_000_000.0
ROLLOUTS = 120


def ci(point: float | None, low: float | None = None, high: float | None = None, n: int = 24) -> Interval:
    return Interval(point=point, low=low, high=high, n=n, method="percentile bootstrap over tasks")


def build(path: Path) -> Store:
    store = Store.create(path, RunConfig())
    ids = _harnesses(path)
    _judging(store, ids)
    frames = [_frame(store, n) for n in range(3)]
    for number in range(ROLLOUTS):
        _attempt(store, number, ids[("alpha", "beta1", "beta2")[number % 3]], frames)
    store.append(Ending(id="end-1", reason="done", detail="", at=START + 9_000))
    return store


def _harnesses(path: Path) -> dict[str, str]:
    library = Library(path / "library")
    ids = {name: library.add_seed(name) for name in ("alpha", "beta1", "beta2")}
    library.close()
    return {**ids, "wide": "d" * 40, "short": "e" * 40, "open": "f" * 40}


def _judging(store: Store, ids: dict[str, str]) -> None:
    tree = (
        ("alpha", ()),
        ("beta1", ("alpha",)),
        ("beta2", ("beta1",)),
        ("wide", ("beta1",)),
        ("short", ("beta1",)),
        ("open", ("beta2",)),
    )
    for number, (name, parents) in enumerate(tree):
        store.append(
            Candidate(
                id=f"c-{name}",
                name=name,
                harness_id=ids[name],
                parents=tuple(ids[p] for p in parents),
                author="human" if name.startswith(("a", "b")) else "structured",
                components=("T", "P") if parents else (),
                changes=("tools: + bash", "prompt.system: 90 → 120 words (+4 −1 lines)") if parents else (),
                manifest=Manifest(why=f"{name} should need fewer turns"),
                proposed_at=START + 1_000 * number,
            )
        )
    for name, point in (("alpha", 0.3), ("beta1", 0.9), ("beta2", 0.86), ("wide", 0.88), ("short", 0.62)):
        store.append(_evaluation(ids[name], ci(point, max(0, point - 0.2), min(1, point + 0.1))))
    verdicts = (
        ("beta1", "alpha", "promote", ci(0.6, 0.4, 0.8), ci(0.562, 0.31, 0.77, 16)),
        ("beta2", "beta1", "keep", ci(-0.04, -0.12, 0.04), None),
        ("wide", "beta1", "inconclusive", ci(-0.02, -0.1, 0.06), None),
        ("short", "beta1", "reject", ci(-0.28, -0.42, -0.13), None),
    )
    for number, (name, against, verdict, effect, confirmed) in enumerate(verdicts, 1):
        store.append(
            Decision(
                id=f"d-{number}",
                candidate_id=f"c-{name}",
                candidate_harness=ids[name],
                incumbent_harness=ids[against],
                verdict=verdict,
                looks=(Look(attempts=1, effect=effect, p_value=0.01, alpha=0.02, verdict="pass"),),
                confirmation=confirmed,
                confirmation_p=0.01 if confirmed else None,
                alpha_spent=0.02,
                flip_rate_aa=ci(0.05, 0.01, 0.12),
                flip_rate_ab=ci(0.3, 0.18, 0.44),
                tokens_per_solved=ci(1_500 + 300 * number, 1_400, 2_900),
                incumbent_tokens_per_solved=ci(5_200, 4_100, 6_900) if number == 1 else None,
                reasons=(f"{verdict}: measured on dev",),
                decided_at=START + 1_000 * number + 500,
                routes=("better",) if verdict == "promote" else (),
            )
        )
    for seed in (0, 1):
        store.append(
            Distillation(
                id=f"s-{seed}",
                teacher_harness=ids["beta1"],
                teacher_model=TEACHER,
                base_model="smollm2-135m",
                student_model=f"student-beta1-{seed}",
                recipe={"epochs": 2},
                seed=seed,
                data_sha256="d" * 64,
                template_sha256="t" * 64,
                rows=240,
                trained_tokens=99_000,
                dropped={"unsuccessful": 3},
                train_loss_first=2.0,
                train_loss_last=None,
                train_s=60.0,
                checkpoint=f"students/s-{seed}",
            )
        )
    store.append(
        Gap(
            id="g-1",
            harness_a=ids["beta1"],
            harness_b=ids["beta2"],
            teacher_a=ci(0.90, 0.8, 0.97, 40),
            teacher_b=ci(0.85, 0.7, 0.93, 40),
            teacher_gap=ci(-0.05, -0.15, 0.05, 40),
            student_a=ci(0.40, 0.3, 0.5, 40),
            student_b=ci(0.25, 0.15, 0.36, 40),
            student_gap=ci(-0.15, -0.27, -0.03, 40),
            control_a=ci(0.0, 0.0, 0.09, 40),
            control_b=ci(0.0, 0.0, 0.09, 40),
            lift_a=ci(0.4, 0.3, 0.5, 40),
            lift_b=ci(0.25, 0.15, 0.36, 40),
            amplification=Interval(point=None, low=None, high=None, n=40, method="the teacher gap's interval holds 0"),
            n_tasks=40,
            student_seeds=(0, 1),
            notes=("two seeds per arm: the interval is wide",),
            at=START + 8_000,
        )
    )


def _evaluation(harness: str, success: Interval) -> Evaluation:
    alpha = (success.point or 0) < 0.5
    rows = tuple(
        ChannelRow(
            app=app,
            rollouts=24,
            gui_calls=60 if alpha else gui,
            terminal_calls=0 if alpha else terminal,
            none_turns=2,
            switches=3,
            tokens=None if app == "calc" else 9_000,
            seconds=60.0,
            success_by_channel={"gui": ci(0.5, 0.2, 0.8, 10), "terminal": ci(0.9, 0.7, 0.98, 14)},
        )
        for app, gui, terminal in (("calc", 12, 63), ("files", 0, 20), ("mousepad", 15, 15), ("impress", 40, 4))
    )
    return Evaluation(
        id=f"e-{harness[:6]}",
        purpose="race",
        harness_id=harness,
        model_id=TEACHER,
        split="dev",
        seed=0,
        attempts=1,
        n_tasks=24,
        n_unscored=1,
        success=success,
        success_seen=None,
        success_unseen=None,
        rubric=success,
        tokens_per_task=ci(1_800, 1_500, 2_100),
        tokens_per_solved=None,
        cost_usd=0.0,
        seconds_per_task=3.0,
        channels=rows,
        tasks_sha256="t" * 64,
    )


def _frame(store: Store, number: int) -> Image:
    picture = Picture.new("RGB", (1920, 1080), (58, 74, 92))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((200 + 40 * number, 140, 1500, 900), fill=(245, 245, 245))
    draw.rectangle((200 + 40 * number, 140, 1500, 190), fill=(120, 140, 170))
    for line in range(8):
        draw.text((260 + 40 * number, 240 + 60 * line), f"line {line + 1} of a letter", fill=(30, 30, 30), font_size=30)
    data = io.BytesIO()
    picture.save(data, "PNG")
    return Image(frame_id=store.put_blob(data.getvalue()), width=1920, height=1080)


def _attempt(store: Store, number: int, harness: str, frames: list[Image]) -> None:
    lost = number % 17 == 5
    key = RolloutKey(
        purpose="race" if number % 2 else "confirm",
        harness_id=harness,
        model_id=TEACHER,
        task_id=f"calc-total-{number % 24:02d}",
        task_hash="h",
        split="dev",
        attempt=number // 24,
        seed=0,
    )
    error = Failure(kind="sandbox_lost", blame="sandbox", message="the sandbox went away") if lost else None
    turns = tuple(_turn(n, frames) for n in range(3 + number % 4))
    rollout = Rollout(
        id=f"r-{number:016x}",
        key=key,
        loaded_harness_id=harness,
        image_digest="sha256:0",
        apps=("calc",) if number % 3 else ("files", "calc"),
        category="office",
        first=Observed(image=frames[0]),
        turns=turns,
        stop_reason="error" if lost else "finished",
        error=error,
        started_at=START + 60 * number,
        finished_at=START + 60 * number + 30,
    )
    store.append(rollout)
    store.append(
        LedgerEntry(
            id=f"l-{number}",
            role="teacher",
            model_id=TEACHER,
            calls=len(turns),
            input_tokens=None if number == 7 else 900 * len(turns),
            output_tokens=None if number == 7 else 60 * len(turns),
            cost_usd=None if number == 7 else 0.0,
            rollout_id=rollout.id,
            at=START + 60 * number + 30,
        )
    )
    if number == ROLLOUTS - 1:
        return  # the newest attempt is not graded yet
    success = None if lost else number % 5 != 0
    score = Score(
        criterion="total_is_right",
        weight=1,
        required=True,
        value=None if success is None else float(success),
        explanation="" if lost else "B9 is 412",
        grader="program",
    )
    store.append(
        Scorecard(
            rollout_id=rollout.id,
            key=key,
            checker_hash="c",
            scores=(score,),
            success=success,
            rubric=score.value,
            error=error,
            channel="both",
            tokens=None if number == 7 else 960 * len(turns),
            cost_usd=0.0,
            seconds=30.0,
        )
    )


def _turn(number: int, frames: list[Image]) -> Turn:
    gui = number % 2 == 0
    call = ToolCall(
        id=f"call-{number}",
        name="computer_use" if gui else "bash",
        arguments={"action": "left_click", "coordinate": [420 + 60 * number, 300]}
        if gui
        else {"command": "python3 total.py"},
    )
    summary = "click the total cell" if gui else "compute the total"
    made = called(number, call, "ok" if gui else "412\nwritten", summary, "The total belongs into the last row.")
    result = made.results[0].model_copy(update={"is_error": number == 3})
    return made.model_copy(
        update={
            "results": (result,),
            "observed": Observed(image=frames[(number + 1) % 3] if gui else None),
            "channel": "gui" if gui else "terminal",
            "slip": "wrong_target" if number == 2 else None,
            "model_s": 0.8,
            "tools_s": 0.5 + number,
        }
    )


def called(number: int, call: ToolCall, printed: str, summary: str, reasoning: str) -> Turn:
    """A turn of one call, through the terminal unless it is changed."""
    return Turn(
        index=number, request_sha256="q" * 64, summary=summary, channel="terminal", model_s=0.5, tools_s=0.5,
        completion=Completion(
            text="", reasoning=reasoning, calls=(call,), finish_reason="tool_calls",
            usage=Usage(input_tokens=900, output_tokens=60, counted_by="estimate"),
        ),
        results=(ToolResult(call_id=call.id, text=printed, seconds=0.4),),
    )  # fmt: skip
