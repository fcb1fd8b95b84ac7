"""Wrong solutions that fit every family: made from its right one by what it writes, beside those it brings itself."""

from __future__ import annotations

from pathlib import PurePosixPath
from shlex import quote

from devset.families.skill import Binding


def generic_mutants(made: Binding) -> dict[str, str]:
    """Shell scripts by name; none for an infeasible task, where doing nothing is right.

    `misplaced`: the right result beside the place where it belongs. `stale`: what was edited is a new copy of how
    it was before. `touched`: every file that is written exists, and that is all. `half done`: the last of
    several files that are written is as it was before.
    """
    if made.infeasible or not made.writes:
        return {}
    found = {
        "misplaced": _after_solution(made, *(_moved(path) for path in made.writes)),
        "touched": "\n".join(f"mkdir -p ~/{quote(_folder(path))}; touch ~/{quote(path)}" for path in made.writes),
    }
    if edited := [path for path in made.writes if path in made.files]:
        found["stale"] = _after_solution(made, *(_restored(path) for path in edited))
    if len(made.writes) > 1:
        found["half done"] = _after_solution(made, _restored(made.writes[-1]))
    return found


def solution_of(made: Binding) -> str:
    """The terminal oracle as one script, or the first equivalent solution where there is none."""
    if made.terminal is not None:
        return "\n".join(step.command for step in made.terminal)
    return next(iter(made.equivalents.values()))


def _after_solution(made: Binding, *changes: str) -> str:
    kept = "was=$(mktemp -d); cp -a ~/Desktop ~/Documents ~/Downloads $was/"
    return "\n".join((kept, f"(\n{solution_of(made)}\n)", *changes, "rm -rf $was"))


def _moved(path: str) -> str:
    beside = f"{_folder(path)}/misplaced-{PurePosixPath(path).name}"
    return f"if [ -e ~/{quote(path)} ]; then mv ~/{quote(path)} ~/{quote(beside)}; fi\n{_put_back(path)}"


def _restored(path: str) -> str:
    return f"rm -rf ~/{quote(path)}\n{_put_back(path)}"


def _put_back(path: str) -> str:
    return f"if [ -e $was/{quote(path)} ]; then cp -r $was/{quote(path)} ~/{quote(path)}; fi"


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)
