"""Reads a task's Dockerfile for what our one machine can offer: files, working directory, commands; or says why not."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from devset.importers.offer import HOME, ImportFailed, Refusals, folder_of, text_of

BASES = re.compile(
    r"^(docker\.io/)?(library/)?(debian|ubuntu|buildpack-deps|python):[\w.-]+$"
    r"|^ghcr\.io/laude-institute/t-bench/(ubuntu|debian|python)[\w.:-]*$"
)
# Packages without a use where there is no network and no root, or that the original needs for its own agent.
IDLE_PACKAGES = frozenset(
    ("tmux", "asciinema", "curl", "wget", "gnupg", "apt-utils", "apt-transport-https", "locales", "sudo", "python3-pip",
     "python3-venv", "python-is-python3", "bash", "coreutils", "findutils", "grep", "sed", "gawk", "tar", "gzip",
     "diffutils", "util-linux", "software-properties-common", "python3-minimal", "openssh-client", "vim")
)  # fmt: skip
IDLE_VARIABLES = re.compile(r"^(DEBIAN_FRONTEND|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|LANG|LC_\w+|TZ|(PIP|UV)_\w+)$")
SYSTEM = ("usr", "etc", "var", "bin", "sbin", "lib", "lib64", "boot", "proc", "sys", "dev", "run")
NETWORK = re.compile(
    r"\b(curl|wget|git\s+clone|npm|npx|yarn|cargo|conda|go\s+(get|install)|uvx?|pip3?\s+(install|download))\b"
)
ROOT = re.compile(r"^(useradd|adduser|groupadd|usermod|passwd|chpasswd|service|systemctl|update-alternatives|ln)\b")


@dataclass
class Image:
    """What a Dockerfile makes, with paths of the image: `files` (path → bytes), `commands` in order, executables."""

    workdir: str = "/"
    files: dict[str, bytes] = field(default_factory=dict)
    executable: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)
    env: dict[str, str] = field(default_factory=dict)


def home_path(path: str) -> str:
    """Where our machine has a path of the image: below the agent's home, which is all that is frozen."""
    first, _, rest = path.lstrip("/").partition("/")
    if first == "root":
        return posixpath.join(HOME, rest).rstrip("/")
    if first == "home":
        return posixpath.join(HOME, rest.partition("/")[2]).rstrip("/")
    return posixpath.join(HOME, path.lstrip("/")).rstrip("/")


def rewritten(text: str, roots: set[str]) -> str:
    """`text` with every path below one of `roots` (such as /app, /root) put where our machine has it."""
    for root in sorted(roots, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.$}}/~-]){re.escape(root)}(?![\w-])", home_path(root), text)
    return text


def read_image(path: Path, installed: frozenset[str], refusals: Refusals) -> Image:
    """The Dockerfile at `path`; `installed` are the Debian packages of our machine. What it lacks is refused."""
    image, context, started = Image(), folder_of(path.parent, path.parent.parent), 0
    arguments: dict[str, str] = {}
    for word, rest in _instructions(path):
        rest = re.sub(r"\$\{?(\w+)\}?", lambda m: arguments.get(m[1], m[0]), rest) if word in ("FROM", "COPY") else rest
        if word == "FROM":
            started += 1
            base = next((part for part in rest.split() if not part.startswith("--")), "")
            if started > 1:
                refusals.add("its image is built in several stages")
            elif not BASES.match(base):
                refusals.add(f"needs the image {base}")
            image.workdir = "/app" if "/t-bench/" in base else "/"
        elif word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name.strip()] = value.strip().strip("\"'")
        elif word == "WORKDIR":
            image.workdir = posixpath.normpath(posixpath.join(image.workdir, rest.strip("\"'")))
            _root(image.workdir, image, refusals)
        elif word in ("COPY", "ADD"):
            _copy(rest, context, image, refusals)
        elif word == "RUN":
            _run(rest, image, installed, refusals)
        elif word == "ENV":
            _env(rest, image, refusals)
        elif word in ("ENTRYPOINT", "CMD") and not re.search(r"bash|/bin/sh|sleep|tail|\[\s*\]", rest):
            refusals.add(f"its image starts a program: {rest[:80]}")
        elif word in ("HEALTHCHECK", "ONBUILD", "a here-document"):
            refusals.add(f"its Dockerfile has {word}")
    return image


def _instructions(path: Path) -> Iterator[tuple[str, str]]:
    lines = [line for line in text_of(path).splitlines() if not re.match(r"\s*#", line)]
    joined = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    for line in joined.splitlines():
        word, _, rest = line.strip().partition(" ")
        if not word:
            continue
        if "<<" in rest and word.upper() in ("RUN", "COPY"):
            yield "a here-document", rest  # its lines are no instructions, so nothing after it is read
            return
        if not re.fullmatch(r"[A-Za-z]+", word):
            raise ImportFailed(f"{path}: got {line.strip()[:80]!r}, expected a Dockerfile instruction")
        yield word.upper(), rest.strip()


