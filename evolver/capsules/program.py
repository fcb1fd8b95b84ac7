"""What this program is: Python, what it depends on, and its own source files, by their bytes."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from harnesses.capsule import Digests, ProgramPin, Versions

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ".ci/constraints.txt"
DISTRIBUTION = "harness-evolver"
PACKAGES = ("harnesses", "devset", "evolver")
STUDENTS, EXTRA = "training", "train"  # of the source and of the dependencies, play too where the teacher is a student
CHECKS = "devset/checks"
APART = (f"{CHECKS}/", "devset/tasks/", "harnesses/seeds/")  # pinned where they are used: with tasks and harnesses


@cache
def program_pin(student: bool = False) -> ProgramPin:
    """As this process first found it: what is edited on the disk meanwhile is not what runs here."""
    constraints = ROOT / CONSTRAINTS
    return ProgramPin(
        python=platform.python_version(),
        packages=_dependencies(student),
        constraints_sha256=sha256(constraints.read_bytes()) if constraints.is_file() else None,
        source=source_digests(ROOT, (*PACKAGES, STUDENTS) if student else PACKAGES),
    )


def source_digests(root: Path, packages: Iterable[str]) -> Digests:
    """Path relative to `root` → sha256 of every file of these packages that is not pinned elsewhere."""
    found = folder_digests(root, packages)
    return {name: digest for name, digest in found.items() if not name.startswith(APART)}


def folder_digests(root: Path, folders: Iterable[str]) -> Digests:
    """Path relative to `root` → sha256 of every file below these folders of it."""
    paths = [path for folder in folders for path in (root / folder).rglob("*") if path.is_file()]
    names = {path.relative_to(root).as_posix(): path for path in paths if "__pycache__" not in path.parts}
    return {name: sha256(names[name].read_bytes()) for name in sorted(names)}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _dependencies(student: bool) -> Versions:
    """Package → installed version of what the core depends on, and of what plays a `student`; without what lacks."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from a bare checkout
        return {}
    wanted = [line for line in lines if "extra ==" not in line or (student and f'extra == "{EXTRA}"' in line)]
    names = sorted(re.split(r"[^A-Za-z0-9._-]", line)[0] for line in wanted)
    return {name: found for name in names if (found := _version(name)) is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
