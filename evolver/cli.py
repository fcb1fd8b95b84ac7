"""The command `evolver`: nouns, then verbs. Data goes to stdout, talk to stderr, and the exit code says how it ended.

0 done   1 failed   2 wrong input   3 this machine is not ready   4 a cap is spent   5 no progress
130 interrupted   143 terminated
"""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
import warnings
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated

import typer
from typer.core import TyperGroup

from evolver.commands import (
    admission,
    capsule,
    experiment,
    forge,
    gap,
    generate,
    harness,
    history,
    judge,
    milestones,
    overlap,
    quality,
    refine,
    rollout,
    sandbox,
    show,
    tasks,
    write,
)
from evolver.commands.talk import say
from evolver.errors import BudgetSpent, NotReady, UsageError

PLUG_INS = "evolver.commands"
EXIT_CODES: tuple[tuple[type[BaseException], int, str], ...] = (
    (UsageError, 2, "usage"),
    (typer.TyperException, 2, "usage"),  # words that no command takes
    (NotReady, 3, "not_ready"),
    (BudgetSpent, 4, "budget_spent"),
    (KeyboardInterrupt, 130, "interrupted"),
    (Exception, 1, "failed"),
)


class Commands(TyperGroup):
    """The commands of this package, and those that `training` and `dashboards` add as entry points."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [*super().list_commands(ctx), *sorted(plug.name for plug in plug_ins())]

    def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore[no-untyped-def, override]
        found = next((plug for plug in plug_ins() if plug.name == cmd_name), None)
        return super().get_command(ctx, cmd_name) if found is None else _command(found)


def plug_ins() -> list[EntryPoint]:
    return list(entry_points(group=PLUG_INS))


def _command(plug: EntryPoint):  # type: ignore[no-untyped-def]
    """The command behind an entry point (a function); one whose package is not installed says so when it is used."""
    try:
        function = plug.load()
    except ImportError as error:
        missing = error

        def function() -> None:
            """Is not installed here (example: pip install -e '.[train,dashboard]' brings it)."""
            raise NotReady(f"`evolver {plug.name}` can't be loaded ({missing}): pip install -e '.[train,dashboard]'")

    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(plug.name, context_settings={"help_option_names": ["-h", "--help"]})(function)
    return typer.main.get_command(app)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "EVOLVER"},
)
app.command()(experiment.demo)
app.command()(experiment.run)
app.command()(experiment.propose)
app.command()(experiment.report)
app.command()(milestones.stage)
app.command()(milestones.finalize)
app.command()(milestones.ledger)
app.command()(history.log)
app.command()(history.diff)
app.command()(history.evidence)
app.command()(show.show)
app.command()(generate.generate)
app.command()(capsule.freeze)
tasks.app.command()(admission.admit)
tasks.app.command()(quality.quality)
tasks.app.command()(overlap.overlap)
app.add_typer(tasks.app, name="tasks")
app.add_typer(tasks.app, name="task", hidden=True)
app.add_typer(capsule.app, name="capsule")
for command in (write.write, write.check, refine.refine, refine.gain, write.cost):
    forge.app.command()(command)
app.add_typer(forge.app, name="forge")
app.add_typer(gap.app, name="gap")
app.add_typer(judge.app, name="judge")
app.add_typer(generate.app, name="round")
app.add_typer(generate.app, name="rounds", hidden=True)
app.add_typer(harness.app, name="harness")
app.add_typer(harness.app, name="harnesses", hidden=True)
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(rollout.app, name="rollout")
app.add_typer(rollout.app, name="rollouts", hidden=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("harness-evolver"))
        raise typer.Exit


@app.callback()
def evolver(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Evolves agent harnesses, distils students under them, and measures what the difference becomes.

    \b
    Examples:
      evolver demo                                  the whole experiment, from proposals to the students' gap
      evolver run my.toml --out runs/mine           an experiment of your own; again = resume
      evolver report runs/mine                      what it found
    """


def main(arguments: list[str] | None = None) -> None:
    """Runs one command and exits with its code. What goes wrong is one line on stderr, without a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words or bool(os.environ.get("EVOLVER_DEBUG"))
    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    try:
        sys.exit(app(args=words, prog_name="evolver", standalone_mode=False))
    except BaseException as caught:
        error = _told(_innermost(caught))
        if isinstance(error, SystemExit):
            raise
        if debug:
            traceback.print_exception(caught)
        code, kind = next((code, kind) for known, code, kind in EXIT_CODES if isinstance(error, known))
        line = str(error) if code in (2, 3, 4) else f"{type(error).__name__}: {error} (--debug shows where)"
        if isinstance(error, typer.TyperException):
            line = error.format_message()
            error.show()  # type: ignore[attr-defined]  # with how the command is used
        elif code != 130:
            say(f"evolver: {line}")
        if "--json" in words:
            typer.echo(json.dumps({"error": {"kind": kind, "message": line}}))
        sys.exit(code)


def _told(error: BaseException) -> BaseException:
    """A full disk, wherever it was met (the run's own writes name their file themselves), is told as such."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UsageError(
            f"disk full at {error.filename or os.getcwd()}: free some space and run the same command again"
        )
    return error


def _innermost(error: BaseException) -> BaseException:
    """The first error in a group, whose siblings were only cancelled for its sake."""
    return _innermost(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
