"""What a judge is shown of an attempt, within fixed bounds: its files, the trajectory and the last screenshot."""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections.abc import Iterator

from devset.extracts import text_of
from devset.task import Task
from evolver.records import Image, Rollout, Turn

FILES, FILE_CHARS, FILES_CHARS = 16, 2_000, 16_000  # extracts: how many, how long each, how long in all
NAMES = 60  # changed files that are named
FIRST_TURNS, LAST_TURNS, TURN_CHARS = 4, 16, 600
BIGGEST = 20 * 2**20  # bytes of a file that is looked into
BOUNDS = (FILES, FILE_CHARS, FILES_CHARS, NAMES, FIRST_TURNS, LAST_TURNS, TURN_CHARS, BIGGEST)


def changes_text(task: Task, state: bytes) -> str:
    """What the frozen home (a tar) holds against the files that the task gave: names, and extracts of files that are
    new or changed, of how they were before, and then of those that are as they were.

    What the task's set-up script made counts as new: it is not among the given files.
    """
    found, given = dict(_files(state)), task.exec_files
    changed = [path for path in sorted(found) if given.get(path) != found[path]]
    same = [path for path in sorted(given) if given[path] == found.get(path)]
    gone = [path for path in sorted(given) if path not in found]
    lines = [f"{'changed' if path in given else 'new'}: {path} ({_size(found[path])})" for path in changed]
    lines += [f"removed: {path}" for path in gone]
    lines = lines or ["Nothing in the home folder changed."]
    lines += [f"as it was given: {path} ({_size(found[path])})" for path in same]
    if len(lines) > NAMES:
        lines = [*lines[:NAMES], f"... and {len(lines) - NAMES} files more"]
    shown = [(path, when, data) for path in changed for when, data in _versions(given.get(path), found[path])]
    shown += [(path, "as it was given", given[path]) for path in same]
    left = FILES_CHARS
    for path, when, data in shown[:FILES]:
        text = text_of(data)
        if text is not None and left > 0:
            extract = cut(text, min(FILE_CHARS, left))
            left -= len(extract)
            lines.append(f"--- {path} ({when})\n{extract}")
    return "\n".join(lines)


def _versions(given: bytes | None, found: bytes | None) -> list[tuple[str, bytes]]:
    """A changed file as it is now, and as it was; what is too big to look into is left out."""
    versions = [] if found is None else [("as it is now", found)]
    return versions if given is None else [*versions, ("before", given)]


def trajectory_text(rollout: Rollout) -> str:
    """The attempt's turns in a line or a few each: the first and the last ones of a long attempt, and how it ended."""
    turns = rollout.turns
    if not turns:
        return "The agent made no step."
    hidden = len(turns) - FIRST_TURNS - LAST_TURNS
    if hidden > 0:
        told = [*map(_turn, turns[:FIRST_TURNS]), f"... {hidden} steps left out ...", *map(_turn, turns[-LAST_TURNS:])]
    else:
        told = [_turn(turn) for turn in turns]
    return "\n".join([*told, f"The attempt ended: {rollout.stop_reason}."])


def last_image(rollout: Rollout) -> Image | None:
    """The newest picture that the agent was shown; None where it never saw the screen."""
    looks = (*(turn.observed for turn in reversed(rollout.turns)), rollout.first)
    return next((look.image for look in looks if look.image is not None), None)


def cut(text: str, longest: int) -> str:
    """Head and tail of a text that is longer than `longest` characters, and how much is missing between them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _turn(turn: Turn) -> str:
    parts = [f"step {turn.index + 1}: {cut(turn.summary, TURN_CHARS // 3)}"]
    results = {result.call_id: result for result in turn.results}
    for call in turn.completion.calls:
        parts.append(f"  {call.name} {cut(json.dumps(call.arguments, ensure_ascii=False), TURN_CHARS)}")
        if call.id in results and results[call.id].text:
            said = "error" if results[call.id].is_error else "result"
            parts.append(f"  {said}: {cut(results[call.id].text, TURN_CHARS)}")
    return "\n".join(parts)


def _size(data: bytes | None) -> str:
    return f"over {BIGGEST:,} bytes" if data is None else f"{len(data):,} bytes"


def _files(state: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Path → bytes of every regular file (None for one that is too big to look into); locks of open documents and
    links are left out."""
    with tarfile.open(fileobj=io.BytesIO(state)) as tar:
        for entry in tar:
            path = posixpath.normpath(entry.name)
            if not entry.isfile() or posixpath.basename(path).startswith(".~lock."):
                continue
            opened = tar.extractfile(entry) if entry.size <= BIGGEST else None
            yield path, None if opened is None else opened.read()
