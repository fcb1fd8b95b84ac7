"""Commands about capsules: freeze, and capsule show, verify, diff, replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, RunDir, say, show_json, show_table
from evolver.errors import NotReady

if TYPE_CHECKING:
    from evolver.freeze import CapsuleOfRun, Replayed, Wanted
    from evolver.lab import Lab
    from evolver.records import Interval
    from evolver.store import Store
    from harnesses.capsule import Capsule, Drift, StatedInterval

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Frozen harnesses with everything pinned. Example: evolver capsule verify runs/mine/capsules/alpha-1",
)
CapsuleDir = Annotated[Path, typer.Argument(metavar="PATH", help="The directory of a capsule.")]


def freeze(
    run: RunDir,
    harness: Annotated[str, typer.Argument(metavar="HARNESS", help="Name or id of a promoted harness.")],
    name: Annotated[str, typer.Option(help="Name of the capsule.")],
    out: Annotated[Path | None, typer.Option(help="Folder to put it in; RUN/capsules if absent.")] = None,
    tasks: Annotated[
        int | None, typer.Option("--n", min=2, metavar="N", help="Play so many of the tasks; all if absent.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Freezes a promoted harness as a capsule: everything a generation round depends on, pinned in one directory.

    It is played from its own bytes on the tasks of its confirmation, and released (with an annotated tag in the run's
    library) when its success is no lower than that lets expect; else it is refused, and the exit code is 1. The same
    command goes on after a stop, and shows the first verdict ever after.

    \b
    Examples:
      evolver freeze runs/mine beta1 --name beta1-1
      evolver freeze runs/mine beta1 --name beta1-1 --out capsules
    """
    from evolver.commands.experiment import drive
    from evolver.commands.harness import open_library
    from evolver.freeze import Wanted, capsules_of, carry_out, check
    from evolver.store import Store

    wanted, store = Wanted(harness, name, out, tasks), Store.open(run)
    library = open_library(run)
    check(store, library, wanted)
    verdicts = {made.freeze.name: made.release for made in capsules_of(store)}
    if verdicts.get(name) is None:
        code = drive(store, lambda lab: _frozen(lab, wanted))
        if code:
            raise typer.Exit(code)
    made = next(made for made in capsules_of(store) if made.freeze.name == name)
    if made.release is not None:
        carry_out(store, library, made.release)
    library.close()
    _tell(store, made, as_json)


def _tell(store: Store, made: CapsuleOfRun, as_json: bool) -> None:
    from evolver.freeze import capsules_of, place_of

    release = made.release
    if release is None:
        raise RuntimeError(f"capsule {made.freeze.name!r} has no verdict")
    if as_json:
        show_json({"path": str(place_of(store, made.freeze)), **release.model_dump(mode="json")})
    say(f"{_outcome(release.success, release.expected)}: {release.verdict}")
    if release.verdict == "refused":
        for reason in release.reasons:
            say(f"  {reason}")
        say("refused for good under this name; another --name plays fresh attempts, and its output counts this one")
        raise typer.Exit(1)
    say(f"capsule {release.capsule_id[:12]} in {place_of(store, made.freeze)}, tag {release.tag}")
    before = [
        m.freeze.name
        for m in capsules_of(store)
        if m.release is not None and m.release.verdict == "refused" and m.freeze.harness_id == release.harness_id
    ]
    if before:
        say(f"  refused before, of the same harness: {', '.join(before)}: the more names, the less one release says")


async def _frozen(lab: Lab, wanted: Wanted) -> int:
    from evolver.errors import BudgetSpent
    from evolver.freeze import freeze as play

    try:
        await play(lab, wanted)
    except BudgetSpent as error:
        say(f"evolver: {error}; `evolver run CONFIG --out {lab.store.path}` takes a higher cap over, then freeze again")
        return 4
    return 0


