"""Plays the attempts that a verdict needs: which arm, which task, which order. What they show is `decide`'s affair."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from devset.task import Task
from evolver.authors.human import enter
from evolver.calibrate import require_fit
from evolver.channels import call_channel
from evolver.compare import Arms, covered, detectable_effect
from evolver.decide import (
    Case,
    against_root,
    confirm_steps,
    decide,
    race_look,
    rejected_early,
    steps,
    undecided,
    waits,
)
from evolver.errors import NotReady, UsageError
from evolver.guards import Facts
from evolver.judging import judges_of
from evolver.lab import Attempt, Lab, tried
from evolver.population import (
    Population,
    by_task,
    cards_of,
    final_cards,
    held,
    mean_success,
    population_of,
    tally,
)
from evolver.records import Candidate, Decision, Evaluation, Look, Manifest, Purpose, Rollout, Scorecard
from evolver.score import Scored, evaluation, evaluation_id
from evolver.spread import Counts, Spread, spread, uneven

SMOKE_TASKS = 2
BROKEN_SHARE = 0.8  # so large a share of failed tool calls, or of blank replies, is no agent's doing
FEWEST_SEEN = 20  # tool calls, or replies, before that is judged


@dataclass(frozen=True)
class Grounds:
    """The tasks that harnesses compete on."""

    dev: Sequence[Task]
    select: Sequence[Task]


Numbers = range | Mapping[str, range]  # of attempts at each task, or by task id


def interleaved(arms: Mapping[str, Numbers], tasks: Sequence[Task], purpose: Purpose) -> list[Attempt]:
    """Each arm's attempts side by side, task by task, and the arm that goes first alternates: drift favours neither."""
    numbers = {
        task.id: [(arm, given if isinstance(given, range) else given[task.id]) for arm, given in arms.items()]
        for task in tasks
    }
    turns = max((len(given) for both in numbers.values() for _, given in both), default=0)
    return [
        Attempt(harness_id, task, purpose, given[turn])
        for turn in range(turns)
        for position, task in enumerate(tasks)
        for harness_id, given in (numbers[task.id] if (position + turn) % 2 == 0 else reversed(numbers[task.id]))
        if turn < len(given)
    ]


async def unbuildable(lab: Lab, harness_id: str) -> str | None:
    """Why the machine that a harness asks for can't be built (a package that does not exist); None when it can."""
    try:
        await lab.sandboxes.prepare(lab.harness(harness_id).environment)
    except UsageError as error:
        return f"its environment can't be built: {error}"
    return None


async def smoke(lab: Lab, harness_id: str, tasks: Sequence[Task]) -> str | None:
    """What keeps a harness from running at all, found in its first attempts; None when it runs.

    Raises NotReady when it is the model that does not answer, and not the harness that gets no answers.
    """
    first = [Attempt(harness_id, task, "race", 0) for task in tasks[:SMOKE_TASKS]]
    cards = await lab.score(first, label=f"smoke {harness_id[:12]}")
    errors = [card.error for card in cards if card.error is not None]
    if all(card.success is None for card in cards):
        await lab.require_answers(cards, lambda: False)
        said = f": {errors[0].kind}: {errors[0].message}" if errors else ""
        return f"smoke test: no verdict in {len(cards)} attempts{said}"
    ran = {card.rollout_id for card in cards}
    rollouts = [rollout for rollout in lab.store.all(Rollout) if rollout.id in ran]
    if not any(turn.completion.calls for rollout in rollouts for turn in rollout.turns):
        return f"smoke test: not one tool call in {len(cards)} attempts"
    return None


