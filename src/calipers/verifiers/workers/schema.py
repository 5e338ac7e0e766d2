"""What runs in the worker process of `json_schema`: the package jsonschema, which never fetches anything.

This text is sent there and loads nothing of Calipers. Patterns in a schema are `re`'s and may take for ever; whoever
asked does not wait so long.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

DEPTH = 64
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def prepare() -> None:
    """Load what takes long."""
    validator('{"type": "object"}')


class TooDeep(Exception):
    """A value that nobody should walk through."""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """``{"schema": what is wrong}`` for a schema alone; with a text, the JSON in it and whether that is valid."""
    schema = json.dumps(question["schema"])
    wrong = fault(schema)
    if wrong or "text" not in question:
        return {"schema": wrong}
    try:
        values = read(question["text"], question["block"])
    except (TooDeep, RecursionError):
        values = []
    if not values:
        return {"schema": ""}
    try:
        valid = next(validator(schema).iter_errors(values[0]), None) is None
    except OverflowError:  # a number beyond every float, where a schema needs one: multipleOf
        valid = False
    return {"schema": "", "value": values[0], "valid": valid}


def read(text: str, block: str) -> list[Any]:
    """The JSON that a text is, or its block, or that begins at its first brace or bracket: a list of it, or of none."""
    decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
    for whole in (text, block):
        with suppress(ValueError):
            return [shallow(decoder.decode(whole.strip()))]
    if start := re.search(r"[{[]", text):
        with suppress(ValueError):
            return [shallow(decoder.raw_decode(text, start.start())[0])]
    return []


def shallow(value: Any) -> Any:
    """The value, unless it is nested too deeply."""
    layer = [value]
    for _ in range(DEPTH):
        inner = [part.values() if isinstance(part, dict) else part for part in layer if isinstance(part, (dict, list))]
        layer = [part for parts in inner for part in parts]
        if not layer:
            return value
    raise TooDeep


@lru_cache(maxsize=256)
def fault(schema: str) -> str:
    """What is wrong with a schema; "" for a good one."""
    bad_schema = import_module("jsonschema").SchemaError
    nowhere = import_module("referencing").exceptions.Unresolvable
    content = json.loads(schema)
    if not isinstance(content, (dict, bool)):
        return "it is not an object"
    if isinstance(content, dict) and not isinstance(content.get("$schema", ""), str):
        return "$schema is not text"
    try:
        checker = validator(schema)
        checker.check_schema(content)
        for reference in references(content):
            checker._resolver.lookup(reference)
        for _ in checker.iter_errors(None):  # a schema that is itself comes to no end with any value
            pass
    except bad_schema as error:
        path = "/".join(map(str, error.absolute_path)) or "the schema"
        return f"{path}: {error.message}"[:200]
    except nowhere as error:
        return f"$ref {error.ref!r:.100} cannot be resolved; nothing is downloaded"
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    return ""


@lru_cache(maxsize=256)
def validator(schema: str) -> Any:
    """The validator of a schema, by the draft it names, else by that of 2020-12."""
    of = import_module("jsonschema.validators").validator_for
    known, content = import_module("jsonschema_specifications").REGISTRY, json.loads(schema)
    # With a registry given, nothing outside it is looked for: the package's own would ask the network.
    return of(content, default=of({"$schema": DRAFT}))(content, registry=known)


def references(schema: Any) -> list[str]:
    """Every ``$ref`` of a schema; none where parts of it have an ``$id``, to which references may be relative."""
    refs, waiting = [], [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part is not schema and isinstance(part.get("$id"), str):
                return []
            if isinstance(part.get("$ref"), str):
                refs.append(part["$ref"])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return refs


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is not a number")
    return value
