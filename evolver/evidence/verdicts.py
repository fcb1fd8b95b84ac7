"""What was tried before: predictions beside what came, edits of each component, near misses and rejected ideas.

Every effect is computed anew from the attempts on dev, never taken from what was written down when a verdict fell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolver.compare import Comparison
from evolver.evidence.costs import gui_shares
from evolver.evidence.material import Material, mean
from evolver.evidence.sheet import Cell, Column, Sheet
from evolver.population import per_task
from evolver.records import Candidate, Decision, FailedProposal, Flip, Manifest

MOVED = 0.5  # a task flipped when its share of solved attempts changed by at least this
MOST = 60  # candidates that are told of, the newest


@dataclass(frozen=True)
class Tried:
    """A decided candidate with its effect on dev, or why there is none: `effect` against what it was raced against,
    `edit` against the parent that was changed (drawn from the archive, it need not be the incumbent)."""

    candidate: Candidate
    decision: Decision
    effect: Comparison | str
    edit: Comparison | str

    @property
    def parent(self) -> str:
        return self.candidate.parents[0] if self.candidate.parents else self.decision.incumbent_harness


def tried(seen: Material) -> list[Tried]:
    """The newest `MOST` decided candidates, the newest first, without those that only test the rule."""
    by_id = {c.id: c for c in seen.population.candidates if not c.hidden_neutral}
    decided = [d for d in reversed(seen.population.decisions) if d.candidate_id in by_id][:MOST]
    found = []
    for decision in decided:
        made, raced = by_id[decision.candidate_id], decision.incumbent_harness
        effect = seen.versus(decision.candidate_harness, raced)
        same = raced in made.parents[:1] or not made.parents
        edit = effect if same else seen.versus(decision.candidate_harness, made.parents[0])
        found.append(Tried(made, decision, effect, edit))
    return found


# --- predictions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Foretold:
    """One prediction: with `probability`, the task flips (or regresses, as `what` says); whether it did."""

    what: str
    task: str
    probability: float
    came: bool


def outcomes(seen: Material, candidate: Candidate) -> dict[str, float]:
    """Task id → change of its share of solved attempts from the parent to the candidate, where both have any."""
    before = seen.rates(candidate.parents[0]) if candidate.parents else {}
    after = seen.rates(candidate.harness_id)
    return {task: after[task] - before[task] for task in sorted(before.keys() & after.keys())}


def foretold(seen: Material, candidate: Candidate) -> list[Foretold]:
    """The candidate's predictions about tasks that both it and its parent have scored attempts at."""
    return borne_out(candidate.manifest, outcomes(seen, candidate))


def borne_out(manifest: Manifest, moved: Mapping[str, float]) -> list[Foretold]:
    """The predictions about the tasks of `moved`: task id → change of its share of solved attempts."""

    def of(flips: Sequence[Flip], what: str, sign: int) -> list[Foretold]:
        return [
            Foretold(what, flip.task_id, flip.probability, sign * moved[flip.task_id] >= MOVED)
            for flip in flips
            if flip.task_id in moved
        ]

    return of(manifest.predicted_flips, "flip", 1) + of(manifest.predicted_regressions, "regression", -1)


def brier(found: Sequence[Foretold]) -> float | None:
    """Mean squared distance of probability and outcome: 0 is perfect, 0.25 is what always saying 50 % earns."""
    return mean([(one.probability - one.came) ** 2 for one in found])


def scoreboard(seen: Material, done: Sequence[Tried]) -> Sheet:
    """One row an author: what it foretold, how much of it came, what came that it did not foretell."""
    by_author: dict[str, list[Candidate]] = defaultdict(list)
    for one in done:
        by_author[one.candidate.author].append(one.candidate)
    rows = [_author_row(seen, author, made) for author, made in sorted(by_author.items())]
    columns = (
        Column("author", "author"), Column("candidates", "candidates", "count"),
        Column("predictions", "predictions", "count"), Column("brier", "Brier", "number"),
        Column("brier_base", "Brier of the base rate", "number"), Column("flips", "flips foretold", "count"),
        Column("flips_came", "came", "count"), Column("regressions", "regressions foretold", "count"),
        Column("regressions_came", "came", "count"),
        Column("regressions_missed", "regressions not foretold", "count"),
        Column("token_error", "token change, off by", "pp"), Column("channel_error", "GUI share, off by", "pp"),
    )  # fmt: skip
    text = (
        f"A task flipped (regressed) when the candidate solved it at least {100 * MOVED:.0f} % more (less) often than "
        "its parent. Brier: 0 is perfect, 0.25 is what always saying 50 % earns; one above the base rate's knows less "
        "than the average does."
    )
    return Sheet("predictions", "Prediction scoreboard", text, columns, rows)


