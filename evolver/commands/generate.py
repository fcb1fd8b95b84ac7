"""Commands that generate trajectories under a capsule and say how that goes: generate, and round show | verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evolver.commands.stopping import finished
from evolver.commands.talk import AsJson, data_console, say, show_json

if TYPE_CHECKING:
    from pydantic import JsonValue

    from evolver.rounds.view import RoundView
    from evolver.tables import Table

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Generation rounds. Example: evolver round show rounds/first"
)
UNSAID = "unknown (--set found_in=RUN says it)"
RoundDir = Annotated[Path, typer.Argument(metavar="ROUND", help="The folder of a round.")]


def generate(
    capsule: Annotated[Path, typer.Argument(metavar="CAPSULE", help="A released capsule (evolver freeze).")],
    tasks: Annotated[str, typer.Option(metavar="SET", help="A split, or a directory of admitted tasks.")],
    out: Annotated[Path, typer.Option(help="The round's folder.")],
    n: Annotated[int | None, typer.Option("--n", min=1, help="Units to play; every task once if absent.")] = None,
    executor: Annotated[Literal["local", "ray"], typer.Option(help="Where workers live.")] = "local",
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, see below; may be repeated.")
    ] = None,
) -> None:
    """Plays a frozen harness on many tasks and keeps every trajectory exactly once; the same command resumes it.

    \b
    Kill it, or any worker, at any time: nothing is lost and nothing is kept twice. It stops by itself (exit code 2)
    when the capsule, the endpoint, the machines or the judge are no longer what they were, and (4) before cost_usd
    could be passed.

    \b
    Settings:
      workers=2          how many units are played at once
      cost_usd=40        the most that the round may cost, in $
      deadline_s=1800    seconds that a unit may take
      probe_every=250    look at endpoint and judge after so many calls, at machines every second time (0: never)
      max_turns, max_tokens   reject longer trajectories; the same for the whole round
      found_in=RUN       the run that found the harness: what that cost counts once
      address=HOST:PORT  a running Ray cluster; one is started here if absent
      after_alarm=WHY    go on after an alarm: what was mended; is recorded

    \b
    Examples:
      evolver generate capsules/best --tasks train --n 2000 --executor ray --out rounds/first
      evolver generate capsules/best --tasks ../forged --out rounds/second --set workers=8 --set cost_usd=40
    """
    from evolver.observers.console import ConsoleObserver, talk_console
    from evolver.rounds.start import Wanted, settings_of
    from evolver.rounds.start import generate as play
    from evolver.rounds.view import read_round

    wanted = Wanted(capsule, tasks, out, n, executor, settings_of(given or []))
    console = ConsoleObserver(talk_console())

    def tell(done: int, total: int, detail: dict[str, JsonValue]) -> None:
        console.progress(_label(detail), done, total, {"success": None, "tokens": detail["tokens"]})

    try:
        finished(play(wanted, tell, say))
    finally:
        console.close()
    _show(read_round(out), as_json=False)


@app.callback()
def round_() -> None:
    """Generation rounds. Example: evolver round show rounds/first"""


@app.command()
def show(path: RoundDir, as_json: AsJson = False) -> None:
    """How a round stands: progress, yield, what it cost, why rows were rejected, what the instruments say.

    \b
    Example:
      evolver round show rounds/first
    """
    from evolver.rounds.view import read_round

    _show(read_round(path), as_json)


@app.command()
def verify(path: RoundDir) -> None:
    """Compares every byte of a round's plan and shards with the manifest; exit code 2 names what differs.

    \b
    Example:
      evolver round verify rounds/first
    """
    from evolver.rounds.reader import check_round

    closed = check_round(path)
    typer.echo(
        "as the manifest says, and not complete yet" if closed is None else f"as the manifest says: {closed.root}"
    )


def _label(detail: dict[str, JsonValue]) -> str:
    return "round, paused" if detail["paused"] else "round"


def _show(view: RoundView, as_json: bool) -> None:
    from evolver.tables import to_rich

    if as_json:
        show_json(view.model_dump(mode="json"))
        return
    console = data_console()
    for table in tables(view):
        console.print(to_rich(table))
    if view.root:
        typer.echo(f"root {view.root}")


def tables(view: RoundView) -> list[Table]:
    """What is printed of a round."""
    from evolver.phrasing import percent
    from evolver.tables import Table

    head = [
        ("state", view.state + (f": {view.why}" if view.why else "")),
        ("capsule", f"{view.capsule} ({view.capsule_id[:12]})"),
        ("tasks", f"{view.tasks} ({view.n_tasks:,})"),
        ("units", f"{view.done:,} of {view.planned:,} done, {view.under_way} under way"),
        ("accepted : rejected", f"{view.accepted:,} : {view.rejected:,} ({view.usable:,} accepted are usable)"),
        ("success", percent(view.success)),
        ("channels of the accepted", _counts(view.channels)),
        ("spent", f"{_usd(view.spent_usd)}, {_usd(view.wasted_usd)} of it wasted, {_usd(view.probes_usd)} on probes"),
        (
            "per accepted",
            f"{_usd(view.usd_per_accepted)}, with finding the harness {_usd(view.usd_per_accepted_all_in)}",
        ),
        ("finding the harness", _usd(view.one_off_usd) if view.one_off_usd is not None else UNSAID),
        ("rejected for", _counts({str(reason): n for reason, n in view.rejections.items()})),
        ("shards", f"{len(view.shards)}, suspect {sum(bool(shard.suspect) for shard in view.shards)}"),
    ]
    found = [Table("Round", ("", view.path), tuple(head))]
    if view.instruments:
        rows = [
            (
                one.name,
                f"{one.off:,} of {one.seen:,}",
                "not known yet" if one.expected is None else f"{one.expected:.1%}",
                f"{one.statistic:.1f} of {one.threshold:.1f}",
                "ALARM" if one.alarm else "",
            )
            for one in view.instruments
        ]
        columns = ("instrument", "counted", "expected at most", "log statistic, alarm at", "")
        found.append(Table("Instruments", columns, tuple(rows)))
    return found


def _counts(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return ", ".join(f"{name} {n:,} ({n / total:.0%})" for name, n in counts.items()) or "none"


def _usd(amount: float | None) -> str:
    return "unknown" if amount is None else f"${amount:,.4f}"
