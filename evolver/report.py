"""What a run found, as tables and two figures: pure views of its records, on screen, as Markdown or one HTML file.

What is unknown is printed as "unknown", never as 0.
"""

from __future__ import annotations

from evolver.audit import Calibration, Opening
from evolver.baselines import baselines_table, final_table, teacher_of
from evolver.config import DemonstratorSpec, StudentSpec
from evolver.decide import cheaper_line
from evolver.freeze import capsule_tables
from evolver.gap_tables import gap_tables
from evolver.ledger import ledger_table
from evolver.marks import VERDICTS
from evolver.phrasing import UNKNOWN, count, number, percent, pp, share, tokens
from evolver.population import cards_of, final_cards, mean_success, population_of, standing
from evolver.records import (
    Candidate,
    Decision,
    Distillation,
    Ending,
    Evaluation,
    Interval,
    Purpose,
    Rollout,
    Scorecard,
)
from evolver.safety import guards_table, safety_lines, stages_table
from evolver.score import without_retries
from evolver.store import Store
from evolver.tables import Report, Table
from harnesses.library import Library

SHOWN_FIRST: tuple[Purpose, ...] = ("test", "race", "confirm", "adhoc", "train", "admit")


def report(store: Store) -> Report:
    """The whole report of a run directory, as far as the run has come; a run that only measures gaps has no search."""
    names = harness_names(store)
    searches = bool(store.config.authors or store.all(Candidate)) or not store.config.gap.pairs
    gaps = gap_tables(store, names) or [
        Table("Teacher and student gap", ("measured",), (), "No gap has been measured yet: `evolver gap RUN A B`.")
    ]
    before = (lineage_table(store, names), guards_table(store, names), stages_table(store, names)) if searches else ()
    after = (baselines_table(store), final_table(store, names)) if searches else ()
    tables = (
        *before, channel_table(store, names), *gaps, *after, *capsule_tables(store, names), ledger_table(store),
    )  # fmt: skip
    lines = (
        *header(store, names),
        *(safety_lines(store) if searches else ()),
        *audit_lines(store),
        *teacher_lines(store, names),
        *student_lines(store, names),
    )
    return Report(f"Run {store.path.name}", lines, tables)


def teacher_line(store: Store) -> str:
    """Who taught, as every report must say it (a scripted demonstrator is never called a model)."""
    teacher = store.config.teacher
    if isinstance(teacher, DemonstratorSpec):
        return f"demonstrator (scripted, slip rate {teacher.slip_rate:g})"
    if isinstance(teacher, StudentSpec):
        return f"{store.config.teacher_id}, a distilled student, sampled as each harness says"
    return f"{teacher.model} at {teacher.base_url or 'the default endpoint'}"


def header(store: Store, names: dict[str, str]) -> list[str]:
    cards, endings = store.all(Scorecard), store.all(Ending)
    unscored = sum(card.success is None for card in cards)
    graded = len(cards) - unscored
    lines = [
        f"teacher: {teacher_line(store)}",
        f"run {store.run_id}, lineage {store.config.lineage}, seed {store.config.seed}",
        f"{len(store.all(Rollout)):,} rollouts, {graded:,} graded, {unscored:,} unscored (our failure: in no mean)",
    ]
    population = population_of(store)
    if population.incumbent is not None:
        lines.append(f"best harness: {_name(population.incumbent, names)}")
    if population.decisions:
        allowed = store.config.race.lineage_alpha
        lines.append(f"errors: {population.alpha_spent:.4f} of {allowed:g} spent (chance of promoting a neutral edit)")
    waiting = [_name(d.candidate_harness, names) for d in population.waiting(teacher_of(store))]
    if waiting:
        then = "another one was heard" if population.was_heard else "the most promising is confirmed at the end"
        lines.append(f"small leads that wait: {', '.join(waiting)}; {then}")
    asked = {
        split: max((e.n_tasks for e in store.all(Evaluation) if e.split == split), default=0)
        for split in ("dev", "select")
    }
    if all(asked.values()):
        lines.append(cheaper_line(store.config.race, asked["dev"], asked["select"]))
    for promoted in population.promotions:
        if promoted.cumulative is not None:
            claim = f"{_name(promoted.candidate_harness, names)} against the root: {pp(promoted.cumulative)}"
            lines.append(f"{claim} of success on select, on attempts that decided nothing before")
    if not endings:
        lines.append("state: not ended (running, or killed: the same command resumes it)")
    elif endings[-1].reason in ("done", "target", "plateau"):
        lines.append(f"state: {endings[-1].reason}" + (f": {endings[-1].detail}" if endings[-1].detail else ""))
    else:
        lines.append(f"state: stopped before the end ({endings[-1].reason}): {endings[-1].detail}")
    return lines


