"""The command that tries the judge before it may decide anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, RunDir, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from evolver.audit import Agreement, Calibration
    from evolver.lab import Lab

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The rubric judge. Example: evolver judge calibrate runs/mine"
)


@app.callback()
def judge() -> None:
    """The rubric judge. Example: evolver judge calibrate runs/mine"""


@app.command()
def calibrate(
    run: RunDir,
    tasks: Annotated[int, typer.Option(min=1, help="So many tasks of dev are played as controls.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Has the judge judge states whose outcome check programs know, and prints how well it agrees; 1 when it is unfit.

    Known successes, known failures (nothing done, wrong solutions) and blank controls; what was judged before is not
    paid for again. A judge that was not calibrated in a run, or failed, decides no promotion there.

    \b
    Examples:
      evolver judge calibrate runs/mine
      evolver judge calibrate runs/mine --tasks 40 --json
    """
    from evolver.audit import Calibration
    from evolver.commands.experiment import drive
    from evolver.graders.judge import signature_of
    from evolver.store import Store

    store = Store.open(run)
    if store.config.judge is None:
        raise UsageError(f"{run} has no judge: add [judge] with its model to the config before the run starts")

    async def work(lab: Lab) -> int:
        return await _calibrate(lab, tasks)

    code = drive(store, work)
    if code:
        raise typer.Exit(code)
    signature = signature_of(store.config.judge)
    found = [c for c in store.all(Calibration) if c.judge == signature][-1]
    if as_json:
        show_json(found.model_dump(mode="json"))
    else:
        _print(found)
    if found.faults:
        raise typer.Exit(1)


async def _calibrate(lab: Lab, n: int) -> int:
    from devset.splits import load_split
    from evolver.calibrate import by_programs, calibrate
    from evolver.graders.judge import JudgeGrader

    judge = next(grader for grader in lab.graders if isinstance(grader, JudgeGrader))
    dev = [task for task in load_split("dev") if by_programs(task)]
    await calibrate(lab, judge, dev[:n], [*dev, *load_split("train")])
    return 0


def _print(found: Calibration) -> None:
    from evolver.phrasing import number, percent, pp

    overall = [
        ("accuracy", percent(found.accuracy), f"{found.accuracy.n:,}"),
        ("Cohen's kappa", number(found.kappa), f"{found.kappa.n:,}"),
        ("known successes passed", percent(found.true_accepts), f"{found.true_accepts.n:,}"),
        ("known failures passed", percent(found.false_accepts), f"{found.false_accepts.n:,}"),
    ]
    show_table(f"{found.judge} against check programs", ("", "[95 %]", "tasks"), overall)
    groups: tuple[tuple[str, Sequence[Agreement]], ...] = (
        ("kind of case", found.kinds),
        ("channel", found.channels),
        ("length", found.lengths),
        ("model family", found.families),
    )
    columns = ("group", "cases", "tasks", "unscored", "checkers pass", "judge passes", "accuracy [95 %]", "bias [95 %]")
    rows = [
        (
            f"{what}: {g.name}", f"{g.n:,}", f"{g.n_tasks:,}", f"{g.n_unscored:,}", _share(g.checked_rate),
            _share(g.judged_rate), percent(g.accuracy), pp(g.bias),
        )
        for what, found_groups in groups
        for g in found_groups
    ]  # fmt: skip
    show_table("agreement and bias (judge minus check programs)", columns, rows)
    if found.faults:
        say(f"UNFIT: this judge decides no promotion in this run: {'; '.join(found.faults)}")
    else:
        say("fit: this judge may decide promotions in this run")


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"
