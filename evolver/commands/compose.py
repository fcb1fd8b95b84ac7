"""The command that composes tasks of several skills and proves them rule by rule."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.admission import Backend, Progress, opened_bench
from evolver.commands.talk import AsJson, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from devset.forge.sampler import Composed, Sampler
    from devset.importers.offer import Offer
    from evolver.composed import Proof

SOURCE, MANIFEST, PROOFS = "composed", "compose.json", "proofs.jsonl"


def compose(
    out: Annotated[Path, typer.Option(help="Task directories, manifest and proofs are written here.")],
    n: Annotated[int, typer.Option("--n", min=1, help="So many tasks.")] = 20,
    skills: Annotated[int, typer.Option(min=2, max=3, help="Skills per task.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same tasks.")] = 0,
    admit: Annotated[bool, typer.Option("--admit", help="Then prove them, like `evolver tasks prove DIR`.")] = False,
    as_json: AsJson = False,
) -> None:
    """Composes tasks of 2 or 3 skills, evenly over skills and pairs of skills; refused draws are counted by rule.

    Exit code 1: there are not so many different ones, or the gate refused some.

    \b
    Examples:
      evolver tasks compose --n 200 --skills 2 --seed 1 --out ../composed/pairs
      evolver tasks compose --n 40 --skills 3 --seed 1 --out ../composed/triples --admit
    """
    from devset.families import families
    from devset.forge.sampler import Sampler
    from devset.importers.offer import ImportFailed, write_offers

    made: list[Composed] = []
    sampler = Sampler(families(), skills, seed)
    started = time.monotonic()
    try:
        for _ in write_offers(_offered(islice(sampler, n), made), SOURCE, out):
            pass
    except ImportFailed as error:
        raise UsageError(str(error)) from error
    found = _manifest(sampler, made, seed, round(time.monotonic() - started, 1))
    _write(out, found)
    say(f"{len(made):,} of {n:,} tasks composed: {out}")
    if not as_json:
        _print_draws(sampler)
    if admit:
        prove(out, as_json=as_json)
    elif as_json:
        show_json(found)
    if len(made) < n:
        raise typer.Exit(1)


def prove(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `evolver tasks compose` wrote.")],
    backend: Annotated[Backend, typer.Option(help="Where they are run.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="So many at once.")] = 2,
    oracle_runs: Annotated[int, typer.Option(min=1, help="Each oracle is replayed on so many fresh machines.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Runs the gate of composed tasks: every composition rule by doing, wrong solutions, fresh machines.

    Proofs that the folder has are not made again; the verdicts are there for `evolver tasks report` too. Exit code 1:
    some are quarantined.

    \b
    Example:
      evolver tasks prove ../composed/pairs --backend local --oracle-runs 3
    """
    found, made = _composed_again(folder)
    proofs = asyncio.run(_prove(made, folder, (backend, workers, oracle_runs), say if as_json else typer.echo))
    _write(folder, found | _figures(proofs))
    if as_json:
        show_json(found | _figures(proofs))
    else:
        _print_gates(proofs)
    if not all(proof.admitted for proof in proofs):
        raise typer.Exit(1)


def _composed_again(folder: Path) -> tuple[dict[str, object], list[Composed]]:
    """The manifest of the folder, and its compositions made anew from their seed; raises UsageError where the families
    no longer make the same tasks."""
    from devset.families import families
    from devset.forge.sampler import Sampler

    path = folder / MANIFEST
    if not path.is_file():
        raise UsageError(f"{path}: missing; `evolver tasks compose --out {folder}` writes it")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        size, seed, hashes = found["skills"], found["seed"], [row["hash"] for row in found["tasks"]]
        sampler = Sampler(families(), size, seed)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: is no manifest of compositions ({error!r}); compose them again") from error
    made = list(islice(sampler, len(hashes)))
    if [m.task.hash for m in made] != hashes:
        raise UsageError(f"{folder}: the families no longer make these tasks; compose them again")
    return found, made


def _write(folder: Path, found: dict[str, object]) -> None:
    (folder / MANIFEST).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _offered(drawn: Iterator[Composed], made: list[Composed]) -> Iterator[Offer]:
    from devset.importers.offer import Offer

    for one in drawn:
        made.append(one)
        yield Offer(id=one.id, origin=one.task.source, task=one.task)


