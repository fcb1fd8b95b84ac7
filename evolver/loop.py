"""The experiment: propose, race, confirm, decide, distil, until the authors are done or the budget is spent.

Everything is recomputed from the run's records, so the same command resumes a run wherever it was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from devset.task import Split, Task
from evolver.authors.human import enter
from evolver.authors.make import make_authors
from evolver.calibrate import require_fit_judge
from evolver.errors import BudgetSpent, NotReady
from evolver.ground import tasks_of
from evolver.hearing import last_hearing
from evolver.lab import Lab
from evolver.population import population_of
from evolver.race import (
    Grounds,
    dev_success,
    judge,
    record_evaluation,
    start_lineage,
)
from evolver.selfcheck import self_checks
from evolver.stages import require_open, require_teacher_of_stage
from evolver.stops import End, Stop, preflight, reached
from evolver.students import Distil, distil_in_child, ensure_students, measure_gaps, once_each, orders_of
from evolver.turns import Seat, next_candidate

Tasks = Callable[[Split, int | None], Sequence[Task]]


async def run(lab: Lab, *, tasks: Tasks | None = None, distil: Distil = distil_in_child) -> End:
    """Runs or resumes the experiment of `lab`. Raises UsageError for wrong input, before anything is spent on it."""
    require_open(lab.store)
    require_teacher_of_stage(lab.store)
    tasks, distil = tasks or partial(tasks_of, lab.store, why="gap"), once_each(distil)
    limits = lab.config.tasks
    grounds = Grounds(dev=tasks("dev", limits.dev), select=tasks("select", limits.select))
    require_fit_judge(lab, [*grounds.dev, *grounds.select])
    authors = make_authors(lab, grounds.dev, grounds.select)
    seats = [Seat(section, author) for section, author in zip(lab.config.authors, authors, strict=True)]
    pairs = [(enter(lab.library, a), enter(lab.library, b)) for a, b in lab.config.gap.pairs]
    try:
        preflight(lab, grounds)
        success = await start_lineage(lab, grounds.dev)
        preflight(lab, grounds)
        await self_checks(lab, population_of(lab.store).lineage[0], grounds.dev)
        await _follow_promotions(lab, distil)
        while True:
            end = reached(lab, success, grounds)
            if end is not None and end.reason is Stop.TARGET:
                break
            candidate = None if end else await next_candidate(lab, seats)
            decision = await (last_hearing(lab, grounds) if candidate is None else judge(lab, candidate, grounds))
            if decision is None:
                break
            for harness_id in (decision.candidate_harness, decision.incumbent_harness):
                record_evaluation(lab, harness_id, "race", grounds.dev)
                record_evaluation(lab, harness_id, "confirm", grounds.select)
            lab.record(decision)
            await _follow_promotions(lab, distil)
            success = dev_success(lab)
        sealed = tasks("test", limits.test) if pairs else ()
        require_fit_judge(lab, sealed)
        await measure_gaps(lab, pairs, sealed, distil)
    except BudgetSpent as error:
        return End(Stop.BUDGET, str(error))
    except NotReady as error:
        return End(Stop.ERROR, str(error))
    return end or End(
        Stop.AUTHORS_DONE, f"{len(population_of(lab.store).decisions)} candidates decided; no author has another"
    )


async def _follow_promotions(lab: Lab, distil: Distil) -> None:
    """Brings the library and the students up to the recorded decisions: branch, tags, distillations."""
    population = population_of(lab.store)
    for number, decision in enumerate(population.promotions, start=1):
        tag = f"{lab.config.lineage}-{number}"
        lab.library.tag(decision.candidate_harness, tag, f"promoted by {decision.id}")
    if population.incumbent is not None:
        lab.library.advance(lab.config.lineage, population.incumbent)
    chosen = population.lineage[1 : 1 + lab.config.distil.max_promotions]
    await ensure_students(lab, orders_of(lab, chosen), distil)