async def start_lineage(lab: Lab, dev: Sequence[Task]) -> float:
    """The root: recorded, tried out, evaluated. Returns the incumbent's success on dev (0..1).

    Raises UsageError when the root does not run, or leaves nothing to learn on dev.
    """
    root = enter(lab.library, lab.config.root)
    if population_of(lab.store).root is None:
        lab.record(
            Candidate(
                id=f"cand-{root[:12]}", name=Path(lab.config.root).name, harness_id=root, parents=(), author="root",
                components=(), changes=(), manifest=Manifest(why="the root of the lineage"), proposed_at=time.time(),
            )
        )  # fmt: skip
    fault = await smoke(lab, root, dev)
    if fault is not None:
        raise UsageError(f"the root harness {lab.config.root!r} does not run: {fault}")
    started = time.time()
    # After a change of teacher the incumbent has nothing to its name.
    standing = dict.fromkeys((root, population_of(lab.store).incumbent or root))
    await lab.score([Attempt(h, task, "race", 0) for h in standing for task in dev], label=f"{lab.config.root} on dev")
    _trip([r for r in _rollouts(lab, root) if r.started_at >= started])
    record_evaluation(lab, root, "race", dev, attempts=1)
    success = dev_success(lab)
    rules = lab.config.race
    if not population_of(lab.store).decisions and success > rules.saturation:  # later it has other attempts
        least = detectable_effect(len(dev), rules.attempts[-1], rules.screen_alpha)
        raise UsageError(
            f"root {lab.config.root!r} solves {100 * success:.1f} % of dev, above race.saturation: "
            f"nothing is left to learn there, where {len(dev)} tasks show no lead below about {100 * least:.0f} pp; "
            "take harder tasks or a weaker root"
        )
    return success


async def judge(lab: Lab, candidate: Candidate, grounds: Grounds) -> Decision:
    """Races the candidate against the incumbent and, when it passes by enough, confirms it on fresh attempts.

    Raises NotReady when the endpoint leaves too much unanswered to decide, or the incumbent fails wholesale.
    """
    population, rules = population_of(lab.store), lab.config.race
    incumbent = population.incumbent or ""
    fault = await unbuildable(lab, candidate.harness_id) or await smoke(lab, candidate.harness_id, grounds.dev)
    if fault is not None:
        return rejected_early(candidate, incumbent, fault, time.time())
    case = await _raced(lab, candidate, population, grounds.dev)
    if case.looks[-1].verdict == "pass" and not waits(case.race, rules, case.looks[-1].alpha):
        case = await confirm(lab, case, grounds)
    return await settle(lab, case, grounds)


async def _raced(lab: Lab, candidate: Candidate, population: Population, dev: Sequence[Task]) -> Case:
    """Plays the looks until one decides. What each look asks for follows from settled attempts and the looks before."""
    rules, seed = lab.config.race, lab.config.seed
    incumbent, challenger = population.incumbent or "", candidate.harness_id
    looks, asked = list[Look](), list[Scorecard]()
    plan = steps(rules, population.settled_attempts(incumbent, lab.model.id))
    names = [task.id for task in dev]
    made = Spread(dict.fromkeys(names, 0), population.settled_spread(incumbent, lab.model.id, names))
    for index, step in enumerate(plan):
        before, known = made, _known(lab, population, {challenger: made.candidate, incumbent: made.pool})
        made = spread(before, (step.attempts, step.pool), known, rules.focus)
        fresh = {challenger: _more(before.candidate, made.candidate), incumbent: _more(before.pool, made.pool)}
        started, label = time.time(), f"race {candidate.name}, look {index + 1} of {len(plan)}"
        asked += await lab.score(interleaved(fresh, dev, "race"), label=label)
        _trip([r for r in _rollouts(lab, incumbent) if r.started_at >= started])
        arms = Arms(
            held(dev_cards(lab, challenger), 0, made.candidate),
            held(dev_cards(lab, incumbent), 0, made.pool),
            len(dev),
            step.attempts,
        )
        await lab.require_answers(asked, partial(covered, arms, rules))
        look, found = race_look(arms, plan, index, rules, seed)
        looks.append(look.model_copy(update={"spread": uneven(made.candidate), "pool_spread": uneven(made.pool)}))
        if look.verdict != "continue":
            break
    return Case(
        candidate, incumbent, tuple(looks), found, arms, None, best_success(lab, population), population.alpha_spent
    )