@app.command()
def show(path: CapsuleDir, as_json: AsJson = False) -> None:
    """Shows what a capsule pins; `--json` has all of it.

    \b
    Example:
      evolver capsule show runs/mine/capsules/beta1-1
    """
    from evolver.capsules import is_released, read_lock

    capsule = read_lock(path)
    if as_json:
        show_json({"id": capsule.id, "released": is_released(path), **capsule.model_dump(mode="json")})
    else:
        show_table(f"capsule {capsule.id}", ("what", "pinned"), _rows(capsule, is_released(path)))


def _rows(capsule: Capsule, released: bool) -> list[tuple[str, str]]:
    from evolver.phrasing import percent, pp

    teacher, machine, program, evidence = capsule.teacher, capsule.machine, capsule.program, capsule.evidence
    endpoint = f" at {teacher.model.endpoint}, key in {teacher.model.key_name}" if teacher.model.endpoint else ""
    slips = f", slip rate {teacher.model.slip_rate:g}" if teacher.model.slip_rate is not None else ""
    screen = f"{machine.screen[0]}x{machine.screen[1]}" if machine.screen else "none"
    sampling = f"temperature {teacher.temperature:g}, top_p {teacher.top_p:g}, {teacher.max_tokens} tokens"
    left_out = (teacher.model.dialect or {}).get("leave_out")
    sampling += f" (not sent: {left_out})" if left_out else ""
    packages = f"{len(machine.image.deb)} deb, {len(machine.image.pip)} pip, {len(machine.image.graders)} of graders"
    return [
        ("released", "yes" if released else "no"),
        ("harness", f"{capsule.harness.id[:12]}, {len(capsule.harness.files)} files"),
        ("teacher", f"{teacher.model.provider} {teacher.model.id}{slips}{endpoint}"),
        ("sampling", f"{sampling}, {teacher.protocol}; first request {teacher.first_request_sha256[:12]}"),
        ("judge", capsule.judge.signature if capsule.judge else "none"),
        ("machine", f"{machine.backend} {machine.platform}, screen {screen}, network {machine.network}"),
        ("image", f"{machine.image.digest[:24]}: {packages}"),
        ("tasks", f"{capsule.tasks.n} of {capsule.tasks.name}, {capsule.tasks.sha256[:12]}"),
        ("program", f"{len(program.source)} source files, Python {program.python}"),
        ("prices", f"{', '.join(capsule.prices) or 'none'} (of {capsule.prices_on})"),
        ("seed", str(capsule.seed)),
        ("promoted by", f"{evidence.decision_id} of run {evidence.run_id}"),
        ("lead", pp(_interval(evidence.effect))),
        ("success", f"{percent(_interval(evidence.success))}, {evidence.attempts} attempts a task"),
    ]


