"""What a judge is shown of an attempt, within fixed bounds: changed files, the trajectory and the last screenshot."""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections.abc import Iterator

from devset.extracts import text_of
from devset.task import Task
from evolver.records import Image, Rollout, Turn

FILES, FILE_CHARS, FILES_CHARS = 12, 2_000, 12_000  # extracts: how many, how long each, how long in all
NAMES = 60  # changed files that are named
FIRST_TURNS, LAST_TURNS, TURN_CHARS = 4, 16, 600
BIGGEST = 20 * 2**20  # bytes of a file that is looked into
BOUNDS = (FILES, FILE_CHARS, FILES_CHARS, NAMES, FIRST_TURNS, LAST_TURNS, TURN_CHARS, BIGGEST)


def changes_text(task: Task, state: bytes) -> str:
    """How the frozen home (a tar) differs from the files that the task gave, with extracts of what is new or changed.

    What the task's set-up script made counts as new: it is not among the given files.
    """
    found = dict(_files(state))
    given = task.exec_files
    changed = [path for path in sorted(found) if given.get(path) != found[path]]
    gone = [path for path in sorted(given) if path not in found]
    lines = [f"{'changed' if path in given else 'new'}: {path} ({_size(found[path])})" for path in changed[:NAMES]]
    lines += [f"removed: {path}" for path in gone[:NAMES]]
    more = max(0, len(changed) - NAMES) + max(0, len(gone) - NAMES)
    lines += [f"... and {more} files more"] if more else []
    if not lines:
        return "Nothing in the home folder changed." if found else "The home folder holds no file and none was given."
    left, extracts = FILES_CHARS, []
    for path in changed[:FILES]:
        text = text_of(found[path] or b"\0")
        if text is not None and left > 0:
            shown = cut(text, min(FILE_CHARS, left))
            left -= len(shown)
            extracts.append(f"--- {path}\n{shown}")
    return "\n".join([*lines, *extracts])


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