def audit_lines(store: Store) -> list[str]:
    """What the run's judge is worth, where it has one, and who has looked at the sealed split."""
    found = {c.judge: c for c in store.all(Calibration)}
    lines = [
        f"{judge}: kappa {number(c.kappa)} against check programs, {c.kappa.n} tasks; "
        + (f"UNFIT, it decides no promotion: {'; '.join(c.faults)}" if c.faults else "fit to decide promotions")
        for judge, c in found.items()
    ]
    if store.config.judge is not None and not found:
        lines.append(f"judge {store.config.judge.model.model}: not calibrated, it decides no promotion")
    looks = [opening for opening in store.all(Opening) if opening.flagged]
    lines += [f"test was opened by {look.who} to look at: {look.why}" for look in looks]
    return lines


def success_text(evaluation: Evaluation) -> str:
    """Success with its interval; apart as well for families that training tasks come from and those they never do."""
    seen, unseen = evaluation.success_seen, evaluation.success_unseen
    if seen is None or unseen is None:
        return percent(evaluation.success)
    apart = f"seen families {percent(seen)}, n = {seen.n}; unseen {percent(unseen)}, n = {unseen.n}"
    return f"{percent(evaluation.success)} ({apart})"


def teacher_lines(store: Store, names: dict[str, str]) -> list[str]:
    """The teacher's success under each harness, on the split that the report shows."""
    return [
        f"teacher under {_name(e.harness_id, names)}: {e.split} {success_text(e)}{_rerun_text(store, e)}"
        for e in shown_evaluations(store)
    ]


def _rerun_text(store: Store, evaluation: Evaluation) -> str:
    """How many of its scored attempts were tried again after a failure of ours, and the success without them."""
    one = (evaluation.harness_id, evaluation.purpose, evaluation.model_id)
    scored = [c for c in final_cards(cards_of(store.all(Scorecard), *one)) if c.success is not None]
    first = without_retries(scored, store.all(Rollout))
    if len(first) == len(scored):
        return ""
    left = share(mean_success(first)) if first else UNKNOWN
    return f"; {len(scored) - len(first)} of its {len(scored)} attempts were tried again, {left} without them"


def student_lines(store: Store, names: dict[str, str]) -> list[str]:
    """One line per student: rows, loss, and its success beside the untrained control's on the test split."""
    measured = {(e.model_id, e.harness_id): e for e in store.all(Evaluation) if e.purpose == "test"}

    def success(model_id: str, harness_id: str) -> str:
        found = measured.get((model_id, harness_id))
        return success_text(found) if found else UNKNOWN

    return [
        f"student of {_name(d.teacher_harness, names)}, seed {d.seed}: "
        f"{d.recipe.get('base', d.base_model)}, {d.rows:,} rows, loss {_loss(d.train_loss_first)} "
        f"→ {_loss(d.train_loss_last)}, {d.train_s:.0f} s; "
        f"test {success(d.student_model, d.teacher_harness)}, untrained {success(d.base_model, d.teacher_harness)}"
        for d in store.all(Distillation)
    ]


def harness_names(store: Store) -> dict[str, str]:
    """Harness id → the name that people gave it."""
    named: dict[str, str] = {}
    if (store.path / "library" / "HEAD").is_file():
        with_names = Library(store.path / "library")
        named = {harness: name for name, harness in reversed(with_names.names().items())}
        with_names.close()
    return named | {c.harness_id: c.name for c in reversed(store.all(Candidate))}


def effect_of(decision: Decision) -> tuple[Interval | None, str]:
    """The effect that a verdict rests on and where it was measured: the confirmation, or the last look of the race."""
    if decision.confirmation is not None:
        return decision.confirmation, "select"
    if decision.looks:
        return decision.looks[-1].effect, f"dev x{decision.looks[-1].attempts}"
    return None, "not measured"


