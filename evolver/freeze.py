"""Freezes a promoted harness: a capsule is written, played from its own bytes, and only then released and signed off.

What will be played is on record before any of it is. The same command goes on where it was stopped, and shows the
first verdict ever after. Until it is released a capsule lies beside its place, under a name that no round opens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import JsonValue

from devset.task import Split, Task
from evolver.capsules import Contents, Drifted, OpenedCapsule, images_of, open_capsule, verify_machine, write_capsule
from evolver.capsules.evidence import (
    Outcome,
    confirmed_tasks,
    evidence_pin,
    expected_success,
    outcome,
    promotion_of,
    stated_success,
)
from evolver.capsules.folder import config_of, discard, read_lock, read_settings, release_capsule, round_settings
from evolver.capsules.program import sha256
from evolver.errors import UsageError
from evolver.ground import imported_tasks, tasks_of
from evolver.lab import Lab
from evolver.phrasing import or_why, percent, share
from evolver.race import interleaved
from evolver.records import Freeze, Interval, Purpose, Release, Rollout, Scorecard
from evolver.store import Store
from evolver.tables import Table
from harnesses.capsule import Drift, PriceList, PricePin, drifts
from harnesses.library import NAME, Library, UnknownHarness
from harnesses.tree import HarnessError

TAG = "capsule-"
SPLIT: Split = "select"  # of the tasks that promotions are confirmed on
FOLDER = "capsules"
PURPOSE: Purpose = "capsule"
Tasks = Callable[[Split, int | None], Sequence[Task]]


@dataclass(frozen=True)
class Wanted:
    """What to freeze: a harness by name or id, under which name, where (RUN/capsules if absent), and how many of the
    confirmation's tasks to play before the release (all if absent)."""

    harness: str
    name: str
    out: Path | None = None
    n_tasks: int | None = None


@dataclass(frozen=True)
class CapsuleOfRun:
    """A capsule that was begun in a run; `release` is None while it is under way."""

    freeze: Freeze
    release: Release | None

    @property
    def state(self) -> str:
        return "under way" if self.release is None else self.release.verdict


def capsules_of(store: Store) -> list[CapsuleOfRun]:
    """Every capsule of a run, in the order in which they were begun."""
    verdicts = {release.freeze_id: release for release in store.all(Release)}
    return [CapsuleOfRun(freeze, verdicts.get(freeze.id)) for freeze in store.all(Freeze)]


def capsule_tables(store: Store, names: dict[str, str]) -> list[Table]:
    """The run's capsules for its report; no table where there is none."""
    rows = tuple(
        (
            made.freeze.name,
            names.get(made.freeze.harness_id, made.freeze.harness_id[:8]),
            made.state,
            or_why(made.release.success if made.release else None, percent),
            or_why(made.freeze.expected, percent),
            made.freeze.capsule_id[:12],
        )
        for made in capsules_of(store)
    )
    columns = ("capsule", "harness", "state", "success", "expected", "id")
    caption = "Frozen with `evolver freeze`, and played from their own bytes before they are released."
    return [Table("Capsules", columns, rows, caption)] if rows else []


async def freeze(lab: Lab, wanted: Wanted, *, tasks: Tasks | None = None) -> Release:
    """The verdict on the capsule, and the capsule in its place when it is released; goes on from a stop.

    Raises UsageError for a harness without a promotion, a taken name, or a capsule that drifted meanwhile (`Drifted`),
    NotReady when too many attempts got no answer, and BudgetSpent when a cap stops it.
    """
    harness_id = check(lab.store, lab.library, wanted)
    known = lab.store.get(Release, f"release-{wanted.name}")
    if known is None:
        begun = lab.store.get(Freeze, f"freeze-{wanted.name}") or await _begin(lab, wanted, harness_id, tasks)
        opened = _opened(lab, begun)
        _require_same(opened, await verify_machine(opened.capsule, opened.harness.environment, lab.sandboxes))
        lab.adopt(opened.harness)
        lab.record(known := await _verdict(lab, begun, opened, await _play(lab, begun, opened)))
    carry_out(lab.store, lab.library, known)
    return known


def check(store: Store, library: Library, wanted: Wanted) -> str:
    """The id of the harness to freeze. Raises UsageError when its capsule can't be begun, or gone on with."""
    tag = TAG + wanted.name
    if not NAME.fullmatch(tag):
        raise UsageError(f"capsule {wanted.name!r}: expected lower-case letters, digits, '.', '_' or '-'")
    try:
        harness_id = library.resolve(wanted.harness)
    except UnknownHarness as error:
        raise UsageError(str(error)) from error
    promotion_of(store, harness_id, wanted.harness)
    begun, place = store.get(Freeze, f"freeze-{wanted.name}"), _place(store, wanted)
    taken = {library.tags().get(tag, harness_id), harness_id if begun is None else begun.harness_id} - {harness_id}
    if taken:
        raise UsageError(f"capsule {wanted.name!r} is of harness {taken.pop()[:12]}: choose another name")
    if begun is not None and wanted.out is not None and place != place_of(store, begun):
        raise UsageError(f"capsule {wanted.name!r} was begun in {place_of(store, begun)}: leave --out away")
    if begun is None and place.exists():
        raise UsageError(f"{place} is there already: choose another name or --out")
    return harness_id


