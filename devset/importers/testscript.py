"""Makes a published test script run without a network: what its installers bring becomes the check's packages."""

from __future__ import annotations

import re
import shlex

from devset.importers.dockerfile import IDLE_PACKAGES, NETWORK, apt_packages, commands_of
from devset.importers.offer import Refusals

PYTEST = "pytest==8.4.1"
PLAIN_PYTEST = "python3 -P -m pytest"  # like `pytest`, -P imports nothing from the agent's working folder
CTRF = "pytest-json-ctrf==0.3.5"
SPEC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[a-z0-9,_-]+\])?(==[A-Za-z0-9.+!]+)?")
PIP = re.compile(r"(?:uv\s+add|(?:uv\s+)?(?:python3?\s+-m\s+)?pip3?\s+install)\s+(.*)")
IDLE = re.compile(r"(source|\.)\s+\S*(/\.local/bin/env|/?\.cargo/env|bin/activate)\b|uv\s+(venv|init)\b|set\s+-")
INSTALLER = re.compile(r"\(?(set [^;]*;\s*)?(curl|wget)\s[^|]*astral\.sh/uv[^|]*\|\s*(env\s+\S+\s+)?(ba)?sh\b")
UVX = re.compile(r"\b(uvx|uv\s+tool\s+run|uv\s+run)\s+")
WITH_VALUE = ("-w", "--with", "-p", "--python", "--with-requirements", "--from", "--index-url", "--project")


def offline(script: str, installed: frozenset[str], refusals: Refusals) -> tuple[str, tuple[str, ...]]:
    """(the script without its installers, the pip packages that its check needs); what still needs a network is
    refused."""
    packages: list[str] = []
    kept = []
    for line in re.sub(r"\\[ \t]*\n\s*", " ", script).split("\n"):
        code = line.strip()
        if code.startswith("#") or not code or not _installs(code, installed, packages, refusals):
            kept.append(_with_pytest(line, packages, refusals))
        else:
            kept.append(":")  # what stands between `then` and `fi` must stay a command
    text = "\n".join(kept)
    for line in kept:
        code = re.sub(r"\b(command\s+-v|which|type)\s+\w+", "", line.split(" #")[0]).strip()
        if (
            NETWORK.search(code)
            and not code.startswith("#")
            and not re.search(r"localhost|127\.0\.0\.1|\becho\b", code)
        ):
            refusals.add(f"its tests need the network: {code[:80]}")
    return text, _distinct(packages, text)


def pip_packages(command: str, refusals: Refusals) -> list[str]:
    """The packages of one `pip install`, `uv pip install` or `uv add`; options and files of requirements aside."""
    found = PIP.match(command)
    words = shlex.split(found[1], comments=True) if found else []
    if "-r" in words or "--requirement" in words:
        refusals.add(f"its tests install from a file: {command[:80]}")
        return []
    return [_spec(word, refusals) for word in words if not word.startswith("-")]


def _spec(word: str, refusals: Refusals) -> str:
    spec = re.sub(r"(>=|~=|>).*$", "", word)
    if not SPEC.fullmatch(spec):
        refusals.add(f"its tests need the pip package {word!r}, expected NAME or NAME==VERSION")
    return spec


def _installs(code: str, installed: frozenset[str], packages: list[str], refusals: Refusals) -> bool:
    """Whether a line does nothing but install; what it installs is noted."""
    if INSTALLER.match(code):
        return True
    commands = commands_of(code)
    debs = [apt_packages(command) for command in commands]
    for command, names in zip(commands, debs, strict=True):
        if names is None and not PIP.match(command) and not IDLE.match(command):
            return False
    for command, names in zip(commands, debs, strict=True):
        for name in names or ():
            if name not in installed and name not in IDLE_PACKAGES:
                refusals.add(f"its tests need the Debian package {name}")
        if PIP.match(command):
            packages += pip_packages(command, refusals)
    return not all(IDLE.match(command) and command.startswith("set") for command in commands)


def _with_pytest(line: str, packages: list[str], refusals: Refusals) -> str:
    """`uvx --with A pytest` and a bare `pytest` become our pytest; A is noted."""
    if found := UVX.search(line):
        options, program, rest = _uvx(line[found.end() :])
        for option, value in options:
            if option in ("-w", "--with"):
                packages += [_spec(one, refusals) for one in value.split(",")]
            elif option == "--with-requirements":
                refusals.add(f"its tests install from a file: {value}")
        ours = {"pytest": PLAIN_PYTEST, "python": "python3"}.get(program, program)
        line = line[: found.start()] + ours + rest
    return re.sub(r"(^\s*|[;&|]\s*|\b(?:if|then|!)\s+)(?:py\.test|pytest)\b", rf"\1{PLAIN_PYTEST}", line)


def _uvx(words: str) -> tuple[list[tuple[str, str]], str, str]:
    """(options with their values, the program, the rest as it is) of what follows `uvx`."""
    options: list[tuple[str, str]] = []
    while found := re.match(r"\s*(-\S+)", words):
        words = words[found.end() :]
        option, equals, value = found[1].partition("=")
        if not equals and option in WITH_VALUE and (given := re.match(r"\s*(\S+)", words)):
            value, words = given[1], words[given.end() :]
        options.append((option, value.strip("\"'")))
    program = re.match(r"\s*([^\s;&|)]*)(.*)", words, re.DOTALL)
    return options, program[1] if program else "", program[2] if program else ""


def _distinct(packages: list[str], script: str) -> tuple[str, ...]:
    names = {package.partition("==")[0] for package in packages}
    if "pytest" in script and "pytest" not in names:
        packages = [*packages, PYTEST]
    if "--ctrf" in script and "pytest-json-ctrf" not in names:
        packages = [*packages, CTRF]
    return tuple(sorted(set(packages)))
