"""A skill family: typed slots, what it reads and writes, its checks and oracles; `instance(seed)` fills the slots.

The shape follows the skill schema that composed tasks need: `pre` and `post` are atomic checks with their slots filled,
`writes` is exhaustive, and every other given file is the frame, which a criterion of its own watches.
"""

from __future__ import annotations

import pprint
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from pydantic import JsonValue

from devset.checks.home import sha256
from devset.task import Category, Criterion, GuiStep, OpenApp, Oracle, Rubric, Task, TerminalStep, task_hash

Group = Literal["files", "text", "sheets", "documents", "crossing", "pages", "records"]
SlotType = Literal["name", "path", "text", "number", "code", "count", "names", "numbers"]
SlotValue = str | int | float | tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """A parameter of a family. A `nonce` is random per instance and never occurs in the instruction."""

    type: SlotType
    nonce: bool = False


@dataclass(frozen=True)
class Check:
    """An atomic check of `devset.checks` with its slots filled."""

    name: str
    slots: Mapping[str, JsonValue]


def check(name: str, **slots: JsonValue) -> Check:
    return Check(name, slots)


@dataclass(frozen=True)
class Post:
    """One criterion: what must hold afterwards, in words and as checks that must all hold."""

    criterion: str
    description: str
    checks: tuple[Check, ...]


def lines_post(criterion: str, description: str, path: str, lines: Sequence[str]) -> Post:
    """The commonest criterion: the file at `path` has exactly these lines."""
    return Post(criterion, description, (check("text_is", path=path, expected=[*lines]),))


@dataclass(frozen=True)
class Binding:
    """A family with every slot filled.

    `wordings` are templates over the slots; the one used is drawn with the slots. `files` are put into the home.
    `nonces` maps each secret value to the one file that may show it ("" when only the grader knows it). `mutants` are
    wrong solutions and `equivalents` other right ones, as shell scripts by name. `infeasible` is the reason why
    nobody can do what is asked: what is right then is to find that out, change nothing and give up with a reason.
    """

    slots: Mapping[str, SlotValue]
    wordings: tuple[str, ...]
    files: Mapping[str, bytes]
    writes: tuple[str, ...]
    post: tuple[Post, ...]
    mutants: Mapping[str, str]
    equivalents: Mapping[str, str]
    terminal: tuple[TerminalStep, ...] | None = None
    gui: tuple[GuiStep, ...] | None = None
    reads: tuple[str, ...] = ()
    pre: tuple[Check, ...] = ()
    nonces: Mapping[str, str] = field(default_factory=dict)
    open: tuple[OpenApp, ...] = ()
    setup: str = ""
    infeasible: str = ""


@dataclass(frozen=True)
class Family:
    """A skill that yields any number of tasks.

    `path` is app / object / verb. `gui_names` are the accessible names that the GUI oracle relies on. `gui_only` is
    the reason why no terminal oracle exists (empty when there is one). `held_out` families are never trained on.
    """

    name: str
    title: str
    path: tuple[str, str, str]
    group: Group
    category: Category
    apps: tuple[str, ...]
    slots: Mapping[str, Slot]
    bind: Callable[[Random], Binding]
    requires_pip: tuple[str, ...] = ()
    gui_names: tuple[str, ...] = ()
    gui_only: str = ""
    held_out: bool = False

    def binding(self, seed: int) -> Binding:
        """Slots, files, checks and oracles of instance `seed`; the same seed always gives the same bytes."""
        return self.bind(Random(f"{self.name}/{seed}"))

    def instance(self, seed: int) -> Task:
        """The task with this seed; `split` is left open."""
        made = self.binding(seed)
        if set(made.slots) != set(self.slots):
            raise ValueError(f"family {self.name!r}: slots must be {sorted(self.slots)}, got {sorted(made.slots)}")
        wording = Random(f"{self.name}/{seed}/wording").choice(made.wordings)
        post = (*made.post, *frame(made.files, made.writes))
        oracle = Oracle(terminal=made.terminal, gui=made.gui, reason=made.infeasible)
        task = Task(
            id=f"{self.name}-{seed:04d}",
            hash="",
            family=self.name,
            seen_in_training=not self.held_out,
            instruction=wording.format(**made.slots),
            category=self.category,
            apps=self.apps,
            channels=oracle.channels,
            feasible=not made.infeasible,
            rubric=Rubric(criteria=tuple(Criterion(id=p.criterion, description=p.description) for p in post)),
            open=made.open,
            exec_files=dict(made.files),
            setup=made.setup,
            check=check_program(post),
            oracle=oracle,
            requires_pip=self.requires_pip,
            source=f"devset.families: {self.name}, seed {seed}",
        )
        return task.model_copy(update={"hash": task_hash(task)})


def frame(files: Mapping[str, bytes], writes: Collection[str]) -> tuple[Post, ...]:
    """The criterion that watches the given files which are not to be written; none where there are no such files."""
    others: dict[str, JsonValue] = {p: sha256(data) for p, data in files.items() if p not in writes}
    if not others:
        return ()
    return (Post("frame", "Every other given file is as it was.", (check("unchanged", files=others),)),)


def check_program(post: tuple[Post, ...]) -> str:
    """The program that grades: criterion → atomic checks, selected and filled, no logic of its own."""
    criteria = {p.criterion: [(c.name, dict(c.slots)) for c in p.checks] for p in post}
    table = pprint.pformat(criteria, width=110, sort_dicts=False)
    return f"from devset.checks import grade\n\ngrade(\n    {table.replace(chr(10), chr(10) + '    ')}\n)\n"


def steps(*pairs: tuple[str, str]) -> tuple[TerminalStep, ...]:
    """(summary, command) pairs as a terminal oracle."""
    return tuple(TerminalStep(summary=summary, command=command) for summary, command in pairs)


def fields_of(template: str) -> set[str]:
    """The slot names that a wording mentions."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}
