"""A harness on disk: reads and writes its directory tree, checks it, and computes its id (the git tree id)."""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import os
import tarfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from harnesses.explain import explain
from harnesses.harness import Environment, Harness, Prompt, Scaffold, Strict, Tool

SEEDS = ("alpha", "beta1", "beta2")
LAYOUT = ("scaffold.toml", "environment.toml", "prompt/system.md", "prompt/task.md")
MAX_FILES, MAX_BYTES, MAX_DEPTH = 500, 4_000_000, 20

Read = TypeVar("Read", bound=Strict)
Part = TypeVar("Part")


class HarnessError(ValueError):
    """What is no harness: `lines`, each of which names file, field, value and what was expected."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class Tree(dict[str, bytes]):
    """All files of a harness (path with `/` → bytes) and which of them are `executable`.

    A plain mapping has no modes; in it, a file that begins with `#!` is taken to be executable.
    """

    executable: frozenset[str]

    def __init__(self, files: Mapping[str, bytes], executable: Iterable[str] | None = None) -> None:
        super().__init__(files)
        if executable is None:
            executable = (
                files.executable if isinstance(files, Tree) else [p for p, b in files.items() if b[:2] == b"#!"]
            )
        self.executable = frozenset(executable) & self.keys()


def seed_path(name: str) -> Path:
    """The directory of a seed harness that ships with the package."""
    if name not in SEEDS:
        raise HarnessError(f"unknown seed {name!r}; expected one of {', '.join(SEEDS)}")
    return Path(__file__).parent / "seeds" / name


def read_tree(path: Path) -> Harness:
    """Reads the harness in directory `path`. Every file counts (ignore files hide nothing), but a top-level `.git`."""
    return harness_from_files(read_files(path))


def read_files(path: Path) -> Tree:
    """The files in directory `path`, unchecked. Raises `HarnessError` for what can't be a harness's tree at all."""
    if not path.is_dir():
        raise HarnessError(f"{path}: expected the directory of a harness, found none")
    files: dict[str, bytes] = {}
    executable = set()
    for name in _walk(path, ""):
        file = path / name
        if len(files) >= MAX_FILES or sum(map(len, files.values())) + file.stat().st_size > MAX_BYTES:
            raise HarnessError(f"{path}: expected at most {MAX_FILES} files and {MAX_BYTES:,} bytes")
        files[name] = file.read_bytes()
        if file.stat().st_mode & 0o100:
            executable.add(name)
    return Tree(files, executable)


def harness_from_files(files: Mapping[str, bytes]) -> Harness:
    """Checks a tree and types it. Raises `HarnessError` with what is wrong in each of its files."""
    tree = Tree(files)
    _check_paths(tree)
    wrong: list[str] = []
    paths = [path for path in sorted(tree) if path.startswith("tools/")]
    tools = [_tried(wrong, partial(_read_tool, tree, path)) for path in paths]
    scaffold = _tried(wrong, partial(_read, Scaffold, tree, "scaffold.toml"))
    environment = _tried(wrong, partial(_read, Environment, tree, "environment.toml"))
    prompt = _tried(wrong, partial(_read_prompt, tree))
    if wrong or scaffold is None or environment is None or prompt is None:
        raise HarnessError(*wrong)
    harness = Harness(
        id=tree_id(tree),
        scaffold=scaffold,
        tools=tuple(tool for tool in tools if tool is not None),
        prompt=prompt,
        environment=environment,
        files=dict(tree),
        executable=tree.executable,
    )
    _check_together(harness)
    return harness


def read_archive(data: bytes) -> Harness:
    """Reads a harness from a tar of its files. Raises `HarnessError`."""
    files, executable = {}, set()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for entry in tar:
            content = tar.extractfile(entry) if entry.isfile() else None
            if content is not None:
                files[entry.name] = content.read()
                executable |= {entry.name} if entry.mode & 0o100 else set()
            elif not entry.isdir():
                raise HarnessError(f"{entry.name}: expected a plain file, got a special one")
    return harness_from_files(Tree(files, executable))


def tree_files(harness: Harness) -> Tree:
    """The files that a harness was read from, byte for byte."""
    return Tree(harness.files, harness.executable)


def write_tree(harness: Harness, path: Path) -> None:
    """Writes the files into `path`, which must not exist yet or be empty."""
    if path.exists() and any(path.iterdir()):
        raise HarnessError(f"{path}: expected a new or empty directory")
    for name, data in harness.files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(0o755 if name in harness.executable else 0o644)


def tree_id(tree: Tree) -> str:
    """The id that git gives this tree (40 hex digits)."""
    *_, (_, sha, _) = git_objects(tree)
    return sha


def git_objects(tree: Tree) -> Iterator[tuple[str, str, bytes]]:
    """(type, sha1, content) of every blob and tree object in git's format, children first, the root last."""
    nested: dict[str, Tree] = {}
    entries: list[tuple[bytes, bytes, str]] = []  # sort key, mode and name, sha1
    for path, data in tree.items():
        name, _, rest = path.partition("/")
        if rest:
            below = nested.setdefault(name, Tree({}))
            below[rest] = data
            below.executable |= {rest} if path in tree.executable else set()
        else:
            sha = object_id("blob", data)
            mode = b"100755" if path in tree.executable else b"100644"
            entries.append((name.encode(), mode + b" " + name.encode(), sha))
            yield "blob", sha, data
    for name, below in nested.items():
        for kind, sha, data in git_objects(below):
            yield kind, sha, data
        entries.append((name.encode() + b"/", b"40000 " + name.encode(), sha))
    content = b"".join(label + b"\0" + bytes.fromhex(sha) for _, label, sha in sorted(entries))
    yield "tree", object_id("tree", content), content


