"""Imports Harbor task directories: task.toml, instruction.md, environment/Dockerfile, tests/test.sh, solution/.

Our machine is one Debian without network or root, and only the agent's home is frozen. So the paths of the image move
into the home (/app is /home/user/app) in the instruction, the files, the tests and the solution alike, and a task whose
image can't be had that way is refused. The tests run beside a copy of the frozen home (`devset.checks.harbor`); the
solution becomes the oracle of the terminal.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from pydantic import Field, JsonValue

from devset.checks.harbor import CONFIG, KEY
from devset.importers.commands import UNFROZEN
from devset.importers.dockerfile import NETWORK, SYSTEM, Image, home_path, read_image, rewritten
from devset.importers.offer import (
    HOME,
    ImportFailed,
    Loose,
    Offer,
    Provenance,
    Refusals,
    about,
    checked,
    folder_of,
    identifier,
    licence_near,
    made,
    text_of,
)
from devset.importers.testscript import PYTEST, offline, pip_packages
from devset.task import Category, Criterion, Oracle, Rubric, Task, TaskLimits, TerminalStep

SOURCE = "harbor"
PLACE = "/tmp/harbor"
MOVED = {"/tests": f"{PLACE}/tests", "/logs": f"{PLACE}/logs", "/solution": f"{PLACE}/solution"}
CHECK = "from devset.checks.harbor import main\n\nmain()\n"
DEFAULT_AGENT_S = 600.0
AGENT_S = 1_500.0  # a sandbox lives half an hour
SYSTEM_STATE = re.compile(
    r"\bsystemctl\b|(?<![\w.$}/~-])/(etc|var|usr/local|usr/bin)/(?!env\b|bash\b|python3?\b)[\w.-]+"
)
PLACES = ("/opt", "/srv", "/mnt", "/media")  # empty folders of every image
PATH = re.compile(r"(?<![\w.$}/~:-])/[a-z][\w.-]*(?:/[\w.-]+)*")
# Where the installers of the original put programs.
INSTALLED = re.compile(r"^.*(?:\bPATH=|\.local/bin/env).*$", re.MULTILINE)
CATEGORIES: dict[str, Category] = {
    "system-administration": "os",
    "file-operations": "os",
    "personal-assistant": "daily",
}


class _Agent(Loose):
    timeout_sec: float | None = Field(default=None, gt=0)


class _Verifier(Loose):
    timeout_sec: float = Field(default=600.0, gt=0)
    env: Mapping[str, str] = Field(default_factory=dict)


class _Environment(Loose):
    docker_image: str | None = None
    os: str = "linux"
    gpus: int | None = None
    tpu: JsonValue = None
    mcp_servers: tuple[JsonValue, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    skills_dir: str | None = None
    healthcheck: JsonValue = None
    workdir: str | None = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


class _Metadata(Loose):
    category: str | None = None
    license: str | None = None


class Config(Loose):
    """What counts of task.toml (schema 1.0 to 1.4)."""

    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()
    environment: _Environment = _Environment()
    metadata: _Metadata = _Metadata()
    steps: tuple[JsonValue, ...] = ()


@dataclass
class _Reading:
    folder: Path
    config: Config
    installed: frozenset[str]
    refusals: Refusals = field(default_factory=Refusals)
    roots: set[str] = field(default_factory=set)

    def moved(self, text: str) -> str:
        """`text` with the image's paths where our machine has them."""
        text = rewritten(text, self.roots)
        for old, new in MOVED.items():
            text = re.sub(rf"(?<![\w.$}}/~-]){old}(?![\w-])", new, text)
        return text

    def moved_bytes(self, data: bytes) -> bytes:
        try:
            return self.moved(data.decode()).encode()
        except UnicodeDecodeError:
            return data


def offers(path: Path, installed: frozenset[str]) -> Iterator[Offer]:
    """One offer per directory with a task.toml below `path`, or `path` itself; `installed` are our machine's Debian
    packages."""
    found = sorted(p.parent for p in path.rglob("task.toml"))
    if not found:
        raise ImportFailed(f"{path}: no task.toml below it, expected Harbor task directories")
    for folder in found:
        name = folder.relative_to(path).as_posix() if folder != path else folder.resolve().name
        try:
            with about(folder / "task.toml"):
                offer = _offer(folder, name, installed)
        except ImportFailed as error:
            offer = Offer(identifier(SOURCE, name), name, reasons=(f"malformed: {error}",))
        yield offer


