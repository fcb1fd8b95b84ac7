"""The rules of the layout that no linter knows: vendors, sizes, silent and light imports, words that don't belong."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("harnesses", "devset", "evolver", "training", "dashboards")
ONE_FILE_VENDORS = ("docker", "ray", "mlflow", "optuna", "openai", "atif")
HEAVY = (
    "torch",
    "transformers",
    "mlflow",
    "streamlit",
    "ray",
    "optuna",
    "openai",
    "httpx2",
    "atif",
    "docker",
    "pandas",
    "scipy",
    "plotly",
    "duckdb",
)
INSIDE = "evolver/sandboxes/inside/"  # runs inside sandboxes, not in this process
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 400, 60, 6


def sources() -> list[Path]:
    return [
        p for name in PACKAGES for p in sorted((ROOT / name).rglob("*.py")) if not rel(p).startswith("devset/tasks/")
    ]


def rel(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> set[str]:
    """The top-level names that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def modules() -> list[str]:
    scripts = ("/__main__.py", "dashboards/app.py")  # like the pages, run and not imported
    here = [rel(p) for p in sources() if not rel(p).startswith((INSIDE, "dashboards/pages/"))]
    here = [name for name in here if not name.endswith(scripts)]
    return [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in here]


def tracked() -> list[Path]:
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("vendor", ONE_FILE_VENDORS)
def test_a_vendor_is_imported_in_at_most_one_file(vendor: str) -> None:
    users = [rel(p) for p in sources() if vendor in imports(p)]
    assert len(users) <= 1, f"{vendor} is imported in {users}; one vendor, one file"


def test_no_two_packages_import_each_other() -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        edges[rel(path).partition("/")[0]] |= imports(path) & set(PACKAGES)
    cycles = [(a, b) for a in PACKAGES for b in edges[a] if a < b and a in edges[b]]
    assert not cycles, f"packages that import each other: {cycles}"
    assert edges["harnesses"] <= {"harnesses"} and edges["devset"] <= {"devset"}, "harnesses and devset are leaves"


def test_files_and_functions_are_short() -> None:
    long = [f"{rel(p)}: {n} lines" for p in sources() if (n := p.read_text().count("\n")) > LONGEST_FILE]
    for path in sources():
        for function in functions(path):
            lines = (function.end_lineno or 0) - function.lineno + 1
            arguments = function.args
            taken = [
                a
                for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                if a.arg not in ("self", "cls")
            ]
            if lines > LONGEST_FUNCTION:
                long.append(f"{rel(path)}:{function.lineno} {function.name}: {lines} lines")
            if len(taken) > MOST_PARAMETERS:
                long.append(f"{rel(path)}:{function.lineno} {function.name}: {len(taken)} parameters")
    assert not long, "over the limits:\n" + "\n".join(long)


def test_no_file_is_named_after_nothing() -> None:
    vague = [rel(p) for p in sources() if re.search(r"(^|_)(utils?|helpers?|common|managers?|misc)$", p.stem)]
    assert not vague, f"name a file after what it does: {vague}"


def test_nothing_swallows_every_error() -> None:
    silent = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler) or not all(isinstance(s, ast.Pass) for s in node.body):
                continue
            if node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"):
                silent.append(f"{rel(path)}:{node.lineno}")
    assert not silent, f"a broad except that passes: {silent}"


@pytest.mark.slow
def test_importing_any_module_prints_and_creates_nothing(tmp_path: Path) -> None:
    """All modules in one process, in an empty directory with an empty home."""
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for names in (modules(), list(reversed(modules()))):  # an order that works by luck fails in the other
        run = (sys.executable, "-W", "ignore", "-c", program, *names)
        done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("--help",), ("demo", "--help")])
def test_help_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    program = "import sys; from evolver.cli import main; sys.argv[0] = 'evolver'; main()"
    run = (sys.executable, "-X", "importtime", "-c", program, *words)
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "evolver" in loaded
    assert not loaded & set(HEAVY), f"evolver {' '.join(words)} loads {sorted(loaded & set(HEAVY))}"


def test_the_project_speaks_of_itself_alone() -> None:
    """No path of this machine, no host that its package clients are set to, no word on how it came about."""
    pip = subprocess.run(
        (sys.executable, "-m", "pip", "config", "list"), capture_output=True, text=True, check=False
    ).stdout
    hosts = {h for h in re.findall(r"https?://([^/\s'\"]+)", pip) if h not in ("localhost", "127.0.0.1")}
    ordinary = {Path("/"), Path("/tmp"), Path.home(), Path("/home/user")}  # may be named for other reasons
    paths = {f"{place}/" for place in (ROOT, ROOT.parent) if place not in ordinary}
    told = [r"\b(?:this|last|next|previous|my|our) session\b", r"\bissue #?\d+\b", r"\bCE" + r"O\b"]
    words = re.compile("|".join([*map(re.escape, sorted(hosts | paths)), *told]), re.IGNORECASE)
    said = []
    for path in tracked():
        if path.stat().st_size > 1_000_000 or b"\0" in path.read_bytes():  # a picture may spell anything
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if words.search(line) and path != Path(__file__):
                said.append(f"{rel(path)}:{number}: {line.strip()[:100]}")
    assert not said, "\n".join(said)


def test_every_mark_in_use_is_explained() -> None:
    readme = (ROOT / "tests" / "README.md").read_text()
    used = {m for p in (ROOT / "tests").rglob("test_*.py") for m in re.findall(r"pytest\.mark\.(\w+)", p.read_text())}
    own = used - {"parametrize", "skipif", "skip", "asyncio", "usefixtures", "xfail", "filterwarnings"}
    assert {m for m in own if f"`{m}`" not in readme} == set()


def test_what_is_imported_is_declared() -> None:
    """Every third-party import is a dependency of the core, or of the extra that its package needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^A-Za-z0-9._-]", r)[0].lower().replace("_", "-") for r in requirements}

    core = names(project["dependencies"])
    allowed = {
        "training": names(extras["train"]),
        "dashboards": names(extras["dashboard"]),
        "evolver": names(extras["ray"]),
        "devset": names(extras["devset"]),
    }
    shipped_by = importlib.metadata.packages_distributions()
    undeclared = []
    for path in sources():
        if rel(path).startswith(INSIDE):
            continue
        for name in imports(path) - set(PACKAGES) - sys.stdlib_module_names - {"__future__"}:
            ships = {d.lower().replace("_", "-") for d in shipped_by.get(name, [name])}
            if not ships & (core | allowed.get(rel(path).partition("/")[0], set())):
                undeclared.append(f"{rel(path)}: {name}")
    assert not undeclared, "\n".join(undeclared)


def test_the_commands_of_other_packages_load() -> None:
    """What `evolver` finds through its entry points is there."""
    points = importlib.metadata.entry_points(group="evolver.commands")
    assert {"distil", "dashboard"} <= {point.name for point in points}
    assert all(callable(point.load()) for point in points)
