"""Skills as directories, which a person or a language model writes beside the families that are code.

    NAME/skill.toml            what it is, its slots, wordings, given files, criteria as atomic checks
    NAME/oracle.sh             the solution: each command follows a line `# step: <summary>`
    NAME/mutants/WHAT.sh       wrong solutions          NAME/equivalents/WHAT.sh   other right ones
    NAME/setup.sh              optional; runs in the home before the agent starts

`{{slot}}` stands for the value of a slot wherever there is text; alone, it keeps its type. Nothing of it is code that
runs here: slots come from a closed list (devset.forge.fills), checks from the library, scripts run in sandboxes alone.
`format.md` beside this file says it all to whoever writes one.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Annotated, Any

import tomlkit
from pydantic import Field, JsonValue, ValidationError, model_validator

from devset.checks import CHECKS
from devset.families.skill import Binding, Check, Family, Group, Post, Slot, SlotValue
from devset.forge.fills import SlotSpec, filled
from devset.task import Category, GuiStep, Strict, TerminalStep

SHIPPED = Path(__file__).parent / "shipped"
FORMAT = Path(__file__).parent / "format.md"
_STEP = "# step: "
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_HOME = re.compile(r"(Desktop|Documents|Downloads)(/[\w{}][\w{}. -]*)+")
_SCRIPTS = ("mutants", "equivalents")
_NAME = r"^[a-z][a-z0-9]*\.[a-z][a-z0-9-]*$"
TRIED = range(10**9, 10**9 + 20)  # seeds that every skill is bound with before it is taken
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Wording = Annotated[str, Field(pattern=r"\S")]
FileName = Annotated[str, Field(pattern=r"^\w[\w .-]*$", max_length=60)]
Script = Annotated[str, Field(min_length=1, max_length=4_000)]


class SkillError(ValueError):
    """A skill directory that can't be read; the message names file, field, value and what was expected."""


class CheckSpec(Strict):
    """An atomic check of the library and what fills its slots."""

    name: str
    slots: dict[str, JsonValue]

    @model_validator(mode="after")
    def _is_of_the_library(self) -> CheckSpec:
        if self.name not in CHECKS:
            raise ValueError(f"check {self.name!r} is not in the library: {', '.join(CHECKS)}")
        try:
            inspect.signature(CHECKS[self.name]).bind(None, **self.slots)
        except TypeError as error:
            raise ValueError(f"check {self.name!r}: {error}; it takes {signature(self.name)}") from None
        return self


class PostSpec(Strict):
    """One criterion: what must hold afterwards, in words and as checks."""

    criterion: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    description: Annotated[str, Field(min_length=1)]
    checks: Annotated[tuple[CheckSpec, ...], Field(min_length=1)]


class SkillSpec(Strict):
    """A skill as it is written: `path` is app / object / verb, `writes` is exhaustive, relative to the home."""

    name: Annotated[str, Field(pattern=_NAME, max_length=60)]
    title: Annotated[str, Field(min_length=1, max_length=80)]
    path: tuple[Word, Word, Word]
    group: Group = "files"
    category: Category
    apps: Annotated[tuple[Word | Annotated[str, Field(pattern=r"^libreoffice_\w+$")], ...], Field(min_length=1)]
    held_out: bool = False
    slots: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], SlotSpec], Field(min_length=1)]
    wordings: Annotated[tuple[Wording, ...], Field(min_length=2)]
    files: dict[str, str]
    writes: Annotated[tuple[str, ...], Field(min_length=1)]
    pre: tuple[CheckSpec, ...] = ()
    post: Annotated[tuple[PostSpec, ...], Field(min_length=1)]
    oracle: Annotated[tuple[TerminalStep, ...], Field(min_length=1)]
    gui: tuple[GuiStep, ...] = ()
    mutants: Annotated[dict[FileName, Script], Field(min_length=3)]
    equivalents: Annotated[dict[FileName, Script], Field(min_length=1)]
    setup: str = ""

    @model_validator(mode="after")
    def _names_what_it_has(self) -> SkillSpec:
        texts = [*self.wordings, *self.writes, *(text for pair in self.files.items() for text in pair)]
        scripts = [self.setup, *self.mutants.values(), *self.equivalents.values(), *(s.command for s in self.oracle)]
        if unknown := sorted({n for text in [*texts, *scripts] for n in _PLACE.findall(text)} - set(self.slots)):
            raise ValueError(f"{{{{{unknown[0]}}}}} is no slot; there are {', '.join(self.slots)}")
        if odd := next((one for one in self.wordings if "{{" in _PLACE.sub("", one)), None):
            raise ValueError(f"wording {odd!r:.80}: a slot is its name in braces, {{{{slot}}}}, and nothing else")
        for path in (*self.files, *self.writes):
            _at_home(path)
        if any("\n" in step.summary or f"\n{_STEP}" in f"\n{step.command}" for step in self.oracle):
            raise ValueError(f"oracle: a summary is one line, and no line of a command begins with {_STEP!r}")
        if said := sorted({n for w in self.wordings for n in _PLACE.findall(w) if self.slots[n].nonce}):
            raise ValueError(
                f"a wording says {{{{{said[0]}}}}}, which is a nonce: a secret is never in the instruction"
            )
        if len({frozenset(_PLACE.findall(wording)) for wording in self.wordings}) > 1:
            raise ValueError("every wording must say the same slots")
        return self


