"""A solver that has the instruction and nothing else: it sees no machine, and hands in what the words alone give.

It is a fixed set of rules, no language model: file names, folders, quoted texts and numbers are read out of the
instruction; each file that is named is handed in once, filled with what is quoted (else with the numbers that are
said), and once a folder of each name that is said to be one. A task that any of these tries solves asks for nothing
that has to be looked up. It never gives up, which is a control of its own (evolver.admission).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote

FOLDERS = ("Desktop", "Documents", "Downloads")
_QUOTED = re.compile(r"(?<!\w)['\"“‘](.+?)['\"”’](?!\w)")
_FILE = re.compile(r"(?<![\w./-])((?:[\w-]+/)*[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,5})(?!\w)")
_NAMED = re.compile(r"(?:called|named|name should be|folder) ([\w-]+-[\w-]+)(?![\w.])")
_NUMBER = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?)(?![\w-])")


@dataclass(frozen=True)
class HandIn:
    """One try: a shell script that only writes, and what it is called."""

    name: str
    script: str


def hand_ins(instruction: str) -> list[HandIn]:
    """The tries for an instruction, in the order of its words; none when it names no file and no folder."""
    spans = list(_QUOTED.finditer(instruction))
    texts = [found.group(1) for found in spans if not _FILE.fullmatch(found.group(1))]
    unquoted = "".join("·" if any(s.start() <= i < s.end() for s in spans) else c for i, c in enumerate(instruction))
    lines = texts or _NUMBER.findall(unquoted)
    said = [found.group(1) for found in spans if _FILE.fullmatch(found.group(1))] + _FILE.findall(unquoted)
    tries = [_file(_place(name, instruction), lines) for name in dict.fromkeys(said)]
    folders = dict.fromkeys(_NAMED.findall(unquoted))
    return [*tries, *(HandIn(f"folder {n}", f"mkdir -p ~/{quote(_place(n, instruction))}") for n in folders)]


def _file(path: str, lines: list[str]) -> HandIn:
    parent, shown = path.rpartition("/")[0] or ".", " ".join(quote(line) for line in lines)
    content = f"printf '%s\\n' {shown} >" if lines else ": >"
    return HandIn(f"file {path}", f"mkdir -p ~/{quote(parent)}; {content} ~/{quote(path)}")


def _place(name: str, instruction: str) -> str:
    """The path in the home: as it is said, else in the folder that is named next after it, else in the one before."""
    if name.split("/")[0] in FOLDERS:
        return name
    at = instruction.find(name)
    after = [(instruction.find(f, at + len(name)), f) for f in FOLDERS]
    before = [(-instruction.rfind(f, 0, at), f) for f in FOLDERS if instruction.rfind(f, 0, at) >= 0]
    nearest = min((found for found in after if found[0] >= 0), default=min(before, default=(0, "Desktop")))
    return f"{nearest[1]}/{name}"