def _author_row(seen: Material, author: str, made: Sequence[Candidate]) -> tuple[Cell, ...]:
    found = [one for candidate in made for one in foretold(seen, candidate)]
    flips, losses = ([one for one in found if one.what == what] for what in ("flip", "regression"))
    base = sum(one.came for one in found) / len(found) if found else 0.0
    missed = 0
    for candidate in made:
        known = {flip.task_id for flip in candidate.manifest.predicted_regressions}
        missed += sum(change <= -MOVED and task not in known for task, change in outcomes(seen, candidate).items())
    return (
        seen.told(author), len(made), len(found), brier(found),
        base * (1 - base) if found else None,
        len(flips), sum(one.came for one in flips), len(losses), sum(one.came for one in losses), missed,
        mean([e for c in made if (e := _token_error(seen, c)) is not None]),
        mean([e for c in made for e in _channel_errors(seen, c)]),
    )  # fmt: skip


def _token_error(seen: Material, candidate: Candidate) -> float | None:
    """Expected minus measured change of tokens (share of the parent's, over tasks both were scored on)."""
    expected = candidate.manifest.expected_token_change
    if expected is None or not candidate.parents:
        return None
    before, after = (
        per_task([c for c in seen.cards.get(h, []) if c.success is not None], lambda card: card.tokens)
        for h in (candidate.parents[0], candidate.harness_id)
    )
    both = before.keys() & after.keys()
    spent = sum(before[task] for task in both)
    return abs(expected - (sum(after[task] for task in both) / spent - 1)) if spent else None


def _channel_errors(seen: Material, candidate: Candidate) -> list[float]:
    if not (candidate.parents and candidate.manifest.expected_channel_change):
        return []
    before, after = gui_shares(seen, candidate.parents[0]), gui_shares(seen, candidate.harness_id)
    expected = candidate.manifest.expected_channel_change  # of the terminal's share, which is the rest
    return [abs(expected[app] - (before[app] - after[app])) for app in expected if app in before and app in after]


def predictions(seen: Material, done: Sequence[Tried]) -> Sheet:
    """Each prediction beside what came, the surest of the newest candidates first."""
    rows = [
        (
            seen.told(one.candidate.name),
            seen.told(one.candidate.author),
            p.what,
            p.task,
            p.probability,
            "came" if p.came else "did not come",
        )
        for one in done
        for p in sorted(foretold(seen, one.candidate), key=lambda p: -p.probability)
    ]
    columns = (
        Column("candidate", "candidate"), Column("author", "author"), Column("what", "foretold"),
        Column("task", "task"), Column("probability", "probability", "percent"), Column("outcome", "outcome"),
    )  # fmt: skip
    return Sheet("predicted", "Predictions one by one", "", columns, rows)


# --- what was changed, and what came of it ---------------------------------------------------------------------------

_EFFECT = (
    Column("effect", "effect on dev [95 %]", "pp"), Column("saving", "tokens saved [95 %]", "percent"),
    Column("tasks", "tasks", "count"), Column("of", "of", "count"),
)  # fmt: skip
_COMPONENTS = {"scaffold": "F", "files": "T", "tools": "T", "prompt": "P", "environment": "E"}


def _effect(found: Comparison | str, asked: int) -> tuple[Cell, ...]:
    if isinstance(found, str):
        return (None, None, 0, asked)
    return (found.effect, found.saving, found.tasks, found.n_tasks)


def _point(one: Tried) -> float:
    effect = one.effect
    return -1.0 if isinstance(effect, str) or effect.effect.point is None else effect.effect.point


