"""How much a request may hold, and its JSON decoded within those limits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from calipers.server.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one request may hold."""

    body: int = 512 << 20  # bytes
    rows: int = 2_000_000  # of one aggregation
    depth: int = 64  # objects and lists inside each other


LIMITS: Final = Limits()
BAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the strict decoder says of what it cannot read."""


def too_large(limits: Limits) -> Refusal:
    """The refusal of a body of too many bytes; the connection ends, as what is left of it is not read."""
    wrong = f"body: it is too large; expected at most {limits.body:,} bytes"
    return Refusal(413, "too_large", wrong, headers={"connection": "close"})


def too_deep(limits: Limits) -> Refusal:
    """The refusal of JSON that is nested beyond the limit."""
    return Refusal(400, "too_deep", f"body: it is nested too deeply; expected a depth of at most {limits.depth}")


def decode(body: bytes, limits: Limits) -> Any:
    """The JSON value of a body, NaN and Infinity taken as numbers; a `Refusal` for what is none, or too deep."""
    try:
        found = msgspec.json.decode(body)
    except BAD:
        found = decode_loosely(body, limits)
        if isinstance(found, Refusal):
            return found
    return too_deep(limits) if deeper([found], limits.depth) else found


def decode_loosely(body: bytes, limits: Limits) -> Any:
    """The same as Python reads JSON; slower, and without a look at the depth."""
    right = "expected a JSON object"
    try:
        found = json.loads(body.decode())
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        wrong, right = f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text"
    except UnicodeEncodeError:
        wrong, right = "half of a surrogate pair stands alone", "expected whole characters"
    except json.JSONDecodeError as error:
        wrong = f"it is not JSON ({error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno})"
    except RecursionError:
        return too_deep(limits)
    except ValueError:  # an integer of thousands of digits
        wrong, right = "a number is out of range", "expected an integer of at most 64 bits"
    else:
        return found
    return Refusal(400, "bad_json", f"body: {wrong}; {right}")


def deeper(values: Iterable[Any], depth: int) -> bool:
    """Whether some value holds more than that many objects and lists inside each other, itself included.

    >>> deeper([[[1]]], 2), deeper([[[[1]]]], 2), deeper([1], 0)
    (False, True, False)
    """
    level = [value for value in values if isinstance(value, (dict, list))]
    for _ in range(depth):
        if not level:
            return False
        inner = (held for value in level for held in (value.values() if isinstance(value, dict) else value))
        level = [value for value in inner if isinstance(value, (dict, list))]
    return bool(level)
