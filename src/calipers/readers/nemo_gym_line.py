"""One line of a NeMo Gym file: what it holds, and what is wrong with one that holds no row."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.readers.files import BOM, Source, line_blocks
from calipers.readers.jsonl import LineError
from calipers.readers.nemo_gym_schema import FAILURE, KILLED
from calipers.rollouts.column import Ints

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_DICT = msgspec.json.Decoder(dict[str, Any])
BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder says of a line it cannot read."""


def decoded(number: int, line: bytes) -> dict[str, Any]:
    """A line as Python reads JSON; LineError for one that is no row."""
    right = "expected one JSON object a line"
    try:
        row = json.loads(line.decode())
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise LineError(number, f"byte {error.start + 1} of the line is not UTF-8", "expected UTF-8 text") from None
    except UnicodeEncodeError:
        raise LineError(number, "half of a surrogate pair stands alone", "expected whole characters") from None
    except RecursionError:
        raise LineError(number, "it is nested too deeply", "expected a flat object") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise LineError(number, "two values on one line", right) from None
        wrong = f"not JSON ({error.msg.removesuffix(' at')} at column {error.colno})"
        raise LineError(number, wrong, right) from None
    except ValueError:  # an integer of thousands of digits
        raise LineError(number, "a number is out of range", "expected an integer of at most 64 bits") from None
    if not isinstance(row, dict):
        raise LineError(number, "a rollout is no object", right)
    return row


def one_a_line(octets: NDArray[np.uint8], ends: Ints, rows: int) -> bool:
    """Whether each line is exactly one object: the decoder also takes two on a line, and one on two."""
    if not len(octets) or octets[0] != _OPEN:
        return not rows and not len(octets)
    whole = octets[-1] == _NEWLINE
    before = octets[ends - 1]
    if _RETURN in before[-1:]:
        before = np.where(before == _RETURN, octets[ends - 2], before)
    after = octets[(ends[:-1] if whole else ends) + 1]
    # inside an object no newline stands between } and {, so here each one parts two objects
    return bool((before == _CLOSE).all() and (after == _OPEN).all()) and rows == len(ends) + (not whole)


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
