"""Lets a forged set in by a sample: some of its tasks go through the whole gate, and what they say holds for the rest.

The sample takes every skill once before any twice. A task that the gate refuses takes all tasks of its template with
it, and a set of whose sample too many are refused is not let in at all. What was not in the sample is admitted as
unproven: its rules were checked, its skills were run in others of the sample, itself it was not.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from devset.forge.sets import Row
from evolver.admission import Admission, read_admissions
from evolver.composed import Proof, admission_of
from evolver.errors import UsageError
from evolver.intervals import wilson
from evolver.records import Interval

WORST = 0.1  # a set of whose sample a larger share is refused is not let in


@dataclass(frozen=True)
class Sampled:
    """What the sample says of a set: `rate` is the share of its tasks that went through the gate, `refused` the share
    of those that it refused, with its interval. `lost` failed on our side and says nothing."""

    tasks: int
    sample: int
    rate: float
    admitted: int
    proven: int
    quarantined: int
    refused: Interval
    lost: int
    skills: int
    sampled_skills: int
    let_in: bool

    def line(self) -> str:
        share = "unknown" if self.refused.point is None else f"{self.refused.point:.1%}"
        high = "" if self.refused.high is None else f" (at most {self.refused.high:.1%})"
        return (
            f"{self.admitted:,} of {self.tasks:,} admitted, {self.proven:,} of them proven, {self.quarantined:,} "
            f"quarantined; sampled {self.sample:,} ({self.rate:.2%}), {share} refused{high}"
        )


def sample_of(rows: Sequence[Row], n: int, seed: int = 0) -> list[Row]:
    """`n` rows in a fixed order of which every beginning is a sample too: the skill that was sampled least comes
    next."""
    order = list(rows)
    Random(f"sample/{seed}").shuffle(order)
    by_skill: dict[str, list[Row]] = {}
    for row in order:
        for skill in row.skills:
            by_skill.setdefault(skill, []).append(row)
    rank = {skill: at for at, skill in enumerate(by_skill)}
    seen, taken = Counter[str](), dict[str, Row]()
    while len(taken) < min(n, len(rows)):
        skill = min((s for s, left in by_skill.items() if left), key=lambda s: (seen[s], rank[s]))
        row = by_skill[skill].pop()
        if row.id not in taken:
            taken[row.id] = row
            seen.update(row.skills)
    return list(taken.values())


def verdicts(rows: Sequence[Row], proofs: Iterable[Proof]) -> list[Admission]:
    """A verdict per row: its own proof's, or what the sample says of its template."""
    known = {proof.task_id: proof for proof in proofs if not proof.lost}
    paths = {row.id: row.path for row in rows}
    bad: dict[str, str] = {}
    for proof in known.values():
        if not proof.admitted and proof.task_id in paths:
            bad.setdefault(paths[proof.task_id], f"{proof.task_id}, of the same template, was refused")
    return [_verdict(row, known.get(row.id), bad.get(row.path)) for row in rows]


def _verdict(row: Row, proof: Proof | None, against: str | None) -> Admission:
    if proof is not None and proof.task_hash == row.hash:
        return admission_of(proof)
    return Admission(
        task_id=row.id,
        task_hash=row.hash,
        admitted=against is None,
        proven=False,
        crashed=False,
        lost=False,
        controls=None,
        reasons=(against,) if against else (),
        seconds=0.0,
    )


def kept_out(given: Sequence[Admission], refused: Interval) -> list[Admission]:
    """The same verdicts with none admitted; `refused` is the share of the sample that the gate refused."""
    share = (
        "nothing is known of its sample" if refused.point is None else f"{refused.point:.1%} of its sample are refused"
    )
    changes = {"admitted": False, "reasons": (f"its set is not let in: {share}",)}
    return [one.model_copy(update=changes) if one.admitted else one for one in given]


def sampled(rows: Sequence[Row], proofs: Sequence[Proof], given: Sequence[Admission]) -> Sampled:
    """The sample's figures; `given` are the verdicts of all rows."""
    known = [proof for proof in proofs if not proof.lost]
    held = sum(not proof.admitted for proof in known)
    refused = wilson(held, len(known), "sampled tasks")
    return Sampled(
        tasks=len(rows),
        sample=len(known),
        rate=len(known) / len(rows) if rows else 0.0,
        admitted=sum(one.admitted for one in given),
        proven=sum(one.admitted and one.proven for one in given),
        quarantined=sum(not one.admitted for one in given),
        refused=refused,
        lost=len(proofs) - len(known),
        skills=len({skill for row in rows for skill in row.skills}),
        sampled_skills=len({skill for proof in known for skill in proof.skills}),
        let_in=refused.point is not None and refused.point <= WORST,
    )


def write_verdicts(path: Path, given: Sequence[Admission]) -> None:
    """Adds the verdicts that the log does not have yet, all in one go and durably."""
    known: Mapping[str, Admission] = read_admissions(path)
    lines = [one.model_dump_json() + "\n" for one in given if known.get(one.task_id) != one]
    if not lines:
        return
    try:
        data = path.read_bytes()[-1:] if path.is_file() else b"\n"
        with path.open("a", encoding="utf-8") as log:
            log.write(("" if data == b"\n" else "\n") + "".join(lines))
            log.flush()
            os.fsync(log.fileno())
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror}") from error
