"""Commands about the machines that rollouts run on: doctor, up, reap."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evolver.commands.talk import AsJson, say, show_json
from evolver.errors import NotReady

if TYPE_CHECKING:
    from evolver.sandboxes.doctor import Check

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Machines for rollouts. Example: evolver sandbox doctor"
)
NEEDS = {
    "docker": ("docker daemon", "docker image"),
    "local": ("bubblewrap", "user namespaces", "root file system"),
}  # checks that must pass before a back end can start a machine at once


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Says what is there, what is missing, and the one command that mends it; exit code 3 if no back end is ready.

    \b
    Example:
      evolver sandbox doctor
    """
    from evolver.sandboxes.doctor import checks

    found = checks()
    ready = ready_backends(found)
    if as_json:
        show_json({"ready": ready, "checks": [asdict(check) for check in found]})
        raise typer.Exit(0 if ready else 3)
    for check in found:
        mend = f"  →  {check.fix}" if check.fix else ""
        typer.echo(f"{'✓' if check.ok else '✗'} {check.name}: {check.detail}{mend}")
    typer.echo(f"ready: {', '.join(ready) or 'none'}")
    if not ready:
        raise NotReady("no sandbox back end is ready: evolver sandbox up")


@app.command()
def up(backend: Annotated[Literal["auto", "docker", "local"], typer.Option(help="Which back end.")] = "auto") -> None:
    """Installs and builds what rollouts need, as root or with sudo; again is quick.

    \b
    Examples:
      evolver sandbox up
      evolver sandbox up --backend local
    """
    from evolver.sandboxes.provision import provision

    provision(backend, say)


@app.command()
def reap(
    images: Annotated[bool, typer.Option(help="Remove images and root file systems of other versions too.")] = False,
) -> None:
    """Removes the machines that dead or expired runs left behind, and says what other versions' images take.

    \b
    Examples:
      evolver sandbox reap
      evolver sandbox reap --images
    """
    from evolver.sandboxes import old_versions
    from evolver.sandboxes import reap as reap_all

    say(f"removed {reap_all()} left-over machines")
    for name, (size, stays) in (found := old_versions(remove=images)).items():
        done = "" if not images else f"  {stays or 'removed'}"
        say(f"{size / 1e9:6.2f} GB  {name}{done}")
    if found and not images:
        say("these belong to other versions; `evolver sandbox reap --images` removes them")


def ready_backends(found: list[Check]) -> list[str]:
    """The back ends whose needs are met."""
    passed = {check.name for check in found if check.ok}
    return [name for name, needs in NEEDS.items() if passed.issuperset(needs)]
