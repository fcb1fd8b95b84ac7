"""The command that lists single attempts; evolver.commands.show shows one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, OpenTest, RunDir, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from evolver.records import Rollout, Scorecard

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Single attempts. Example: evolver rollout list runs/demo"
)


@app.command("list")
def list_rollouts(
    run: RunDir,
    harness: Annotated[str | None, typer.Option(help="Only under this harness (name, id or its beginning).")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    open_test: OpenTest = None,
    as_json: AsJson = False,
) -> None:
    """Lists the attempts of a run with what became of them; those on the sealed test split only when it is opened.

    \b
    Example:
      evolver rollout list runs/demo --task files.rename-0003
    """
    from evolver.opening import is_shown, record_opening, unseal
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
    matching = [
        r
        for r in store.all(Rollout)
        if (names.get(r.key.harness_id) == harness or r.key.harness_id.startswith(harness or ""))
        and task in (None, r.key.task_id)
    ]
    if open_test is not None:
        record_opening(store, "test", open_test, flagged=True)
    shown = [r for r in matching if is_shown(store, r)]
    if len(shown) < len(matching):
        say(f"without {len(matching) - len(shown):,} attempts on test, which is sealed; {unseal(store)}")
    found = [row_of(r, cards.get(r.id), names) for r in shown]
    if as_json:
        show_json({"rollouts": found})
        return
    rows = [tuple(str(value) for value in row.values()) for row in found]
    columns = ("rollout", "purpose", "harness", "model", "task", "attempt", "outcome", "turns", "tokens", "stopped")
    show_table(f"{len(rows):,} rollouts", columns, rows)


def row_of(rollout: Rollout, card: Scorecard | None, names: Mapping[str, str]) -> dict[str, object]:
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
