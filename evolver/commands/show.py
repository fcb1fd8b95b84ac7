"""The command that shows one attempt: turn by turn, its exact requests, or as a trajectory for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.rollout import row_of
from evolver.commands.talk import AsJson, data_console, say, show_json
from evolver.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from evolver.records import Rollout, Scorecard, Turn
    from evolver.store import Store

LONGEST = 600  # characters of a text, where the whole rollout is shown
DIM, BOLD = "dim", "bold"


def show(
    rollout: Annotated[str, typer.Argument(metavar="ROLLOUT", help="A rollout's id or its beginning.")],
    run: Annotated[Path, typer.Option("--run", metavar="RUN", help="A run directory.")] = Path("runs/demo"),
    turn: Annotated[int | None, typer.Option(metavar="N", help="Only this turn, with nothing cut.")] = None,
    request: Annotated[bool, typer.Option("--request", help="The turn's request, byte for byte as sent.")] = False,
    atif: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write an ATIF trajectory and the screenshots there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Shows one attempt turn by turn: what the model said and called, what came back, what it was scored.

    \b
    Examples:
      evolver show r-0b2f --run runs/demo
      evolver show r-0b2f --turn 3 --request        the body of that model call (--json: with frames by name)
      evolver show r-0b2f --atif /tmp/trajectory    trajectory.json and its frames
    """
    from evolver.opening import is_shown, unseal
    from evolver.records import Scorecard
    from evolver.report import harness_names
    from evolver.store import Store

    store = Store.open(run)
    found = find(store, rollout)
    if not is_shown(store, found):
        raise UsageError(f"{found.id} is an attempt on {found.key.split}, which is sealed; {unseal(store)}")
    card = store.get(Scorecard, found.id)
    if request:
        _show_request(store, found, turn, as_json)
        return
    if atif is not None:
        from evolver.trajectory import export

        say(f"wrote {export(store, found, card, atif)}")
        return
    turns = found.turns if turn is None else _turn(found, turn)
    if as_json:
        part = found if turn is None else found.model_copy(update={"turns": turns})
        show_json({"rollout": part.model_dump(mode="json"), "scorecard": card and card.model_dump(mode="json")})
        return
    console = data_console()
    if turn is None:
        for name, value in row_of(found, card, harness_names(store)).items():
            console.print(f"{name}: {'unknown' if value is None else value}")
    for one in turns:
        console.print(_told(one, LONGEST if turn is None else None))
    if turn is None and card is not None:
        console.print(_scores(card))


def find(store: Store, asked: str) -> Rollout:
    """The rollout whose id is, or begins with, what was asked for. Raises UsageError for none or several."""
    from evolver.records import Rollout

    found = [rollout for rollout in store.all(Rollout) if rollout.id.startswith(asked)]
    exact = [rollout for rollout in found if rollout.id == asked]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if not found:
        raise UsageError(f"no rollout {asked!r} in {store.path}: see `evolver rollout list {store.path}`")
    near = ", ".join(rollout.id for rollout in found[:5])
    raise UsageError(f"{len(found)} rollouts begin with {asked!r} ({near}, ...): give more of the id")


def _turn(rollout: Rollout, number: int) -> tuple[Turn, ...]:
    turns = tuple(turn for turn in rollout.turns if turn.index == number)
    if not turns:
        raise UsageError(f"{rollout.id} has no turn {number}: its turns are 0 to {len(rollout.turns) - 1}")
    return turns


def _show_request(store: Store, rollout: Rollout, turn: int | None, as_json: bool) -> None:
    from evolver.chat import bytes_of
    from evolver.sent import bodies

    if rollout.requests_sha256 is None:
        raise UsageError(
            f"{rollout.id} has no request: it ended before its first model call, or is of an older version"
        )
    calls = bodies(store.blob(rollout.requests_sha256))
    if turn is None or not 0 <= turn < len(calls):
        raise UsageError(f"--request needs --turn N, one of 0 to {len(calls) - 1}")
    if as_json:
        show_json(calls[turn])
    else:
        typer.echo(bytes_of(calls[turn], store.blob), nl=False)


def _told(turn: Turn, longest: int | None) -> Text:
    """One turn for a reader; texts longer than `longest` characters are cut."""
    from rich.text import Text

    reply, usage = turn.completion, turn.completion.usage
    shown = Text()

    def add(text: str, style: str = "", indent: int = 2) -> None:
        cut = text if longest is None or len(text) <= longest else f"{text[:longest]} … {len(text) - longest:,} more"
        for line in cut.strip().splitlines():
            shown.append(f"{' ' * indent}{line}\n", style)

    tokens = f"{_count(usage.input_tokens)} in, {_count(usage.output_tokens)} out"
    head = [f"turn {turn.index}", turn.channel, tokens, f"{turn.model_s:.1f} s model, {turn.tools_s:.1f} s tools"]
    head += [] if turn.observed.settled is None else ["settled" if turn.observed.settled else "not settled"]
    shown.append(f"\n{' · '.join(head)}\n", BOLD)
    if turn.slip:
        add(f"slip: {turn.slip}", "yellow")
    add(reply.reasoning, DIM)
    add(reply.text or turn.summary)
    if reply.invalid:
        add(f"not usable: {reply.invalid}", "red")
    results = {result.call_id: result for result in turn.results}
    for call in reply.calls:
        add(f"{call.name} {', '.join(f'{name}={value!r}' for name, value in call.arguments.items())}", "cyan", 4)
        if call.id in results:
            add(results[call.id].text, "red" if results[call.id].is_error else "", 6)
    if turn.observed.text:
        add(turn.observed.text, DIM, 6)
    if turn.observed.image:
        add(f"frame {turn.observed.image.frame_id[:16]}", DIM, 6)
    return shown


def _scores(card: Scorecard) -> Text:
    from rich.text import Text

    outcome = {True: "solved", False: "failed", None: "unscored"}[card.success]
    shown = Text(f"\nscorecard: {outcome}, rubric {'unknown' if card.rubric is None else f'{card.rubric:g}'}\n", BOLD)
    for score in card.scores:
        value = "unscored" if score.value is None else f"{score.value:g}"
        needed = ", required" if score.required else ""
        shown.append(f"  {score.criterion} (weight {score.weight:g}{needed}): {value}  {score.explanation}\n")
    if card.error is not None:
        shown.append(f"  {card.error.kind}, blame {card.error.blame}: {card.error.message}\n", "red")
    return shown


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"
