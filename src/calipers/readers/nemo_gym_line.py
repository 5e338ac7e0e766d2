"""One line of a NeMo Gym file: what it holds, and what is wrong with one that holds no row."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from calipers.readers.files import BOM, Source, line_blocks
from calipers.readers.jsonl import UNREADABLE, LineError, unreadable
from calipers.readers.nemo_gym_schema import FAILURE, KILLED
from calipers.readers.twice import Doubled, said_twice, twice

_DICT = msgspec.json.Decoder(dict[str, Any])
BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder says of a line it cannot read."""


def check_once(number: int, line: bytes) -> None:
    """LineError for a line with a key twice: at its top, or in the usage of its response."""
    try:
        key = twice(line, ("response.usage",))
    except RecursionError as error:
        raise LineError(number, *unreadable(error)) from None
    if key is not None:
        raise LineError(number, *said_twice(key))


def decoded(number: int, line: bytes) -> dict[str, Any]:
    """A line as Python reads JSON; LineError for one that is no row, or has a key twice."""
    odd = Doubled()
    try:
        row = json.loads(line.decode(), object_pairs_hook=odd)
        json.dumps(row, ensure_ascii=False).encode()
    except UNREADABLE as error:
        raise LineError(number, *unreadable(error)) from None
    except ValueError:  # an integer of thousands of digits
        raise LineError(number, "a number is out of range", "expected an integer of at most 64 bits") from None
    if not isinstance(row, dict):
        raise LineError(number, "a rollout is no object", "expected one JSON object a line")
    if odd.found:
        check_once(number, line)
    return row


def records(source: Source) -> list[dict[str, Any]]:
    """The rows of a source as they are, but failed attempts: for code that wants to see them all."""
    source.head = source.head.removeprefix(BOM)
    lines, found = 0, []
    try:
        for block in line_blocks(source.readinto):
            for number, line in enumerate(bytes(block).split(b"\n"), lines + 1):
                if line.strip():
                    row = _quickly(number, line)
                    if row.get(FAILURE) is None and not row.get(KILLED):
                        found.append(row)
            lines += bytes(block).count(b"\n")
    except LineError as error:
        raise error.at(source.path) from None
    return found


def _quickly(number: int, line: bytes) -> dict[str, Any]:
    try:
        row: dict[str, Any] = _DICT.decode(line)
    except BAD:
        return decoded(number, line)
    return row
