"""Commands that forge tasks out of skills: make, prove, report, skills. Beside it lie refine (rounds) and write (a
model's skills)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from devset.task import SPLITS
from evolver.commands.admission import Backend, Progress, opened_bench
from evolver.commands.stopping import finished
from evolver.commands.talk import AsJson, say, show_json, show_table
from evolver.errors import NotReady, UsageError

if TYPE_CHECKING:
    from devset.forge.sampler import Composed, Sampler
    from devset.forge.sets import Forge, Row
    from devset.forge.settings import Settings
    from evolver.composed import Proof

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Tasks out of skills, in any number. Example: evolver forge make ../forged --n 1000",
)
PROOFS = "proofs.jsonl"
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `evolver forge make` wrote.")]
Config = Annotated[Path | None, typer.Option("--settings", help="A TOML file, such as `evolver forge refine` writes.")]


@app.command()
def make(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Task directories and their rows are written here.")],
    n: Annotated[int, typer.Option("--n", min=1, help="So many tasks.")] = 100,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same tasks; 0 if absent.")] = None,
    single: Annotated[float | None, typer.Option(min=0, max=1, help="Share of one app; 0.6176 if absent.")] = None,
    settings: Config = None,
    as_json: AsJson = False,
) -> None:
    """Forges tasks of one app and of several out of the skills: evenly, without duplicates. Again = go on.

    No task is one of dev, select or test, or has one as a part. Nothing is run yet: `evolver forge prove` does that.
    Exit code 1: there are not so many different ones.

    \b
    Examples:
      evolver forge make ../forged --n 10000
      evolver forge make ../round-2 --n 2000 --settings round-2.toml
    """
    from devset.forge.sets import SetError, write_set

    forge = opened(_settings(settings, seed, single))
    rows: list[Row] = []
    from evolver.observers.console import ConsoleObserver, talk_console

    told, started = ConsoleObserver(talk_console()), time.monotonic()
    try:
        for row in write_set(forge, n, out):
            rows.append(row)
            told.progress("forged", len(rows), n, {"refused": forge.sampler.draws.refused.total()})
    except SetError as error:
        raise UsageError(str(error)) from error
    finally:
        told.close()
    found = _figures(rows, forge) | {"seconds": round(time.monotonic() - started, 1)}
    if as_json:
        show_json(found)
    else:
        _print_set(rows, forge)
        _print_draws(forge.sampler)
    say(f"{len(rows):,} of {n:,} tasks forged: {out}; `evolver forge prove {out}` lets them in")
    if len(rows) < n:
        raise typer.Exit(1)


@app.command()
def prove(
    folder: Folder,
    sample: Annotated[int | None, typer.Option(min=1, help="So many of them, every skill first; absent: all.")] = None,
    backend: Annotated[Backend, typer.Option(help="Where they are run.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="So many at once.")] = 2,
    oracle_runs: Annotated[int, typer.Option(min=1, help="Each oracle is replayed on so many fresh machines.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Runs the gate on a sample: every composition rule by doing, wrong solutions, each oracle on fresh machines.

    Then every task of the set gets its verdict, which `evolver run` and `evolver generate` go by: its own, or that of
    its template. Proofs that are there count, and are not made again. Exit code 1: too many are refused, nothing is let
    in, whatever an earlier sample said.

    \b
    Examples:
      evolver forge prove ../forged --sample 200
      evolver forge prove ../pairs --backend local --oracle-runs 3
    """
    from devset.forge.sets import SETTINGS, SetError, read_rows, remade, skills_of
    from devset.forge.settings import SettingsError, read_settings
    from devset.forge.skills import SkillError
    from evolver.composed import read_proofs
    from evolver.forged import kept_out, sample_of, sampled, verdicts, write_verdicts
    from evolver.imports import VERDICTS

    try:
        rows = read_rows(folder)
        if not rows:
            raise UsageError(f"{folder}: no forged tasks in it; `evolver forge make {folder}` writes them")
        settings = read_settings(folder / SETTINGS)
        families = skills_of(settings)
        known = read_proofs(folder / PROOFS)
        wanted = {row.id for row in sample_of(rows, sample or len(rows), settings.seed)}
        chosen = [remade(row, families) for row in rows if row.id in wanted or row.id in known]
    except (SetError, SettingsError, SkillError) as error:
        raise UsageError(str(error)) from error
    tell = say if as_json else typer.echo
    proofs = finished(_prove(chosen, folder / PROOFS, (backend, workers, oracle_runs), tell))
    given = verdicts(rows, proofs)
    found = sampled(rows, proofs, given)
    if not found.let_in:
        given = kept_out(given, found.refused)
        found = sampled(rows, proofs, given)
    write_verdicts(folder / VERDICTS, given)
    if as_json:
        show_json(asdict(found) | {"refused": found.refused.model_dump(mode="json")} | _gate_figures(proofs))
    else:
        _print_gates(proofs)
    say(found.line() if found.let_in else f"nothing is let in: {found.line()}")
    if not found.let_in:
        raise typer.Exit(1)


