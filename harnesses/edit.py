"""Structured edits of a harness: the changed fields are written into their files, everything else stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import cast

import tomlkit
from pydantic import JsonValue

from harnesses.harness import Harness
from harnesses.tree import SEEDS, HarnessError, Tree, harness_from_files, seed_path, tree_files

FORMS = (
    "scaffold.FIELD, environment.FIELD, tools.TOOL, tools.TOOL.FIELD, prompt.system, prompt.task or prompt.notes.TOOL"
)


def with_changes(harness: Harness, changes: Mapping[str, JsonValue]) -> Tree:
    """The files of `harness` after `changes`: dotted field → new value, None = back to the default.

    `tools.bash = False` takes a tool away with its note; `True` adds it as the seeds have it. `prompt.*` and
    `prompt.notes.TOOL` take text. A value that the harness has already touches nothing. Raises `HarnessError`.
    """
    tree = tree_files(harness)
    for field, value in changes.items():
        part, _, rest = field.partition(".")
        if part in ("scaffold", "environment") and rest:
            model = harness.scaffold if part == "scaffold" else harness.environment
            _set_field(tree, f"{part}.toml", rest.split("."), value, model.model_dump(mode="json"))
        elif part == "tools" and rest and "." not in rest and isinstance(value, bool):
            _toggle_tool(tree, rest, value)
        elif part == "tools" and "." in rest:
            name, _, below = rest.partition(".")
            tool = next((t for t in harness.tools if t.name == name), None)
            if tool is None:
                raise HarnessError(f"{field}: expected a tool of the harness, got {name!r}")
            _set_field(tree, f"tools/{name}.toml", below.split("."), value, tool.model_dump(mode="json"))
        elif part == "prompt" and rest:
            _set_prompt(tree, field, rest, value)
        else:
            raise HarnessError(f"{field}: expected {FORMS}, got the value {value!r}")
    harness_from_files(tree)
    return tree


def _set_field(tree: Tree, path: str, keys: list[str], value: JsonValue, now: JsonValue) -> None:
    for key in keys:
        now = now.get(key) if isinstance(now, dict) else None
    if value is not None and type(value) is type(now) and value == now:
        return
    document = tomlkit.parse(tree[path].decode())
    table = cast(MutableMapping[str, object], document)
    for key in keys[:-1]:
        if key not in table and value is not None:
            table[key] = tomlkit.table()
        below = table.get(key, {})
        if not isinstance(below, MutableMapping):
            raise HarnessError(f"{path}: {'.'.join(keys)}: {key!r} is a value, expected a table")
        table = below
    if value is None:
        table.pop(keys[-1], None)
    else:
        table[keys[-1]] = value
    tree[path] = tomlkit.dumps(document).encode()


def _toggle_tool(tree: Tree, name: str, present: bool) -> None:
    files = (f"tools/{name}.toml", f"prompt/notes/{name}.md")
    if not present:
        for path in files:
            tree.pop(path, None)
        return
    if files[0] in tree:
        return
    source = next((seed_path(s) for s in SEEDS if (seed_path(s) / files[0]).is_file()), None)
    if source is None:
        raise HarnessError(f"tools.{name}: expected a tool of the seeds {', '.join(SEEDS)}, none has {name!r}")
    for path in files:
        if (source / path).is_file():
            tree[path] = (source / path).read_bytes()


def _set_prompt(tree: Tree, field: str, rest: str, value: JsonValue) -> None:
    path = f"prompt/{rest.replace('.', '/')}.md"
    if value is None:
        tree.pop(path, None)
    elif isinstance(value, str):
        tree[path] = value.encode()
    else:
        raise HarnessError(f"{field}: expected text, got {value!r}")