def _manifest(sampler: Sampler, made: Sequence[Composed], seed: int, seconds: float) -> dict[str, object]:
    rows = [
        {"id": m.id, "hash": m.task.hash, "skills": list(m.flow.skills), "path": m.flow.path, "seed": m.flow.seed,
         "channels": sorted(m.task.channels), "seen_in_training": m.task.seen_in_training}
        for m in made
    ]  # fmt: skip
    draws = sampler.draws
    return {
        "skills": sampler.size,
        "seed": seed,
        "seconds": seconds,
        "drawn": draws.drawn,
        "refused": {rule: {"draws": n, "example": draws.examples[rule]} for rule, n in draws.refused.most_common()},
        "coverage": asdict(sampler.coverage()),
        "tasks": rows,
    }


async def _prove(
    made: Sequence[Composed], out: Path, how: tuple[Backend, int, int], tell: Callable[[str], None]
) -> list[Proof]:
    """Tells a verdict per task as it falls; `how` is (back end, workers, replays of an oracle)."""
    from evolver.admission import read_admissions
    from evolver.composed import admission_of, prove
    from evolver.disk import append_line
    from evolver.imports import VERDICTS

    backend, workers, oracle_runs = how
    known, proofs = read_admissions(out / VERDICTS), []
    async with opened_bench(backend, workers) as bench:
        with Progress("tasks", len(made)) as progress:
            async for proof in prove(made, replace(bench, oracle_runs=oracle_runs), out / PROOFS):
                proofs.append(proof)
                verdict = admission_of(proof)
                if known.get(proof.task_id) != verdict:
                    append_line(out / VERDICTS, verdict.model_dump_json())
                progress.step(right=proof.admitted)
                said = "admitted" if proof.admitted else f"quarantined: {'; '.join(proof.reasons)}"
                took, skills = sum(gate.seconds for gate in proof.gates), " + ".join(proof.skills)
                tell(f"{progress.done}/{len(made)}  {proof.task_id} ({skills})  {took:.1f} s  {said}")
    return proofs


def _figures(proofs: Sequence[Proof]) -> dict[str, object]:
    from evolver.composed import gate_table

    tried = sum(p.mutants for p in proofs)
    return {
        "admitted": sum(p.admitted for p in proofs),
        "lost": sum(p.lost for p in proofs),
        "gates": [asdict(row) for row in gate_table(proofs)],
        "broken": dict(Counter(rule for p in proofs for rule in p.broken)),
        "mutants": tried,
        "mutants_killed": tried - sum(len(p.survivors) for p in proofs),
        "equivalents": sum(p.equivalents for p in proofs),
        "equivalents_rejected": sum(len(p.rejected) for p in proofs),
    }


def _print_draws(sampler: Sampler) -> None:
    draws, cover = sampler.draws, sampler.coverage()
    show_table(
        "coverage",
        ("tasks", "canonical paths", "effective number", "skills", "pairs of skills", "with dataflow"),
        [
            (f"{cover.tasks:,}", f"{cover.paths:,}", f"{cover.effective:,}", f"{cover.skills}",
             f"{cover.pairs:,} of {cover.possible_pairs:,}", f"{cover.flows:,}")
        ],
    )  # fmt: skip
    refused = [(rule, f"{n:,}", draws.examples[rule]) for rule, n in draws.refused.most_common()]
    show_table(f"{draws.drawn:,} draws, refused unseen", ("rule", "draws", "for example"), refused)


def _print_gates(proofs: Sequence[Proof]) -> None:
    from evolver.composed import gate_table

    rows = [(r.name, f"{r.came:,}", f"{r.passed:,}", f"{r.seconds:,.1f} s") for r in gate_table(proofs)]
    show_table("gates", ("gate", "in", "out", "time"), rows)
    tried, survived = sum(p.mutants for p in proofs), sum(len(p.survivors) for p in proofs)
    equal, rejected = sum(p.equivalents for p in proofs), sum(len(p.rejected) for p in proofs)
    say(f"{tried - survived:,} of {tried:,} wrong solutions fail, {equal - rejected:,} of {equal:,} right ones pass")
    say(f"{sum(p.admitted for p in proofs):,} of {len(proofs):,} admitted, {sum(p.lost for p in proofs):,} lost")
