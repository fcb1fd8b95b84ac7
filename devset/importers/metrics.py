"""Reads desktop-env's published metric modules without importing them: what each function needs, and its source."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from devset.importers.offer import ImportFailed, text_of

PACKAGE = "desktop_env.evaluators.metrics"
# What the grader's place has, as top-level modules: the office libraries, and PIP below.
PIP = (
    "PyPDF2==3.0.1",
    "PyYAML==6.0.4",
    "beautifulsoup4==4.15.0",
    "cssselect==1.6.0",
    "defusedxml==0.7.1",
    "formulas==1.3.4",
    "numpy==1.26.4",
    "pandas==2.2.3",
    "pypdf==5.9.0",
    "rapidfuzz==3.14.6",
    "xmltodict==1.0.4",
)
PRESENT = frozenset(
    ("yaml", "PyPDF2", "bs4", "formulas", "cssselect", "numpy", "pandas", "pypdf", "rapidfuzz", "xmltodict",
     "openpyxl", "docx", "pptx", "odf", "lxml", "PIL")
)  # fmt: skip


@dataclass(frozen=True)
class Needs:
    """What one metric takes: modules of the package (to be shipped) and third-party libraries that we lack."""

    module: str
    files: dict[str, bytes]
    absent: frozenset[str]
    lacking: frozenset[str]


@dataclass
class _Module:
    """One module: its top-level definitions, and where its imported names come from ("" for third party)."""

    source: str
    defined: dict[str, ast.AST] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    internal: dict[str, tuple[str, str]] = field(default_factory=dict)


class Metrics:
    """The metrics of one copy of the package; `folder` holds its modules (evaluators/metrics)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, _Module] = {}

    @cached_property
    def exported(self) -> dict[str, str]:
        """Every published function → the module that defines it."""
        tree = ast.parse(text_of(self._folder / "__init__.py"))
        found = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module]
        return {alias.asname or alias.name: n.module or "" for n in found for alias in n.names}

    def needs(self, function: str) -> Needs:
        """Raises `ImportFailed` for a function that is exported and not there."""
        module = self.exported[function]
        if function not in self._module(module).defined:
            raise ImportFailed(f"{self._folder / module}.py: {function}: missing, expected the exported function")
        used: set[str] = set()
        self._visit(module, function, used, set())
        shipped: set[str] = set()
        self._ship(module, shipped)
        imported = {lib for name in shipped for lib in self._module(name).libraries.values()}
        absent = frozenset(lib for lib in imported if not _present(lib))
        folders = PACKAGE.split(".")
        files = {f"{'/'.join(folders[:n])}/__init__.py": b"" for n in range(1, len(folders) + 1)}
        files |= {f"{'/'.join(folders)}/{name}.py": self._module(name).source.encode() for name in sorted(shipped)}
        return Needs(f"{PACKAGE}.{module}", files, absent, frozenset(lib for lib in used if not _present(lib)))

    def _module(self, name: str) -> _Module:
        if name not in self._modules:
            self._modules[name] = _read(text_of(self._folder / f"{name}.py"))
        return self._modules[name]

    def _visit(self, module: str, name: str, used: set[str], seen: set[tuple[str, str]]) -> None:
        """Adds to `used` the libraries that `name` of `module` can come to use."""
        if (module, name) in seen:
            return
        seen.add((module, name))
        here = self._module(module)
        if name in here.libraries:
            used.add(here.libraries[name])
        elif name in here.internal:
            self._visit(*here.internal[name], used, seen)
        elif name in here.defined:
            for node in ast.walk(here.defined[name]):
                if isinstance(node, ast.Name):
                    self._visit(module, node.id, used, seen)
                elif isinstance(node, ast.Import):
                    used |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    used.add(node.module.partition(".")[0])

    def _ship(self, module: str, shipped: set[str]) -> None:
        if module not in shipped:
            shipped.add(module)
            for other, _ in self._module(module).internal.values():
                self._ship(other, shipped)


def _read(source: str) -> _Module:
    module = _Module(source)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            module.defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            module.defined |= {t.id: node for t in targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Import):
            module.libraries |= {
                (alias.asname or alias.name.partition(".")[0]): alias.name.partition(".")[0] for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            _from(node, module)
    return module


def _from(node: ast.ImportFrom, module: _Module) -> None:
    name = node.module or ""
    inside = name.removeprefix(f"{PACKAGE}.") if name.startswith(f"{PACKAGE}.") else name if node.level else None
    for alias in node.names:
        if inside:
            module.internal[alias.asname or alias.name] = (inside, alias.name)
        else:
            module.libraries[alias.asname or alias.name] = name.partition(".")[0]


def _present(library: str) -> bool:
    return library in sys.stdlib_module_names or library in PRESENT
