"""Commands about skills that are written: by a language model, with what they cost a task, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.admission import Backend, Progress, opened_bench
from evolver.commands.stopping import finished
from evolver.commands.talk import AsJson, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from evolver.config import LLMAuthor
    from evolver.store import Store
    from evolver.writing import SkillVerdict

NUMBERS = (1_000, 10_000, 100_000)


def write(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A run's config with an [[authors]] of kind llm.")],
    out: Annotated[Path, typer.Option(help="A run directory: ledger, skills/, quarantine/.")],
    n: Annotated[int, typer.Option("--n", min=1, help="So many skills are asked for, failed ones included.")] = 5,
    backend: Annotated[Backend, typer.Option(help="Where their scripts are run.")] = "auto",
    limit_s: Annotated[float, typer.Option(min=1, help="The model's calls for one skill end here.")] = 720.0,
    as_json: AsJson = False,
) -> None:
    """Lets a language model write new skills for cells of the taxonomy that are wanted. Again = go on.

    Model, repairs, prices and caps are those of the config; every call is charged to the author. Scripts run in
    sandboxes alone, and only skills that pass the whole gate land in skills/, which `skills = [...]` of a set's
    settings can name.

    \b
    Example:
      evolver forge write my.toml --out ../written --n 20
    """
    from evolver.config import LLMAuthor, load_config
    from evolver.store import Store

    given = load_config(config)
    author = next((one for one in given.authors if isinstance(one, LLMAuthor)), None)
    if author is None:
        raise UsageError(f'{config}: names no model that writes: add an [[authors]] section with kind = "llm"')
    store = Store.create(out, given)
    with store.working():
        tell = say if as_json else typer.echo
        found = finished(_write(store, author, (backend, n, limit_s), tell))
    if as_json:
        show_json({"skills": [verdict.model_dump(mode="json") for verdict in found]})
    taken = sum(verdict.outcome == "admitted" for verdict in found)
    say(f"{taken:,} of {len(found):,} skills admitted: {out / 'skills'}; `evolver ledger {out}` says what they cost")
    if not taken:
        raise typer.Exit(1)


async def _write(
    store: Store, author: LLMAuthor, how: tuple[Backend, int, float], tell: Callable[[str], None]
) -> list[SkillVerdict]:
    """Tells a verdict per skill as it falls; `how` is (back end, how many skills, seconds a skill)."""
    from devset.forge.settings import Settings
    from evolver.commands.forge import opened
    from evolver.models.openai import OpenAIModel
    from evolver.writing import TAKEN, Desk, write_skills

    backend, n, limit_s = how
    written = (str(store.path / TAKEN),) if (store.path / TAKEN).is_dir() else ()
    forge = opened(Settings(skills=written))
    found: list[SkillVerdict] = []
    async with opened_bench(backend, 1) as bench:
        desk = Desk(
            store, OpenAIModel(author.model), bench, dict(forge.families), forge.duplicates, author.max_repairs, limit_s
        )
        with Progress("skills", n) as progress:
            async for verdict in write_skills(desk, n):
                found.append(verdict)
                progress.step(right=verdict.outcome == "admitted")
                why = f": {'; '.join(verdict.reasons)}" if verdict.reasons else ""
                tell(f"{progress.done}/{n}  {verdict.cell}  {verdict.name or 'no skill'}  {verdict.outcome}{why}")
    return found


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A skill directory (devset/forge/format.md).")],
    backend: Annotated[Backend, typer.Option(help="Where its scripts are run.")] = "auto",
) -> None:
    """Runs the gate on a skill that somebody wrote by hand: rules, wrong and other right solutions, fresh machines.

    Exit code 1: it is refused.

    \b
    Example:
      evolver forge check ../written/skills/text.shout-lines
    """
    from devset.forge.settings import Settings
    from devset.forge.skills import SkillError, family_of, read_skill
    from evolver.commands.forge import opened
    from evolver.writing import static_reasons, tried

    forge = opened(Settings())
    try:
        family = family_of(read_skill(folder.resolve()))
    except SkillError as error:
        raise UsageError(str(error)) from error

    async def run() -> tuple[tuple[str, ...], bool]:
        async with opened_bench(backend, 1) as bench:
            return await tried(family, forge.families, bench)

    reasons, lost = tuple(static_reasons(family, forge.families, forge.duplicates)), False
    if not reasons:
        reasons, lost = finished(run())
    verdict = "no verdict, our machines were lost" if lost else "refused" if reasons else "admitted"
    typer.echo(f"{family.name}  {verdict}{': ' if reasons else ''}{'; '.join(reasons)}")
    if reasons:
        raise typer.Exit(1)


def cost(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory that `evolver forge write` wrote.")],
    folder: Annotated[Path | None, typer.Option("--set", help="A forged set, whose proofs count as well.")] = None,
    numbers: Annotated[
        list[int] | None, typer.Option("--n", min=1, help="Over so many tasks; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Shows what a task costs written one by one and forged, with the one-off cost of the skills spread over N.

    \b
    Example:
      evolver forge cost ../written --set ../forged --n 1000 --n 100000
    """
    from evolver.amortised import agent_first, forged, one_off
    from evolver.commands.forge import PROOFS
    from evolver.composed import read_proofs
    from evolver.disk import records_in
    from evolver.records import LedgerEntry
    from evolver.store import Store
    from evolver.writing import LOG, SkillVerdict

    store = Store.open(run)
    spent = one_off(store.all(LedgerEntry), list(records_in(run / LOG, SkillVerdict)))
    proofs = [] if folder is None else list(read_proofs(folder / PROOFS).values())
    sides = [agent_first(spent), *(forged(spent, n, proofs) for n in numbers or NUMBERS)]
    if as_json:
        show_json({"one_off": asdict(spent), "sides": [asdict(side) for side in sides]})
        return
    rows = [
        (side.way, f"{side.tasks:,}", _known(side.usd_per_task, "$"), _known(side.tokens_per_task),
         _known(side.gate_seconds_per_task, unit=" s"))
        for side in sides
    ]  # fmt: skip
    whole = f"{_known(spent.usd, '$')}, {_known(spent.tokens)} tokens in {spent.calls:,} calls"
    show_table("cost of a task", ("way", "tasks", "cost a task", "tokens a task", "machine time a task"), rows)
    say(f"one-off: {spent.skills:,} of {spent.tried:,} skills admitted, {whole}; skills by hand are in no ledger")
    say("a task written by itself is taken to cost what a skill does; that is assumed, not measured")


def _known(value: float | None, sign: str = "", unit: str = "") -> str:
    if value is None:
        return "unknown"
    return f"{sign}{value:,.4f}{unit}" if value < 10 else f"{sign}{value:,.0f}{unit}"