def place_of(store: Store, begun: Freeze) -> Path:
    """Where the capsule is once it is released."""
    return (store.path / begun.path).resolve()


def _place(store: Store, wanted: Wanted) -> Path:
    return ((wanted.out or store.path / FOLDER) / wanted.name).resolve()


def _aside(place: Path) -> Path:
    """Where a capsule lies until it is released."""
    return place.with_name(f".{place.name}.unreleased")


async def _begin(lab: Lab, wanted: Wanted, harness_id: str, tasks: Tasks | None) -> Freeze:
    """Writes the capsule beside its place and records what will be played."""
    store, place = lab.store, _place(lab.store, wanted)
    promotion = promotion_of(store, harness_id, wanted.harness)
    select = (tasks or _of_the_run(store))(SPLIT, lab.config.tasks.select)
    task_list, chosen = confirmed_tasks(promotion, select, SPLIT)
    harness = lab.library.get(harness_id)
    settings = round_settings(lab.config, lab.sandboxes.name)
    prices = PriceList(
        prices_on=time.strftime("%Y-%m-%d", time.gmtime()),
        prices={name: PricePin(input=p.input, output=p.output) for name, p in sorted(lab.config.prices.items())},
    )
    image, grading = await images_of(harness.environment, lab.sandboxes)
    contents = Contents(
        harness=harness,
        settings=settings,
        config=config_of(settings, prices, place),
        task_list=task_list,
        tasks=chosen,
        prices=prices,
        evidence=evidence_pin(store, promotion, task_list),
        image=image,
        files={},
        grading=grading,
        held_out=_held_out(lab),
    )
    discard(_aside(place))  # one that no record knows of: its freezing was stopped right here
    capsule = write_capsule(contents, _aside(place))
    played = task_list.tasks[: wanted.n_tasks]
    stated = stated_success(played, lab.config.seed)
    begun = Freeze(
        id=f"freeze-{wanted.name}",
        name=wanted.name,
        capsule_id=capsule.id,
        harness_id=harness_id,
        teacher=lab.model.id,
        path=str(place if wanted.out else Path(FOLDER, wanted.name)),
        n_tasks=len(played),
        attempts=promotion.attempts,
        first=_first_free(store, harness_id),
        stated=stated,
        expected=expected_success(stated, promotion.attempts, promotion.attempts),
        at=time.time(),
    )
    lab.record(begun)
    return begun


def _held_out(lab: Lab) -> dict[str, str]:
    """What the run imports for any split but train: task hash → sha256 of the instruction."""
    found = [task for tasks in imported_tasks(lab.config).values() for task in tasks if task.split != "train"]
    return {task.hash: sha256(task.instruction.encode()) for task in found}


def _of_the_run(store: Store) -> Tasks:
    return lambda split, limit: tasks_of(store, split, limit, "freeze")


def _first_free(store: Store, harness_id: str) -> int:
    """The number of the first attempt that no other capsule of this harness has played or will play."""
    return max((f.first + f.attempts for f in store.all(Freeze) if f.harness_id == harness_id), default=0)


def _opened(lab: Lab, begun: Freeze) -> OpenedCapsule:
    """The capsule that was begun, as it was written. Raises UsageError when it or the run's settings have changed."""
    opened = open_capsule(_aside(place_of(lab.store, begun)), released=False)
    if opened.id != begun.capsule_id:
        raise UsageError(f"{opened.path} is capsule {opened.id[:12]}, {begun.capsule_id[:12]} was begun: restore it")
    now = {**round_settings(lab.config, lab.sandboxes.name), "prices": _prices(lab)}
    pinned = {**read_settings(opened.path), "prices": opened.capsule.model_dump(mode="json")["prices"]}
    _require_same(opened, drifts(pinned, now, "settings"))
    return opened


def _prices(lab: Lab) -> dict[str, JsonValue]:
    return {name: price.model_dump(mode="json") for name, price in lab.config.prices.items()}


def _require_same(opened: OpenedCapsule, found: Sequence[Drift]) -> None:
    if found:
        raise Drifted(opened.path, found)


async def _play(lab: Lab, begun: Freeze, opened: OpenedCapsule) -> list[Scorecard]:
    numbers = range(begun.first, begun.first + begun.attempts)
    wanted = interleaved({begun.harness_id: numbers}, opened.tasks()[: begun.n_tasks], PURPOSE)
    return await lab.score(wanted, label=f"capsule {begun.name} from its own bytes")