def lineage_table(store: Store, names: dict[str, str]) -> Table:
    """One row per candidate, in the order in which they were proposed."""
    decisions = population_of(store).decision_of
    rows, notes = [], []
    for candidate in store.all(Candidate):
        decision = decisions.get(candidate.id)
        verdict = VERDICTS[standing(candidate, decision)].label
        if decision is None:
            measured, costs = ("", ""), ("", "")
        else:
            effect, where = effect_of(decision)
            measured = (pp(effect) if effect else UNKNOWN, f"{where}, n = {effect.n}" if effect else where)
            costs = (_tokens(decision.tokens_per_solved), _tokens(decision.incumbent_tokens_per_solved))
        parents = ", ".join(_name(parent, names) for parent in candidate.parents)
        changed = "+".join(candidate.components)
        rows.append((candidate.name, parents, candidate.author, changed, verdict, *measured, *costs))
        notes.append(_why(candidate, decision))
    return Table(
        "Lineage",
        (
            "candidate", "parent", "author", "changed", "verdict", "effect [95 %]", "measured on", "tokens/solved",
            "incumbent's",
        ),
        tuple(rows),
        "Changed: F scaffold, T tools, P prompt, E environment. Effect: success of the candidate minus the "
        "incumbent's, paired by task, in percentage points. Tokens per solved task are of the dev split.",
        frozenset({"tokens/solved", "incumbent's"}),
        tuple(notes),
    )  # fmt: skip


def _tokens(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else tokens(interval)


def _why(candidate: Candidate, decision: Decision | None) -> str:
    """What was changed and what for, and why the verdict fell so."""
    parts = [candidate.manifest.why]
    if candidate.changes:
        parts.append(f"changes: {'; '.join(candidate.changes)}")
    if decision is not None:
        parts.append(f"{decision.verdict}: {'; '.join(decision.reasons)}")
        aa, ab = decision.flip_rate_aa, decision.flip_rate_ab
        if aa is not None and ab is not None and aa.point is not None and ab.point is not None:
            parts.append(f"a task flips in {percent(aa)} of the incumbent's own repeats, {percent(ab)} across arms")
    return f"{candidate.name}: " + " | ".join(parts)


def shown_evaluations(store: Store) -> list[Evaluation]:
    """The teacher's evaluation of each harness, in the order of the harnesses: on test where there is one, else dev."""
    students = {m for d in store.all(Distillation) for m in (d.student_model, d.base_model)}
    shown: dict[str, Evaluation] = {}
    for evaluation in store.all(Evaluation):
        if evaluation.model_id in students:
            continue
        known = shown.get(evaluation.harness_id)
        if known is None or SHOWN_FIRST.index(evaluation.purpose) <= SHOWN_FIRST.index(known.purpose):
            shown[evaluation.harness_id] = evaluation
    return list(shown.values())


def channel_table(store: Store, names: dict[str, str]) -> Table:
    """One row per harness and app: what was called, and how often it worked by channel."""
    rows = []
    for evaluation in shown_evaluations(store):
        for row in evaluation.channels:
            calls = row.gui_calls + row.terminal_calls
            share = f"{100 * row.gui_calls / calls:.0f} %" if calls else UNKNOWN
            worked = "; ".join(f"{c} {percent(i)} (n = {i.n})" for c, i in row.success_by_channel.items())
            where = f"{evaluation.split} x{evaluation.attempts}"
            numbers = (str(row.gui_calls), str(row.terminal_calls), share, count(row.tokens))
            rows.append((_name(evaluation.harness_id, names), where, row.app, str(row.rollouts), *numbers, worked))
    return Table(
        "Channels per app",
        (
            "harness",
            "split",
            "app",
            "rollouts",
            "GUI calls",
            "terminal calls",
            "GUI share",
            "tokens",
            "success by channel",
        ),
        tuple(rows),
        f"Played by {teacher_line(store)}. n counts tasks; a rollout over two apps counts in both rows.",
        frozenset({"rollouts", "GUI calls", "terminal calls", "GUI share", "tokens"}),
    )


def _name(harness_id: str, names: dict[str, str]) -> str:
    return names.get(harness_id, harness_id[:8])


def _loss(loss: float | None) -> str:
    return UNKNOWN if loss is None else f"{loss:.3f}"