def _more(before: Counts, after: Counts) -> dict[str, range]:
    return {task: range(before[task], after[task]) for task in after}


def _known(lab: Lab, population: Population, played: Mapping[str, Counts]) -> dict[str, tuple[int, int]]:
    """Task id → (solved, scored) over all attempts of finished races, and those of this one: `played` says how many of
    them each of its arms has."""
    raced = [c for c in lab.store.all(Scorecard) if c.key.purpose == "race" and c.key.model_id == lab.model.id]
    names = {card.key.task_id for card in raced}
    settled = {
        harness_id: played.get(harness_id) or population.settled_spread(harness_id, lab.model.id, names)
        for harness_id in {card.key.harness_id for card in raced}
    }
    seen = [c for c in final_cards(raced) if c.key.attempt < settled[c.key.harness_id].get(c.key.task_id, 0)]
    return {task: tally([c for c in part if c.success is not None]) for task, part in by_task(seen).items()}


def best_success(lab: Lab, population: Population) -> float:
    """The highest success on dev (0..1) that a harness of the lineage ever had."""
    return max((mean_success(dev_cards(lab, past)) for past in population.lineage), default=0.0)


async def settle(lab: Lab, case: Case, grounds: Grounds) -> Decision:
    """The verdict on a case, and for each `root_every`-th promotion what the lineage amounts to.

    Raises UsageError when a promotion rests on a judge that is not fit for it.
    """
    population, rules, seed = population_of(lab.store), lab.config.race, lab.config.seed
    decision = decide(case, rules, seed, time.time())
    if decision.verdict != "promote" or case.confirmation is None:
        return decision
    arms = (case.dev, case.confirmation)
    for one in judges_of([card for arm in arms for card in (*arm.candidate, *arm.incumbent)]):
        require_fit(lab, one, f"the promotion of {case.candidate.name!r} rests on a judge")
    promotions = len(population.promotions) + 1
    if promotions > 1 and promotions % rules.root_every == 0:
        first = (population.confirmations() + 1) * rules.confirm_attempts
        numbers = range(first, first + rules.confirm_attempts)
        pair = case.candidate.harness_id, population.lineage[0]
        decision = against_root(decision, await _fresh(lab, pair, grounds.select, numbers), rules, seed)
    return decision


def facts_of(lab: Lab, case: Case, grounds: Grounds) -> Facts:
    """What the records say of the attempts in both arms of `case`, for its guards."""
    arms = [case.dev, *([case.confirmation] if case.confirmation else [])]
    keys = {card.key for arm in arms for card in (*arm.candidate, *arm.incumbent)}
    played = [rollout for rollout in lab.store.all(Rollout) if rollout.key in keys]
    shares, lost = dict[str, float](), dict[str, list[bool]]()
    for rollout in played:
        harness = lab.harness(rollout.key.harness_id)
        used = [call_channel(call, harness) for turn in rollout.turns for call in turn.completion.calls]
        acting = used.count("gui") + used.count("terminal")
        if acting:
            shares[rollout.id] = used.count("terminal") / acting
        if tried(rollout):
            lost.setdefault(rollout.key.harness_id, []).append(
                rollout.error is not None and rollout.error.blame != "harness"
            )
    ours, theirs = (lost.get(h, []) for h in (case.candidate.harness_id, case.incumbent_harness))
    return Facts(
        apps={task.id: task.apps for task in (*grounds.dev, *grounds.select)},
        terminal_share=shares,
        lost=((sum(ours), len(ours)), (sum(theirs), len(theirs))),
    )


