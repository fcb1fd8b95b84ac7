"""What is wrong with a file of settings, in one line: the field's path, its value, and what was expected."""

from __future__ import annotations

import difflib
from typing import get_args, get_origin

from pydantic import BaseModel, ValidationError

SECRET_WORDS = ("key", "token", "secret", "password")


def faults(settings: type[BaseModel], error: ValidationError) -> str:
    """The first fault in words, and how many more there are; a misspelt name comes first, for it explains the rest."""
    found = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    lines = [_explain(settings, e["type"], e["loc"], e["input"], e["msg"]) for e in found]
    return lines[0] + (f" (and {len(lines) - 1} more)" if len(lines) > 1 else "")


def _explain(
    settings: type[BaseModel], kind: str, loc: tuple[int | str, ...], value: object, message: str
) -> str:  # fmt: skip
    field = ".".join(str(part) for part in _without_tags(settings, loc))
    if kind == "extra_forbidden":
        known = sorted({name for model in _models_at(settings, loc[:-1]) for name in model.model_fields})
        close = difflib.get_close_matches(str(loc[-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
        return f"unknown setting {field!r}; {hint}"
    if kind == "missing":
        return f"setting {field!r} is missing"
    text = message.removeprefix("Value error, ")
    if not field:
        return text
    return f"{field} = {_shown(field, value)}: {text[:1].lower()}{text[1:]}"


def _shown(field: str, value: object) -> str:
    secret = any(word in field.rsplit(".", 1)[-1] for word in SECRET_WORDS) or "@" in str(value)
    return "(hidden)" if secret else repr(value)[:80]


def _without_tags(settings: type[BaseModel], loc: tuple[int | str, ...]) -> list[int | str]:
    """A place as one writes it: pydantic puts the kind of a table, the tag of its union, into it."""
    return [part for at, part in enumerate(loc) if not _tagged(_models_at(settings, loc[:at]), part)]


def _models_at(settings: type[BaseModel], loc: tuple[int | str, ...]) -> list[type[BaseModel]]:
    """The tables that may stand at a place."""
    here = [settings]
    for part in loc:
        if not isinstance(part, int):
            inner = [m for model in here if part in model.model_fields for m in _models_in(_annotation(model, part))]
            here = inner or _tagged(here, part) or here
    return here


def _tagged(models: list[type[BaseModel]], part: int | str) -> list[type[BaseModel]]:
    return [m for m in models if "kind" in m.model_fields and part in get_args(_annotation(m, "kind"))]


def _annotation(model: type[BaseModel], field: str) -> object:
    return model.model_fields[field].annotation


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
