"""Named steps of a lineage (alpha, beta, ...), and the end after which a run takes no further candidate.

A change of the teacher model is a step of its own: what was measured before it and what is measured after it are never
compared, and the incumbent starts anew under the new teacher.
"""

from __future__ import annotations

import time

from evolver.errors import UsageError
from evolver.population import population_of
from evolver.records import Frozen, Stage
from evolver.store import Store
from harnesses.library import NAME, Library, UnknownHarness

TAG = "stage-"


def require_open(store: Store) -> None:
    """Raises UsageError once the final comparison of the run is fixed."""
    if store.all(Frozen):
        raise UsageError(
            f"{store.path} is frozen: its final comparison was fixed by `evolver finalize`, and a candidate after that "
            "would have seen its own exam; start a new run"
        )


def require_teacher_of_stage(store: Store) -> None:
    """Raises UsageError when the run's newest stage names another teacher than its config."""
    stages = store.all(Stage)
    if stages and stages[-1].teacher != store.config.teacher_id:
        raise UsageError(
            f"stage {stages[-1].name!r} is played by teacher {stages[-1].teacher!r}, the config has "
            f"{store.config.teacher_id!r}: change [teacher] in the config, or record the next stage"
        )


def enter_stage(
    store: Store, library: Library, name: str, why: str, *, harness: str | None = None, teacher: str | None = None
) -> Stage:
    """Records a step and tags its harness; the same step again changes nothing.

    `harness` is a name or id of the lineage (its incumbent if absent), `teacher` a model's id (the one before if
    absent). Raises UsageError for a harness outside the lineage, a step that changes both or nothing, and a taken name.
    """
    require_open(store)
    if not NAME.fullmatch(TAG + name):
        raise UsageError(f"stage {name!r}: expected lower-case letters, digits, '.', '_' or '-'")
    if not why.strip():
        raise UsageError(f"stage {name!r} needs a reason: --why 'what it stands for'")
    stages = store.all(Stage)
    harness_id = _of_lineage(store, library, harness)
    known = next((stage for stage in stages if stage.name == name), None)
    if known is not None and harness is None:
        harness_id = known.harness_id
    if teacher is None:
        teacher = known.teacher if known else stages[-1].teacher if stages else store.config.teacher_id
    if known is None:
        stage = _stage(store, name, (harness_id, teacher), why)
        store.append(stage)
    elif (known.harness_id, known.teacher) != (harness_id, teacher):
        raise UsageError(f"stage {name!r} is {known.harness_id[:12]} played by {known.teacher}: choose another name")
    else:
        stage = known
    library.tag(stage.harness_id, TAG + name, f"{stage.kind} stage {name}: {stage.why}")
    return stage


def _stage(store: Store, name: str, now: tuple[str, str], why: str) -> Stage:
    """The step to `now` = (harness id, teacher)."""
    stages = store.all(Stage)
    before = (stages[-1].harness_id, stages[-1].teacher) if stages else ("", store.config.teacher_id)
    if now == before:
        raise UsageError(f"stage {name!r} changes neither the harness nor the teacher of stage {stages[-1].name!r}")
    swapped = now[1] != before[1]
    if swapped and stages and now[0] != before[0]:
        raise UsageError(f"stage {name!r} changes harness and teacher at once: make it two stages")
    return Stage(
        id=f"stage-{len(stages) + 1}",
        name=name,
        kind="teacher" if swapped else "harness",
        harness_id=now[0],
        teacher=now[1],
        before_harness=before[0],
        before_teacher=before[1] if stages else "",
        why=why.strip(),
        at=time.time(),
    )


def _of_lineage(store: Store, library: Library, asked: str | None) -> str:
    population = population_of(store)
    if population.incumbent is None:
        raise UsageError(f"{store.path} has no lineage yet: run it first")
    try:
        found = population.incumbent if asked is None else library.resolve(asked)
    except UnknownHarness as error:
        raise UsageError(str(error)) from error
    if found not in population.lineage:
        raise UsageError(
            f"harness {asked!r} ({found[:12]}) is not in the lineage: a stage is its root or a promoted one"
        )
    return found
