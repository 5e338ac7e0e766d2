"""JSON Lines, one row at a time: UTF-8, ended by newlines and by nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError

LONGEST_LINE: Final = 64 << 20  # bytes
BOM: Final = b"\xef\xbb\xbf"
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that may be half of a character


def json_lines(path: Path, digest: hashlib._Hash | None = None) -> Iterator[tuple[int, Any]]:
    """(line number, decoded row) for each line that is not blank; the bytes are added to the digest as they pass.

    Characters that other programs take for line ends, such as U+2028, are ordinary text. Blank lines
    count, a byte order mark does not. InputError names the line of what is not UTF-8 or not JSON.
    """
    with opened(path) as file:
        number = 0
        while line := _next(file, path, number + 1):
            number += 1
            if digest is not None:
                digest.update(line)
            if text := _decoded(line.removeprefix(BOM) if number == 1 else line, f"{path}:{number}"):
                yield number, _row(text, f"{path}:{number}")


def opened(path: Path) -> io.BufferedReader:
    """A regular file, opened to be read; InputError for anything else, such as a pipe that would never end."""
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise InputError.at(str(path), f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError.at(str(path), "is no regular file", "expected a file of tasks, one JSON object a line")
    return file


def _next(file: io.BufferedReader, path: Path, number: int) -> bytes:
    try:
        line = file.readline(LONGEST_LINE + 2)  # one more than the limit, and the newline
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None
    if len(line.rstrip(b"\n")) > LONGEST_LINE:
        wrong = f"the line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{path}:{number}", wrong, "expected one task a line")
    return line


def _decoded(line: bytes, place: str) -> str:
    try:
        return line.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise InputError.at(place, f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None


def decoded(text: str) -> Any:
    """What a JSON text says; ValueError where a key stands twice in one of its objects."""
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        again = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise ValueError(f"key {json.dumps(again, ensure_ascii=False)} stands twice")
    return found


def _row(text: str, place: str) -> Any:
    try:
        row = decoded(text)
        if _HALF.search(text):
            json.dumps(row, ensure_ascii=False).encode()
        return row
    except UnicodeEncodeError:
        wrong = "malformed json: a text holds half a character"  # no file and no request can hold it
        raise InputError.at(place, wrong, "expected whole ones, such as \\ud83d\\ude00") from None
    except json.JSONDecodeError as error:
        raise InputError.at(place, f"malformed json: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise InputError.at(place, "malformed json: it is nested too deeply") from None
    except ValueError as error:  # a key twice, an integer of thousands of digits
        raise InputError.at(place, f"malformed json: {error}") from None
