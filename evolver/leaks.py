"""Finds lines that an edit of a harness adds and that carry one task rather than a way of working.

Three things count: the id of a task, of any split; words of an instruction or of its criteria (six in a row, or a whole
short instruction); and values of one task: names of its files, quoted texts, codes, answers. What three families of
tasks share is no task's own, and what all instances of a family have in their checks is its wording, not a value.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import normalize

from devset.extracts import text_of
from devset.families import families
from devset.task import Task

WORDS = 6  # in a row
FEWEST_WORDS = 4  # of an instruction that is shorter
SHARED = 3  # families
SHOWN = 80  # characters
FEWEST_TELLING = 3  # words of a phrase that are none of these
PLAIN = "a all an and are as at be by for from in into is it its of on or that the this to with"
PLAIN_WORDS = frozenset(PLAIN.split())
JOINED = re.compile(r"[^\W_]+(?:[-_.@][^\W_]+)*")
QUOTED = re.compile(r"'([^'\n]{3,200})'|\"([^\"\n]{3,200})\"")
EXTENSION = re.compile(r"-[a-z0-9]{1,5}$")
Phrase = tuple[str, ...]


@dataclass(frozen=True)
class Leak:
    """One added line (1 is the first; 0 is the file's name), and what it carries, in words for its author."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}, {f'line {self.line}' if self.line else 'its name'}: carries {self.what}"


class Leaks:
    """What the tasks of `dev` and of `held_out` give away. An author is never told what of `held_out` was found."""

    def __init__(self, dev: Sequence[Task], held_out: Sequence[Task] = (), ids: Iterable[str] = ()) -> None:
        tasks = [*dev, *held_out]
        self._ids = {_plain(name) for name in (*ids, *(task.id for task in tasks))}
        self._families = {_plain(name) for name in (*families(), *(task.family for task in tasks))}
        self._dev_ids = {_plain(task.id) for task in dev}
        phrases = {task.id: set(_phrases(task)) for task in tasks}
        values = _values_of(tasks)
        self._phrases, self._values = _own(tasks, phrases), _own(tasks, values)
        shown = {task.id for task in dev}
        self._shown_phrases = set().union(*(phrases[name] for name in shown))
        self._shown_values = set().union(*(values[name] for name in shown))
        self._lengths = sorted({len(phrase) for phrase in self._phrases}, reverse=True)

    def added(self, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[Leak]:
        """What the lines of `new` carry that are nowhere in `old` (path → bytes), by path and line."""
        known = {line for data in old.values() for line in _lines(data)}
        found: list[Leak] = []
        for path, data in sorted(new.items()):
            lines = [(n, line) for n, line in enumerate(_lines(data), start=1) if line not in known]
            named = [] if path in old else [(0, path)]
            found += self._in(path, [*named, *lines])
        return found

    def _in(self, path: str, lines: Sequence[tuple[int, str]]) -> Iterator[Leak]:
        """At most one leak a line."""
        told: set[int] = set()
        for number, line in lines:
            what = self._token(line, numbers=not path.endswith(".toml"))
            if what is not None:
                told.add(number)
                yield Leak(path, number, what)
        words = [(number, word) for number, line in lines for word in _words(line)]
        for at, (number, _) in enumerate(words):
            hit = next(
                (p for n in self._lengths if (p := tuple(w for _, w in words[at : at + n])) in self._phrases), None
            )
            if hit is not None and number not in told:
                told.add(number)
                yield Leak(path, number, self._said(hit, self._shown_phrases, " ".join(hit), "the words"))

    def _token(self, line: str, *, numbers: bool) -> str | None:
        for token, written in _tokens(line):
            name, _, number = token.rpartition("-")
            if token in self._ids or (name in self._families and len(number) == 4 and number.isdigit()):
                return f"the id of a task ({written!r})" if token in self._dev_ids else "the id of a task"
            if token in self._values and (numbers or not token.isdigit()):
                return self._said(token, self._shown_values, written, "a value")
        return None

    def _said(self, hit: str | Phrase, shown: set[str] | set[Phrase], text: str, what: str) -> str:
        return f"{what} of one task of dev ({text[:SHOWN]!r})" if hit in shown else f"{what} of a task that is held out"


def _own(tasks: Sequence[Task], found: Mapping[str, set[str] | set[Phrase]]) -> set[str | Phrase]:
    """What fewer than `SHARED` families have."""
    of: dict[str | Phrase, set[str]] = defaultdict(set)
    for task in tasks:
        for one in found[task.id]:
            of[one].add(task.family)
    return {one for one, names in of.items() if len(names) < SHARED}


def _phrases(task: Task) -> Iterator[Phrase]:
    for text in (task.instruction, *(c.description for c in task.rubric.criteria)):
        words = _words(text)
        for at in range(len(words) - WORDS + 1):
            if len(set(words[at : at + WORDS]) - PLAIN_WORDS) >= FEWEST_TELLING:
                yield words[at : at + WORDS]
        if FEWEST_WORDS <= len(words) < WORDS:
            yield words
        yield from (quoted for quoted in map(_words, _quotes(text)) if 1 < len(quoted) < WORDS)


def _values_of(tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Task id → the tokens that are values of it: names of its files, and what instances of its family differ in."""
    tokens = {task.id: _value_tokens(_told(task)) for task in tasks}
    instances = Counter(task.family for task in tasks)
    common = Counter((task.family, token) for task in tasks for token in tokens[task.id])
    found: dict[str, set[str]] = {}
    for task in tasks:
        paths = _value_tokens([path.rpartition("/")[2] for path in (*task.exec_files, *task.gt_files)])
        n = instances[task.family]
        differ = {token for token in tokens[task.id] if n > 1 and common[task.family, token] < n}
        found[task.id] = differ | {token for token in paths if common[task.family, token] < max(n, 2)}
    return found


def _told(task: Task) -> list[str]:
    """The texts of a task that hold its values and answers."""
    steps = [step.command for step in task.oracle.terminal or ()]
    steps += [step.text or "" for step in task.oracle.gui or ()]
    truth = [text_of(data) or "" for data in task.gt_files.values()]
    return [task.instruction, task.check, *task.exec_files, *task.gt_files, *steps, *truth]


def _value_tokens(texts: Iterable[str]) -> set[str]:
    return {token for text in texts for token, _ in _tokens(text) if _is_a_value(token)}


def _is_a_value(token: str) -> bool:
    """Whether a token has the shape of one: a name of several parts, a code, or a long number that is neither round
    nor a year."""
    plain = token.replace("-", "")
    if plain.isdecimal():
        round_or_year = plain.endswith("00") or int(plain[:18]).bit_count() == 1 or re.fullmatch("(19|20)..", plain)
        return len(plain) >= 4 and not round_or_year
    if len(plain) > 40:  # a digest
        return False
    return len(plain) >= 5 and ("-" in token or (any(map(str.isdigit, plain)) and any(map(str.isalpha, plain))))


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    """Words with what joins them, however it is joined, and without what may be a file's extension; each as written."""
    for found in JOINED.findall(normalize("NFKC", line)):
        token = _plain(found)
        yield token, found
        if token != (stem := EXTENSION.sub("", token)):
            yield stem, found


def _plain(name: str) -> str:
    return re.sub(r"[-_.@]+", "-", normalize("NFKC", name).casefold())


def _words(text: str) -> Phrase:
    return tuple(re.findall(r"[^\W_]+", normalize("NFKC", text).casefold()))


def _quotes(text: str) -> Iterator[str]:
    for one, other in QUOTED.findall(text):
        yield one or other


def _lines(data: bytes) -> list[str]:
    return data.decode(errors="replace").splitlines()