def _offer(folder: Path, name: str, installed: frozenset[str]) -> Offer:
    toml, original = folder / "task.toml", folder_of(folder, folder)
    try:
        config = checked(Config, tomllib.loads(text_of(toml)), toml)
    except tomllib.TOMLDecodeError as error:
        raise ImportFailed(f"{toml}: expected TOML: {error}") from error
    reading = _Reading(folder, config, installed)
    _lint(reading)
    if config.steps:
        return Offer(identifier(SOURCE, name), name, reasons=tuple(reading.refusals.reasons))
    instruction = text_of(folder / "instruction.md").strip()
    if not instruction:
        raise ImportFailed(f"{folder / 'instruction.md'}: got an empty file, expected what the agent is asked")
    image = _image(reading)
    reading.roots = image.roots | _told(instruction) | {"/app", "/root"}
    if any(re.search(r"(?<![\w.])/tmp\b", text) for text in (*image.files, *image.commands)):
        reading.roots.add("/tmp")
    gt, packages = _tests(reading, image)
    oracle = _oracle(reading, image)
    if reading.refusals.reasons:
        return Offer(identifier(SOURCE, name), name, reasons=tuple(reading.refusals.reasons))
    workdir = home_path(image.workdir)
    told = reading.moved(instruction)
    task = Task(
        id=identifier(SOURCE, name),
        hash="",
        family=SOURCE,
        instruction=f"{told}\n\nThe working directory of this task is {workdir}.\n",
        category=CATEGORIES.get(config.metadata.category or "", "professional"),
        apps=("terminal",),
        channels=frozenset({"terminal"}),
        rubric=Rubric(criteria=(Criterion(id=KEY, description="The task's own tests give the full reward."),)),
        limits=TaskLimits(
            agent_timeout_s=min(config.agent.timeout_sec or DEFAULT_AGENT_S, AGENT_S),
            check_timeout_s=config.verifier.timeout_sec + 30,
            setup_timeout_s=300,
        ),
        exec_files={_below_home(path): reading.moved_bytes(data) for path, data in image.files.items()},
        setup=_setup(reading, image),
        gt_files=gt,
        check=CHECK,
        check_pip=packages,
        oracle=oracle,
        source=_source(reading, name, original).text(),
    )
    return Offer(task.id, name, made(task))


def _told(instruction: str) -> set[str]:
    """Roots of the paths that the agent is told of, which have to lie in the home, too: places that every image has,
    and folders with a file that has a suffix (an address such as /api/users has none)."""
    roots = set()
    for path in (found.rstrip(".-") for found in PATH.findall(instruction)):
        _, first, *rest = path.split("/")
        empty, taken = f"/{first}" in (*PLACES, "/tmp"), first in (*SYSTEM, "tests", "logs", "solution")
        if empty or (not taken and rest and "." in rest[-1]):
            roots.add(f"/{first}/{rest[0]}" if first == "home" else f"/{first}")
    return roots


def _source(reading: _Reading, name: str, original: Mapping[str, bytes]) -> Provenance:
    changes = ["the image's paths lie in the home", "the tests install nothing and run under Python 3.11"]
    if (agent_s := reading.config.agent.timeout_sec or DEFAULT_AGENT_S) > AGENT_S:
        changes.append(f"the agent has {AGENT_S:g} s instead of {agent_s:g}")
    return Provenance(
        f"Harbor task {name}",
        reading.config.metadata.license or licence_near(reading.folder),
        original,
        tuple(changes),
    )


def _lint(reading: _Reading) -> None:
    """What task.toml asks for and our machine does not have."""
    environment, refuse = reading.config.environment, reading.refusals.add
    wants: Mapping[str, object] = {
        "several steps": reading.config.steps,
        "a GPU": environment.gpus or environment.tpu,
        "MCP servers": environment.mcp_servers,
        "a folder of skills": environment.skills_dir,
        "a service with a health check": environment.healthcheck,
        "the network": environment.network_mode == "allowlist" or environment.allowed_hosts,
        "another system than Linux": environment.os.lower() != "linux",
        f"environment variables ({', '.join(environment.env)})": environment.env,
    }
    for what, wanted in wants.items():
        if wanted:
            refuse(f"needs {what}")
    for name, value in reading.config.verifier.env.items():
        if "${" in value:
            refuse(f"its tests need a secret: {name}")
    folder = reading.folder / "environment"
    for pattern in ("docker-compose.y*ml", "singularity-compose.y*ml"):
        if any(folder.glob(pattern)):
            refuse("needs several containers (a compose file)")


def _image(reading: _Reading) -> Image:
    path = reading.folder / "environment/Dockerfile"
    if path.is_file():
        with about(path):
            image = read_image(path, reading.installed, reading.refusals)
    else:
        image = Image()
        reading.refusals.add(f"needs the image {reading.config.environment.docker_image or 'of a missing Dockerfile'}")
    if (workdir := reading.config.environment.workdir) is not None:
        if not workdir.startswith("/"):
            raise ImportFailed(f"{reading.folder / 'task.toml'}: environment.workdir: got {workdir!r}, expected /PATH")
        image.workdir = workdir
    if image.workdir == "/":
        image.workdir = "/root"  # a shell at / can write nothing on our machine
    first = image.workdir.split("/")[1]
    image.roots.add(f"/{first}" if first != "home" else "/".join(image.workdir.split("/")[:3]))
    return image


