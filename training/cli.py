"""`evolver distil` and `evolver export`: a student from a harness of a run, and its data for other trainers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evolver.records import Equal

if TYPE_CHECKING:
    from evolver.config import RunConfig
    from evolver.records import Rollout, Scorecard
    from evolver.store import Store
    from training.recipe import Recipe

NO_ROLLOUT = "in a run `evolver distil` makes them, a round has them once a shard is complete (`evolver round show`)"

Format = Literal["trl", "verl", "swift", "llamafactory", "tokens"]


def distil(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a round's.")],
    harness: Annotated[str, typer.Argument(metavar="HARNESS", help="Name or id of the harness.")],
    seed: Annotated[int, typer.Option(help="Seed of the training.")] = 0,
    recipe: Annotated[
        str | None, typer.Option(help="Name or YAML file of a recipe; the run's choice if absent.")
    ] = None,
    equal: Annotated[
        Equal | None, typer.Option(help="What arms have alike: accepted or attempted rollouts; the recipe's if absent.")
    ] = None,
    test_tasks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N[@OTHER]", help="Test tasks it is measured on (all if absent); N@OTHER: N under that harness too."
        ),
    ] = None,
) -> None:
    """Trains a student on the teacher's rollouts under a harness, and measures it with its untrained control.

    In a run the teacher plays what is missing. Of a round the first accepted rollouts are taken, as many as the recipe
    wants; the student stays in the round's folder.

    \b
    Examples:
      evolver distil runs/demo beta1 --seed 1 --recipe demo
      evolver distil runs/demo beta1 --test-tasks 100 --test-tasks 50@beta2
      evolver distil rounds/first best --recipe demo
    """
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched and nobody is told
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Threads that spin while they wait make each other, and the sandboxes beside them, several times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from evolver.commands.stopping import finished
    from evolver.store import Store
    from training.recipe import load_recipe

    store = Store.open(run)
    chosen = load_recipe(recipe or store.config.distil.recipe)
    if equal is not None:
        chosen = chosen.model_copy(update={"equal": equal})
    counts = _counts(test_tasks or [])
    with Store.lock(run, for_parent=True):  # this may be the child of the experiment, which holds it
        finished(_distil(run, harness, seed, chosen, counts))


def _counts(given: list[str]) -> dict[str, int]:
    """Harness → test tasks, of `N` (its own harness, named "") and `N@HARNESS`."""
    from evolver.errors import UsageError

    counts = {}
    for text in given:
        number, _, other = text.partition("@")
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"--test-tasks takes a number from 1 or NUMBER@HARNESS, got {text!r}")
        counts[other] = int(number)
    return counts


async def _distil(run: Path, name: str, seed: int, recipe: Recipe, played: dict[str, int]) -> None:
    from evolver.calibrate import require_fit_judge
    from evolver.commands.harness import resolved
    from evolver.commands.talk import run_console, say
    from evolver.ground import tasks_of
    from evolver.lab import open_lab
    from training.distil import Splits, distil

    async with open_lab(run) as lab:
        console = run_console(lab.store)
        lab.observers.append(console)
        harness_id = resolved(lab.library, name)
        limits = lab.config.tasks
        test = tasks_of(lab.store, "test", limits.test, "distil")
        train = tasks_of(lab.store, "train", limits.train, "distil")
        own = played.pop("", None)
        crossed = {resolved(lab.library, other): n for other, n in played.items()}
        sealed = sealed_instructions(lab.config)
        splits = Splits(train=tuple(train), test=tuple(test), sealed=sealed, measured=own, crossed=crossed)
        require_fit_judge(lab, [*splits.train, *splits.test])
        try:
            made = await distil(lab, harness_id, splits, recipe, seed, say)
        finally:
            console.close()
    say(f"student {made.student_model}: {run / made.checkpoint}")


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    harness: Annotated[str, typer.Argument(metavar="HARNESS", help="Name or id of the harness.")],
    format: Annotated[Format, typer.Option(help="Whose rows: `trl` is prime-rl's too, `tokens` is pre-tokenised.")],
    out: Annotated[Path, typer.Option(help="A directory for the files.")],
    recipe: Annotated[
        str | None, typer.Option(help="Recipe of `tokens`: template and length; the run's if absent.")
    ] = None,
) -> None:
    """Writes the teacher's successful train rollouts under a harness as rows of another trainer; RUN may be a round.

    \b
    Formats: trl and verl are parquet, swift is JSON lines, llamafactory comes with its dataset_info.json. Each row is
    one call of the model, with the loss on its reply alone; images are paths into RUN/blobs. Where an annotator wrote
    reasoning, it is in the rows, and annotated.jsonl says which turns have it from whom.

    \b
    Examples:
      evolver export runs/demo beta1 --format llamafactory --out rows/
      evolver export rounds/first best --format trl --out rows/
    """
    from evolver.annotate import annotated
    from evolver.commands.harness import resolved
    from evolver.commands.talk import say
    from evolver.errors import UsageError
    from evolver.records import Annotation
    from evolver.store import Store
    from harnesses.library import Library
    from training.exports import conversations_of, write
    from training.exports.formats import write_provenance, write_tokens
    from training.filter import FilterLedger, as_words, counted

    store, library = Store.open(run), Library(run / "library")
    harness_id = resolved(library, harness)
    instructions, found = material(store, harness_id)
    sealed = sealed_instructions(store.config)
    notes = annotated(found, store.all(Annotation))
    scored = notes.scored
    if not scored:
        raise UsageError(f"{run} has no train rollout under {harness}: {NO_ROLLOUT}")
    played = library.get(harness_id)
    library.close()
    if format == "tokens":
        from training.checkpoints import base_checkpoint
        from training.recipe import load_recipe
        from training.render import open_renderer
        from training.rows import build_rows

        chosen = load_recipe(recipe or store.config.distil.recipe)
        renderer = open_renderer(base_checkpoint(chosen.base), chosen.render)
        rows = build_rows(played, instructions, scored, renderer, chosen, sealed)
        files, count, left_out = write_tokens(rows.rows, out), len(rows.rows), rows.dropped
    else:
        made = conversations_of(played, instructions, scored, sealed, ledger := FilterLedger())
        files, count = write(format, made, out, lambda frame: str(store.blob_path(frame).resolve())), len(made)
        left_out = counted(tuple(ledger.entries))
    if notes.by:
        files.append(write_provenance(notes.by, out))
    say(f"{count} rows of {len(scored)} rollouts (left out: {as_words(left_out)}): {', '.join(map(str, files))}")


def sealed_instructions(config: RunConfig) -> frozenset[str]:
    """What test tasks ask for, which nothing may be learned from. They are compared with and not shown, so the split
    is not opened by this."""
    from devset.splits import load_split
    from evolver.ground import imported_tasks

    return frozenset(task.instruction for task in [*load_split("test", unsealed=True), *imported_tasks(config)["test"]])


def material(store: Store, harness_id: str) -> tuple[dict[str, str], list[tuple[Rollout, Scorecard]]]:
    """What a student may learn from: task id → instruction, and the teacher's train attempts with their cards; of a
    generation round those of training tasks that it accepted."""
    from evolver.ground import tasks_of
    from evolver.rounds.reader import is_round, taught_in

    if is_round(store.path):
        return taught_in(store.path, harness_id)
    instructions = {task.id: task.instruction for task in tasks_of(store, "train", store.config.tasks.train, "export")}
    return instructions, [pair for pair in taught(store, harness_id) if pair[0].key.task_id in instructions]


def taught(store: Store, harness_id: str) -> list[tuple[Rollout, Scorecard]]:
    """The teacher's final train attempts under a harness, with their cards."""
    from evolver.population import final_cards
    from evolver.records import Rollout, Scorecard

    rollouts = {rollout.id: rollout for rollout in store.all(Rollout)}
    return [
        (rollouts[card.rollout_id], card)
        for card in final_cards(store.all(Scorecard))
        if (card.key.purpose, card.key.harness_id, card.key.model_id) == ("train", harness_id, store.config.teacher_id)
        and card.rollout_id in rollouts
    ]
