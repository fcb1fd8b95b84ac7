"""Tables of a gap experiment: what it takes, the gaps and all pairs, crossed play, learnability and what it told."""

from __future__ import annotations

from collections.abc import Sequence

from evolver.crossed import holm
from evolver.learnable import FEWEST_ARMS, Learned, Prediction, learned, predictions
from evolver.phrasing import UNKNOWN, p_value, percent, pp, ratio
from evolver.records import Crossing, Effect, Equal, Gap
from evolver.store import Store
from evolver.tables import Table

NAMES = {
    "loss_before": "loss, untrained",
    "loss_after": "loss, trained",
    "task_loss": "loss of a whole task",
    "tokens_per_turn": "tokens a turn",
    "turns_per_task": "turns a task",
    "switches_per_task": "channel switches a task",
}


def gap_tables(store: Store, names: dict[str, str]) -> list[Table]:
    """What a run's gaps came to: each of them, all pairs by variant, crossed play, learnability."""
    gaps = newest_gaps(store)
    variants = dict.fromkeys(gap.equal for gap in gaps)
    return [
        *(gap_table(gap, names) for gap in gaps),
        *(table for equal in variants for table in pairs_table([g for g in gaps if g.equal == equal], names)),
        *crossing_tables(store, names),
        *learnability_tables(learned(store), names),
    ]


def newest_gaps(store: Store) -> list[Gap]:
    """The last measurement of each pair and variant."""
    return list({(gap.harness_a, gap.harness_b, gap.equal): gap for gap in store.all(Gap)}.values())


def gap_table(gap: Gap, names: dict[str, str]) -> Table:
    """Teacher and student under A and B, with the gap B minus A, the controls and what training added."""
    a, b = _name(gap.harness_a, names), _name(gap.harness_b, names)
    blank = ""
    rows = (
        ("teacher", percent(gap.teacher_a), percent(gap.teacher_b), pp(gap.teacher_gap)),
        ("student", percent(gap.student_a), percent(gap.student_b), pp(gap.student_gap)),
        ("untrained control", percent(gap.control_a), percent(gap.control_b), blank),
        ("student minus control", pp(gap.lift_a), pp(gap.lift_b), blank),
        ("amplification", blank, blank, amplification_text(gap)),
    )
    return Table(
        f"Teacher and student gap: {a} (A) and {b} (B){variant_text(gap.equal)}",
        ("", f"A = {a}", f"B = {b}", "gap B - A"),
        rows,
        gap_caption(gap),
    )


def amplification_text(gap: Gap) -> str:
    """Student gap / teacher gap with its interval, or why there is none."""
    low, high = gap.teacher_gap.low, gap.teacher_gap.high
    if gap.amplification.point is None and low is not None and high is not None and low <= 0 <= high:
        return "not defined: teacher gap's interval includes 0"
    return ratio(gap.amplification)


def pairs_table(gaps: Sequence[Gap], names: dict[str, str]) -> list[Table]:
    """The student gaps of all pairs with p-values adjusted for their number (Holm); nothing for fewer than two pairs.

    An A/A arm is shown beside them and adjusts nothing.
    """
    tested = [(gap, gap.student_p) for gap in gaps if gap.student_p is not None]
    if len(tested) < 2:
        return []
    adjusted = iter(holm([p for gap, p in tested if gap.harness_a != gap.harness_b]))
    rows = tuple(
        (
            f"{_name(gap.harness_b, names)} - {_name(gap.harness_a, names)}",
            pp(gap.student_gap),
            f"{p:.4f}",
            "A/A" if gap.harness_a == gap.harness_b else f"{next(adjusted):.4f}",
        )
        for gap, p in tested
    )
    return [
        Table(
            f"Student gaps of all pairs{variant_text(tested[0][0].equal)}",
            ("pair", "student gap", "p", "p, adjusted (Holm)"),
            rows,
        )
    ]


