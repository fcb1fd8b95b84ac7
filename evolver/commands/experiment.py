"""Commands that run an experiment and say what it found: demo, run, propose, report."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evolver.commands.stopping import finished
from evolver.commands.talk import AsJson, RunDir, data_console, run_console, say, show_json
from evolver.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evolver.config import RunConfig
    from evolver.lab import Lab
    from evolver.store import Store

DEMO = Path(__file__).parents[1] / "demo.toml"
STOPPED = {130: "Ctrl-C", 143: "terminated"}
LOW_DISK = 2e9

EndReason = Literal["done", "target", "plateau", "budget", "interrupted", "failed"]
Backend = Annotated[
    Literal["auto", "docker", "local"] | None,
    typer.Option(help="Where rollouts run; the config's choice if absent."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything; the config's if absent.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over; a run that is there is moved aside.")]


def demo(
    out: Annotated[Path, typer.Option(help="The run directory.")] = Path("runs/demo"),
    seed: Seed = None,
    backend: Backend = None,
    fresh: Fresh = False,
    full: Annotated[bool, typer.Option("--full", help="All tasks and three students per harness (hours).")] = False,
) -> None:
    """Runs the whole experiment that comes with the program; the same command resumes it.

    \b
    Examples:
      evolver demo
      evolver demo --seed 1 --out runs/demo-1 --backend local
    """
    from evolver.config import load_config
    from evolver.taskset import TaskLimitsConfig

    config = load_config(DEMO)
    if full:
        distil = config.distil.model_copy(update={"seeds": (0, 1, 2)})
        config = config.model_copy(update={"tasks": TaskLimitsConfig(), "distil": distil})
    start(changed(config, seed, backend), out, fresh, _experiment)


def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file of settings.")],
    out: Annotated[Path, typer.Option(help="The run directory.")],
    seed: Seed = None,
    backend: Backend = None,
    fresh: Fresh = False,
    checks: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Dev tasks of the checks before the run (0 = none); else the config's."),
    ] = None,
) -> None:
    """Runs an experiment, or resumes it: what is there is never run again.

    \b
    Who proposes candidates: [[authors]] sections, asked in their order; `every = K` asks one after K of others.
      kind = "human"       harness = a seed or a directory, why
      kind = "structured"  Optuna over knobs: n, space
      kind = "random"      the same knobs at random, the baseline: n, space
      kind = "removal"     each component of the incumbent taken away once: n
      kind = "llm"         a language model edits the harness in a sandbox: model, n (docs/authors.md)

    \b
    Examples:
      evolver run my.toml --out runs/mine
      evolver run my.toml --out runs/mine --backend docker
    """
    from evolver.config import load_config

    wanted = changed(load_config(config), seed, backend)
    if checks is not None:
        wanted = wanted.model_copy(update={"checks": wanted.checks.model_copy(update={"tasks": checks})})
    start(wanted, out, fresh, _experiment)


def propose(
    run: RunDir,
    parent: Annotated[str, typer.Option("--from", metavar="HARNESS", help="Name or id of the parent harness.")],
    tree: Annotated[Path, typer.Option(help="Directory of the new harness.")],
    why: Annotated[str, typer.Option(help="Why it should be better, in one sentence.")],
) -> None:
    """Adds a harness that you wrote as a candidate; it is raced when the run goes on.

    \b
    Example:
      evolver propose runs/mine --from beta1 --tree my-harness --why "the note on sheets saves a step"
    """
    from evolver.authors.human import leaks_of
    from evolver.authors.human import propose as add
    from evolver.commands.harness import resolved
    from evolver.store import Store
    from harnesses.library import Library

    store = Store.open(run)
    library = Library(run / "library")
    if not tree.is_dir():
        raise UsageError(f"no harness at {tree}: give a directory")
    try:
        made = add(store, library, resolved(library, parent), tree, why, leaks_of(store))
    except UsageError as error:
        raise error if str(tree) in str(error) else UsageError(f"{tree}: {error}") from None
    say(f"candidate {made.name} ({made.harness_id[:12]}) changes {'+'.join(made.components) or 'nothing'}")
    say("next: run the experiment's command again, and it is raced against the incumbent")


def report(
    run: RunDir,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on stdout.")] = False,
    pictures: Annotated[Path | None, typer.Option("--png", metavar="FOLDER", help="Save the figures here.")] = None,
) -> None:
    """What a run found so far: tables here, with figures in RUN/report.html.

    \b
    Examples:
      evolver report runs/demo
      evolver report runs/demo --markdown > report.md
      evolver report runs/demo --png docs/figures
    """
    from evolver.report import report as report_of
    from evolver.report_page import save_pictures, write_page
    from evolver.store import Store
    from evolver.tables import print_report, to_json, to_markdown

    store = Store.open(run)
    shown = report_of(store)
    if as_json:
        show_json(to_json(shown))
    elif markdown:
        typer.echo(to_markdown(shown), nl=False)
    else:
        print_report(shown, data_console())
    for path in save_pictures(store, pictures) if pictures else ():
        say(f"wrote {path}")
    say(f"page: {write_page(store)}")


# --- running -------------------------------------------------------------------------------------------------------


def changed(config: RunConfig, seed: int | None, backend: Literal["auto", "docker", "local"] | None) -> RunConfig:
    """The config with what the command line says instead."""
    sandbox = config.sandbox if backend is None else config.sandbox.model_copy(update={"backend": backend})
    return config.model_copy(update={"sandbox": sandbox, "seed": config.seed if seed is None else seed})


def start(config: RunConfig, out: Path, fresh: bool, work: Callable[[Lab], Awaitable[int]]) -> None:
    """Begins or resumes the run of this config, does `work` in its lab and prints the report, however it ended."""
    from evolver.report import report as report_of
    from evolver.report_page import write_page
    from evolver.store import Store
    from evolver.tables import print_report

    if fresh:
        _move_aside(out)
    store = Store.create(out, config)
    if store.free_bytes() < LOW_DISK:
        say(
            f"warning: only {store.free_bytes() / 1e9:.1f} GB free for {out}; a full disk stops the run, losing nothing"
        )
    try:
        code = drive(store, work)
    except typer.Exit as stop:
        record_end(store, "interrupted", STOPPED[stop.exit_code])
        raise
    except Exception as error:
        record_end(store, "failed", str(error))
        raise
    print_report(report_of(store), data_console())
    say(f"page: {write_page(store)} · next: evolver dashboard {out}")
    if code:
        raise typer.Exit(code)


def _move_aside(out: Path) -> None:
    from evolver.store import Store

    if not out.exists():
        return
    if not (out / "run.json").is_file():
        raise UsageError(f"{out} is no run directory, so --fresh leaves it alone: choose another --out")
    with Store.lock(out):
        aside = out.with_name(f"{out.name}.{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}")
        out.rename(aside)
    say(f"the run that was there is now {aside}")


async def _experiment(lab: Lab) -> int:
    """The whole loop; returns the exit code and records how it ended. A cap that left no room for one call, or a model
    that does not answer, is wrong input (2); a cap reached on the way is 4."""
    from evolver.loop import run as run_loop
    from evolver.records import Rollout
    from evolver.stops import Stop

    before = len(lab.store.all(Rollout))
    end = await run_loop(lab)
    if end.reason is Stop.BUDGET:
        record_end(lab.store, "budget", end.detail)
        say(f"evolver: {end.detail}")
        return 4 if len(lab.store.all(Rollout)) > before else 2
    if end.reason is Stop.ERROR:
        record_end(lab.store, "failed", end.detail)
        say(f"evolver: {end.detail}")
        return 2
    ends: dict[Stop, Literal["target", "plateau"]] = {Stop.TARGET: "target", Stop.PLATEAU: "plateau"}
    record_end(lab.store, ends.get(end.reason, "done"), end.detail)
    return 0


def drive(store: Store, work: Callable[[Lab], Awaitable[int]]) -> int:
    """Runs `work` in an open lab, as the only process that drives this run, and returns its exit code.

    Ctrl-C and SIGTERM stop it cleanly: it exits with 130 and 143.
    """
    with store.working():
        return finished(_in_lab(store, work))


async def _in_lab(store: Store, work: Callable[[Lab], Awaitable[int]]) -> int:
    from evolver.lab import open_lab

    async with open_lab(store.path) as lab, _watched(lab):
        return await work(lab)


@asynccontextmanager
async def _watched(lab: Lab) -> AsyncIterator[None]:
    """The observers of a run, closed at its end however it ends."""
    from evolver.observers.mlflow import MlflowObserver
    from evolver.observers.watchdog import Watchdog

    watchdog = Watchdog(lab.config.stalled_s, lab.store.path / "stalled.txt")
    lab.observers += [run_console(lab.store), MlflowObserver(lab.store.path, say), watchdog]
    try:
        yield
    finally:
        for observer in lab.observers:
            observer.close()


def record_end(store: Store, reason: EndReason, detail: str) -> None:
    """Records how this start of the run ended."""
    from evolver.records import Ending

    store.append(Ending(id=f"end-{uuid.uuid4().hex[:16]}", reason=reason, detail=detail, at=time.time()))
