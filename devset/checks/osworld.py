"""Runs an OSWorld evaluation on a copy of the frozen home: getters of our own, metrics as published.

The copy lies at /home/user, so that commands find what they look for; the agent is dead and its machine gone by then.
The metrics are the task's own copy of desktop-env's modules, in gt/. Libraries that no metric of the task uses are
placeholders; a metric that raises leaves the task unscored, as does whatever else goes wrong here.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from devset.checks.home import Wrong, locate, revive, sha256

CONFIG = "osworld.json"
CRITERION = "done"
COMMAND_S = 120.0
# What a shell says of a program that it does not find; a path is the agent's own.
LACKING = re.compile(r"^(?:/(?:usr/)?bin/)?(?:ba|da)?sh: (?:line )?\d+: ([^\s/:]+): (?:command )?not found$", re.M)
Spec = Mapping[str, Any]  # JSON of the published evaluator


class _Placeholder:
    """Stands for everything in a library that is not here; using it is an error of the checker."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> object:
        raise ImportError(f"{self._name} is not in the grader's place")

    def __getattr__(self, name: str) -> _Placeholder:
        return _Placeholder(f"{self._name}.{name}")


class _Absent(types.ModuleType):
    def __getattr__(self, name: str) -> _Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Placeholder(f"{self.__name__}.{name}")


class _AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports placeholders for the named top-level modules and whatever is below them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:  # as importlib has it
        if fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


