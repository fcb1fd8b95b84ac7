"""Commands between two rounds of forged tasks: what the next one is made of, and whether there should be one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.commands.talk import AsJson, RunDir, say, show_json, show_table
from evolver.errors import UsageError

if TYPE_CHECKING:
    from devset.families.skill import Family
    from evolver.records import Scorecard

STUDENT = "student"  # ids of students begin so
SHOWN = 15
UNSEEN = ("select", "test")  # what decides and what is reported feeds no round


def refine(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The forged set that was played.")],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs and rounds in which it was played.")],
    out: Annotated[Path, typer.Option(help="The settings of the next round are written here.")],
    uniform: Annotated[bool, typer.Option("--uniform", help="The control: same budget, nothing weighted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Writes what the next round is made of: 60 % where the student is furthest behind, 30 % seldom drawn, 10 % new
    skills.

    Where it hardly ever succeeds the next tasks are easier: of fewer skills. Attempts that failed on our side say
    nothing, and attempts at `select` and `test` are not looked at.

    \b
    Examples:
      evolver forge refine ../forged rounds/first runs/student --out round-2.toml
      evolver forge refine ../forged rounds/first runs/student --out control.toml --uniform
      evolver forge make ../round-2 --n 2000 --settings round-2.toml
    """
    from devset.forge.lanes import Lanes
    from devset.forge.sets import SETTINGS, SetError, read_rows, skills_of
    from devset.forge.settings import SettingsError, read_settings, settings_text
    from devset.forge.skills import SkillError
    from evolver.disk import on_disk
    from evolver.weakness import next_settings, uniform_settings, weakness

    try:
        before = read_settings(folder / SETTINGS)
        rows, families = read_rows(folder), skills_of(before)
    except (SetError, SettingsError, SkillError) as error:
        raise UsageError(str(error)) from error
    cards = _cards(runs)
    played = _skills_of_tasks([card.key.task_id for card in cards], families) | {row.id: row.skills for row in rows}
    found = weakness(cards, played, _is_student, lambda skill: _app(skill, families))
    named = ", ".join(map(str, runs))
    if not any(gap.n_student for gap in found.cells):
        raise UsageError(f"{named}: no scored attempt of a student on a task of known skills")
    if all(gap.raw is None for gap in found.cells):
        raise UsageError(f"{named}: no skill that both teacher and student tried: name a run or round of each")
    after = (
        uniform_settings(before) if uniform else next_settings(found, before, list(Lanes(families, before).families))
    )
    with on_disk(out):
        out.write_text(settings_text(after), encoding="utf-8")
    if as_json:
        cells = [asdict(gap) for gap in found.cells]
        show_json({"cells": cells, "infra": found.infra, "attempts": found.attempts, "settings": after.model_dump()})
    else:
        lines = [
            (g.key.app, g.key.skill, g.key.channel, f"{g.key.position + 1}", _share(g.teacher, g.n_teacher),
             _share(g.student, g.n_student), f"{g.gap:+.2f}")
            for g in found.cells[:SHOWN]
        ]  # fmt: skip
        columns = ("app", "skill", "channel", "place", "teacher", "student", "gap, shrunk")
        show_table(f"the widest of {len(found.cells):,} cells", columns, lines)
    say(
        f"{found.attempts:,} attempts, {found.infra:,} of them failed on our side and say nothing; "
        f"{len(after.targets):,} targets, {len(after.fresh):,} fresh skills: {out}"
    )


def gain(
    run: RunDir,
    before: Annotated[str, typer.Option(help="The student of the round before (a model's id).")],
    after: Annotated[str, typer.Option(help="The student of this round.")],
    control: Annotated[str | None, typer.Option(help="The student of a round of uniform tasks.")] = None,
    as_json: AsJson = False,
) -> None:
    """Says what a round was worth on skills that are never trained, and whether to stop: when the interval includes 0.

    Exit code 1: stop.

    \b
    Example:
      evolver forge gain runs/mine --before student-1a2b --after student-3c4d --control student-5e6f
    """
    from devset.families import families
    from evolver.phrasing import pp
    from evolver.weakness import gain as gained

    known = families()
    cards = _cards([run])
    played = _skills_of_tasks([card.key.task_id for card in cards], known)

    def held_out(task_id: str) -> bool:
        return task_id in played and all(known[skill].held_out for skill in played[task_id])

    arms = [(before, after)] + ([(control, after)] if control else [])
    found = [gained(cards, held_out, one, other) for one, other in arms]
    if as_json:
        show_json({"gains": [asdict(one) | {"gain": one.gain.model_dump(mode="json")} for one in found]})
    else:
        rows = [(g.before, g.after, f"{g.tasks:,}", f"{g.unscored:,}", pp(g.gain)) for g in found]
        show_table("gain on skills held out", ("before", "after", "tasks", "unscored", "gain [95 %]"), rows)
    say("stop: the interval of the gain includes 0" if found[0].stop else "go on: the gain is above 0")
    if found[0].stop:
        raise typer.Exit(1)


def _cards(runs: Sequence[Path]) -> list[Scorecard]:
    """Of runs, and of generation rounds, whose units are in their shards."""
    from evolver.records import Scorecard
    from evolver.rounds.reader import is_round, scorecards
    from evolver.store import Store

    found = [card for run in runs for card in Store.open(run).all(Scorecard)]
    found += [card for run in runs if is_round(run) for card in scorecards(run)]
    return [card for card in found if card.key.split not in UNSEEN]


def _skills_of_tasks(ids: Sequence[str], families: Mapping[str, Family]) -> dict[str, tuple[str, ...]]:
    """Of tasks that are instances of a family: task id → that family."""
    names = {task_id: task_id.rpartition("-")[0] for task_id in ids}
    return {task_id: (name,) for task_id, name in names.items() if name in families}


def _app(skill: str, families: Mapping[str, Family]) -> str:
    return families[skill].apps[0] if skill in families else skill.partition(".")[0]


def _is_student(model_id: str) -> bool:
    return model_id.startswith(STUDENT)


def _share(rate: float | None, n: int) -> str:
    return "unknown" if rate is None else f"{rate:.0%} of {n:,}"
