"""What the body of one request may hold, and the refusal of one that holds more, or is not JSON.

A worker reads bodies too, and starts without a web framework.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from calipers.formats.format import BAD


@dataclass(frozen=True, slots=True)
class ServerRefusal:
    """An answer that is none."""

    status: int
    code: str
    message: str
    detail: Any = None  # FastAPI's own, for clients that look for it
    headers: Mapping[str, str] | None = None

    def body(self) -> bytes:
        """The body of the answer."""
        more = {} if self.detail is None else {"detail": self.detail}
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}, **more}, enc_hook=str)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The most that one request may hold."""

    body: int = 512 << 20  # bytes
    rows: int = 2_000_000  # of one aggregation
    depth: int = 64  # objects and lists inside each other


LIMITS: Final = BodyLimits()


def too_large(limits: BodyLimits) -> ServerRefusal:
    """The refusal of a body of too many bytes; the connection ends, as what is left of it is not read."""
    wrong = f"body: it is too large; expected at most {limits.body:,} bytes"
    return ServerRefusal(413, "too_large", wrong, headers={"connection": "close"})


def too_deep(limits: BodyLimits) -> ServerRefusal:
    """The refusal of JSON that is nested beyond the limit."""
    return ServerRefusal(400, "too_deep", f"body: it is nested too deeply; expected a depth of at most {limits.depth}")


def decode(body: bytes, limits: BodyLimits) -> Any:
    """The JSON value of a body, NaN and Infinity taken as numbers; a `ServerRefusal` for what is none, or too deep."""
    try:
        value = msgspec.json.decode(body)
    except BAD:
        value = decode_loosely(body, limits)
        if isinstance(value, ServerRefusal):
            return value
    return too_deep(limits) if deeper([value], limits.depth) else value


def decode_loosely(body: bytes, limits: BodyLimits) -> Any:
    """The same as Python reads JSON; slower, and without a look at the depth."""
    right = "expected a JSON object"
    try:
        value = json.loads(body.decode())
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        wrong, right = f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text"
    except UnicodeEncodeError:
        wrong, right = "half of a surrogate pair appears alone", "expected whole characters"
    except json.JSONDecodeError as error:
        wrong = f"it is not JSON ({error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno})"
    except RecursionError:
        return too_deep(limits)
    except ValueError:  # an integer of thousands of digits
        wrong, right = "a number is out of range", "expected an integer of at most 64 bits"
    else:
        return value
    return ServerRefusal(400, "bad_json", f"body: {wrong}; {right}")


def deeper(values: Iterable[Any], depth: int) -> bool:
    """Whether some value holds more than that many objects and lists inside each other, itself included.

    >>> deeper([[[1]]], 2), deeper([[[[1]]]], 2), deeper([1], 0)
    (False, True, False)
    """
    level = [value for value in values if isinstance(value, (dict, list))]
    for _ in range(depth):
        if not level:
            return False
        inner = (item for value in level for item in (value.values() if isinstance(value, dict) else value))
        level = [value for value in inner if isinstance(value, (dict, list))]
    return bool(level)