class Evaluation:
    """One evaluator (fields as in the task's JSON) with the folders that its getters read."""

    def __init__(self, spec: Spec, gt: Path, live: Path, cache: Path) -> None:
        self._spec, self._gt, self._live, self._cache = spec, gt, live, cache

    def value(self) -> float:
        """The published verdict: the mean of all metrics unless one is 0 (`and`), or the best one (`or`)."""
        shutil.rmtree(self._cache, ignore_errors=True)
        self._cache.mkdir(parents=True)
        for step in self._spec["post"]:
            try:
                out, _ = self.run(step["command"], bool(step.get("shell")))
            except FileNotFoundError:
                out = ""
            if step.get("stdout"):
                (self._cache / step["stdout"]).write_text(out, encoding="utf-8")
        values: list[float] = []
        both = self._spec["conj"] == "and"
        for number, metric in enumerate(self._spec["func"]):
            value = self._metric(number, metric)
            if both and value == 0.0:
                return 0.0
            if not both and value == 1.0:
                return 1.0
            values.append(value)
        return sum(values) / len(values) if both else max(values)

    def _metric(self, number: int, metric: Spec) -> float:
        try:
            result = self.get(self._spec["result"][number])
        except FileNotFoundError:
            return 0.0
        given = [result]
        if (expected := self._spec["expected"][number]) is not None:
            given.append(self.get(expected))
        if metric["module"] == "":
            return float(flags(str(result), given[1] if len(given) > 1 else {}))
        function = getattr(importlib.import_module(metric["module"]), metric["name"])
        value = float(function(*given, **(self._spec["options"][number] or {})))
        if not math.isfinite(value):
            raise ValueError(f"{metric['name']} gave {value}")
        return min(1.0, max(0.0, value))

    def run(self, command: str | Sequence[str], shell: bool) -> tuple[str, str]:
        """stdout and stderr of a command in the home, as OSWorld's server runs it. Raises FileNotFoundError when it is
        a program of the agent that can't be started, and SystemExit when it needs one that our machine lacks."""
        words: str | list[str] = command if isinstance(command, str) else list(command)
        if isinstance(words, str) and not shell:
            words = shlex.split(words)
        if isinstance(words, list):
            words = [str(self._live) + w[1:] if w.startswith("~/") else w for w in words]
            words = " ".join(words) if shell else words
        env = {**os.environ, "HOME": str(self._live), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        try:
            done = subprocess.run(
                words, shell=shell, cwd=self._live, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=COMMAND_S, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except (FileNotFoundError, PermissionError) as error:
            if "/" in str(error.filename):
                raise FileNotFoundError(str(error)) from error
            raise SystemExit(f"a program of the evaluation is not here: {error.filename}") from error
        # A script of the agent may say so of anything.
        asked = re.findall(r"[\w./+-]+", words if isinstance(words, str) else " ".join(words))
        for name in LACKING.findall(done.stderr):
            if name in asked and shutil.which(name, path=env["PATH"]) is None:
                raise SystemExit(f"a program of the evaluation is not here: {name}")
        return done.stdout, done.stderr

    # --- getters -----------------------------------------------------------------------------------------------------

    def get(self, spec: Spec) -> Any:  # what the metrics are given
        getters: dict[str, Callable[[], Any]] = {
            "rule": lambda: spec["rules"],
            "vm_file": lambda: self._vm_file(spec),
            "cache_file": lambda: self._cache_file(spec),
            "vm_command_line": lambda: self.run(spec["command"], bool(spec.get("shell")))[0],
            "vm_command_error": lambda: self.run(spec["command"], bool(spec.get("shell")))[1],
            "list_directory": lambda: _tree(self._live / _below(spec["path"])),
        }
        return getters[spec["type"]]()

    def _vm_file(self, spec: Spec) -> str | list[str | None] | None:
        """Copies below the cache, named as in `dest`; None for what is missing. One path, or the list of `gives`."""
        several = bool(spec.get("multi"))
        paths = spec["path"] if several else [spec["path"]]
        names = spec["dest"] if several else [spec["dest"]]
        gives, found = set(spec.get("gives", [0])), list[str | None]()
        for number, (path, name) in enumerate(zip(paths, names, strict=True)):
            source, copy = self._live / _below(path), self._cache / Path(name).name
            there = locate(self._live, _below(path)) is not None and source.is_file()
            if there:
                shutil.copyfile(source, copy)
            if number in gives:
                found.append(str(copy) if there else None)
        return found[0] if len(found) == 1 else found

    def _cache_file(self, spec: Spec) -> str | list[str]:
        paths = spec["path"] if isinstance(spec["path"], list) else [spec["path"]]
        found = []
        for name in paths:
            place = self._cache if (self._cache / name).is_file() else self._gt / "cache"
            if not (place / name).is_file():
                raise SystemExit(f"the reference file {name} is not here")
            found.append(str(place / name))
        return found if isinstance(spec["path"], list) else found[0]


def _below(path: str) -> str:
    """The home's part of a path of the original machine."""
    for start in ("/home/user/", "~/"):
        if path.startswith(start):
            return path.removeprefix(start)
    return path


def _tree(path: Path) -> dict[str, Any]:
    kind = "directory" if path.is_dir() and not path.is_symlink() else "file"
    node: dict[str, Any] = {"type": kind, "name": path.name}
    if kind == "directory":
        node["children"] = [_tree(child) for child in sorted(path.iterdir())]
    return node


def flags(output: str, rules: Spec) -> bool:
    """DeskCraft's `check_os_...` metrics: a command prints `name=true` lines. Every flag that `rules.checks` names has
    its value, and so has every flag that stands beside the list; without any, every printed flag is true.
    `rules.expected` is the whole output."""
    if "expected" in rules:
        return output.strip() == str(rules["expected"]).strip()
    printed = dict(line.strip().split("=", 1) for line in output.splitlines() if "=" in line)
    wanted = {**rules.get("checks", {}), **{k: v for k, v in rules.items() if k != "checks"}}
    wanted = wanted or dict.fromkeys(printed, "true")
    return bool(wanted) and all(printed.get(name) == value for name, value in wanted.items())


def untouched(home: Path, files: Mapping[str, str], closed: bool) -> str:
    """Every given file (path → sha256) still has its bytes; with `closed`, no visible file was added either."""
    for path, digest in files.items():
        if locate(home, path) is None or sha256((home / path).read_bytes()) != digest:
            raise Wrong(f"{path} was changed")
    if closed:
        shown = [p.relative_to(home) for p in home.rglob("*") if p.is_symlink() or not p.is_dir()]
        added = [p for p in shown if not p.parts[0].startswith(".") and p.as_posix() not in files]
        if added:
            raise Wrong(f"{added[0].as_posix()[:80]} was added")
    return "the state is untouched"


def main() -> None:
    """The body of a check program: `argv` = frozen home, folder with osworld.json, cache/ and the metrics."""
    home, gt = Path(sys.argv[1]), Path(sys.argv[2])
    spec = json.loads((gt / CONFIG).read_text(encoding="utf-8"))
    if "untouched" in spec:
        try:
            value, said = 1.0, untouched(home, spec["untouched"], spec["closed"])
        except Wrong as wrong:
            value, said = 0.0, str(wrong)
    else:
        sys.path.insert(0, str(gt))
        sys.meta_path.append(_AbsentFinder(spec["absent"]))
        live, cache = Path(spec["home"]), Path(spec["cache"])
        revive(home, live)
        value = Evaluation(spec, gt, live, cache).value()
        said = " and ".join(metric["name"] for metric in spec["func"])
    # Metrics print as they please, also without a line end.
    sys.stdout.write("\n" + json.dumps({CRITERION: {"value": value, "explanation": said}}) + "\n")