def signature(check: str) -> str:
    """What a check of the library takes, as text."""
    given = list(inspect.signature(CHECKS[check]).parameters.values())[1:]
    return f"{check}({', '.join(map(str, given))})"


def _at_home(path: str) -> str:
    """`path`, a template or filled. Raises ValueError where it does not lie below a folder of the home."""
    if not _HOME.fullmatch(path) or ".." in path:
        raise ValueError(f"path {path!r:.80} must lie below Desktop, Documents or Downloads")
    return path


def family_of(spec: SkillSpec) -> Family:
    """The skill as a family. Raises SkillError where its slots can't be filled."""
    family = Family(
        name=spec.name,
        title=spec.title,
        path=spec.path,
        group=spec.group,
        category=spec.category,
        apps=spec.apps,
        slots={name: Slot(one.type, one.nonce) for name, one in spec.slots.items()},
        bind=lambda rng: bound_spec(spec, rng),
        held_out=spec.held_out,
    )
    try:
        for seed in TRIED:
            family.instance(seed)
    except Exception as error:  # what an author wrote may fail in any way
        raise SkillError(f"skill {spec.name!r}, seed {seed}: {error}") from error
    return family


def bound_spec(spec: SkillSpec, rng: Random) -> Binding:
    """The skill with every slot filled. Raises ValueError where one can't be, or leads out of the home's folders."""
    slots = filled(spec.slots, rng)

    def text(template: str) -> str:
        return _PLACE.sub(lambda found: _as_text(slots[found[1]]), template)

    def checks(specs: tuple[CheckSpec, ...]) -> tuple[Check, ...]:
        return tuple(Check(one.name, {n: _value(v, slots) for n, v in one.slots.items()}) for one in specs)

    return Binding(
        slots=slots,
        wordings=tuple(_wording(one) for one in spec.wordings),
        files={_at_home(text(path)): _ended(text(content)) for path, content in spec.files.items()},
        writes=tuple(_at_home(text(path)) for path in spec.writes),
        pre=checks(spec.pre),
        post=tuple(Post(p.criterion, text(p.description), checks(p.checks)) for p in spec.post),
        terminal=tuple(TerminalStep(summary=text(s.summary), command=text(s.command)) for s in spec.oracle),
        gui=_gui(spec, text) if spec.gui else None,
        mutants={name: text(script) for name, script in spec.mutants.items()},
        equivalents={name: text(script) for name, script in spec.equivalents.items()},
        nonces={_as_text(slots[n]): text(one.shown_in) for n, one in spec.slots.items() if one.nonce},
        setup=text(spec.setup),
    )


def _gui(spec: SkillSpec, text: Any) -> tuple[GuiStep, ...]:
    return tuple(GuiStep.model_validate(_deep(step.model_dump(exclude_none=True), text)) for step in spec.gui)