async def confirm(lab: Lab, case: Case, grounds: Grounds) -> Case:
    """Looks at fresh attempts of both arms until they decide; the case with these, and what its guards ask for."""
    rules = lab.config.race
    first = population_of(lab.store).confirmations() * rules.confirm_attempts  # their numbers were never used before
    for index, step in enumerate(confirm_steps(rules)):
        pair = case.candidate.harness_id, case.incumbent_harness
        arms = await _fresh(lab, pair, grounds.select, range(first, first + step.attempts))
        case = replace(case, confirmation=arms, confirm_look=index)
        if not undecided(case, rules, lab.config.seed):
            break
    return replace(case, facts=facts_of(lab, case, grounds))


async def _fresh(lab: Lab, pair: tuple[str, str], tasks: Sequence[Task], numbers: range) -> Arms:
    """Attempts of both arms whose numbers were never used before, not even by the incumbent; candidate first."""
    wanted = interleaved(dict.fromkeys(pair, numbers), tasks, "confirm")
    cards = await lab.score(wanted, label=f"fresh attempts of {pair[0][:12]} and {pair[1][:12]} on select")
    ours, theirs = ([card for card in cards if card.key.harness_id == harness_id] for harness_id in pair)
    arms = Arms(ours, theirs, len(tasks), len(numbers))
    await lab.require_answers(cards, partial(covered, arms, lab.config.race))
    return arms


def _trip(fresh: Sequence[Rollout]) -> None:
    """Pauses the run when the incumbent, which is known to work, fails wholesale: a broken tool looks like data.

    Looks at the attempts of this start only, so that a person who has looked into it can go on. Raises NotReady.
    """
    turns = [turn for rollout in fresh for turn in rollout.turns]
    results = [result.is_error for turn in turns for result in turn.results]
    blank = [not (t.completion.text or t.completion.reasoning or t.completion.calls) for t in turns]
    for what, seen in (("tool calls fail", results), ("replies are blank", blank)):
        if len(seen) >= FEWEST_SEEN and sum(seen) >= BROKEN_SHARE * len(seen):
            raise NotReady(
                f"{sum(seen)} of {len(seen)} {what} under the incumbent {fresh[0].key.harness_id[:12]} (see rollout "
                f"{fresh[0].id}): mend what is broken and start a new run, or run this one again to go on as it is"
            )


def _rollouts(lab: Lab, harness_id: str) -> list[Rollout]:
    return [rollout for rollout in lab.store.all(Rollout) if rollout.key.harness_id == harness_id]


def record_evaluation(
    lab: Lab,
    harness_id: str,
    purpose: Purpose,
    tasks: Sequence[Task],
    model_id: str | None = None,
    attempts: int | None = None,
) -> Evaluation | None:
    """Evaluates what was attempted on `tasks` and records it, once for the same attempts; None when nothing was.

    The model is the teacher unless `model_id` says otherwise; `attempts` takes only attempt numbers below it.
    """
    ids = {task.id for task in tasks}
    cards = cards_of(lab.store.all(Scorecard), harness_id, purpose, model_id or lab.model.id)
    cards = [c for c in cards if c.key.task_id in ids and (attempts is None or c.key.attempt < attempts)]
    if not cards:
        return None
    known = lab.store.get(Evaluation, evaluation_id(cards, tasks, lab.config.seed))
    if known is None:
        rollouts = {rollout.id: rollout for rollout in lab.store.all(Rollout)}
        known = evaluation(Scored(cards, rollouts, tasks, lab.harness(harness_id), lab.config.seed))
        lab.record(known)
    return known


def dev_success(lab: Lab) -> float:
    """The incumbent's success on dev, 0..1, over the attempts that belong to finished races."""
    population = population_of(lab.store)
    incumbent = population.incumbent or ""
    cards = dev_cards(lab, incumbent)
    settled = population.settled_spread(incumbent, lab.model.id, {card.key.task_id for card in cards})
    return mean_success(held(cards, 0, settled))


def dev_cards(lab: Lab, harness_id: str) -> list[Scorecard]:
    return final_cards(cards_of(lab.store.all(Scorecard), harness_id, "race", lab.model.id))