async def _verdict(lab: Lab, begun: Freeze, opened: OpenedCapsule, cards: Sequence[Scorecard]) -> Release:
    """Raises NotReady where it is the endpoint that left too much unscored: the same command tries that again."""
    found = outcome(cards, begun.n_tasks, begun.expected, lab.config.seed)
    await lab.require_answers(cards, lambda: found.covered)
    faults = [*found.faults, *_other_images(lab, opened, cards)]
    return Release(
        id=f"release-{begun.name}",
        freeze_id=begun.id,
        name=begun.name,
        capsule_id=begun.capsule_id,
        harness_id=begun.harness_id,
        verdict="refused" if faults else "released",
        success=found.success,
        expected=begun.expected,
        n_tasks=begun.n_tasks,
        attempts=begun.attempts,
        n_unscored=found.n_unscored,
        reasons=tuple(faults),
        tag="" if faults else TAG + begun.name,
        at=time.time(),
    )


def _other_images(lab: Lab, opened: OpenedCapsule, cards: Sequence[Scorecard]) -> list[str]:
    """Attempts that ran on another image than the pinned one; those that got no machine ran on none."""
    wanted, ran = opened.capsule.machine.image.digest, {card.rollout_id for card in cards}
    digests = [rollout.image_digest for rollout in lab.store.all(Rollout) if rollout.id in ran]
    other = sorted({digest for digest in digests if digest not in ("", wanted)})
    return [f"attempts ran on image {', '.join(other)}, pinned is {wanted}"] if other else []


def carry_out(store: Store, library: Library, release: Release) -> None:
    """Brings library and folder up to a recorded verdict; again is no change. Raises UsageError when they can't be."""
    if release.verdict == "refused":
        return
    begun = store.get(Freeze, release.freeze_id)
    if begun is None:
        raise UsageError(f"{store.path} lacks record {release.freeze_id!r} of capsule {release.name!r}")
    try:
        library.tag(release.harness_id, release.tag, _message(release))
    except HarnessError as error:
        raise UsageError(str(error)) from error
    signed = _signed(library, release.tag)
    if signed != release.capsule_id:
        raise UsageError(f"tag {release.tag} signs another capsule off: {signed!r}")
    place = place_of(store, begun)
    release_capsule(_aside(place), place, release)


def tag_drifts(library: Library, path: Path) -> list[Drift]:
    """What the tags in the library of its run don't sign off of the capsule in `path`. They lie elsewhere than lock and
    sign-off, so who writes both of these anew is found out by them."""
    capsule = read_lock(path)
    signed = {_signed(library, tag): tree for tag, tree in library.tags().items() if tag.startswith(TAG)}
    if capsule.id not in signed:
        return [Drift(field="tag", pinned=None, found=capsule.id)]
    return drifts(signed[capsule.id], capsule.harness.id, "tag.harness")


def _signed(library: Library, tag: str) -> str:
    """The id of the capsule that a tag signs off: the last word of its first line."""
    return library.message_of(tag).partition("\n")[0].rpartition(" ")[2]


def _message(release: Release) -> str:
    played = f"{release.attempts} attempts at {release.n_tasks} tasks"
    success = f"Success {share(release.success.point)} in {played}, from the capsule's own bytes."
    return f"capsule {release.name}: {release.capsule_id}\n\n{success}"


# --- a capsule without its run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replayed:
    """Fresh attempts of a capsule at the tasks that it was confirmed on, against what they should come to."""

    expected: Interval
    found: Outcome
    n_tasks: int
    attempts: int


async def replay(lab: Lab, opened: OpenedCapsule, n_tasks: int, attempts: int) -> Replayed:
    """Plays the first `n_tasks` of the capsule's tasks, `attempts` times each, in a lab with the capsule's own config.

    Raises `Drifted` when the lab's image is another than the pinned one, and BudgetSpent when a cap stops it.
    """
    _require_same(opened, await verify_machine(opened.capsule, opened.harness.environment, lab.sandboxes))
    lab.adopt(opened.harness)
    pins, tasks, evidence = opened.task_list.tasks[:n_tasks], opened.tasks()[:n_tasks], opened.capsule.evidence
    wanted = interleaved({opened.harness.id: range(attempts)}, tasks, PURPOSE)
    cards = await lab.score(wanted, label=f"capsule {opened.path.name}")
    expected = expected_success(stated_success(pins, opened.config.seed), evidence.attempts, attempts)
    found = outcome(cards, len(tasks), expected, opened.config.seed)
    faults = (*found.faults, *_other_images(lab, opened, cards))
    return Replayed(expected, replace(found, faults=faults), len(tasks), attempts)
