"""Commands about a run's milestones and its bill: stage, finalize, ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, RunDir, data_console, say, show_json

if TYPE_CHECKING:
    from evolver.lab import Lab


def stage(
    run: RunDir,
    name: Annotated[str, typer.Argument(metavar="NAME", help="alpha, beta, gamma, ...")],
    why: Annotated[str, typer.Option(help="What the step stands for, in one sentence.")],
    harness: Annotated[
        str | None, typer.Option(metavar="HARNESS", help="A harness of the lineage; its newest if absent.")
    ] = None,
    teacher: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Another teacher from here on, by its model's id.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Names a step of the lineage and tags its harness. Another teacher is a step of its own: change [teacher] in the
    config after it, and nothing measured before is compared with what comes.

    \b
    Examples:
      evolver stage runs/mine beta --why "a shell beside the screen"
      evolver stage runs/mine gamma --teacher gpt-5.5 --why "a stronger teacher"
    """
    from evolver.stages import TAG, enter_stage
    from evolver.store import Store
    from harnesses.library import Library

    store = Store.open(run)
    library = Library(run / "library")
    with store.working():
        made = enter_stage(store, library, name, why, harness=harness, teacher=teacher)
    library.close()
    if as_json:
        show_json(made.model_dump(mode="json"))
        return
    step = f"teacher {made.before_teacher or '(none)'} → {made.teacher}" if made.kind == "teacher" else made.teacher
    say(f"stage {made.name}: harness {made.harness_id[:12]}, {step}; tag {TAG}{made.name}")
    if made.kind == "teacher":
        say(f"next: set [teacher] model = {made.teacher!r} in the config and run it again")


def finalize(run: RunDir, as_json: AsJson = False) -> None:
    """Opens test once: the lineage's harness, read from its archive, against the original and the baselines on fresh
    attempts. The run takes no further candidate; the same command resumes it, and shows the first result ever after.

    \b
    Example:
      evolver finalize runs/mine
    """
    from evolver.baselines import baselines_table, final_table
    from evolver.commands.experiment import drive
    from evolver.records import Final
    from evolver.report import harness_names
    from evolver.store import Store
    from evolver.tables import print_tables

    store = Store.open(run)
    if not store.all(Final):
        code = drive(store, _finalized)
        if code:
            raise typer.Exit(code)
    final = store.all(Final)[-1]
    if as_json:
        show_json(final.model_dump(mode="json"))
    else:
        print_tables([final_table(store, harness_names(store)), baselines_table(store)], data_console())


async def _finalized(lab: Lab) -> int:
    from evolver.errors import BudgetSpent
    from evolver.finalize import finalize as play

    try:
        await play(lab)
    except BudgetSpent as error:
        say(f"evolver: {error}: `evolver run CONFIG --out {lab.store.path}` takes the cap over, says that the")
        say("run is frozen, and plays nothing; then finalize it again")
        return 4
    return 0


def ledger(run: RunDir, as_json: AsJson = False) -> None:
    """What a run has cost: rollouts, calls, tokens, dollars and time of author, teacher, judge and student.

    \b
    Examples:
      evolver ledger runs/demo
      evolver ledger runs/demo --json
    """
    from evolver.ledger import ledger as lines_of
    from evolver.ledger import ledger_table
    from evolver.store import Store
    from evolver.tables import print_tables

    store = Store.open(run)
    if as_json:
        show_json({"run": store.run_id, "ledger": [line.plain() for line in lines_of(store)]})
    else:
        print_tables([ledger_table(store)], data_console())
