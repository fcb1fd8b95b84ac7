"""A harness without one of its components, for each of them: what leave-one-out removal tries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from harnesses.edit import with_changes
from harnesses.harness import Harness
from harnesses.tree import HarnessError, Tree, harness_from_files

HEADING = re.compile(r"#{1,6} ")
SLUG_WORDS = 4
SPARED: Mapping[str, JsonValue] = {  # what a scaffold shows or does beyond calling the model, and its absence
    "scaffold.observation.text": "none",
    "scaffold.observation.image": False,
    "scaffold.screenshots_kept": 0,
    "scaffold.history": "none",
    "scaffold.finish_check": False,
}


@dataclass(frozen=True)
class Removal:
    """`name` is short and made of letters, digits and `-`; `what` is in words; `tree` is what is left."""

    name: str
    what: str
    tree: Tree


def removals(harness: Harness) -> Iterator[Removal]:
    """Every component taken away alone, in this order: parts of the observation and of the scaffold, hooks, tools (with
    their notes and programs), notes, sections of the prompt, packages, hosts. What would leave no valid harness, or no
    other one, is left out."""
    for name, what, changes in _edits(harness):
        try:
            tree = _without_orphans(harness, with_changes(harness, changes))
            left = harness_from_files(tree)
        except HarnessError:
            continue
        if left.id != harness.id:
            yield Removal(name, what, tree)


def sections(text: str) -> list[str]:
    """Markdown in the pieces that a reader sees: a heading with all below it, else a paragraph."""
    found: list[str] = []
    headed = False
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if HEADING.match(paragraph) or not found or not headed:
            found.append(paragraph)
            headed = bool(HEADING.match(paragraph))
        else:
            found[-1] += f"\n\n{paragraph}"
    return found


def _edits(harness: Harness) -> Iterator[tuple[str, str, dict[str, JsonValue]]]:
    """(name, in words, changes for `with_changes`) of each removal, valid or not."""
    scaffold = harness.scaffold.model_dump(mode="json")
    for field, absent in SPARED.items():
        now: JsonValue = scaffold
        for part in field.split(".")[1:]:
            now = now[part] if isinstance(now, dict) else None
        if now != absent:
            words = field.removeprefix("scaffold.").replace(".", " ").replace("_", " ")
            yield _slug(words), f"{field} ({now} → {absent})", {field: absent}
    hooks = scaffold["hooks"]
    for at, hook in enumerate(hooks):
        rest = [other for number, other in enumerate(hooks) if number != at]
        yield (
            _slug(f"hook {hook['entry'].rpartition('/')[2]}"),
            f"the {hook['at']} hook {hook['entry']}",
            {"scaffold.hooks": rest},
        )
    for tool in harness.tools:
        yield _slug(f"tool {tool.name}"), f"the tool {tool.name}", {f"tools.{tool.name}": False}
    for note in harness.prompt.notes:
        yield _slug(f"note {note}"), f"the note on {note}", {f"prompt.notes.{note}": None}
    for file, text in (("system", harness.prompt.system), ("task", harness.prompt.task)):
        parts = sections(text)
        for at, part in enumerate(parts):
            rest_of_it = "\n\n".join(other for number, other in enumerate(parts) if number != at) + "\n"
            first = " ".join(re.findall(r"\w+", part)[:SLUG_WORDS])
            if len(parts) > 1 and "{instruction}" not in part:
                yield (
                    _slug(f"{file} {at + 1} {first}"),
                    f"{file}.md, section {at + 1}: {first} ...",
                    {f"prompt.{file}": rest_of_it},
                )
    for kind, packages in (("pip", harness.environment.pip), ("apt", harness.environment.apt)):
        for package in packages:
            kept = [other for other in packages if other != package]
            yield _slug(f"{kind} {package}"), f"the {kind} package {package}", {f"environment.{kind}": list(kept)}
    for host in harness.environment.allowlist:
        hosts: list[JsonValue] = [other for other in harness.environment.allowlist if other != host]
        network = {} if hosts else {"environment.network": "none"}
        yield _slug(f"host {host}"), f"the host {host}", {"environment.allowlist": hosts, **network}


def _without_orphans(harness: Harness, tree: Tree) -> Tree:
    """`tree` without the programs that the whole harness called and that nothing in what is left calls."""
    gone = _programs(harness) - _programs(harness_from_files(tree))
    return Tree({path: data for path, data in tree.items() if path not in gone}, tree.executable - gone)


def _programs(harness: Harness) -> set[str]:
    return {tool.entry for tool in harness.tools if tool.entry} | {hook.entry for hook in harness.scaffold.hooks}


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