def _root(path: str, image: Image, refusals: Refusals) -> None:
    """Notes the top of a path of the image: everything below it lies in our home."""
    first = path.lstrip("/").partition("/")[0]
    if first in SYSTEM:
        refusals.add(f"needs files of its own in /{first}")
    elif first and first != "tmp":
        image.roots.add(f"/{first}/{path.split('/')[2]}" if first == "home" and path.count("/") > 1 else f"/{first}")


def _words(rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            return [str(word) for word in json.loads(rest)]
        except json.JSONDecodeError:
            pass
    try:
        return shlex.split(rest)
    except ValueError:
        return rest.split()


def _copy(rest: str, context: Mapping[str, bytes], image: Image, refusals: Refusals) -> None:
    flags = re.match(r"((?:--\S+\s+)*)(.*)", rest)
    given, words = (flags[1], _words(flags[2])) if flags else ("", [])
    if "--from" in given:
        if "/uv" not in rest:  # the installer of the original's tests; ours has them already
            refusals.add(f"copies from another image: {rest[:80]}")
        return
    *sources, target = words
    if any("://" in source for source in sources):
        refusals.add(f"builds its image from the network: {rest[:80]}")
        return
    into = posixpath.normpath(posixpath.join(image.workdir, target))
    _root(into if target.endswith("/") or "/" in into[1:] else posixpath.join(into, "x"), image, refusals)
    for source in sources:
        name = posixpath.normpath(source.lstrip("/")) if source.strip("/.") else ""
        below = {n: d for n, d in context.items() if not name or n.startswith(f"{name}/")}
        single = {n: d for n, d in context.items() if name and n.count("/") == name.count("/") and fnmatchcase(n, name)}
        if not below and not single:
            refusals.add(f"its Dockerfile copies {source}, which is missing")
        for path, data in below.items():
            image.files[posixpath.join(into, path.removeprefix(f"{name}/") if name else path)] = data
        for path, data in single.items():
            folder = target.endswith(("/", ".")) or len(sources) > 1 or into == image.workdir or len(single) > 1
            image.files[posixpath.join(into, posixpath.basename(path)) if folder else into] = data
    image.files.pop(posixpath.join(into, "Dockerfile"), None)


def _env(rest: str, image: Image, refusals: Refusals) -> None:
    pairs = [word.partition("=")[::2] for word in _words(rest)] if "=" in rest else [rest.partition(" ")[::2]]
    for name, value in pairs:
        if not IDLE_VARIABLES.match(name):
            refusals.add(f"needs the environment variable {name} in the agent's shell")
        image.env[name] = value


def _run(rest: str, image: Image, installed: frozenset[str], refusals: Refusals) -> None:
    for command in commands_of(" ".join(_words(rest)) if rest.startswith("[") else rest):
        packages = apt_packages(command)
        if packages is not None:
            for name in packages:
                if name not in installed and name not in IDLE_PACKAGES:
                    refusals.add(f"needs the Debian package {name}")
        elif re.match(r"(sudo\s+)?(rm\s+-rf?\s+/(var|root)|chown\b|set\s|true$|apt-mark)", command):
            continue
        elif pips := re.match(r"(python3?\s+-m\s+)?pip3?\s+install\s+(.*)", command):
            for name in (word for word in shlex.split(pips[2], comments=True) if not word.startswith("-")):
                refusals.add(f"needs the pip package {name} on the agent's machine")
        elif NETWORK.search(command):
            refusals.add(f"builds its image from the network: {command[:80]}")
        elif ROOT.match(command):
            refusals.add(f"builds its image as root: {command[:80]}")
        else:
            for path in re.findall(r"(?<![\w.$}/~-])/[a-z][\w.-]*(?:/[\w.-]+)*", command):
                if path.split("/")[1] not in SYSTEM:
                    _root(path if path.count("/") > 1 else f"{path}/x", image, refusals)
            image.commands.append(f"cd {shlex.quote(image.workdir)} && {command}")


def commands_of(script: str) -> list[str]:
    """The commands of a line, split at `&&` and `;` outside of quotes."""
    found, start, quote, at = [], 0, "", 0
    while at < len(script):
        char = script[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif script.startswith("&&", at) or char == ";":
            width = 2 if char == "&" else 1
            found.append(script[start:at])
            start = at + width
            at += width - 1
        at += 1
    return [part.strip() for part in (*found, script[start:]) if part.strip()]


def apt_packages(command: str) -> list[str] | None:
    """The Debian packages that a command installs (none for `update` and the like), or None if it is no apt command."""
    plain = command.removeprefix("sudo ").strip()
    words = shlex.split(plain, comments=True) if plain.startswith("apt") else []
    words = [word for word in words if not word.startswith("-")]
    if not words or words[0] not in ("apt-get", "apt"):
        return None
    return [word.partition("=")[0] for word in words[2:]] if words[1:2] == ["install"] else []