def gap_caption(gap: Gap) -> str:
    """n, seeds, how the intervals were made, and what they leave out."""
    seeds = ", ".join(str(seed) for seed in gap.student_seeds) or "none"
    notes = "".join(f" {note[:1].upper()}{note[1:]}." for note in gap.notes)
    return (
        f"{gap.n_tasks} test tasks, scored in every arm; student seeds: {seeds}. "
        f"Intervals: {gap.student_gap.method}.{_tests(gap)}{notes}"
    )


def _tests(gap: Gap) -> str:
    if gap.student_p is None:
        return ""
    look = "" if gap.look is None else f" at look {gap.look + 1}"
    found = "found" if gap.found else "not found"
    said = f" Student gap: {p_value(gap.student_p)}, {found}{look} (level {gap.level:.3g})."
    each = ", ".join(f"{test.only_b}:{test.only_a} {p_value(test.p)}" for test in gap.mcnemar)
    return f"{said} McNemar per seed, blind to training noise (only B solves : only A): {each}." if each else said


def variant_text(equal: Equal | None) -> str:
    """What a title adds for a variant."""
    return "" if equal is None else f", equal {equal}"


def _name(harness_id: str, names: dict[str, str]) -> str:
    return names.get(harness_id, harness_id[:8])


def crossing_tables(store: Store, names: dict[str, str]) -> list[Table]:
    """The newest 2 x 2 of each pair."""
    newest = {(c.harness_a, c.harness_b, c.equal): c for c in store.all(Crossing)}
    return [_crossing_table(one, names) for one in newest.values()]


def _crossing_table(one: Crossing, names: dict[str, str]) -> Table:
    a, b = _name(one.harness_a, names), _name(one.harness_b, names)
    seeds = ", ".join(map(str, one.student_seeds))
    return Table(
        f"Students of {a} and {b}, each under both",
        ("taught under", f"plays {a}", f"plays {b}"),
        (
            (a, percent(one.aa), percent(one.ab)),
            (b, percent(one.ba), percent(one.bb)),
            ("nobody (untrained)", percent(one.control_a), percent(one.control_b)),
        ),
        f"{one.n_tasks} test tasks, seeds {seeds}. Being taught under {b}: {_effect(one.trained)}; playing under {b}: "
        f"{_effect(one.played)}; playing under one's own: {_effect(one.home)}.",
    )


def _effect(effect: Effect) -> str:
    return pp(effect.size) + (", one seed: no test" if effect.p is None else f", {p_value(effect.p)}")


def learnability_tables(arms: Sequence[Learned], names: dict[str, str]) -> list[Table]:
    """The figures of each harness, and how they rank its students; nothing for a run without any."""
    if not arms:
        return []
    columns = tuple(NAMES.values())
    rows = tuple(
        (_name(arm.harness_id, names), *(_figure(getattr(arm, name)) for name in NAMES),
         UNKNOWN if arm.success is None else f"{100 * arm.success:.1f} %")
        for arm in arms
    )  # fmt: skip
    told = predictions(arms)
    return [
        Table(
            "Learnability",
            ("harness", *columns, "students' success"),
            rows,
            "Of held-out turns of the teacher (its successful test rollouts), in the student's tokens; losses in nats.",
            frozenset({*columns, "students' success"}),
        ),
        Table(
            "How well learnability told which students do better",
            ("figure", "harnesses", "rank correlation", "p", "pairs told right"),
            tuple(map(_prediction, told)),
            "1: the figure ranks harnesses as their students' success does, the smaller the better. p over all orders.",
            frozenset({"harnesses", "rank correlation", "p", "pairs told right"}),
        ),
    ]


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _prediction(one: Prediction) -> tuple[str, ...]:
    unranked = f"none: fewer than {FEWEST_ARMS} harnesses" if one.n < FEWEST_ARMS else "none: all alike"
    rho = unranked if one.rho is None else f"{one.rho:+.2f}"
    p = UNKNOWN if one.p is None else f"{one.p:.2f}"
    return NAMES[one.figure], str(one.n), rho, p, f"{one.right} of {one.pairs}"
