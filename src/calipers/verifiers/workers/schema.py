"""The module of the worker process of `json_schema`: the package jsonschema, without any downloads.

The text of this file is sent to the process and imports nothing of Calipers. Patterns in a schema are searched by `re`
and may run forever; the caller ends the process after its time limit.
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
    """Import the libraries."""
    validator('{"type": "object"}')


class TooDeep(Exception):
    """A value that is nested too deeply."""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """``{"schema": error}`` for a schema alone ("" for a valid one); with a text, also the JSON in it.

    The JSON is under ``value``, and whether it fits the schema under ``valid``; both are absent without JSON.
    """
    schema = json.dumps(question["schema"])
    problem = fault(schema)
    if problem or "text" not in question:
        return {"schema": problem}
    try:
        values = read(question["text"], question["block"])
    except (TooDeep, RecursionError):
        values = []
    if not values:
        return {"schema": ""}
    try:
        valid = next(validator(schema).iter_errors(values[0]), None) is None
    except OverflowError:  # an integer beyond the largest float, for multipleOf
        valid = False
    return {"schema": "", "value": values[0], "valid": valid}


def read(text: str, block: str) -> list[Any]:
    """The JSON value of a text, of its block, or from its first brace or bracket on, in a list; else an empty list."""
    decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
    for candidate in (text, block):
        with suppress(ValueError):
            return [shallow(decoder.decode(candidate.strip()))]
    if start := re.search(r"[{[]", text):
        with suppress(ValueError):
            return [shallow(decoder.raw_decode(text, start.start())[0])]
    return []


def shallow(value: Any) -> Any:
    """The value; TooDeep if it is nested too deeply."""
    layer = [value]
    for _ in range(DEPTH):
        inner = [part.values() if isinstance(part, dict) else part for part in layer if isinstance(part, (dict, list))]
        layer = [part for parts in inner for part in parts]
        if not layer:
            return value
    raise TooDeep


@lru_cache(maxsize=256)
def fault(schema: str) -> str:
    """The error of a schema; "" for a valid one."""
    bad_schema = import_module("jsonschema").SchemaError
    unresolvable = import_module("referencing").exceptions.Unresolvable
    content, reference = json.loads(schema), ""
    if not isinstance(content, (dict, bool)):
        return "it is not an object"
    if isinstance(content, dict) and not isinstance(content.get("$schema", ""), str):
        return "$schema is not text"
    try:
        checker = validator(schema)
        checker.check_schema(content)
        for reference in references(content):
            checker._resolver.lookup(reference)
        for _ in checker.iter_errors(None):  # RecursionError for a schema that refers to itself without end
            pass
    except bad_schema as error:
        path = "/".join(map(str, error.absolute_path)) or "the schema"
        return f"{path}: {error.message}"[:200]
    except unresolvable as error:
        return f"$ref {reference or error.ref!r:.100} cannot be resolved; nothing is downloaded"
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    return ""


@lru_cache(maxsize=256)
def validator(schema: str) -> Any:
    """The validator of a schema, for the draft that it names, else for 2020-12."""
    validator_for = import_module("jsonschema.validators").validator_for
    registry, content = import_module("jsonschema_specifications").REGISTRY, json.loads(schema)
    # An explicit registry is the only source of references; the default one would download them.
    return validator_for(content, default=validator_for({"$schema": DRAFT}))(content, registry=registry)


def references(schema: Any) -> list[str]:
    """Every ``$ref`` and ``$dynamicRef`` of a schema; none if parts of it have an ``$id``, the base of references."""
    refs, waiting = [], [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part is not schema and isinstance(part.get("$id"), str):
                return []
            refs += [part[key] for key in ("$ref", "$dynamicRef") if isinstance(part.get(key), str)]
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