def _below_home(path: str) -> str:
    return posixpath.relpath(home_path(path), HOME)


def _setup(reading: _Reading, image: Image) -> str:
    """The image's folders, modes and commands, as far as the agent's own user can make them."""
    places = [image.workdir, *sorted(reading.roots.intersection((*PLACES, "/tmp")))]
    lines = [f"mkdir -p {quote(home_path(place))}" for place in places]
    lines += [reading.moved(command) for command in image.commands]
    programs = [p for p, data in sorted(image.files.items()) if data.startswith(b"#!")]
    lines += [f"chmod +x {quote(home_path(path))}" for path in programs]
    return "set -e\n" + "\n".join(lines) + "\n"


def _tests(reading: _Reading, image: Image) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """gt/ of the task, with the tests as they run on our machine, and the pip packages that they need."""
    tests = folder_of(reading.folder / "tests", reading.folder)
    if "test.sh" not in tests:
        raise ImportFailed(f"{reading.folder / 'tests/test.sh'}: missing, expected the task's test script")
    with about(reading.folder / "tests/test.sh"):
        script, packages = offline(text_of(reading.folder / "tests/test.sh"), reading.installed, reading.refusals)
    extra = set(packages)
    if "Dockerfile" in tests:  # a verifier with an image of its own: what it installs, its tests need
        text = re.sub(r"\\[ \t]*\n", " ", tests.pop("Dockerfile").decode(errors="replace"))
        with about(reading.folder / "tests/Dockerfile"):
            for command in re.findall(r"(?:uv\s+pip|pip3?)\s+install\s+[^&;\n]+", text):
                extra |= set(pip_packages(command, reading.refusals))
        named = {package.partition("==")[0] for package in extra if "==" in package}
        extra = {p for p in extra if "==" in p or p not in named}
    tests["test.sh"] = script.encode()
    for name, data in tests.items():
        if name.endswith((".sh", ".py")) and (found := _not_frozen(reading.moved(data.decode(errors="replace")))):
            reading.refusals.add(f"its tests look at what is not frozen: {found} in tests/{name}")
    config = {
        "home": HOME,
        "harbor": PLACE,
        "workdir": _below_home(image.workdir),
        "timeout_s": reading.config.verifier.timeout_sec,
        "env": {name: reading.moved(value) for name, value in reading.config.verifier.env.items()},
    }
    gt = {f"tests/{name}": reading.moved_bytes(data) for name, data in tests.items()}
    # Without a package of its own a check would share its machine with others, and tests may run what the agent wrote.
    return {CONFIG: json.dumps(config, indent=1).encode(), **gt}, _pinned(extra or {PYTEST})


def _not_frozen(test: str) -> str | None:
    """What a test, whose paths have been moved, looks at though it is no part of the frozen home; None for nothing."""
    if found := SYSTEM_STATE.search(test) or UNFROZEN.search(INSTALLED.sub("", test)):
        return found[0]
    return next((path for path in PATH.findall(test) if path.startswith(tuple(f"{place}/" for place in PLACES))), None)


def _pinned(packages: set[str]) -> tuple[str, ...]:
    """One spec per package; of two versions of one, the first by name (pip would refuse both)."""
    found: dict[str, str] = {}
    for package in sorted(packages):
        found.setdefault(package.partition("==")[0].lower(), package)
    return tuple(sorted(found.values()))


def _oracle(reading: _Reading, image: Image) -> Oracle:
    """The solution as one command: its files are written beside the home, then solve.sh runs in the working folder."""
    solution = folder_of(reading.folder / "solution", reading.folder)
    if "solve.sh" not in solution:
        return Oracle()
    script = solution["solve.sh"].decode(errors="replace")
    for line in script.splitlines():
        if NETWORK.search(line) and not re.search(r"^\s*#|localhost|127\.0\.0\.1|\becho\b", line):
            reading.refusals.add(f"its solution needs the network: {line.strip()[:80]}")
    if re.search(r"\bapt(-get)?\s+install\b", script):
        reading.refusals.add("its solution installs Debian packages")
    lines = []
    for name, data in solution.items():
        path = f"{PLACE}/solution/{name}"
        text = base64.b64encode(reading.moved_bytes(data)).decode()
        lines.append(f"mkdir -p {quote(posixpath.dirname(path))} && base64 -d > {quote(path)} <<< {text}")
    lines.append(f"( cd {quote(home_path(image.workdir))} && bash {PLACE}/solution/solve.sh </dev/null )")
    lines.append(f"rm -rf {PLACE}")
    return Oracle(terminal=(TerminalStep(summary="Run the published solution.", command="\n".join(lines)),))
