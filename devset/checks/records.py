"""Atomic checks of what programs keep as text: JSON documents, calendars and address books, shell profiles."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from devset.checks.home import Wrong, read_text

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def json_is(home: Path, *, path: str, expected: Json) -> str:
    """The whole document equals `expected`; the order of keys and the layout are free, types are not (1 is not "1")."""
    try:
        found = json.dumps(json.loads(read_text(home, path)), sort_keys=True)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"{path} is not JSON: {str(error)[:100]}") from error
    wanted = json.dumps(expected, sort_keys=True)
    if found != wanted:
        raise Wrong(f"{path} holds {found[:200]}, expected {wanted[:200]}")
    return f"{path} is the expected document"


def components_are(
    home: Path, *, path: str, kind: str, fields: Sequence[str], expected: Sequence[Sequence[str]]
) -> str:
    """The iCalendar (RFC 5545) or vCard (RFC 6350) file has exactly these components of `kind`, in any order.

    `expected` gives the values of `fields` per component. Parameters (`TEL;TYPE=CELL`), other fields and folding are
    free, but nothing may repeat or be cancelled. A VEVENT counts only inside a VCALENDAR, a VCARD only outside of
    everything.
    """
    within = ["VCALENDAR"] if kind == "VEVENT" else []
    components = _components(home, path, kind, within)
    if any({"RRULE", "RDATE"} & c.keys() or "CANCELLED" in c.get("STATUS", []) for c in components):
        raise Wrong(f"in {path} a {kind} repeats or is cancelled")
    found = sorted([";".join(c.get(f, [])) for f in fields] for c in components)
    wanted = sorted([*values] for values in expected)
    if found != wanted:
        strange = [c for c in found if c not in wanted] or [c for c in wanted if c not in found] or found
        raise Wrong(f"{path} has {len(found)} {kind}, expected {len(wanted)}; it differs in {str(strange[:2])[:200]}")
    return f"{path} has exactly the expected {len(wanted)} {kind}"


def _components(home: Path, path: str, kind: str, within: list[str]) -> list[dict[str, list[str]]]:
    """Field → its values, per component of `kind` that lies directly in `within` (outermost first)."""
    found: list[dict[str, list[str]]] = []
    opened: list[str] = []
    for line in re.sub(r"\n[ \t]", "", read_text(home, path)).split("\n"):
        head, _, value = line.partition(":")
        name = head.partition(";")[0].strip().upper()
        value = re.sub(r"\\([,;\\])", r"\1", value.strip())
        if name == "BEGIN":
            opened.append(value.upper())
            if opened == [*within, kind]:
                found.append({})
        elif name == "END":
            if not opened or opened.pop() != value.upper():
                raise Wrong(f"{path} ends {value[:40]!r}, which is not open")
        elif opened == [*within, kind] and name:
            found[-1].setdefault(name, []).append(value)
    if opened:
        raise Wrong(f"{path} never ends {opened[-1][:40]!r}")
    return found


def shell_variable(home: Path, *, path: str, variable: str, expected: str) -> str:
    """The shell profile exports the variable with this literal value: the last assignment counts.

    Read, never run: assignments, `export`, `declare -x` and `unset` outside of conditions, loops and functions; what a
    variable or a command would insert stays as written.
    """
    value, exported, depth = None, False, 0
    for line in read_text(home, path).split("\n"):
        for words in _commands(line):
            depth += (words[0] in _OPENS or "{" in words) - (words[0] in _CLOSES)
            if depth:
                continue
            if words[0] == "unset" and variable in words:
                value, exported = None, False
            exports = words[0] == "export" or words[:2] in (["declare", "-x"], ["typeset", "-x"])
            for word in words[1:] if exports else words:
                if not _ASSIGNMENT.match(word):
                    exported = exported or (exports and word == variable)
                    if not exports:
                        break
                elif word.partition("=")[0] == variable:
                    value, exported = word.partition("=")[2], exported or exports
    if value != expected or not exported:
        how = "exported" if exported else "not exported"
        raise Wrong(
            f"{path} leaves {variable} {how} with the value {str(value)[:80]!r}, expected {expected!r} exported"
        )
    return f"{path} exports {variable} as {expected!r}"


_OPENS = {"if", "case", "for", "while", "until", "select", "("}
_CLOSES = {"fi", "esac", "done", "}", ")"}


def _commands(line: str) -> list[list[str]]:
    """The words of each command of a line; a line that can't be split into words holds none."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set(";&|"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]