def _deep(value: Any, text: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    return {name: _deep(inner, text) for name, inner in value.items()} if isinstance(value, dict) else value


def _value(value: JsonValue, slots: Mapping[str, SlotValue]) -> JsonValue:
    """A slot of a check: text with its places filled; a place alone becomes the value that it stands for."""
    if isinstance(value, str):
        alone = _PLACE.fullmatch(value)
        found = slots[alone[1]] if alone and alone[1] in slots else None
        if alone and found is not None:
            return list(found) if isinstance(found, tuple) else found
        return _PLACE.sub(lambda place: _as_text(slots[place[1]]), value)
    if isinstance(value, dict):
        return {str(_value(name, slots)): _value(inner, slots) for name, inner in value.items()}
    return [_value(inner, slots) for inner in value] if isinstance(value, list) else value


def _as_text(value: SlotValue) -> str:
    return "\n".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _ended(text: str) -> bytes:
    return (text if text.endswith("\n") or not text else f"{text}\n").encode()


def _wording(template: str) -> str:
    """The wording as families write it, for str.format: a slot in one pair of braces, any other brace doubled."""
    text, names = _PLACE.split(template)[::2], _PLACE.findall(template)
    literal = [one.replace("{", "{{").replace("}", "}}") for one in text]
    return literal[0] + "".join(f"{{{name}}}{after}" for name, after in zip(names, literal[1:], strict=True))


# --- directories -------------------------------------------------------------------------------------------------


def read_skills(folder: Path) -> Iterator[Family]:
    """The skills of a folder of skill directories, by name. Raises SkillError."""
    for path in sorted(folder.glob("*/skill.toml")):
        yield family_of(read_skill(path.parent))


def read_skill(path: Path) -> SkillSpec:
    """Raises SkillError for anything missing, unknown or out of range."""
    try:
        fields: dict[str, Any] = tomllib.loads((path / "skill.toml").read_bytes().decode())
        fields["oracle"] = _steps((path / "oracle.sh").read_bytes().decode())
        for kind in _SCRIPTS:
            fields[kind] = {p.stem: p.read_bytes().decode().strip("\n") for p in sorted(path.glob(f"{kind}/*.sh"))}
        if (path / "setup.sh").is_file():
            fields["setup"] = (path / "setup.sh").read_bytes().decode()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SkillError(f"{path}: can't be read: {error}") from error
    spec = parsed_skill(fields, str(path))
    if spec.name != path.name:
        raise SkillError(f"{path / 'skill.toml'}: name: got {spec.name!r}, expected the folder's name {path.name!r}")
    return spec


def parsed_skill(fields: object, source: str) -> SkillSpec:
    """`fields` as a skill; every fault is told, with `source` before it. Raises SkillError."""
    try:
        return SkillSpec.model_validate(fields)
    except ValidationError as error:
        told = [f"{'.'.join(map(str, one['loc'])) or 'skill'}: {one['msg']}" for one in error.errors()[:8]]
        raise SkillError(f"{source}: {'; '.join(told)}") from error


def write_skill(spec: SkillSpec, path: Path) -> None:
    """Writes the directory, which must not exist yet. What counts is what `read_skill` then finds in it: line ends
    around scripts and values that are null are not kept. Raises SkillError for a value that TOML can't hold."""
    path.mkdir(parents=True)
    outside = {"oracle", "setup", *_SCRIPTS}
    fields = spec.model_dump(mode="json", exclude=outside, exclude_none=True, exclude_defaults=True)
    try:
        (path / "skill.toml").write_text(tomlkit.dumps(fields), encoding="utf-8")
    except (TypeError, ValueError) as error:
        raise SkillError(f"{path / 'skill.toml'}: can't be written: {error}") from error
    steps = "".join(f"{_STEP}{step.summary}\n{step.command}\n\n" for step in spec.oracle)
    (path / "oracle.sh").write_text(steps, encoding="utf-8")
    if spec.setup:
        (path / "setup.sh").write_text(spec.setup, encoding="utf-8")
    for kind in _SCRIPTS:
        (path / kind).mkdir()
        for name, script in getattr(spec, kind).items():
            (path / kind / f"{name}.sh").write_text(f"{script}\n", encoding="utf-8")


def _steps(text: str) -> list[dict[str, str]]:
    blocks = ("\n" + text).split("\n" + _STEP)[1:]
    pairs = [block.partition("\n") for block in blocks]
    return [{"summary": summary, "command": command.strip("\n")} for summary, _, command in pairs]