@app.command()
def report(folder: Folder, as_json: AsJson = False) -> None:
    """Shows what a forged set covers, how even it is, and whether tasks in it are the same after all.

    \b
    Example:
      evolver forge report ../forged
    """
    from devset.forge.sets import SETTINGS, SetError, forge_of, read_rows
    from devset.forge.settings import SettingsError, read_settings
    from devset.forge.skills import SkillError

    try:
        rows, forge = read_rows(folder), forge_of(read_settings(folder / SETTINGS))
    except (SetError, SettingsError, SkillError) as error:
        raise UsageError(str(error)) from error
    if not rows:
        raise UsageError(f"{folder}: no forged tasks in it; `evolver forge make {folder}` writes them")
    for row in rows:
        forge.sampler.counts.add(row.id, row.path, row.skills, (row.lane, row.source))
        forge.sampler.draws.refused += Counter(row.refused)
        forge.sampler.draws.drawn = row.draw
    if as_json:
        show_json(_figures(rows, forge))
        return
    _print_set(rows, forge)
    _print_draws(forge.sampler)


@app.command()
def skills(settings: Config = None, as_json: AsJson = False) -> None:
    """Lists the skills by taxonomy: app, object and verb, who can do them, and which are wanted but not there.

    \b
    Example:
      evolver forge skills
    """
    from devset.forge.taxonomy import taxonomy

    found = taxonomy(opened(_settings(settings, None, None)).families)
    if as_json:
        show_json({"cells": [asdict(cell) for cell in found]})
        return
    rows = [
        (cell.app, cell.object, cell.verb, ", ".join(cell.skills) or "wanted", "+".join(cell.channels),
         "held out" if cell.held_out else "", cell.note)
        for cell in found
    ]  # fmt: skip
    show_table(f"{len(rows):,} cells", ("app", "object", "verb", "skills", "channels", "", "note"), rows)


def _settings(path: Path | None, seed: int | None, single: float | None) -> Settings:
    from devset.forge.settings import Settings, SettingsError, read_settings

    try:
        found = read_settings(path) if path is not None else Settings()
    except SettingsError as error:
        raise UsageError(str(error)) from error
    given = {"seed": seed, "single": single}
    return found.model_copy(update={name: value for name, value in given.items() if value is not None})


def opened(settings: Settings) -> Forge:
    """Families, sampler and duplicates for these settings, with what is held out known to them."""
    from devset.forge.sets import SetError, forge_of
    from devset.forge.skills import SkillError
    from devset.splits import load_split

    try:
        # Only fingerprints of them are kept, so test is not opened by this.
        held = [task for split in SPLITS[1:] for task in load_split(split, unsealed=True)]
        return forge_of(settings, held)
    except (SetError, SkillError) as error:
        raise UsageError(str(error)) from error
    except ImportError as error:
        raise NotReady(f"finding duplicates needs datasketch ({error}): pip install -e '.[devset]'") from None


