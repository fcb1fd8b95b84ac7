"""Commands about single attempts: list, show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, RunDir, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from evolver.records import Rollout, Scorecard
    from evolver.store import Store

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Single attempts. Example: evolver rollout list runs/demo"
)
LONGEST_OUTPUT = 600


@app.command("list")
def list_rollouts(
    run: RunDir,
    harness: Annotated[str | None, typer.Option(help="Only under this harness (name, id or its beginning).")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    as_json: AsJson = False,
) -> None:
    """Lists the attempts of a run with what became of them.

    \b
    Example:
      evolver rollout list runs/demo --task files.rename-0003
    """
    from evolver.records import Rollout, Scorecard
    from evolver.report import harness_names
    from evolver.store import Store

    store = Store.open(run)
    names = harness_names(store)
    cards = {card.rollout_id: card for card in store.all(Scorecard)}
    known = {r.key.harness_id: names.get(r.key.harness_id, "") for r in store.all(Rollout)}
    if harness is not None and not any(harness == name or id.startswith(harness) for id, name in known.items()):
        raise UsageError(f"no rollout under a harness {harness!r}; known: {', '.join(sorted(known.values()))}")
    if task is not None and not any(r.key.task_id == task for r in store.all(Rollout)):
        raise UsageError(f"no rollout of task {task!r} in {run}: `evolver rollout list {run}` shows all")
    found = [
        _row(r, cards.get(r.id), names)
        for r in store.all(Rollout)
        if (names.get(r.key.harness_id) == harness or r.key.harness_id.startswith(harness or ""))
        and task in (None, r.key.task_id)
    ]
    if as_json:
        show_json({"rollouts": found})
        return
    rows = [tuple(str(value) for value in row.values()) for row in found]
    columns = ("rollout", "purpose", "harness", "model", "task", "attempt", "outcome", "turns", "tokens", "stopped")
    show_table(f"{len(rows):,} rollouts", columns, rows)


@app.command()
def show(
    run: RunDir,
    rollout: Annotated[str, typer.Argument(metavar="ROLLOUT", help="A rollout's id or its beginning.")],
    as_json: AsJson = False,
) -> None:
    """Shows one attempt turn by turn: what the model said and called, and what came back.

    \b
    Example:
      evolver rollout show runs/demo r-0b2f
    """
    from evolver.records import Scorecard
    from evolver.report import harness_names
    from evolver.store import Store

    store = Store.open(run)
    found = _find(store, rollout)
    card = store.get(Scorecard, found.id)
    if as_json:
        show_json({"rollout": found.model_dump(mode="json"), "scorecard": card and card.model_dump(mode="json")})
        return
    for name, value in _row(found, card, harness_names(store)).items():
        typer.echo(f"{name}: {value}")
    for turn in found.turns:
        typer.echo(f"\n--- turn {turn.index} · {turn.channel}{f' · slip: {turn.slip}' if turn.slip else ''}")
        typer.echo(turn.summary)
        results = {result.call_id: result for result in turn.results}
        for call in turn.completion.calls:
            typer.echo(f"  {call.name} {call.arguments}")
            if call.id in results:
                typer.echo(f"    → {results[call.id].text[:LONGEST_OUTPUT]}")
    for score in card.scores if card else ():
        value = "unscored" if score.value is None else f"{score.value:g}"
        typer.echo(f"\n{score.criterion}: {value} {score.explanation}")


def _find(store: Store, asked: str) -> Rollout:
    from evolver.records import Rollout

    found = [rollout for rollout in store.all(Rollout) if rollout.id.startswith(asked)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no rollout {asked!r} in {store.path}: see `evolver rollout list {store.path}`")
    near = ", ".join(rollout.id for rollout in found[:5])
    raise UsageError(f"{len(found)} rollouts begin with {asked!r} ({near}, ...): give more of the id")


def _row(rollout: Rollout, card: Scorecard | None, names: Mapping[str, str]) -> dict[str, object]:
    success = None if card is None else card.success
    outcome = {True: "solved", False: "failed", None: "not graded" if card is None else "unscored"}[success]
    return {
        "id": rollout.id,
        "purpose": rollout.key.purpose,
        "harness": names.get(rollout.key.harness_id, rollout.key.harness_id[:12]),
        "model": rollout.key.model_id,
        "task": rollout.key.task_id,
        "attempt": rollout.key.attempt,
        "outcome": outcome,
        "turns": len(rollout.turns),
        "tokens": None if card is None else card.tokens,
        "stopped": rollout.error.message if rollout.error else rollout.stop_reason,
    }
