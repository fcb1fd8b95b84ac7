"""Commands about the machines that rollouts run on: up, reap."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from evolver.commands.talk import say

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Machines for rollouts. Example: evolver sandbox doctor"
)
Kind = Annotated[Literal["auto", "docker", "local"], typer.Option(help="Which back end.")]


@app.command()
def up(backend: Kind = "auto") -> None:
    """Builds what rollouts need (images, root file system) for the seeds' environments; again is quick.

    \b
    Example:
      evolver sandbox up --backend docker
    """
    asyncio.run(_up(backend))


@app.command()
def reap() -> None:
    """Removes the machines that dead or expired runs left behind.

    \b
    Example:
      evolver sandbox reap
    """
    from evolver.sandboxes import reap as reap_all

    say(f"removed {reap_all()} left-over machines")


async def _up(backend: Literal["auto", "docker", "local"]) -> None:
    from evolver.sandboxes import open_backend
    from harnesses.tree import SEEDS, read_tree, seed_path

    sandboxes = open_backend(backend, spares=0)
    try:
        for environment in dict.fromkeys(read_tree(seed_path(name)).environment for name in SEEDS):
            say(f"{sandboxes.name}: {environment.image} ready, {(await sandboxes.prepare(environment))[:19]}")
    finally:
        await sandboxes.aclose()