async def _prove(
    made: Sequence[Composed], path: Path, how: tuple[Backend, int, int], tell: Callable[[str], None]
) -> list[Proof]:
    """Tells a verdict per task as it falls; `how` is (back end, workers, replays of an oracle)."""
    from evolver.composed import prove as proving

    backend, workers, oracle_runs = how
    proofs: list[Proof] = []
    async with opened_bench(backend, workers) as bench:
        with Progress("tasks", len(made)) as progress:
            async for proof in proving(made, replace(bench, oracle_runs=oracle_runs), path):
                proofs.append(proof)
                progress.step(right=proof.admitted)
                said = "admitted" if proof.admitted else f"quarantined: {'; '.join(proof.reasons)}"
                took, names = sum(gate.seconds for gate in proof.gates), " + ".join(proof.skills)
                tell(f"{progress.done}/{len(made)}  {proof.task_id} ({names})  {took:.1f} s  {said}")
    return proofs


def _figures(rows: Sequence[Row], forge: Forge) -> dict[str, object]:
    from devset.forge.duplicates import twins

    draws, n = forge.sampler.draws, len(rows)
    found = twins(rows)
    return {
        "tasks": n,
        "single": sum(row.lane == "single" for row in rows) / n if n else None,
        "sources": dict(Counter(row.source for row in rows)),
        "sizes": dict(sorted(Counter(len(row.skills) for row in rows).items())),
        "for_training": sum(row.seen_in_training for row in rows),
        "coverage": asdict(forge.sampler.coverage()),
        "duplicates": {level: len(ids) for level, ids in found.items()},
        "duplicate_rate": len(set().union(*found.values())) / n if n else None,
        "drawn": draws.drawn,
        "refused": dict(draws.refused.most_common()),
    }


def _print_set(rows: Sequence[Row], forge: Forge) -> None:
    found, cover = _figures(rows, forge), forge.sampler.coverage()
    doubles: dict[str, int] = found["duplicates"]  # type: ignore[assignment]
    single, rate = found["single"], found["duplicate_rate"]
    show_table(
        "coverage",
        ("tasks", "of one app", "canonical paths", "effective number", "skills", "pairs of skills", "with dataflow",
         "duplicates"),
        [
            (f"{cover.tasks:,}", "unknown" if single is None else f"{single:.2%}", f"{cover.paths:,}",
             f"{cover.effective:,}", f"{cover.skills}", f"{cover.pairs:,} of {cover.possible_pairs:,}",
             f"{cover.flows:,}", "unknown" if rate is None else f"{rate:.2%} ({sum(doubles.values()):,})")
        ],
    )  # fmt: skip


def _print_draws(sampler: Sampler) -> None:
    draws = sampler.draws
    refused = [(rule, f"{n:,}", draws.examples.get(rule, "")) for rule, n in draws.refused.most_common()]
    show_table(f"{draws.drawn:,} draws, refused unseen", ("rule", "draws", "for example"), refused)


def _gate_figures(proofs: Sequence[Proof]) -> dict[str, object]:
    from evolver.composed import gate_table

    tried = sum(p.mutants for p in proofs)
    return {
        "gates": [asdict(row) for row in gate_table(proofs)],
        "broken": dict(Counter(rule for p in proofs for rule in p.broken)),
        "mutants": tried,
        "mutants_killed": tried - sum(len(p.survivors) for p in proofs),
        "equivalents": sum(p.equivalents for p in proofs),
        "equivalents_rejected": sum(len(p.rejected) for p in proofs),
    }


def _print_gates(proofs: Sequence[Proof]) -> None:
    from evolver.composed import gate_table

    rows = [(r.name, f"{r.came:,}", f"{r.passed:,}", f"{r.seconds:,.1f} s") for r in gate_table(proofs)]
    show_table("gates", ("gate", "in", "out", "time"), rows)
    tried, survived = sum(p.mutants for p in proofs), sum(len(p.survivors) for p in proofs)
    equal, rejected = sum(p.equivalents for p in proofs), sum(len(p.rejected) for p in proofs)
    say(f"{tried - survived:,} of {tried:,} wrong solutions fail, {equal - rejected:,} of {equal:,} right ones pass")
