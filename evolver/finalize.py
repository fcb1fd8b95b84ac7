"""Opens `test` once: the frozen harness against the original and the baselines, on attempts that decided nothing.

What will be played is fixed in a record before any of it is; after that the run takes no further candidate. The same
command resumes it, and shows the first result ever after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from devset.task import Split, Task
from evolver.audit import Opening
from evolver.baselines import ORIGINAL, RANDOM, RANDOM_AUTHOR, WINNER, best_of, matched
from evolver.calibrate import require_fit_judge
from evolver.compare import Arms, compare, covered, flip_rates
from evolver.config import RaceConfig
from evolver.disk import make_folder, on_disk, replace
from evolver.errors import UsageError
from evolver.ground import tasks_of, with_imported
from evolver.hearing import hearing_due
from evolver.intervals import DIFFERENCE, mcnemar_p, mean_interval, nothing, success_interval
from evolver.lab import Attempt, Lab
from evolver.opening import own_tasks
from evolver.population import final_cards, mean_success, per_task, population_of, success_value
from evolver.race import dev_cards, interleaved
from evolver.records import Arm, Final, Frozen, Interval, Scorecard
from evolver.score import tasks_hash
from evolver.stages import require_teacher_of_stage
from harnesses.tree import read_archive

WHY = "final"
Tasks = Callable[[Split, int | None], Sequence[Task]]


async def finalize(lab: Lab, *, tasks: Tasks | None = None) -> Final:
    """The final comparison, played where it is not on record yet. Raises UsageError when there is nothing to compare,
    NotReady when too many attempts got no answer, and BudgetSpent when a cap stops it."""
    known = lab.store.all(Final)
    if known:
        return known[-1]
    if population_of(lab.store).incumbent is None:
        raise UsageError(f"{lab.store.path} has no lineage yet: run it first")
    require_teacher_of_stage(lab.store)
    sealed = (tasks or partial(_open_once, lab))("test", lab.config.tasks.test)
    require_fit_judge(lab, sealed)
    frozen = _freeze(lab, sealed)
    _from_archive(lab, frozen)
    cards = await _play(lab, frozen, sealed)
    every = [card for arm in cards.values() for card in arm]
    await lab.require_answers(every, partial(_covered, cards, len(sealed), lab.config.race))
    lab.record(final := _result(lab, frozen, sealed, cards))
    return final


def _open_once(lab: Lab, split: Split, limit: int | None) -> list[Task]:
    """A comparison that goes on after a stop has opened its split already."""
    if any(opening.split == split and opening.why == WHY for opening in lab.store.all(Opening)):
        return with_imported(lab.store, split, own_tasks(lab.store.config, split, limit))
    return tasks_of(lab.store, split, limit, WHY)


def _freeze(lab: Lab, tasks: Sequence[Task]) -> Frozen:
    """Fixes arms, attempts and rule, once."""
    known = lab.store.all(Frozen)
    if known:
        if known[-1].teacher != lab.model.id:
            raise UsageError(
                f"the final comparison is played by {known[-1].teacher!r}, the config has {lab.model.id!r}"
            )
        return known[-1]
    population, rules = population_of(lab.store), lab.config.final
    original, winner = population.lineage[0], population.lineage[-1]
    arms = {ORIGINAL: original} if winner == original else {WINNER: winner, ORIGINAL: original}
    found = _best_random(lab)
    if found is not None and found not in arms.values():
        arms[RANDOM] = found
    ids = {task.id for task in tasks}
    earlier = [c.key for c in lab.store.all(Scorecard) if c.key.purpose == "test" and c.key.task_id in ids]
    numbers = [key.attempt for key in earlier if key.model_id == lab.model.id and key.harness_id in arms.values()]
    frozen = Frozen(
        id="frozen",
        teacher=lab.model.id,
        arms=arms,
        attempts=rules.attempts,
        best_of=min(rules.best_of, matched(dev_cards(lab, winner), dev_cards(lab, original))),
        first=max(numbers, default=-1) + 1,
        alpha=lab.config.race.alpha,
        tag=f"{lab.config.lineage}-final",
        at=time.time(),
    )
    lab.record(frozen)
    return frozen


def _best_random(lab: Lab) -> str | None:
    """The raced candidate of the random author that solved most of dev; None where there is none."""
    population = population_of(lab.store)
    proposed = {c.id for c in population.candidates if c.author == RANDOM_AUTHOR}
    raced = [d.candidate_harness for d in population.decisions if d.candidate_id in proposed and d.looks]
    return max(raced, key=lambda harness_id: mean_success(dev_cards(lab, harness_id)), default=None)


def _from_archive(lab: Lab, frozen: Frozen) -> None:
    """Tags the harness, writes its archive beside the records, and plays what is read back from those bytes."""
    harness_id = frozen.arms.get(WINNER, frozen.arms[ORIGINAL])
    lab.library.tag(harness_id, frozen.tag, "the harness of the final comparison")
    path = lab.store.path / "final" / f"{frozen.tag}.tar"
    with on_disk(path):
        make_folder(path.parent)
        replace(path, lab.library.archive(frozen.tag))
    read = read_archive(path.read_bytes())
    if read.id != harness_id:
        raise UsageError(f"{path} holds harness {read.id[:12]}, {frozen.tag} is {harness_id[:12]}: it is damaged")
    lab.adopt(read)


async def _play(lab: Lab, frozen: Frozen, tasks: Sequence[Task]) -> dict[str, list[Scorecard]]:
    """The cards of each arm, by its name."""
    most = max(frozen.attempts, frozen.best_of)
    numbers = {
        harness_id: range(frozen.first, frozen.first + (most if name == ORIGINAL else frozen.attempts))
        for name, harness_id in frozen.arms.items()
    }
    wanted: list[Attempt] = interleaved(numbers, tasks, "test")
    cards = final_cards(await lab.score(wanted, label="final comparison on test"))
    return {name: [c for c in cards if c.key.harness_id == harness_id] for name, harness_id in frozen.arms.items()}


def _covered(cards: dict[str, list[Scorecard]], n_tasks: int, rules: RaceConfig) -> bool:
    """Whether each arm has enough in common with the original to be compared."""
    arms = [Arms(arm, cards[ORIGINAL], n_tasks, len({card.key.attempt for card in arm})) for arm in cards.values()]
    return all(covered(one, rules) for one in arms)


def _result(lab: Lab, frozen: Frozen, tasks: Sequence[Task], cards: dict[str, list[Scorecard]]) -> Final:
    seed, rules = lab.config.seed, lab.config.race
    original, winner = cards[ORIGINAL], cards.get(WINNER, [])
    found = compare(Arms(winner, original, len(tasks), frozen.attempts), rules, frozen.alpha, seed) if winner else None
    best = best_of(original, frozen.best_of)
    ours = per_task(winner, success_value)
    leads = [ours[task] - best[task] for task in sorted(ours.keys() & best.keys())]
    return Final(
        id="final",
        frozen_id=frozen.id,
        arms=tuple(_arm(name, frozen, found_cards, seed) for name, found_cards in cards.items()),
        effect=found.effect if found else nothing("no candidate was promoted"),
        p_better=found.p_better if found else None,
        mcnemar_p=mcnemar(winner, original, frozen.first) if winner else None,
        best_of=success_interval(list(best.values()), seed),
        k=frozen.best_of,
        against_best_of=mean_interval(leads, seed, DIFFERENCE) if winner else nothing("no candidate was promoted"),
        flip_rate=flip_rates(Arms([], original, len(tasks), frozen.attempts))[0].point,
        n_tasks=len(tasks),
        seed=seed,
        tasks_sha256=tasks_hash(tasks),
        notes=_notes(lab, found is not None and not found.covered),
        at=time.time(),
    )


def mcnemar(ours: Sequence[Scorecard], theirs: Sequence[Scorecard], number: int) -> float | None:
    """Exact two-sided McNemar test of one attempt a task in each arm; None without a common task."""
    first = [{c.key.task_id: c.success for c in arm if c.key.attempt == number} for arm in (ours, theirs)]
    pairs = [(first[0][task], first[1][task]) for task in first[0].keys() & first[1].keys()]
    pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
    won, lost = sum(a is True and not b for a, b in pairs), sum(b is True and not a for a, b in pairs)
    return mcnemar_p(won, lost) if pairs else None


def _arm(name: str, frozen: Frozen, cards: Sequence[Scorecard], seed: int) -> Arm:
    done = [card for card in cards if card.success is not None]
    spent = [card.tokens for card in done if card.tokens is not None]
    return Arm(
        name=name,
        harness_id=frozen.arms[name],
        attempts=len({card.key.attempt for card in cards}),
        n_unscored=len(cards) - len(done),
        success=_success(done, seed),
        tokens_per_attempt=sum(spent) / len(spent) if spent and len(spent) == len(done) else None,
    )


def _success(cards: Sequence[Scorecard], seed: int) -> Interval:
    return success_interval(list(per_task(cards, success_value).values()), seed)


def _notes(lab: Lab, uncovered: bool) -> tuple[str, ...]:
    notes = ["too few attempts are scored in both arms to conclude anything"] if uncovered else []
    before = [o for o in lab.store.all(Opening) if o.split == "test" and o.why != WHY]
    if before:
        why = ", ".join(dict.fromkeys(opening.why for opening in before))
        notes.append(f"test had been opened {len(before)} times before, for: {why}")
    population = population_of(lab.store)
    if population.pending:
        notes.append(f"{len(population.pending)} candidates were never decided")
    if hearing_due(population, lab.model.id):
        small = len(population.waiting(lab.model.id))
        notes.append(f"{small} small leads wait, none of them was heard: the run did not come to its end")
    return tuple(notes)