def object_id(kind: str, content: bytes) -> str:
    """The sha1 that git gives an object."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def _walk(root: Path, below: str) -> Iterator[str]:
    for entry in sorted(os.scandir(root / below), key=lambda e: e.name):
        name = f"{below}{entry.name}"
        if name == ".git":
            continue
        if entry.is_symlink():
            raise HarnessError(f"{name}: expected a plain file, got a symbolic link")
        if entry.is_dir():
            yield from _walk(root, name + "/")
        elif entry.is_file():
            yield name
        else:
            raise HarnessError(f"{name}: expected a plain file, got a special one")


def _check_paths(tree: Tree) -> None:
    if len(tree) > MAX_FILES or sum(map(len, tree.values())) > MAX_BYTES:
        raise HarnessError(f"the tree: expected at most {MAX_FILES} files and {MAX_BYTES:,} bytes")
    for path in sorted(tree):
        parts = path.split("/")
        if len(parts) > MAX_DEPTH:
            raise HarnessError(f"{path[:80]!r}...: expected at most {MAX_DEPTH} folders deep, got {len(parts)}")
        if not all(_is_name(part) for part in parts) or any("/".join(parts[:n]) in tree for n in range(1, len(parts))):
            raise HarnessError(f"{path!r}: expected a relative path of plain names")
        if not _in_layout(path):
            near = difflib.get_close_matches(path, (*LAYOUT, "tools/bash.toml", "prompt/notes/bash.md"), 1, 0.7)
            hint = f"; did you mean {near[0]}?" if near else ""
            places = f"{', '.join(LAYOUT)}, tools/NAME.toml, prompt/notes/TOOL.md or files/..."
            raise HarnessError(f"{path}: unknown file; expected {places}{hint}")
    for path in LAYOUT:
        if path not in tree:
            raise HarnessError(f"{path}: missing; every harness has one")


def _is_name(part: str) -> bool:
    return part.isprintable() and "\\" not in part and part.lower() not in ("", ".", "..", ".git") and len(part) <= 120


def _in_layout(path: str) -> bool:
    parent, _, name = path.rpartition("/")
    if path in LAYOUT or path.startswith("files/"):
        return True
    return (parent, name.rpartition(".")[2]) in (("tools", "toml"), ("prompt/notes", "md"))


def _tried(wrong: list[str], read: Callable[[], Part]) -> Part | None:
    """What `read` returns; None when it raised `HarnessError`, whose lines are added to `wrong`."""
    try:
        return read()
    except HarnessError as error:
        wrong.extend(error.lines)
        return None


def _text(tree: Tree, path: str) -> str:
    try:
        return tree[path].decode()
    except UnicodeDecodeError as error:
        raise HarnessError(f"{path}: expected UTF-8 text, got a byte 0x{tree[path][error.start]:02x}") from error


def _read(model: type[Read], tree: Tree, path: str, name: str | None = None) -> Read:
    named = {} if name is None else {"name": name}
    text = _text(tree, path)
    try:
        fields = json.dumps(named | tomllib.loads(text), default=str)
    except RecursionError:
        raise HarnessError(f"{path}: expected TOML, got it nested too deeply") from None
    except ValueError as error:
        raise HarnessError(f"{path}: expected TOML: {error}") from error
    try:  # strict JSON takes lists for tuples but neither "5" nor true for a number
        return model.model_validate_json(fields, strict=True)
    except ValidationError as error:
        raise HarnessError(*(f"{path}: {line}" for line in explain(model, error))) from error


def _read_tool(tree: Tree, path: str) -> Tool:
    stem = path.removeprefix("tools/").removesuffix(".toml")
    tool = _read(Tool, tree, path, stem)
    if tool.name != stem:
        raise HarnessError(f"{path}: name: expected {stem!r} (the file's name), got {tool.name!r}")
    return tool


def _read_prompt(tree: Tree) -> Prompt:
    notes = {
        p.rpartition("/")[2].removesuffix(".md"): _text(tree, p) for p in sorted(tree) if p.startswith("prompt/notes/")
    }
    task = _text(tree, "prompt/task.md")
    if task.count("{instruction}") != 1:
        raise HarnessError(
            f"prompt/task.md: expected {{instruction}} exactly once, got it {task.count('{instruction}')} times"
        )
    return Prompt(system=_text(tree, "prompt/system.md"), task=task, notes=notes)


def _check_together(harness: Harness) -> None:
    """What no file can say alone: tools, notes, programs and the machine fit each other."""
    names = [tool.name for tool in harness.tools]
    if not names:
        raise HarnessError("tools/: expected at least one tool, got none")
    for kind in ("computer_use", "bash", "a11y_tree"):
        of_kind = [tool.name for tool in harness.tools if tool.kind == kind]
        if len(of_kind) > 1:
            raise HarnessError(f"tools/{of_kind[1]}.toml: kind: expected one {kind} tool, got {' and '.join(of_kind)}")
        if of_kind and kind != "bash" and harness.environment.image != "desktop":
            raise HarnessError(
                f"environment.toml: image: expected 'desktop' for the tool {of_kind[0]!r}, got 'terminal'"
            )
    for note in harness.prompt.notes:
        if note not in names:
            raise HarnessError(
                f"prompt/notes/{note}.md: expected the name of a tool ({', '.join(names)}), got {note!r}"
            )
    programs = [(f"tools/{t.name}.toml: entry", t.entry) for t in harness.tools if t.entry is not None]
    programs += [(f"scaffold.toml: hooks.{n}.entry", hook.entry) for n, hook in enumerate(harness.scaffold.hooks)]
    for field, entry in programs:
        if not entry.startswith("files/") or entry not in harness.files:
            raise HarnessError(f"{field}: expected the path of a program under files/, got {entry!r}")