@app.command()
def verify(
    path: CapsuleDir,
    image: Annotated[bool, typer.Option(help="Look into a sandbox: image digest and installed packages.")] = True,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run that it was frozen in: look for its tag there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Says exactly what is no longer as it was frozen, and exits with 1 when anything is: the capsule's bytes, the
    tasks and their checks, this program, the image and the packages in it.

    \b
    Examples:
      evolver capsule verify runs/mine/capsules/beta1-1
      evolver capsule verify capsules/beta1-1 --run runs/mine
      evolver capsule verify runs/mine/capsules/beta1-1 --no-image --json
    """
    import asyncio

    from evolver.capsules import is_released, read_lock
    from evolver.capsules import verify as drifts_of

    capsule, found = read_lock(path), drifts_of(path)
    if run is not None:
        found += _tag_drifts(run, path)
    unlooked = "" if image else "not looked at"
    if image:
        try:
            found += asyncio.run(_image_drifts(path, capsule))
        except NotReady as error:
            unlooked = str(error)
    if as_json:
        told = {"id": capsule.id, "released": is_released(path), "image_unchecked": unlooked or None}
        show_json({**told, "drifts": _plain(found)})
    else:
        _print(found)
    if found:
        say(f"{len(found)} drift{'' if len(found) == 1 else 's'}")
        raise typer.Exit(1)
    if image and unlooked:
        raise NotReady(f"all but its image is as it was frozen; that can't be looked at: {unlooked}")
    say(f"capsule {capsule.id[:12]} is as it was frozen" + ("; its image was not looked at" if unlooked else ""))


def _tag_drifts(run: Path, path: Path) -> Sequence[Drift]:
    from evolver.commands.harness import open_library
    from evolver.freeze import tag_drifts

    library = open_library(run)
    try:
        return tag_drifts(library, path)
    finally:
        library.close()


async def _image_drifts(path: Path, capsule: Capsule) -> Sequence[Drift]:
    """On the pinned back end, in the environment of the capsule's tree; one that can't be read is a drift already."""
    from evolver.capsules import verify_machine
    from evolver.capsules.folder import HARNESS
    from evolver.sandboxes import open_backend
    from harnesses.tree import HarnessError, read_tree

    try:
        environment = read_tree(path / HARNESS).environment
    except HarnessError:
        return []
    sandboxes = open_backend(capsule.machine.backend, spares=0)
    try:
        return await verify_machine(capsule, environment, sandboxes)
    finally:
        await sandboxes.aclose()


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="The directory of a capsule.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The directory of another.")],
    as_json: AsJson = False,
) -> None:
    """Shows every field in which capsule B pins something else than capsule A.

    \b
    Example:
      evolver capsule diff runs/mine/capsules/beta1-1 runs/mine/capsules/beta2-1
    """
    from evolver.capsules import differences, read_lock

    one, other = read_lock(a), read_lock(b)
    found = differences(one, other)
    if as_json:
        show_json({"a": one.id, "b": other.id, "differences": _plain(found)})
    else:
        _print(found)
        say(f"{len(found)} fields differ" if found else "they pin the same")


@app.command()
def replay(
    path: CapsuleDir,
    tasks: Annotated[int, typer.Option("--n", min=2, metavar="N", help="Play the first so many of its tasks.")],
    attempts: Annotated[int, typer.Option(min=1, help="Attempts of each task.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Where its attempts are kept; runs/replay-NAME if absent. Again = resume.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plays a capsule anew on the tasks of its confirmation, and exits with 1 when its success is not as that lets
    expect.

    \b
    Example:
      evolver capsule replay runs/mine/capsules/beta1-1 --n 8
    """
    from evolver.capsules import open_capsule
    from evolver.commands.experiment import drive
    from evolver.freeze import replay as play
    from evolver.store import Store

    opened = open_capsule(path)
    store = Store.create(out or Path("runs", f"replay-{path.resolve().name}"), opened.config)
    done: list[Replayed] = []

    async def work(lab: Lab) -> int:
        done.append(await play(lab, opened, tasks, attempts))
        return 0

    code = drive(store, work)
    if code:
        raise typer.Exit(code)
    [replayed] = done
    faults = replayed.found.faults
    if as_json:
        show_json(
            {
                "id": opened.id, "tasks": replayed.n_tasks, "attempts": replayed.attempts, "faults": list(faults),
                "success": replayed.found.success.model_dump(), "expected": replayed.expected.model_dump(),
                "n_unscored": replayed.found.n_unscored,
            }
        )  # fmt: skip
    say(_outcome(replayed.found.success, replayed.expected))
    for fault in faults:
        say(f"  {fault}")
    if faults:
        raise typer.Exit(1)


def _plain(found: Sequence[Drift]) -> list[object]:
    return [drift.model_dump(mode="json") for drift in found]


def _print(found: Sequence[Drift]) -> None:
    for drift in found:
        typer.echo(str(drift))


def _outcome(success: Interval, expected: Interval) -> str:
    from evolver.phrasing import or_why, percent

    return f"success {or_why(success, percent)}, expected {or_why(expected, percent)}"


def _interval(stated: StatedInterval) -> Interval:
    from evolver.records import Interval

    return Interval.model_validate(stated.model_dump())
