"""Turns a validation error into lines of `field: expected ..., got ...`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import BaseModel, JsonValue, ValidationError

Schema = dict[str, JsonValue]


def explain(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    """One line per field of `model` that is wrong."""
    schema = cast(Schema, model.model_json_schema())
    for problem in error.errors(include_url=False):
        loc = problem["loc"]
        field = ".".join(map(str, loc)) or "(whole file)"
        if problem["type"] == "extra_forbidden":
            known = _known_fields(schema, loc[:-1])
            near = difflib.get_close_matches(str(loc[-1]), known, 1)
            yield f"{field}: unknown field" + (
                f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            )
        elif problem["type"] == "value_error":
            yield f"{field}: {problem['ctx']['error']}" if loc else f"{problem['ctx']['error']}"
        elif problem["type"] == "missing":
            yield f"{field}: missing; expected {expected(schema, loc)}"
        else:
            yield f"{field}: expected {expected(schema, loc)}, got {problem['input']!r}"


def expected(schema: Schema, loc: Sequence[int | str]) -> str:
    """In words: what the field at `loc` takes."""
    return _describe(_at(schema, loc))


def _at(root: Schema, loc: Sequence[int | str]) -> Schema:
    here = root
    for step in loc:
        here = _resolve(root, here)
        if isinstance(step, str):
            below = cast(dict[str, Schema], here.get("properties", {})).get(step, here.get("additionalProperties"))
        else:
            prefix = cast(list[Schema], here.get("prefixItems", []))
            below = prefix[step] if step < len(prefix) else here.get("items")
        here = below if isinstance(below, dict) else {}
    return _resolve(root, here)


def _resolve(root: Schema, schema: Schema) -> Schema:
    options = schema.get("anyOf")
    if isinstance(options, list):  # an optional field: describe what it is when it is there
        schema = next((cast(Schema, o) for o in options if cast(Schema, o).get("type") != "null"), schema)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        definitions = cast(dict[str, Schema], root["$defs"])
        return definitions[reference.rpartition("/")[2]]
    return schema


def _known_fields(root: Schema, loc: Sequence[int | str]) -> list[str]:
    return list(cast(dict[str, Schema], _at(root, loc).get("properties", {})))


def _describe(schema: Schema) -> str:
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(repr(v) for v in cast(list[JsonValue], schema.get("enum", [schema.get("const")])))
    if kind in ("integer", "number"):
        return ("an integer" if kind == "integer" else "a number") + _range(schema)
    if kind == "string":
        return "text" + (f" matching {schema['pattern']}" if "pattern" in schema else "")
    if kind == "array":
        least, most = schema.get("minItems"), schema.get("maxItems")
        return f"a list of {least} values" if least is not None and least == most else "a list"
    return {"boolean": "true or false", "object": "a table"}.get(str(kind), "another value")


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" in {low:g}..{high:g}" if isinstance(low, float) else f" in {low}..{high}"
    limits = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return " " + " and ".join(f"{sign} {schema[name]}" for name, sign in limits.items() if name in schema)
