"""`evolver distil`: one student from one harness of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def distil(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    harness: Annotated[str, typer.Argument(metavar="HARNESS", help="Name or id of the harness.")],
    seed: Annotated[int, typer.Option(help="Seed of the training.")] = 0,
    recipe: Annotated[
        str | None, typer.Option(help="Name or YAML file of a recipe; the run's choice if absent.")
    ] = None,
    test_tasks: Annotated[
        int | None, typer.Option(min=1, help="Test tasks that it is measured on; the run's if absent.")
    ] = None,
) -> None:
    """Trains a student on the teacher's rollouts under a harness, and measures it with its untrained control.

    \b
    Example:
      evolver distil runs/demo beta1 --seed 1 --recipe demo
    """
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched and nobody is told
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Threads that spin while they wait make each other, and the sandboxes beside them, several times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    asyncio.run(_distil(run, harness, (seed, test_tasks), recipe))


async def _distil(run: Path, name: str, which: tuple[int, int | None], recipe_name: str | None) -> None:
    from evolver.calibrate import require_fit_judge
    from evolver.commands.harness import resolved
    from evolver.commands.talk import run_console, say
    from evolver.ground import tasks_of
    from evolver.lab import open_lab
    from evolver.store import Store
    from training.distil import Splits, distil
    from training.recipe import load_recipe

    seed, test_tasks = which
    recipe = load_recipe(recipe_name or Store.open(run).config.distil.recipe)
    async with open_lab(run) as lab:
        console = run_console(lab.store)
        lab.observers.append(console)
        harness_id = resolved(lab.library, name)
        limits = lab.config.tasks
        test = tasks_of(lab.store, "test", test_tasks or limits.test, "distil")
        train = tasks_of(lab.store, "train", limits.train, "distil")
        splits = Splits(train=tuple(train), test=tuple(test))
        require_fit_judge(lab, [*splits.train, *splits.test])
        try:
            made = await distil(lab, harness_id, splits, recipe, seed, say)
        finally:
            console.close()
    say(f"student {made.student_model}: {run / made.checkpoint}")