def ablations(seen: Material, done: Sequence[Tried]) -> Sheet:
    """One row a change of a candidate; changes that came alone say most and come first."""
    rows: list[tuple[int, tuple[Cell, ...]]] = []
    for one in done:
        for change in one.candidate.changes:
            component = _COMPONENTS.get(change.partition(".")[0].partition(":")[0], "?")
            with_it = len(one.candidate.changes) - 1
            row = (
                component, _kind(change), seen.told(change), with_it, one.decision.verdict,
                *_effect(one.edit, len(seen.tasks)), seen.told(one.candidate.name), seen.name(one.parent),
            )  # fmt: skip
            rows.append((with_it, row))
    columns = (
        Column("component", "part"), Column("kind", "kind"), Column("change", "change"),
        Column("with_others", "with others", "count"), Column("verdict", "verdict"), *_EFFECT,
        Column("candidate", "candidate"), Column("parent", "of parent"),
    )  # fmt: skip
    text = (
        "What adding, removing or changing a part of the harness did (F scaffold, T tools, P prompt, E environment), "
        "candidate against the parent that was changed. Where a change came with others, the effect is that of all. "
        "A removal that is not worse and saves tokens is promoted as readily as an addition."
    )
    ordered = [row for _, row in sorted(rows, key=lambda made: made[0])]
    return Sheet("ablations", "What each change did", text, columns, ordered)


def _kind(change: str) -> str:
    """Added, removed or changed, as `harnesses.diff` words it."""
    _, _, value = change.partition(": ")
    return {"+": "added", "-": "removed"}.get(value[:1] if value[1:2] == " " else "", "changed")


def near_misses(seen: Material, done: Sequence[Tried]) -> Sheet:
    """Candidates that were kept off or left undecided, the largest effect first."""
    found = [one for one in done if one.decision.verdict in ("keep", "inconclusive")]
    text = (
        "Not promoted, and not shown to be worse. The largest of many effects is partly luck: expect less of it on "
        "fresh attempts. Two that mend different tasks may be worth joining."
    )
    return _listed("near_misses", "Near misses", text, seen, sorted(found, key=_point, reverse=True))


def rejected(seen: Material, done: Sequence[Tried]) -> Sheet:
    """Candidates that were shown to be worse or dearer, or did not run; the newest first."""
    found = [one for one in done if one.decision.verdict == "reject"]
    return _listed("rejected", "Rejected ideas", "Do not propose these again as they are.", seen, found)


def refused(seen: Material) -> Sheet:
    """Proposals that never became a candidate, the newest first."""
    rows: list[tuple[Cell, ...]] = [
        (seen.told(one.author), seen.name(one.parent), seen.told(one.why), tuple(seen.told(c) for c in one.changes),
         tuple(seen.told(reason) for reason in one.reasons))
        for one in reversed(seen.store.all(FailedProposal)[-MOST:])
    ]  # fmt: skip
    columns = (
        Column("author", "author"), Column("parent", "parent"), Column("why", "why it was proposed"),
        Column("changes", "changes"), Column("reasons", "why it was refused"),
    )  # fmt: skip
    return Sheet("refused", "Refused proposals", "They were paid for and never raced.", columns, rows)


def promoted(seen: Material, done: Sequence[Tried]) -> Sheet:
    found = [one for one in done if one.decision.verdict == "promote"]
    return _listed("promoted", "Promoted", "The steps of the lineage so far, the newest first.", seen, found)


def _listed(key: str, title: str, text: str, seen: Material, found: Sequence[Tried]) -> Sheet:
    rows = [
        (
            seen.told(one.candidate.name), seen.told(one.candidate.author), seen.name(one.decision.incumbent_harness),
            one.decision.verdict, *_effect(one.effect, len(seen.tasks)), one.decision.confirmation,
            seen.told(one.candidate.manifest.why),
            tuple(seen.told(change) for change in one.candidate.changes),
            seen.told("; ".join(_reasons(one))),
        )
        for one in found
    ]  # fmt: skip
    columns = (
        Column("candidate", "candidate"), Column("author", "author"), Column("against", "against"),
        Column("verdict", "verdict"), *_EFFECT,
        Column("confirmed", "effect on select [95 %]", "pp"), Column("why", "why it was proposed"),
        Column("changes", "changes"), Column("reasons", "why the verdict"),
    )  # fmt: skip
    return Sheet(key, title, text, columns, rows)


def _reasons(one: Tried) -> list[str]:
    """The last reason says why; a string instead of an effect says why there is none. Earlier ones are figures."""
    last = [one.decision.reasons[-1]] if one.decision.reasons else []
    return [*last, f"no effect: {one.effect}"] if isinstance(one.effect, str) else last
