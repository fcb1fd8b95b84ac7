"""What differs between two harnesses: the components, the fields in words, and a patch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from harnesses.harness import Component, Harness

ORDER: tuple[Component, ...] = ("F", "T", "P", "E")
LONGEST_VALUE = 60


@dataclass(frozen=True)
class Diff:
    """`components` that changed in the order F, T, P, E; one line per change; a unified patch of all files."""

    components: tuple[Component, ...]
    changes: tuple[str, ...]
    patch: str


def diff(old: Harness, new: Harness) -> Diff:
    """What was changed in `old` to get `new`. Equal trees give no components, no changes, an empty patch."""
    paths = [p for p in sorted(old.files.keys() | new.files.keys()) if _entry(old, p) != _entry(new, p)]
    touched = {_component(p, old, new) for p in paths}
    fields = [
        *_changes("scaffold", old.scaffold.model_dump(mode="json"), new.scaffold.model_dump(mode="json")),
        *_tool_changes(old, new),
        *_text_changes("prompt.system", old.prompt.system, new.prompt.system),
        *_text_changes("prompt.task", old.prompt.task, new.prompt.task),
        *_note_changes(old, new),
        *_changes("environment", old.environment.model_dump(mode="json"), new.environment.model_dump(mode="json")),
        *_program_changes(paths, old, new),
    ]
    said = {line.partition(".")[0].partition(":")[0] for line in fields}
    silent = [p for p in paths if p.partition("/")[0].removesuffix(".toml") not in said]
    return Diff(
        components=tuple(c for c in ORDER if c in touched),
        changes=(*fields, *(f"{path}: no field changed" for path in silent)),
        patch="".join(_patch(path, old, new) for path in paths),
    )


def _entry(harness: Harness, path: str) -> tuple[bytes | None, bool]:
    return harness.files.get(path), path in harness.executable


def _component(path: str, old: Harness, new: Harness) -> Component:
    top = path.partition("/")[0]
    if top == "files":  # a program belongs to what calls it, and to the tools when nothing does
        hooks = {hook.entry for harness in (old, new) for hook in harness.scaffold.hooks}
        return "F" if path in hooks else "T"
    components: dict[str, Component] = {"scaffold.toml": "F", "tools": "T", "prompt": "P", "environment.toml": "E"}
    return components[top]


def _changes(field: str, old: JsonValue, new: JsonValue) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(k for k in new if k not in old)):
            yield from _changes(f"{field}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and not field.endswith(".screen"):
        gone, come = [v for v in old if v not in new], [v for v in new if v not in old]
        yield from (f"{field}: - {_short(v)}" for v in gone)
        yield from (f"{field}: + {_short(v)}" for v in come)
        if not gone and not come:
            yield f"{field}: other order or repeats"
    else:
        yield f"{field}: {_short(old)} → {_short(new)}"


def _short(value: JsonValue) -> str:
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else " ".join(str(value).split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _tool_changes(old: Harness, new: Harness) -> Iterator[str]:
    before, after = {t.name: t for t in old.tools}, {t.name: t for t in new.tools}
    yield from (f"tools: - {name}" for name in before if name not in after)
    yield from (f"tools: + {name}" for name in after if name not in before)
    for name in before:
        if name in after:
            yield from _changes(
                f"tools.{name}", before[name].model_dump(mode="json"), after[name].model_dump(mode="json")
            )


def _text_changes(field: str, old: str, new: str) -> Iterator[str]:
    if old == new:
        return
    lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in ("+ ", "- "))
    yield f"{field}: {len(old.split())} → {len(new.split())} words (+{added} −{removed} lines)"


def _note_changes(old: Harness, new: Harness) -> Iterator[str]:
    before, after = old.prompt.notes, new.prompt.notes
    yield from (f"prompt.notes: - {name}" for name in before if name not in after)
    yield from (f"prompt.notes: + {name}" for name in after if name not in before)
    for name in before:
        if name in after:
            yield from _text_changes(f"prompt.notes.{name}", before[name], after[name])


def _program_changes(paths: list[str], old: Harness, new: Harness) -> Iterator[str]:
    for path in paths:
        if not path.startswith("files/"):
            continue
        if path not in old.files or path not in new.files:
            yield f"files: {'+' if path in new.files else '-'} {path}"
            continue
        if old.files[path] != new.files[path]:
            yield f"files: {path} {len(old.files[path]):,} → {len(new.files[path]):,} bytes"
        if (path in old.executable) != (path in new.executable):
            yield f"files: {path} is {'now' if path in new.executable else 'no longer'} executable"


def _patch(path: str, old: Harness, new: Harness) -> str:
    before, after = old.files.get(path), new.files.get(path)
    header = f"diff --git a/{path} b/{path}\n"
    modes = ["100755" if path in h.executable else "100644" for h in (old, new)]
    if before is None:
        header += f"new file mode {modes[1]}\n"
    elif after is None:
        header += f"deleted file mode {modes[0]}\n"
    elif modes[0] != modes[1]:
        header += f"old mode {modes[0]}\nnew mode {modes[1]}\n"
    try:
        texts = [(data or b"").decode().splitlines(keepends=True) for data in (before, after)]
    except UnicodeDecodeError:
        return header + f"Binary files a/{path} and b/{path} differ\n"
    names = "/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}"
    lines = difflib.unified_diff(texts[0], texts[1], names[0], names[1])
    return header + "".join(x if x.endswith("\n") else x + "\n\\ No newline at end of file\n" for x in lines)
